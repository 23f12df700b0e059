"""Two players: signs worked by hand, seats, opponents, and what is refused."""

from __future__ import annotations

import ast
import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from lightzero_lite.config import Config, EnvConfig, PolicyConfig, load_config
from lightzero_lite.envs.rollout import Decisions, play_episodes
from lightzero_lite.envs.vector import VectorEnv
from lightzero_lite.envs.versus import Versus, start_options
from lightzero_lite.evaluator import Evaluation, Evaluator, evaluator_fields
from lightzero_lite.matches import outcome_fields
from lightzero_lite.replay import ReplayBuffer
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.search import gumbel_muzero_policy, muzero_policy
from lightzero_lite.train import build_trainer
from lightzero_lite.types import (
    BoolArray,
    Episode,
    EpisodeSummary,
    Float32Array,
    RootOutput,
    SearchOutput,
    UserError,
)
from tests.builders import on_ranks
from tests.launch import ROOT, TINY, train_well
from tests.plain_search import TabularSearch
from tests.test_search_by_hand import SILENT, model_of

# --- Signs --------------------------------------------------------------------------------------

# A game of two plies. At state 0 the first player wins with action 2, or leaves the second player
# state 1, where action 0 wins and the others draw, or state 2, where nobody can win any more.
# State 3 is the end. Values are the network's: it knows nothing yet.
TWO_PLY = model_of(
    {
        **{(0, 0): (1, 0.0), (0, 1): (2, 0.0), (0, 2): (3, 1.0)},
        **{(1, 0): (3, 1.0), (1, 1): (3, 0.0), (1, 2): (3, 0.0)},
        **{(2, action): (3, 0.0) for action in range(3)},
    },
    values=[0.0] * 4,
)


@pytest.mark.parametrize("policy", [muzero_policy, gumbel_muzero_policy])
def test_a_two_ply_game_is_valued_from_the_movers_side(policy: Any) -> None:
    options = SILENT if policy is muzero_policy else {"gumbel_scale": 0.0}
    states = np.array([0, 1, 2])  # one search each: won by the first, by the second, drawn
    answer = policy(
        TWO_PLY.root(states),
        TabularSearch(TWO_PLY, states, 200),
        num_simulations=200,
        discount=-1.0,
        rng=np.random.default_rng(0),
        **options,
    )
    # Every edge is read as the one who moves sees it: to leave state 1 to the other is a loss.
    assert answer.qvalues[0].tolist() == pytest.approx([-0.9, 0.0, 1.0], abs=0.11)
    assert answer.qvalues[1].tolist() == pytest.approx([1.0, 0.0, 0.0], abs=1e-6)
    assert answer.qvalues[2].tolist() == [0.0, 0.0, 0.0]
    assert answer.action[:2].tolist() == [2, 0]
    # Sequential halving visits bad moves as well, and the mean counts them.
    tolerance = 0.15 if policy is muzero_policy else 0.8
    assert answer.root_value.tolist() == pytest.approx([1.0, 1.0, 0.0], abs=tolerance)


@pytest.mark.parametrize(
    ("rewards", "td_steps", "values"),
    [
        ([1.0], 9, [1.0]),  # the first player won at once
        ([0.0, 1.0], 9, [-1.0, 1.0]),  # the second player won: bad for the first, good for him
        ([0.0, 0.0], 9, [0.0, 0.0]),  # a draw
        ([0.0, 0.0, 1.0], 9, [1.0, -1.0, 1.0]),  # the first player won at last
        # One step, then the search value of the next position (0.5, -0.25, 0.125 in turn), which is
        # the other player's; nothing follows the end.
        ([0.0, 0.0, 1.0], 1, [0.25, -0.125, 1.0]),
        ([0.0, 0.0, 1.0], 2, [0.125, -1.0, 1.0]),
    ],
)
def test_value_targets_from_the_movers_side_by_hand(
    rewards: list[float], td_steps: int, values: list[float]
) -> None:
    targets = value_targets(rewards, td_steps, is_terminated=True)
    assert targets[: len(values)] == pytest.approx(values)
    assert targets[len(values) :] == [0.0] * (4 - len(values))


