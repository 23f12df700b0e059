"""Searches small enough to work out on paper, and the rules for noise, masks and temperature."""

from __future__ import annotations

import importlib
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightzero_lite.search import TreeCache, gumbel_muzero_policy, muzero_policy
from lightzero_lite.search.gumbel import halving_schedule
from lightzero_lite.search.puct import sample_visited
from lightzero_lite.types import RecurrentOutput, RootOutput, SearchOutput
from tests.plain_search import TabularModel, TabularSearch

PB_C_INIT, PB_C_BASE = 1.25, 19652.0
SILENT: dict[str, Any] = {"dirichlet_fraction": 0.0, "temperature": 0.0}


def model_of(edges: dict[tuple[int, int], tuple[int, float]], values: list[float]) -> TabularModel:
    """Build a model of equal priors; edges that are not named stay in place and earn 0."""
    num_states, num_actions = len(values), 1 + max(action for _, action in edges)
    transition = np.repeat(np.arange(num_states)[:, None], num_actions, axis=1)
    reward = np.zeros((num_states, num_actions), np.float32)
    for (state, action), (following, earned) in edges.items():
        transition[state, action], reward[state, action] = following, earned
    logits = np.zeros((num_states, num_actions), np.float32)
    return TabularModel(transition, reward, logits, np.array(values, np.float32))


def search(policy: Any, model: TabularModel, **arguments: Any) -> SearchOutput:
    """Search from state 0, as many roots as arguments[num_roots] says."""
    states = np.zeros(arguments.pop("num_roots", 1), np.int64)
    arguments = {"rng": np.random.default_rng(0)} | arguments
    step = TabularSearch(model, states, arguments["num_simulations"])
    return policy(model.root(states), step, **arguments)


# --- MuZero -------------------------------------------------------------------------------------

# The tree that docs/search.md draws: states are the nodes' numbers.
DOCS_MODEL = model_of(
    {(0, 0): (1, 0.0), (0, 1): (2, 1.0), (2, 0): (3, 0.0), (2, 1): (4, 0.5)},
    values=[0.0, 0.5, 0.0, 0.5, 0.5],
)


def test_four_simulations_worked_on_paper() -> None:
    trees = TreeCache()
    answer = search(
        muzero_policy, DOCS_MODEL, num_simulations=4, discount=1.0, trees=trees, **SILENT
    )
    assert answer.visit_counts.tolist() == [[1, 3]]
    assert answer.action_weights.tolist() == [[0.25, 0.75]]
    assert answer.qvalues.tolist() == [[0.5, 1.5]]
    assert answer.root_value.tolist() == [1.0]  # (0 + 0.5 + 1 + 1.5 + 2) / 5
    assert answer.action.tolist() == [1]
    nodes = trees.get(1, 4, 2).nodes[0]
    assert nodes["parent"].tolist() == [-1, 0, 0, 2, 2]
    assert nodes["action"].tolist() == [-1, 0, 1, 0, 1]
    assert nodes["visits"].tolist() == [5, 1, 3, 1, 1]
    assert nodes["value"].tolist() == [1.0, 0.5, 0.5, 0.5, 0.5]
    assert nodes["qvalue"].tolist()[1:] == [0.5, 1.5, 0.5, 1.0]


def test_sign_of_a_two_ply_chain() -> None:
    """One action a node: 0.1 -> (reward 0.5) 0.2 -> (reward 0.25) 0.4, players in turn."""
    chain = model_of({(0, 0): (1, 0.5), (1, 0): (2, 0.25)}, values=[0.1, 0.2, 0.4])
    answer = search(muzero_policy, chain, num_simulations=2, discount=-1.0, **SILENT)
    # Returns at node 1: 0.2 and 0.25 - 0.4 = -0.15; at the root 0.1, 0.5 - 0.2 and 0.5 + 0.15.
    assert answer.root_value[0] == pytest.approx((0.1 + 0.3 + 0.65) / 3, abs=1e-6)
    assert answer.qvalues[0, 0] == pytest.approx(0.5 - (0.2 - 0.15) / 2, abs=1e-6)


