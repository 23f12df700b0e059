"""From the environment into the replay buffer: every transition, one by one, on all ranks."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from lightzero_lite.collector import Collector, CollectPhase
from lightzero_lite.config import Config, EnvConfig
from lightzero_lite.envs.vector import VectorEnv
from lightzero_lite.replay import ReplayBuffer
from lightzero_lite.runtime.distributed import Ranks, share
from tests import fake_search
from tests.builders import on_ranks, small_buffer
from tests.fake_envs import Counter, Step

NUM_ENVS, NUM_EPISODES, NUM_PHASES = 5, 7, 3


def play_and_store(ranks: Ranks, *, shortest: int, longest: int) -> tuple[ReplayBuffer, VectorEnv]:
    """Collect three phases into a buffer, and return it with the environments' own records."""
    kwargs = {"min_length": shortest, "max_length": longest, "reward": "count", "end": "both"}
    env = EnvConfig(
        entry_point="tests.fake_envs:Counter", kwargs=kwargs, collector_env_num=NUM_ENVS
    )
    envs = VectorEnv(env, share(NUM_ENVS, ranks.rank, ranks.num_ranks))
    predictor = cast(Any, fake_search.FakePredictor())
    collector = Collector(Config(env=env), envs, predictor, ranks)
    buffer = small_buffer()
    for number in range(NUM_PHASES):
        phase = CollectPhase(
            number=number,
            first_episode=number * NUM_EPISODES,
            num_episodes=NUM_EPISODES,
            eps=0.0,
        )
        collected = collector.collect(phase, fake_search.fake_search)
        assert collected is not None
        for episode in collected.episodes:
            buffer.push(episode)
    return buffer, envs


def records_of(envs: VectorEnv) -> dict[float, list[Step]]:
    """Return what the environments wrote down of each episode, by its key in the observations."""
    counters = [cast(Counter, env.unwrapped) for env in envs.envs]
    records = [record for counter in counters for record in counter.record]
    by_key = {np.float32(record[0].observation[0]).item(): record for record in records}
    assert len(by_key) == len(records)
    return by_key


@pytest.mark.parametrize(("shortest", "longest"), [(1, 1), (1, 4), (2, 30)])
@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_what_is_stored_is_what_the_environments_did(
    num_ranks: int, shortest: int, longest: int
) -> None:
    answers = on_ranks(
        num_ranks, lambda ranks: play_and_store(ranks, shortest=shortest, longest=longest)
    )
    lengths_of_ranks = []
    for buffer, envs in answers:
        records, state = records_of(envs), buffer.state_dict()["storage"]
        ring, table = state["ring"], state["episodes"]
        assert len(table["starts"]) == len(records)
        assert len(ring["actions"]) == sum(map(len, records.values()))
        row = 0
        for episode, length in enumerate(table["lengths"]):
            record = records.pop(ring["observations"][row, 0].item())
            assert len(record) == length
            for step in record:
                assert ring["observations"][row].tolist() == step.observation
                assert ring["actions"][row] == step.action
                assert ring["rewards"][row] == step.reward
                row += 1
            assert table["final_observations"][episode].tolist() == record[-1].next_observation
            assert table["is_terminated"][episode] == record[-1].terminated
        assert records == {}
        lengths_of_ranks.append(table["lengths"].tolist())
    lengths = [length for some in lengths_of_ranks for length in some]
    assert len(lengths) == NUM_EPISODES * NUM_PHASES
    assert {min(lengths), max(lengths)} <= set(range(shortest, longest + 1))
    if shortest < longest:
        assert len(set(lengths)) > 2
        sums = [sum(some) for some in lengths_of_ranks]
        assert num_ranks == 1 or len(set(sums)) > 1, "ranks play different numbers of steps"


def test_targets_of_an_episode_of_one_step() -> None:
    buffer, envs = play_and_store(Ranks(), shortest=1, longest=1)
    batch = buffer.sample(64, np.random.default_rng(0))
    records = records_of(envs)
    for i in range(64):
        (step,) = records[batch.observations[i, 0, 0].item()]
        assert batch.actions[i, 0] == step.action
        assert batch.rewards[i].tolist() == [1, 0, 0]
        assert batch.policy_mask[i].tolist() == [1, 0, 0, 0]
        # Terminated: the end is worth 0 and teaches so. Cut: the last observation has a value.
        assert batch.value_prefix[i].tolist() == [1, 0, 0, 0]
        expected = [0, 0, 0, 0] if step.terminated else [0.9, 1, 0, 0]
        np.testing.assert_allclose(batch.bootstrap_discount[i], expected, rtol=1e-6)
        assert batch.value_mask[i].tolist() == ([1] * 4 if step.terminated else [1, 1, 0, 0])
    assert len({record[0].terminated for record in records.values()}) == 2
