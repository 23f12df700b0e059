"""N changes the speed and nothing else: one run on 1, 2, 3 and 4 ranks, whose shares are uneven.

The length and the return of an episode follow from its reset seed, so that they are the same
whichever rank plays it; they differ widely, so that ranks finish far apart.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lightzero_lite.runtime.seeding import Role, integer_seed
from tests.fake_envs import Counter
from tests.launch import ROOT, TINY, fork

pytestmark = pytest.mark.distributed

NUMBERS = [1, 2, 3, 4]  # ranks
LENGTHS = (2, 40)  # fewest and most steps of an episode
PHASES = [5, 7, 7, 7]  # episodes of each collect phase: random ones, then policy.n_episode
NUM_ENVS, NUM_EVALUATED, BATCH, START, EVAL_FREQ = 5, 5, 12, 150, 8
RUN = (
    "env.env_id=tests.fake_envs:UnevenCounter-v0",
    f"env.collector_env_num={NUM_ENVS}",
    "env.evaluator_env_num=3",
    f"env.n_evaluator_episode={NUM_EVALUATED}",
    f"policy.random_collect_episode_num={PHASES[0]}",
    f"policy.n_episode={PHASES[1]}",
    "policy.num_simulations=2",
    f"policy.batch_size={BATCH}",
    f"policy.train_start_after_envsteps={START}",
    f"policy.eval_freq={EVAL_FREQ}",
    "policy.use_priority=true",
    "log.learner_freq=5",
    "checkpoint.save_freq=10",
    "max_env_step=500",
    "exp_name=run",
)


class Result(NamedTuple):
    """What a run left."""

    folder: Path  # its run folder
    ranks: list[dict[str, Any]]  # what each rank noted: see shares_worker.py

    def newest(self) -> dict[str, Any]:
        """Return the last checkpoint."""
        paths = (self.folder / "ckpt").glob("iteration_*")
        return torch.load(max(paths, key=lambda path: path.stat().st_mtime_ns))

    def log(self, channel: str) -> str:
        """Return a text log."""
        return (self.folder / f"log/{channel}/{channel}_logger.txt").read_text()

    def rows(self, channel: str, field: str) -> list[str]:
        """Return a field of every table, in order."""
        return re.findall(rf"(?m)^\| {field} +\| (.*?) +\|$", self.log(channel))

    def names(self, channel: str) -> list[list[str]]:
        """Return the names in every row and in every grid's head, in order."""
        return [line.split() for line in re.findall(r"\| (?:Name.*|\w+) ", self.log(channel))]

    def steps(self) -> dict[str, list[int]]:
        """Return the steps of every tag in TensorBoard."""
        reader = EventAccumulator(str(self.folder / "log/serial"), size_guidance={"scalars": 0})
        reader.Reload()
        return {tag: [one.step for one in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}


def lengths(role: Role, numbers: range) -> list[int]:
    """Return the lengths of episodes by the environment itself."""
    env = Counter(min_length=LENGTHS[0], max_length=LENGTHS[1])
    found = []
    for number in numbers:
        env.reset(seed=integer_seed(0, role, number))
        found.append(env.length)
    return found


COLLECTED = lengths(Role.COLLECT_ENV, range(sum(PHASES)))
EVALUATED = lengths(Role.EVALUATE_ENV, range(NUM_EVALUATED))
ENDS = list(itertools.accumulate(PHASES))
TOTALS = [sum(COLLECTED[:end]) for end in ENDS]  # env steps after each phase


def updates() -> list[int]:
    """Return train_iter after each phase: 0.05 updates an env step, once there are START."""
    found, trained = [0], 0
    for total in TOTALS:
        count = int(0.05 * (total - trained)) if total >= START else 0
        trained = total if count else trained
        found.append(found[-1] + count)
    return found[1:]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Result]:
    """Return the same run on 1, 2, 3 and 4 ranks."""
    found = {}
    for num_ranks in NUMBERS:
        folder = tmp_path_factory.mktemp(f"ranks_{num_ranks}")
        command = [ROOT / "tests" / "shares_worker.py", folder, *TINY, *RUN]
        outcome = fork(command, folder, num_ranks=num_ranks).finish()
        assert outcome.returncode == 0, outcome.output
        notes = [json.loads((folder / f"rank_{r}.json").read_text()) for r in range(num_ranks)]
        found[num_ranks] = Result(folder / "run", notes)
    return found