@pytest.mark.parametrize("policy", [muzero_policy, gumbel_muzero_policy])
@pytest.mark.parametrize(("discount", "best"), [(-1.0, 1), (1.0, 0)])
def test_an_opponent_who_may_win_is_avoided(policy: Any, discount: float, best: int) -> None:
    """After action 0 the other side may win or lose; after action 1 nothing happens.

    Alone (discount 1) action 0 is worth its better reply; against an opponent that reply is his.
    """
    game = model_of(
        {(0, 0): (1, 0.0), (0, 1): (2, 0.0), (1, 0): (3, 1.0), (1, 1): (3, -1.0)}, values=[0.0] * 4
    )
    options = SILENT if policy is muzero_policy else {"gumbel_scale": 0.0}
    answer = search(policy, game, num_simulations=60, discount=discount, **options)
    assert answer.action.tolist() == [best]
    assert answer.action_weights[0, best] > 0.5
    assert answer.qvalues[0, 0] * discount > 0.3  # the mover at node 1 finds the reply worth 1


BANDIT_REWARDS = [0.1, 0.9, 0.4, 0.8]
BANDIT_LOGITS = [0.0, -1.0, 1.0, 0.5]


def bandit(rewards: list[float], logits: list[float], root_value: float) -> TabularModel:
    """Return a model whose root is a bandit: with discount 0, q is the reward for good."""
    edges = {(0, action): (1, reward) for action, reward in enumerate(rewards)}
    edges |= {(1, action): (1, rewards[0]) for action in range(len(rewards))}
    model = model_of(edges, values=[root_value, 0.0])
    model.prior_logits[0] = logits
    return model


@pytest.mark.parametrize("q_transform", ["tree_min_max", "parent_and_siblings"])
def test_puct_on_a_bandit(q_transform: str) -> None:
    """With discount 0 the visits follow from the formula and the rewards alone."""
    model = bandit(BANDIT_REWARDS, BANDIT_LOGITS, root_value=0.3)
    rewards = model.reward[0].astype(float)
    prior = np.exp(BANDIT_LOGITS) / np.exp(BANDIT_LOGITS).sum()
    visits, returns = np.zeros(4), [float(np.float32(0.3))]
    for _ in range(40):
        seen = visits > 0
        known = list(rewards[seen])
        if q_transform == "parent_and_siblings":
            known.append(sum(returns) / len(returns))
        elif visits.max() > 1:
            known.append(rewards[0])  # edges below the root earn rewards[0]
        low, high = min(known, default=0.0), max(known, default=0.0)
        q_norm = np.where(seen, (rewards - low) / max(high - low, 1e-8), 0.0)
        pb_c = PB_C_INIT + math.log((len(returns) + PB_C_BASE + 1) / PB_C_BASE)
        score = q_norm + math.sqrt(len(returns)) * pb_c * prior / (1 + visits)
        visits[score.argmax()] += 1
        returns.append(rewards[score.argmax()])
    answer = search(
        muzero_policy, model, num_simulations=40, discount=0.0, q_transform=q_transform, **SILENT
    )
    assert answer.visit_counts[0].tolist() == visits.tolist()
    assert answer.root_value[0] == pytest.approx(np.mean(returns), abs=1e-6)
    assert (visits > 0).sum() >= 3


def test_exploration_constants_enter_as_c1_and_c2() -> None:
    model = bandit(BANDIT_REWARDS, BANDIT_LOGITS, root_value=0.3)
    counts = [
        search(muzero_policy, model, num_simulations=40, discount=0.0, **options, **SILENT)
        for options in (
            {"pb_c_init": 0.0, "pb_c_base": 1e12},
            {"pb_c_init": 50.0},
            {"pb_c_base": 1.0},
        )
    ]
    greedy, by_prior, growing = (answer.visit_counts[0] for answer in counts)
    # Hardly any exploration: by prior until two q values differ, then the better one for good.
    assert greedy.tolist() == [0, 0, 1, 39]
    prior = np.exp(BANDIT_LOGITS) / np.exp(BANDIT_LOGITS).sum()
    np.testing.assert_allclose(by_prior / 40, prior, atol=0.03)
    default = search(muzero_policy, model, num_simulations=40, discount=0.0, **SILENT)
    assert growing.max() < default.visit_counts.max()  # log(n + 2) > 0 explores more


def test_a_range_below_value_delta_max_is_not_stretched() -> None:
    """Three rewards that differ by 0.001: noise to a wide range, decisive to a narrow one."""
    model = bandit([0.5, 0.501, 0.5], [0.0] * 3, root_value=0.5)
    arguments: dict[str, Any] = {"num_simulations": 30, "discount": 0.0} | SILENT
    narrow = search(muzero_policy, model, value_delta_max=1e-8, **arguments)
    wide = search(muzero_policy, model, value_delta_max=0.1, **arguments)
    assert narrow.visit_counts[0, 1] > 20
    assert wide.visit_counts.tolist() == [[10, 10, 10]]