def test_value_targets_of_a_game_that_a_time_limit_cut_by_hand() -> None:
    # The last position was not searched: the one before it was worth 0.125 to the other player.
    targets = value_targets([0.0, 0.0, 0.0], 9, is_terminated=False)
    assert targets == pytest.approx([0.125, -0.125, 0.125, -0.125])


def value_targets(rewards: list[float], td_steps: int, *, is_terminated: bool) -> list[float]:
    """Return z of positions 0 to 3 of an episode with search values 0.5, -0.25, 0.125."""
    length = len(rewards)
    buffer = ReplayBuffer(
        size=8,
        observation_shape=(1,),
        num_actions=2,
        td_steps=td_steps,
        num_unroll_steps=3,
        discount=-1.0,
    )
    episode = make_episode(rewards, [0.5, -0.25, 0.125][:length], is_terminated=is_terminated)
    buffer.push(episode)
    batch = buffer.sample(32, np.random.default_rng(0))
    (first, *_) = np.flatnonzero(batch.positions == 0)
    targets = batch.value_prefix + batch.bootstrap_discount * batch.bootstrap_values
    return [float(one) for one in targets[first]]


def make_episode(rewards: list[float], values: list[float], *, is_terminated: bool) -> Episode:
    length = len(rewards)
    return Episode(
        observations=np.zeros((length + 1, 1), np.float32),
        legal_actions=np.ones((length + 1, 2), np.bool_),
        actions=np.zeros(length, np.int32),
        rewards=np.array(rewards, np.float32),
        root_values=np.array(values, np.float32),
        raw_values=np.zeros(length, np.float32),
        policies=np.full((length, 2), 0.5, np.float32),
        is_terminated=is_terminated,
    )


def test_self_play_stores_each_move_from_the_movers_side() -> None:
    """X takes 0, 1, 2 and O takes 3, 4: X wins with the fifth move."""
    (finished,) = play_episodes(VectorEnv(EnvConfig(env_id="TicTacToe-v0"), 1), [0], first_free)
    episode = finished.episode
    # Everybody takes the lowest cell: X 0, O 1, X 2, O 3, X 4, O 5, X 6 makes a diagonal.
    assert episode.actions.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert episode.rewards.tolist() == [0, 0, 0, 0, 0, 0, 1]
    for t, observation in enumerate(episode.observations):
        own, other = np.flatnonzero(observation[:9]), np.flatnonzero(observation[9:])
        assert own.tolist() == list(range(t % 2, t, 2))  # of the player whose turn it is
        assert other.tolist() == list(range(1 - t % 2, t, 2))


def first_free(observations: Float32Array, invalid: BoolArray | None) -> Decisions:
    count = len(observations)
    invalid = np.zeros((count, 9), np.bool_) if invalid is None else invalid
    values = np.zeros(count, np.float32)
    policies = np.full((count, 9), 1 / 9, np.float32)
    return Decisions((~invalid).argmax(axis=1).astype(np.int32), values, values, policies)


# --- Opponents and seats ------------------------------------------------------------------------


def scripted(*moves: int) -> Any:
    """Return an opponent that makes these moves, one after the other."""
    left = list(moves)
    return lambda game, legal_actions, rng: left.pop(0)


@pytest.mark.parametrize(
    ("seat", "own", "opponents", "rewards"),
    [
        (0, [0, 1, 2], [3, 4], [0, 0, 1]),  # the agent wins
        (0, [0, 1, 8], [3, 4, 5], [0, 0, -1]),  # the opponent wins with the move that follows
        (1, [0, 1], [3, 4, 5], [0, -1]),
        (1, [0, 1, 2], [3, 4, 8], [0, 0, 1]),
        (0, [0, 1, 5, 6, 8], [4, 2, 3, 7], [0, 0, 0, 0, 0]),  # a draw
    ],
)
def test_rewards_are_the_agents_from_both_seats(
    seat: int, own: list[int], opponents: list[int], rewards: list[float]
) -> None:
    env = Versus(gymnasium.make("TicTacToe-v0"), [scripted(), scripted(*opponents)])
    observation, info = env.reset(seed=3, options={"opponent": 1, "seat": seat})
    assert np.flatnonzero(observation).tolist() == [9 + cell for cell in opponents[:seat]]
    assert info["action_mask"].sum() == 9 - seat
    results = [env.step(move)[1:3] for move in own]
    assert [reward for reward, _ in results] == rewards
    assert [terminated for _, terminated in results] == [False] * (len(own) - 1) + [True]