@pytest.fixture(params=NUMBERS)
def result(request: pytest.FixtureRequest, results: dict[int, Result]) -> Result:
    """Return the run on each number of ranks."""
    return results[request.param]


def test_the_episodes_are_uneven() -> None:
    assert min(COLLECTED) < 6
    assert max(COLLECTED) > 36
    assert TOTALS[0] < START < TOTALS[1]


def test_counters_follow_from_the_episodes_alone(result: Result) -> None:
    counters = result.newest()["counters"]
    assert counters["envstep"] == TOTALS[-1]
    assert counters["episodes"] == sum(PHASES)
    assert counters["collect_phases"] == len(PHASES)
    assert result.newest()["last_iter"] == updates()[-1]
    assert counters["sampled"] == BATCH * updates()[-1]
    assert counters["last_return"] == np.mean(EVALUATED)


def test_every_rank_has_its_part_of_every_batch(result: Result) -> None:
    part = BATCH // len(result.ranks)
    assert [rank["sizes"] for rank in result.ranks] == [[part] * updates()[-1]] * len(result.ranks)


def test_episodes_and_environments_are_shared_as_evenly_as_they_can(result: Result) -> None:
    num_ranks = len(result.ranks)
    for key, num_envs in (("collected", NUM_ENVS), ("evaluated", max(num_ranks, 3))):
        counts = [len(rank[key]) for rank in result.ranks]
        assert sum(counts) == num_envs
        assert max(counts) - min(counts) <= 1
    played = [sum(map(len, rank["collected"])) for rank in result.ranks]
    quotients = [(phase // num_ranks, -(-phase // num_ranks)) for phase in PHASES]
    assert sum(played) == sum(PHASES)
    assert min(played) == sum(low for low, _ in quotients)
    assert max(played) == sum(high for _, high in quotients)


def test_every_episode_is_played_once_by_some_rank(result: Result) -> None:
    for key, role, count in (
        ("collected", Role.COLLECT_ENV, sum(PHASES)),
        ("evaluated", Role.EVALUATE_ENV, NUM_EVALUATED),
    ):
        seeds = [seed for rank in result.ranks for env in rank[key] for seed in env]
        times = 1 if key == "collected" else len(result.rows("evaluator", "train_iter"))
        expected = [integer_seed(0, role, number) for number in range(count)] * times
        assert sorted(seeds) == sorted(expected)


def test_the_logs_tell_the_same_in_the_same_order(result: Result) -> None:
    rewards = [[float(n) for n in COLLECTED[e - n : e]] for n, e in zip(PHASES, ENDS, strict=True)]
    assert result.rows("collector", "each_reward") == list(map(str, rewards))
    assert result.rows("collector", "total_envstep_count") == list(map(str, TOTALS))
    assert result.rows("buffer", "pushed_in") == [f"{total}.0" for total in TOTALS]
    iterations = [0, *updates()]
    sampled = [str(BATCH * iteration) for iteration in iterations[: len(PHASES)]]
    assert result.rows("buffer", "sampled_out") == sampled
    due = [b for a, b in itertools.pairwise(iterations) if b // EVAL_FREQ > a // EVAL_FREQ]
    evaluations = sorted({0, *due, iterations[-1]})
    assert result.rows("evaluator", "train_iter") == list(map(str, evaluations))
    lines = re.findall(r"final reward: (\S+), current episode: (\d+)", result.log("evaluator"))
    expected = [(f"{float(n)}", str(i + 1)) for i, n in enumerate(EVALUATED)]
    assert lines == expected * len(evaluations)


@pytest.mark.parametrize("num_ranks", NUMBERS[1:])
def test_fields_tags_and_steps_are_those_of_one_rank(
    num_ranks: int, results: dict[int, Result]
) -> None:
    one, many = results[1], results[num_ranks]
    for channel in ("buffer", "collector", "evaluator", "learner"):
        assert one.names(channel) == many.names(channel)
    assert one.steps() == many.steps()
    assert sorted(p.name for p in (one.folder / "ckpt").iterdir()) == sorted(
        p.name for p in (many.folder / "ckpt").iterdir()
    )
    for key in ("best_score", "last_eval_iter", "last_save_iter", "untrained_envsteps"):
        assert one.newest()["counters"][key] == many.newest()["counters"][key]