# --- Masks, noise, temperature ------------------------------------------------------------------


@pytest.mark.parametrize("policy", [muzero_policy, gumbel_muzero_policy])
def test_the_one_legal_action_takes_every_visit(policy: Any) -> None:
    model = bandit(BANDIT_REWARDS, BANDIT_LOGITS, root_value=0.3)
    illegal = np.array([[True, True, False, True]])
    answer = search(policy, model, num_simulations=9, discount=0.9, invalid_actions=illegal)
    assert answer.action.tolist() == [2]
    assert answer.visit_counts.tolist() == [[0, 0, 9, 0]]
    assert answer.action_weights.tolist() == [[0.0, 0.0, 1.0, 0.0]]
    assert answer.qvalues[0, [0, 1, 3]].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("policy", [muzero_policy, gumbel_muzero_policy])
def test_a_root_without_a_legal_action_is_refused(policy: Any) -> None:
    model = bandit(BANDIT_REWARDS, BANDIT_LOGITS, root_value=0.3)
    illegal = np.array([[False] * 4, [True] * 4])
    with pytest.raises(ValueError, match=r"illegal at roots \[1\]"):
        search(policy, model, num_simulations=2, discount=1.0, num_roots=2, invalid_actions=illegal)


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        (muzero_policy, {"num_simulations": 0}, "num_simulations is 0"),
        (muzero_policy, {"temperature": -0.5}, "temperature is -0.5"),
        (muzero_policy, {"q_transform": "minmax"}, "'minmax'"),
        (gumbel_muzero_policy, {"num_simulations": 0}, "num_simulations is 0"),
        (gumbel_muzero_policy, {"max_num_considered_actions": 0}, "actions is 0"),
    ],
)
def test_numbers_out_of_range_are_refused(policy: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        search(policy, DOCS_MODEL, **({"num_simulations": 2, "discount": 1.0} | options))


@pytest.mark.parametrize("policy", [muzero_policy, gumbel_muzero_policy])
@pytest.mark.parametrize("field", ["reward", "value", "prior_logits"])
def test_a_model_that_answers_in_the_wrong_shape_is_refused(policy: Any, field: str) -> None:
    right = RecurrentOutput(*(np.zeros(s, np.float32) for s in (3, 3, (3, 2))))
    wrong = right._replace(**{field: getattr(right, field)[:-1]})
    root = RootOutput(right.prior_logits, right.value)
    with pytest.raises(ValueError, match=r"recurrent_fn must return"):
        policy(
            root,
            lambda *_: wrong,
            num_simulations=3,
            discount=1.0,
            rng=np.random.default_rng(0),
        )


def root_priors(num_roots: int, **options: Any) -> Any:
    """Return the roots' priors after the noise, [B, A]."""
    trees = TreeCache()
    model = bandit(BANDIT_REWARDS, BANDIT_LOGITS, root_value=0.3)
    search(
        muzero_policy, model, num_simulations=1, discount=1.0, num_roots=num_roots, trees=trees,
        **options,
    )  # fmt: skip
    return trees.get(num_roots, 1, 4).edges["prior"][:, 0]


@pytest.mark.parametrize("alpha", [0.3, 1.0, 10.0])
def test_root_noise_is_dirichlet_over_the_legal_actions(alpha: float) -> None:
    num_roots = 20_000
    illegal = np.zeros((num_roots, 4), np.bool_)
    illegal[:, 1] = True
    noise = root_priors(
        num_roots, invalid_actions=illegal, dirichlet_alpha=alpha, dirichlet_fraction=1.0
    )
    np.testing.assert_allclose(noise.sum(axis=1), 1.0, rtol=1e-12)
    assert (noise[:, 1] == 0.0).all()
    legal = noise[:, [0, 2, 3]]
    variance = (3 - 1) / (3**2 * (3 * alpha + 1))
    np.testing.assert_allclose(legal.mean(axis=0), 1 / 3, atol=4 * math.sqrt(variance / num_roots))
    np.testing.assert_allclose(legal.var(axis=0), variance, rtol=0.06)


def test_root_noise_is_mixed_in_at_its_fraction() -> None:
    prior = root_priors(1, dirichlet_fraction=0.0)
    noise = root_priors(1, dirichlet_fraction=1.0, rng=np.random.default_rng(5))
    mixed = root_priors(1, dirichlet_fraction=0.25, rng=np.random.default_rng(5))
    np.testing.assert_allclose(mixed, 0.75 * prior + 0.25 * noise, rtol=1e-12)
    np.testing.assert_allclose(prior[0], np.exp(BANDIT_LOGITS) / np.exp(BANDIT_LOGITS).sum())
    assert np.abs(noise - prior).max() > 0.05


def test_a_tiny_alpha_puts_all_noise_on_one_action() -> None:
    noise = root_priors(200, dirichlet_alpha=1e-4, dirichlet_fraction=1.0)
    assert np.isfinite(noise).all()
    assert (noise.max(axis=1) > 0.99).mean() > 0.95
    assert set(noise.argmax(axis=1)) == {0, 1, 2, 3}


@pytest.mark.parametrize(("temperature", "exponent"), [(1.0, 1.0), (0.5, 2.0), (4.0, 0.25)])
def test_actions_are_drawn_from_the_visits_to_the_power_of_one_over_temperature(
    temperature: float, exponent: float
) -> None:
    num_roots = 20_000
    answer = search(
        muzero_policy,
        bandit(BANDIT_REWARDS, BANDIT_LOGITS, root_value=0.3),
        num_simulations=12,
        discount=0.0,
        num_roots=num_roots,
        dirichlet_fraction=0.0,
        temperature=temperature,
    )
    weights = answer.visit_counts[0].astype(float) ** exponent
    expected = weights / weights.sum()
    found = np.bincount(answer.action, minlength=4) / num_roots
    np.testing.assert_allclose(found, expected, atol=4 * math.sqrt(0.25 / num_roots))
    assert expected.max() - expected.min() > 0.05


def test_a_draw_falls_into_the_share_of_a_visited_action() -> None:
    """Shares 0, 3/4, 1/4, 0: the edges of the unit interval must not reach the outer two."""
    draw = np.array([0.0, np.nextafter(0.75, 0.0), 0.75, np.nextafter(1.0, 0.0)])
    visit_counts = np.repeat(np.array([[0, 3, 1, 0]], np.int32), 4, axis=0)
    action = np.full(4, -1, np.int32)
    sample_visited(1.0, visit_counts, draw, action)
    assert action.tolist() == [1, 1, 2, 2]
    sample_visited(4000.0, visit_counts, draw, action)  # 3^4000 overflows, (3/3)^4000 does not
    assert action.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("temperature", [0.0, 1e-3])
def test_low_temperatures_play_the_most_visited_action(temperature: float) -> None:
    options = {"dirichlet_fraction": 0.0, "temperature": temperature}
    model = bandit([0.1, 0.3, 0.9, 0.2], [0.0] * 4, root_value=0.3)
    answer = search(muzero_policy, model, num_simulations=30, discount=0.0, num_roots=50, **options)
    assert set(answer.action) == {2}
    assert (answer.visit_counts > 0).sum() > 100  # other actions were visited too


def test_temperature_zero_takes_the_lowest_of_equally_visited_actions() -> None:
    level = bandit([0.0] * 3, [0.0] * 3, root_value=0.0)
    answer = search(muzero_policy, level, num_simulations=6, discount=0.0, **SILENT)
    assert answer.visit_counts.tolist() == [[2, 2, 2]]
    assert answer.action.tolist() == [0]
    four = search(muzero_policy, level, num_simulations=4, discount=0.0, **SILENT)
    assert four.visit_counts.tolist() == [[2, 1, 1]]  # PUCT breaks its ties the same way


# --- Gumbel -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_considered", "num_simulations", "row"),
    [
        (1, 4, [0, 1, 2, 3]),
        (2, 5, [0, 0, 1, 1, 2]),
        # two phases of four simulations: 4 actions once, 2 actions twice
        (4, 8, [0, 0, 0, 0, 1, 1, 2, 2]),
        # three phases of 5.3: 6 actions once, 3 once more, 2 twice more, then 2 in turn
        (6, 16, [0] * 6 + [1] * 3 + [2, 2, 3, 3] + [4, 4, 5]),
        # fewer simulations than actions: each of the best once
        (16, 3, [0, 0, 0]),
    ],
)
def test_halving_schedule_by_hand(num_considered: int, num_simulations: int, row: Any) -> None:
    schedule = halving_schedule(num_considered, num_simulations)
    assert schedule.shape == (num_considered + 1, num_simulations)
    assert schedule[num_considered].tolist() == row


