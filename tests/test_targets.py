"""Value targets and masks, by hand and against a slow loop over steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightzero_lite.replay import targets


def value_targets(
    rewards: list[float],
    values: list[float],
    is_terminated: bool,
    *,
    discount: float,
    td_steps: int,
    num_unroll_steps: int = 0,
) -> np.ndarray:
    """Return z [T, K + 1] of every position of one episode by the functions under test.

    `values` [T + 1] are those of all observations, the last included.
    """
    length, last_step = len(rewards), num_unroll_steps + td_steps
    padded = np.concatenate([rewards, np.zeros(last_step)]).astype(np.float32)
    starts = np.arange(length)[:, None]
    weights = targets.n_step_weights(discount, td_steps, num_unroll_steps)
    prefix = targets.value_prefix(padded[starts + np.arange(last_step)], weights)
    bootstrap = targets.bootstrap(
        starts + np.arange(num_unroll_steps + 1),
        np.full((length, 1), length),
        np.full((length, 1), is_terminated),
        discount=discount,
        td_steps=td_steps,
    )
    return prefix + bootstrap.discount * np.array(values)[bootstrap.steps]


def slow_target(
    rewards: list[float],
    values: list[float],
    is_terminated: bool,
    position: int,
    *,
    discount: float,
    td_steps: int,
) -> float:
    """Walk back from the last term of z at `position` <= T, one step after another."""
    end = min(position + td_steps, len(rewards))
    total = 0.0 if end == len(rewards) and is_terminated else values[end]
    for step in reversed(range(position, end)):
        total = rewards[step] + discount * total
    return total


@pytest.mark.parametrize(
    ("is_terminated", "expected"),
    [
        (True, [9.940135, 8.967036, 6.988, 4.0]),
        (False, [19.820674, 18.877306, 16.928090, 13.97]),
    ],
)
def test_five_step_targets_of_four_steps_by_hand(
    is_terminated: bool, expected: list[float]
) -> None:
    # 9.940135 = 1 + 0.997 * 2 + 0.997^2 * 3 + 0.997^3 * 4; a time limit adds 0.997^4 * 10.
    result = value_targets(
        [1.0, 2.0, 3.0, 4.0], [10.0] * 5, is_terminated, discount=0.997, td_steps=5
    )
    np.testing.assert_allclose(result[:, 0], expected, rtol=1e-6)


def test_the_sum_stops_after_td_steps_by_hand() -> None:
    # z_0 = 1 + 0.5 * 2 + 0.25 * v_2 and z_1 = 2 + 0.5 * 3 + 0.25 * v_3; z_2 reaches the end.
    result = value_targets([1.0, 2.0, 3.0], [0.0, 0.0, 8.0, 100.0], True, discount=0.5, td_steps=2)
    np.testing.assert_allclose(result[:, 0], [4.0, 3.5, 3.0])


def test_a_negative_discount_turns_the_sign_each_step_by_hand() -> None:
    # The player who moves last wins 1: positions of the other player are worth -1.
    result = value_targets([0.0, 0.0, 1.0], [0.0] * 4, True, discount=-1.0, td_steps=9)
    np.testing.assert_allclose(result[:, 0], [1.0, -1.0, 1.0])
    # Bootstrapped: z_0 = 0 - 0.9 * 2 + 0.81 * 5 with v_2 seen by the player to move there.
    result = value_targets(
        [0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 5.0, 0.0, 0.0], True, discount=-0.9, td_steps=2
    )
    assert result[0, 0] == pytest.approx(-1.8 + 4.05)


def test_unrolled_targets_past_the_end_by_hand() -> None:
    # Columns are k = 0..3 from position 1 of an episode of two steps; column 1 is the position of
    # the last observation, worth 7: nothing if the environment ended, 7 at a time limit.
    for is_terminated, expected in ((True, [3.0, 0, 0, 0]), (False, [3.0 + 3.5, 7.0, 0, 0])):
        result = value_targets(
            [1.0, 3.0],
            [0.0, 0.0, 7.0],
            is_terminated,
            discount=0.5,
            td_steps=4,
            num_unroll_steps=3,
        )
        np.testing.assert_allclose(result[1], expected)


@settings(deadline=None, max_examples=150)
@given(
    rewards=st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=12),
    is_terminated=st.booleans(),
    discount=st.sampled_from([1.0, 0.997, 0.5, 0.0, -0.9, -1.0]),
    td_steps=st.integers(1, 15),
    num_unroll_steps=st.integers(0, 6),
    seed=st.integers(0, 1000),
)
def test_targets_agree_with_a_loop_over_steps(
    rewards: list[float],
    is_terminated: bool,
    discount: float,
    td_steps: int,
    num_unroll_steps: int,
    seed: int,
) -> None:
    length = len(rewards)
    values = np.random.default_rng(seed).normal(scale=5, size=length + 1).tolist()
    result = value_targets(
        rewards,
        values,
        is_terminated,
        discount=discount,
        td_steps=td_steps,
        num_unroll_steps=num_unroll_steps,
    )
    for position in range(length):
        for k in range(num_unroll_steps + 1):
            expected = 0.0
            if position + k <= length:
                expected = slow_target(
                    rewards,
                    values,
                    is_terminated,
                    position + k,
                    discount=discount,
                    td_steps=td_steps,
                )
            assert result[position, k] == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_bootstrap_names_observation_and_factor_by_hand() -> None:
    # T = 4, n = 2, t + k = 1..6.
    arguments = (np.arange(1, 7)[None], np.array([[4]]))
    for is_terminated, factors in (
        (True, [0.25, 0.0, 0.0, 0.0, 0.0, 0.0]),
        (False, [0.25, 0.25, 0.5, 1.0, 0.0, 0.0]),
    ):
        bootstrap = targets.bootstrap(
            *arguments, np.array([[is_terminated]]), discount=0.5, td_steps=2
        )
        assert bootstrap.steps.tolist() == [[3, 4, 4, 4, 4, 4]]
        assert bootstrap.discount.tolist() == [factors]
        assert bootstrap.discount.dtype == np.float32


def test_masks_by_hand() -> None:
    # T = 3, t = 1, K = 4: t + k = 1, 2 are inside, 3 is the last observation, 4 and 5 are beyond.
    arguments = (np.arange(1, 6)[None], np.array([[3]]))
    terminated = targets.unroll_masks(*arguments, np.array([[True]]))
    truncated = targets.unroll_masks(*arguments, np.array([[False]]))
    for masks in (terminated, truncated):
        assert masks.policy.tolist() == [[1, 1, 0, 0, 0]]
        assert masks.consistency.tolist() == [[1, 1, 0, 0]]
    assert terminated.value.tolist() == [[1, 1, 1, 1, 1]]
    assert terminated.reward.tolist() == [[1, 1, 1, 1]]
    assert truncated.value.tolist() == [[1, 1, 1, 0, 0]]
    assert truncated.reward.tolist() == [[1, 1, 0, 0]]


def test_n_step_weights_by_hand() -> None:
    weights = targets.n_step_weights(-0.5, 2, 1)
    assert weights.tolist() == [[1.0, 0.0], [-0.5, 1.0], [0.0, -0.5]]