def test_the_seed_fixes_what_a_random_opponent_does() -> None:
    config = EnvConfig(env_id="TicTacToe-v0", opponents=["random"])

    def games() -> list[list[float]]:
        envs = VectorEnv(config, 2)
        options = [start_options(number, 8) for number in range(8)]
        played = play_episodes(envs, range(8), first_free, options)
        ordered = sorted(played, key=lambda one: one.number)
        return [one.episode.observations.ravel().tolist() for one in ordered]

    first = games()
    assert first == games()
    assert len({tuple(game) for game in first}) > 4


def test_outcomes_are_counted_by_opponent_and_seat() -> None:
    returns = [1, -1, 1, 0, -1, 0, 0, 0, 1, 1, 0, 1, 1, 1, -1, -1]
    summaries = [
        EpisodeSummary(number=number, env=0, episode_return=float(one), num_steps=3)
        for number, one in enumerate(returns)
    ]
    fields = outcome_fields(summaries, ["perfect", "my.module:player"])
    expected = {
        "perfect": [2, 4, 2, 8],
        "perfect_first": [2, 1, 1, 4],
        "perfect_second": [0, 3, 1, 4],
        "player": [5, 1, 2, 8],
        "player_first": [2, 1, 1, 4],
        "player_second": [3, 0, 1, 4],
    }
    assert fields == {
        f"{outcome}_rate_{name}": counts[i] / counts[3]
        for name, counts in expected.items()
        for i, outcome in enumerate(("win", "draw", "loss"))
    }
    evaluation = Evaluation(summaries, 1.0, ["perfect", "my.module:player"])
    assert evaluation.mean_return == 0.0  # the first opponent decides
    table = evaluator_fields(evaluation, 7)
    assert table["each_reward"] == [1, -1, 1, 0, -1, 0, 0, 0]
    assert (table["episode_count"], table["envstep_count"]) == (16, 48)
    assert fields.items() <= table.items()


def make_evaluator(ranks: Ranks) -> Evaluator:
    env = EnvConfig(
        env_id="TicTacToe-v0",
        opponents=["perfect", "random"],
        evaluator_env_num=3,
        n_evaluator_episode=6,
    )
    config = Config(env=env, policy=PolicyConfig(discount_factor=-1.0))
    return Evaluator(config, FirstFree(), ranks)  # type: ignore[arg-type]


class FirstFree:
    """A predictor and a search in one, which takes the lowest free cell."""

    recurrent_fn = None

    def initial(self, observations: Float32Array) -> RootOutput:
        """Know nothing."""
        count = len(observations)
        return RootOutput(np.zeros((count, 9), np.float32), np.zeros(count, np.float32))

    @staticmethod
    def search(
        root: RootOutput, recurrent_fn: Any, *, rng: Any, invalid_actions: BoolArray | None = None
    ) -> SearchOutput:
        """Take the lowest legal action."""
        logits = root.prior_logits
        invalid = np.zeros(logits.shape, np.bool_) if invalid_actions is None else invalid_actions
        action = (~invalid).argmax(axis=1).astype(np.int32)
        return SearchOutput(action, logits.astype(np.int32), logits, root.value, logits)


def test_an_evaluation_is_the_same_on_any_number_of_ranks() -> None:
    def evaluate(ranks: Ranks) -> list[tuple[int, float, int]]:
        evaluation = make_evaluator(ranks).evaluate(FirstFree.search)
        assert evaluation is not None
        return [(one.number, one.episode_return, one.num_steps) for one in evaluation.summaries]

    expected = evaluate(Ranks())
    assert [number for number, _, _ in expected] == list(range(12))
    assert {outcome for _, outcome, _ in expected} <= {-1.0, 0.0, 1.0}
    for num_ranks in (2, 3):
        assert all(answer == expected for answer in on_ranks(num_ranks, evaluate))