def test_halving_on_a_bandit() -> None:
    """Four actions, eight simulations: everyone once, then the better two twice more."""
    model = bandit([0.0, 1.0, 0.25, 0.75], [0.0] * 4, root_value=0.5)
    answer = search(gumbel_muzero_policy, model, num_simulations=8, discount=0.0, gumbel_scale=0.0)
    assert answer.visit_counts.tolist() == [[1, 3, 1, 3]]
    assert answer.action.tolist() == [1]
    # sigma = (50 + 3) * 0.1 * q over q already in [0, 1]
    weights = np.exp(5.3 * np.array([0.0, 1.0, 0.25, 0.75]))
    np.testing.assert_allclose(answer.action_weights[0], weights / weights.sum(), rtol=1e-5)


def test_one_gumbel_simulation_by_hand() -> None:
    """The action of the greatest gumbel + logit is taken once; the others are completed."""
    model = bandit([0.0, 3.0], [0.5, 0.0], root_value=1.0)
    gumbel = np.array([[0.2, 1.0]])
    answer = search(gumbel_muzero_policy, model, num_simulations=1, discount=0.0, gumbel=gumbel)
    assert answer.visit_counts.tolist() == [[0, 1]]  # 0.5 + 0.2 < 0.0 + 1.0
    assert answer.action.tolist() == [1]
    assert answer.qvalues.tolist() == [[0.0, 3.0]]
    # v_mix = (1 + 1 * 3) / 2 = 2 < 3: completed q is (2, 3), stretched to (0, 1), times 5.1
    odds = math.exp(0.5) / math.exp(0.0 + 5.1)
    np.testing.assert_allclose(answer.action_weights[0], [odds / (1 + odds), 1 / (1 + odds)], 1e-5)


