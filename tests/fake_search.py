"""A network and a search that answer from the observation alone, so that rows can be told apart."""

from __future__ import annotations

import numpy as np

from lightzero_lite.envs.rollout import Decisions
from lightzero_lite.types import (
    BoolArray,
    Float32Array,
    Int32Array,
    RecurrentOutput,
    RootOutput,
    SearchOutput,
)

ACTION_NUM = 3


def action_of(observation: Float32Array) -> int:
    """Return the action that the fake search plays: it depends on both numbers observed."""
    return round(float(observation[0]) * 1000 + float(observation[1]) * 10) % ACTION_NUM


def value_of(observation: Float32Array) -> float:
    """Return the fake network's value, which tells seed and step of the observation."""
    return float(np.float32(observation[0] + 100 * observation[1]))


def policy_of(observation: Float32Array) -> Float32Array:
    """Return the fake search's policy target."""
    policy = np.full(ACTION_NUM, 0.25, np.float32)
    policy[action_of(observation)] = 0.5
    return policy


def decide(observations: Float32Array, invalid_actions: BoolArray | None = None) -> Decisions:
    """Answer a batch of observations, row by row; every action must be legal."""
    assert invalid_actions is None, "the fake search knows no masks"
    values = np.array([value_of(o) for o in observations], np.float32)
    return Decisions(
        action=np.array([action_of(o) for o in observations], np.int32),
        root_value=values + 1,
        raw_value=values,
        policy=np.stack([policy_of(o) for o in observations]),
    )


class FakePredictor:
    """A predictor whose prior is the policy target, so that the search need not see more."""

    def initial(self, observations: Float32Array) -> RootOutput:
        """Answer the roots."""
        decisions = decide(observations)
        return RootOutput(decisions.policy, decisions.raw_value)

    def recurrent_fn(
        self, parent_node: Int32Array, action: Int32Array, new_node: int
    ) -> RecurrentOutput:
        """Never called: the fake search makes no simulation."""
        raise AssertionError("the fake search makes no simulation")


def fake_search(
    root: RootOutput,
    recurrent_fn: object,
    *,
    rng: np.random.Generator,
    invalid_actions: BoolArray | None = None,
) -> SearchOutput:
    """Play the likeliest action of the prior; every action must be legal."""
    assert invalid_actions is None, "the fake search knows no masks"
    return SearchOutput(
        action=root.prior_logits.argmax(axis=1).astype(np.int32),
        visit_counts=np.ones_like(root.prior_logits, dtype=np.int32),
        action_weights=root.prior_logits,
        root_value=root.value + 1,
        qvalues=np.zeros_like(root.prior_logits),
    )