# --- Runs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (
            ["env=tictactoe", "policy.discount_factor=0.9"],
            "policy.discount_factor=0.9: TicTacToe-v0 is a game of two players who alternate: "
            "set policy.discount_factor=-1",
        ),
        (
            ["env=cartpole", "policy.discount_factor=-1"],
            "policy.discount_factor=-1.0: CartPole-v1 is for one player: set it to 0 or more",
        ),
        (
            ["env=tictactoe", "env.n_evaluator_episode=3"],
            "env.n_evaluator_episode=3 is odd: the agent plays half of it from each seat",
        ),
        (
            ["env=tictactoe", "env.action_repeat=2"],
            "env.action_repeat=2 is for one player: leave it out of a game",
        ),
        (
            ["env=tictactoe", "env.opponents=[]"],
            "TicTacToe-v0 is a game of two players: set env.opponents=[random]",
        ),
        (
            ["env=cartpole", "env.opponents=[random]"],
            "env.opponents=[random]: CartPole-v1 is for one player",
        ),
        (
            ["env=tictactoe", "env.opponents=[random,strong]"],
            "env.opponents: TicTacToe knows no player strong: choose of random, your own "
            "package.module:function, perfect",
        ),
    ],
)
def test_a_run_for_another_number_of_players_is_refused_in_one_line(
    overrides: list[str], line: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as refused:
        build_trainer([*TINY, *overrides, f"exp_name={tmp_path / 'run'}"], Ranks())
    assert str(refused.value) == line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["tictactoe", "connect_four"])
def test_recipes_of_the_games(name: str) -> None:
    config = load_config([f"env={name}"])
    assert config.policy.discount_factor == -1
    assert config.env.opponents


@pytest.mark.learning
def test_tic_tac_toe_is_learned_until_no_game_is_lost(tmp_path: Path) -> None:
    """About 2,500 updates, two minutes on a core of one's own (docs/experiments.md)."""
    overrides = ["env=tictactoe", "policy=gumbel_muzero", f"exp_name={tmp_path / 'run'}"]
    trainer = build_trainer(overrides, Ranks())
    trainer.run()
    assert trainer.counters.last_return == 0  # of 200 games against the perfect player


@pytest.mark.distributed
def test_two_ranks_train_a_game_and_count_both_seats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train_well(
        tmp_path,
        "env=tictactoe",
        "exp_name=run",
        "env.n_evaluator_episode=8",
        "policy.n_episode=4",
        "policy.reanalyze_ratio=0.5",
        "max_env_step=150",
        num_ranks=2,
    )
    log = (tmp_path / "run/log/evaluator/evaluator_logger.txt").read_text()
    tables = log.split("evaluator end:")[1:]
    assert len(tables) >= 2
    for table in tables:
        row = dict(re.findall(r"^\| (\w+) +\| (.*?) +\|$", table, re.M))
        assert row["episode_count"] == "16"
        returns = ast.literal_eval(row["each_reward"])
        assert len(returns) == 8
        for seat, name in enumerate(("first", "second")):
            own = np.array(returns[seat::2])
            assert float(row[f"loss_rate_perfect_{name}"]) == np.mean(own < 0)
            rates = [float(row[f"{one}_rate_random_{name}"]) for one in ("win", "draw", "loss")]
            assert sum(rates) == pytest.approx(1)
            assert float(row[f"win_rate_perfect_{name}"]) == 0

    # The script plays the same games again, or others, and names what it cannot play.
    checkpoint = f"ckpt={tmp_path / 'run/ckpt/ckpt_best.pth.tar'}"
    answer = evaluated(monkeypatch, capsys, checkpoint, "env.opponents=[random]")
    assert len(answer["each_reward"]) == answer["episode_count"] == 8
    for seat, name in enumerate(("first", "second")):
        assert answer[f"win_rate_random_{name}"] == np.mean(
            np.array(answer["each_reward"][seat::2]) > 0
        )
    with pytest.raises(SystemExit):
        evaluated(monkeypatch, capsys, checkpoint, "env.opponents=[alpha_beta_2]")
    assert capsys.readouterr().err.startswith("error: env.opponents: TicTacToe knows no player ")


def evaluated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> dict[str, Any]:
    """Run the evaluation script in this process and read its line of JSON."""
    monkeypatch.setattr(sys, "argv", ["evaluate.py", *arguments])
    runpy.run_path(str(ROOT / "scripts" / "evaluate.py"))["main"]()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return answer