def test_only_the_best_by_gumbel_and_logit_are_considered() -> None:
    model = bandit([0.9, 0.8, 0.7, 0.6, 0.5], [0.0] * 5, root_value=0.0)
    gumbel = np.array([[0.0, 3.0, 1.0, 2.0, -1.0]])
    answer = search(
        gumbel_muzero_policy, model, num_simulations=20, discount=0.0, gumbel=gumbel,
        max_num_considered_actions=3,
    )  # fmt: skip
    assert (answer.visit_counts[0] > 0).tolist() == [False, True, True, True, False]


def test_gumbel_noise_samples_actions_without_replacement_from_the_prior() -> None:
    """One simulation takes argmax(gumbel + logits): an exact draw from the softmax."""
    num_roots = 20_000
    model = bandit([0.0] * 4, BANDIT_LOGITS, root_value=0.0)
    answer = search(
        gumbel_muzero_policy, model, num_simulations=1, discount=0.0, num_roots=num_roots
    )
    found = np.bincount(answer.action, minlength=4) / num_roots
    prior = np.exp(BANDIT_LOGITS) / np.exp(BANDIT_LOGITS).sum()
    np.testing.assert_allclose(found, prior, atol=4 * math.sqrt(0.25 / num_roots))


def test_gumbel_scale_multiplies_the_noise() -> None:
    model = bandit(BANDIT_REWARDS, BANDIT_LOGITS, root_value=0.3)
    gumbel = np.array([[4.0, 0.0, 0.0, 0.0]])
    actions = [
        search(
            gumbel_muzero_policy, model, num_simulations=1, discount=0.0, gumbel=gumbel,
            gumbel_scale=scale,
        ).action[0]
        for scale in (1.0, 0.1, 0.0)
    ]  # fmt: skip
    assert actions == [0, 2, 2]  # 4.0 > 1 but 0.4 < 1: the greatest logit is action 2's


# --- Documentation ------------------------------------------------------------------------------


def test_functions_and_tests_that_the_page_names_exist() -> None:
    root = Path(__file__).resolve().parents[1]
    page = (root / "docs" / "search.md").read_text()
    tests = "".join(path.read_text() for path in (root / "tests").glob("test_search*.py"))
    named_tests = set(re.findall(r"`(test_\w+)`", page))
    assert len(named_tests) > 20
    assert [name for name in named_tests if f"def {name}(" not in tests] == []
    functions = set(re.findall(r"`(tree|puct|gumbel)\.(\w+)`", page))
    assert len(functions) > 12
    for module, name in functions:
        assert hasattr(importlib.import_module(f"lightzero_lite.search.{module}"), name), name
