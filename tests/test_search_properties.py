"""What holds of every search: kernels against the plain search, and what a caller may rely on."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightzero_lite.search import TreeCache, gumbel_muzero_policy, muzero_policy
from lightzero_lite.types import RecurrentOutput, SearchOutput
from tests.plain_search import PlainGumbel, PlainMuZero, TabularModel, TabularSearch

MAX_EXAMPLES = int(os.environ.get("SEARCH_EXAMPLES", "100"))
many_examples = settings(max_examples=MAX_EXAMPLES, deadline=None)
Policy = Callable[..., SearchOutput]
both_policies = pytest.mark.parametrize(
    "policy", [muzero_policy, gumbel_muzero_policy], ids=["muzero", "gumbel"]
)
# What makes each policy's answer a function of the model alone.
DETERMINISTIC: dict[Policy, dict[str, Any]] = {
    muzero_policy: {"dirichlet_fraction": 0.0, "temperature": 0.0},
    gumbel_muzero_policy: {"gumbel_scale": 0.0},
}


@dataclass
class Problem:
    """A random batch of searches."""

    model: TabularModel
    states: Any  # [B]
    invalid_actions: Any  # [B, A]
    num_simulations: int
    discount: float
    seed: int

    def search(self, policy: Policy, **arguments: Any) -> SearchOutput:
        """Run a policy on the batch."""
        return policy(
            self.model.root(self.states),
            TabularSearch(self.model, self.states, self.num_simulations),
            num_simulations=self.num_simulations,
            discount=self.discount,
            invalid_actions=self.invalid_actions,
            **({"rng": np.random.default_rng(self.seed)} | arguments),
        )


@st.composite
def problems(draw: st.DrawFn, num_roots: int | None = None) -> Problem:
    num_actions = draw(st.integers(1, 20))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    model = TabularModel.random(seed, num_actions)
    if draw(st.booleans()):
        model.prior_logits[:] = 0.0  # equal priors: the lowest index must win the ties
    if draw(st.booleans()):
        model.reward[:] = model.value[:] = 0.0  # equal q values: nothing but ties and priors
    num_roots = num_roots or draw(st.integers(1, 3))
    invalid_actions = rng.random((num_roots, num_actions)) < draw(st.sampled_from([0.0, 0.4, 0.9]))
    invalid_actions[np.arange(num_roots), rng.integers(num_actions, size=num_roots)] = False
    return Problem(
        model=model,
        states=rng.integers(len(model.value), size=num_roots),
        invalid_actions=invalid_actions,
        num_simulations=draw(st.integers(1, 64)),
        discount=draw(st.sampled_from([0.997, 0.5, 0.0, -1.0, -0.9])),
        seed=seed,
    )


@many_examples
@given(
    problems(),
    st.sampled_from(["tree_min_max", "parent_and_siblings"]),
    st.sampled_from([1e-8, 0.01, 2.0]),
    st.booleans(),
)
def test_muzero_equals_the_plain_search(
    problem: Problem, q_transform: str, value_delta_max: float, has_noise: bool
) -> None:
    trees = TreeCache()
    answer = problem.search(
        muzero_policy,
        q_transform=q_transform,
        value_delta_max=value_delta_max,
        dirichlet_fraction=0.25 if has_noise else 0.0,
        temperature=0.0,
        trees=trees,
    )
    num_roots, num_actions = answer.visit_counts.shape
    tree = trees.get(num_roots, problem.num_simulations, num_actions)
    for row, state in enumerate(problem.states):
        # The noise is the search's own; all that follows from it is recomputed.
        root_prior = tree.edges["prior"][row, 0].tolist() if has_noise else None
        plain = PlainMuZero(
            problem.model, state, problem.discount, problem.invalid_actions[row].tolist(),
            q_transform, root_prior=root_prior, value_delta_max=value_delta_max,
        ).run(problem.num_simulations)  # fmt: skip
        assert answer.visit_counts[row].tolist() == plain.visit_counts
        assert answer.action[row] == plain.action
        np.testing.assert_allclose(answer.action_weights[row], plain.action_weights, rtol=1e-6)
        assert answer.root_value[row] == np.float32(plain.root_value)
        assert answer.qvalues[row].tolist() == np.float32(plain.qvalues).tolist()


@many_examples
@given(problems(), st.integers(1, 20), st.booleans())
def test_gumbel_equals_the_plain_search(
    problem: Problem, max_considered: int, has_noise: bool
) -> None:
    rng = np.random.default_rng(problem.seed)
    gumbel = rng.gumbel(size=problem.invalid_actions.shape) * has_noise
    answer = problem.search(
        gumbel_muzero_policy, max_num_considered_actions=max_considered, gumbel=gumbel
    )
    for row, state in enumerate(problem.states):
        plain = PlainGumbel(
            problem.model, state, problem.discount, problem.invalid_actions[row].tolist(),
            gumbel[row].tolist(), max_considered,
        ).run(problem.num_simulations)  # fmt: skip
        assert answer.visit_counts[row].tolist() == plain.visit_counts
        assert answer.action[row] == plain.action
        np.testing.assert_allclose(
            answer.action_weights[row], plain.action_weights, rtol=1e-5, atol=1e-30
        )
        assert answer.root_value[row] == np.float32(plain.root_value)
        assert answer.qvalues[row].tolist() == np.float32(plain.qvalues).tolist()


@both_policies
@given(problems())
@settings(max_examples=30, deadline=None)
def test_visits_are_the_simulations_and_avoid_illegal_actions(
    policy: Policy, problem: Problem
) -> None:
    answer = problem.search(policy)  # with the noise of the defaults
    assert (answer.visit_counts.sum(axis=1) == problem.num_simulations).all()
    assert (answer.visit_counts[problem.invalid_actions] == 0).all()
    assert (answer.action_weights[problem.invalid_actions] == 0.0).all()
    np.testing.assert_allclose(answer.action_weights.sum(axis=1), 1.0, rtol=1e-6)
    rows = np.arange(len(answer.action))
    assert (answer.visit_counts[rows, answer.action] > 0).all()


@both_policies
@pytest.mark.parametrize("row", [0, 17, 63])
def test_a_root_alone_equals_the_same_root_among_63_others(policy: Policy, row: int) -> None:
    problem = make_problem(num_roots=64)
    together = problem.search(policy, **DETERMINISTIC[policy])
    problem.states = problem.states[row : row + 1]
    problem.invalid_actions = problem.invalid_actions[row : row + 1]
    alone = problem.search(policy, **DETERMINISTIC[policy])
    for of_all, of_one in zip(together, alone, strict=True):
        assert of_all[row].tolist() == of_one[0].tolist()
    # The batch is not one root 64 times.
    assert len(np.unique(together.visit_counts, axis=0)) > 10


@both_policies
@pytest.mark.parametrize("num_simulations", [1, 2, 25])
def test_one_call_a_simulation_for_all_roots(policy: Policy, num_simulations: int) -> None:
    model = TabularModel.random(seed=0, num_actions=3)
    states = np.arange(5)
    step = TabularSearch(model, states, num_simulations)
    policy(
        model.root(states),
        step,
        num_simulations=num_simulations,
        discount=0.9,
        rng=np.random.default_rng(0),
    )
    assert step.new_nodes == list(range(1, num_simulations + 1))


@both_policies
def test_a_reused_tree_answers_as_a_new_one(policy: Policy) -> None:
    trees = TreeCache()
    first, second = make_problem(seed=1), make_problem(seed=2)
    second.invalid_actions = first.invalid_actions[::-1].copy()
    fresh = second.search(policy)
    earlier = first.search(policy, trees=trees)
    kept = [array.copy() for array in earlier]
    again = second.search(policy, trees=trees)
    for a, b in zip(again, fresh, strict=True):
        assert a.tolist() == b.tolist()
    for a, b in zip(earlier, kept, strict=True):
        assert a.tolist() == b.tolist()  # an answer is the caller's own, not a view of the tree


@both_policies
def test_layout_and_precision_of_the_model_do_not_matter(policy: Policy) -> None:
    problem = make_problem()
    expected = problem.search(policy)
    step = TabularSearch(problem.model, problem.states, problem.num_simulations)

    def strided_double(parent_node: Any, action: Any, new_node: int) -> RecurrentOutput:
        output = step(parent_node, action, new_node)
        wide = [np.repeat(x.astype(np.float64), 2, axis=-1)[..., ::2] for x in output]
        return RecurrentOutput(*wide)

    root = problem.model.root(problem.states)
    answer = policy(
        root._replace(prior_logits=np.asfortranarray(root.prior_logits)),
        strided_double,
        num_simulations=problem.num_simulations,
        discount=problem.discount,
        rng=np.random.default_rng(problem.seed),
        invalid_actions=np.asfortranarray(problem.invalid_actions),
    )
    for a, b in zip(answer, expected, strict=True):
        assert a.tolist() == b.tolist()


@both_policies
def test_noise_free_searches_draw_nothing(policy: Policy) -> None:
    rng = np.random.default_rng(3)
    make_problem().search(policy, rng=rng, **DETERMINISTIC[policy])
    assert rng.random() == np.random.default_rng(3).random()


@both_policies
def test_the_same_generator_gives_the_same_answer_and_another_another(policy: Policy) -> None:
    problem = make_problem(num_roots=16)
    answers = [problem.search(policy, rng=np.random.default_rng(s)) for s in (1, 1, 2)]
    assert answers[0].visit_counts.tolist() == answers[1].visit_counts.tolist()
    assert answers[0].action.tolist() == answers[1].action.tolist()
    assert answers[0].visit_counts.tolist() != answers[2].visit_counts.tolist()


@both_policies
def test_a_model_that_answers_nan_ends_in_nan_and_not_in_a_crash(policy: Policy) -> None:
    problem = make_problem()
    problem.model.reward[:] = problem.model.value[:] = np.nan
    problem.model.prior_logits[:] = np.nan
    answer = problem.search(policy)
    assert np.isnan(answer.root_value).all()
    assert (answer.visit_counts.sum(axis=1) == problem.num_simulations).all()
    assert (answer.visit_counts[problem.invalid_actions] == 0).all()


def make_problem(num_roots: int = 6, seed: int = 0) -> Problem:
    rng = np.random.default_rng(seed)
    invalid_actions = rng.random((num_roots, 5)) < 0.3
    invalid_actions[:, rng.integers(5)] = False
    model = TabularModel.random(seed, num_actions=5)
    states = rng.integers(len(model.value), size=num_roots)
    return Problem(model, states, invalid_actions, num_simulations=20, discount=-0.95, seed=seed)
