"""Records that cross module borders.

Shape letters: B batch, A actions, K unroll steps, T time, N nodes, S support atoms, D latent.
`O` stands for the shape of one observation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]
Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
StateDict = dict[str, Any]
# From a game, its legal actions [A] (True: legal) and random numbers to the index of an action.
Opponent = Callable[[Any, BoolArray, np.random.Generator], int]
ResetOptions = dict[str, Any] | None  # of Gymnasium's reset; None: none


class UserError(ValueError):
    """A mistake that the user can mend: one line that names the key or file and the remedy."""


class RootOutput(NamedTuple):
    """The network's answer at the root of B searches."""

    prior_logits: Float32Array  # [B, A]
    value: Float32Array  # [B]


class RecurrentOutput(NamedTuple):
    """The model's answer to one action from one node of each of B searches."""

    reward: Float32Array  # [B]
    value: Float32Array  # [B]
    prior_logits: Float32Array  # [B, A]


class RecurrentFn(Protocol):
    """Step the model of every root b from node parent_node[b], storing the result as new_node."""

    def __call__(
        self, parent_node: Int32Array, action: Int32Array, new_node: int
    ) -> RecurrentOutput:
        """Return reward, value and prior logits of the new nodes; arrays may be reused later."""
        ...


class SearchOutput(NamedTuple):
    """What B searches answer."""

    action: Int32Array  # [B], the action to play
    visit_counts: Int32Array  # [B, A], visits of each root action; a row sums to num_simulations
    action_weights: Float32Array  # [B, A], the policy target; a row sums to 1
    root_value: Float32Array  # [B], mean of the raw value and of every return backed up
    qvalues: Float32Array  # [B, A], reward + discount * value of each root action; unvisited: 0


class SearchFn(Protocol):
    """A search whose constants are settled: `muzero_policy` or `gumbel_muzero_policy`."""

    def __call__(
        self,
        root: RootOutput,
        recurrent_fn: RecurrentFn,
        *,
        rng: np.random.Generator,
        invalid_actions: BoolArray | None = None,
    ) -> SearchOutput:
        """Search from B roots; invalid_actions [B, A], True: illegal at the root, None: none is."""
        ...


class ResetResult(NamedTuple):
    """Where an episode starts."""

    observation: Float32Array  # [O]
    legal_actions: BoolArray  # [A], True: legal now


class StepResult(NamedTuple):
    """What one env step returned."""

    observation: Float32Array  # [O]
    legal_actions: BoolArray  # [A], True: legal now; all True where the environment terminated
    reward: float
    is_terminated: bool  # the environment ended: nothing comes after
    is_truncated: bool  # a time limit cut the episode: the value goes on


class EpisodeSummary(NamedTuple):
    """What the logs need of a finished episode."""

    number: int  # its place among the episodes of the phase, over all ranks
    env: int  # the environment that played it, numbered over all ranks
    episode_return: float
    num_steps: int


class Episode(NamedTuple):
    """One finished episode of T steps as the collector hands it to the replay buffer."""

    observations: Float32Array  # [T + 1, *O]; the last one is what the final step returned
    legal_actions: BoolArray  # [T + 1, A], True: legal at observation t; all True where it is over
    actions: Int32Array  # [T]
    rewards: Float32Array  # [T], reward t is what action t earned
    root_values: Float32Array  # [T], search value of observation t
    raw_values: Float32Array  # [T], network value of observation t before the search
    policies: Float32Array  # [T, A], policy target of observation t
    is_terminated: bool  # True: the environment ended; False: a time limit cut the episode


class ReplayBatch(NamedTuple):
    """B sampled positions t, unrolled K steps, with all that targets need but the target network.

    The value target is value_prefix + bootstrap_discount * v(bootstrap_observations).
    Past the end of an episode of T steps that terminated, zeros are taught (the state absorbs), so
    value_mask and reward_mask are 1. Nothing is known beyond a time limit: they are 0 there.
    """

    observations: Float32Array  # [B, K + 1, *O], observation t + k; past the end: the last one
    legal_actions: BoolArray  # [B, K + 1, A], True: legal at observation t + k
    actions: Int32Array  # [B, K], action t + k; past the end: a legal index drawn at random
    rewards: Float32Array  # [B, K], reward target of action t + k; past the end: 0
    value_prefix: Float32Array  # [B, K + 1], discounted sum of the next m <= td_steps rewards
    bootstrap_discount: Float32Array  # [B, K + 1], discount^m; 0 where nothing is bootstrapped
    bootstrap_observations: Float32Array  # [B, K + 1, *O], observation t + k + m
    bootstrap_legal_actions: BoolArray  # [B, K + 1, A], True: legal at observation t + k + m
    bootstrap_values: Float32Array  # [B, K + 1], stored search value at t + k + m (0 if none)
    policies: Float32Array  # [B, K + 1, A], policy target; past the end: uniform
    policy_mask: Float32Array  # [B, K + 1], 1: inside the episode; 0: past its end
    value_mask: Float32Array  # [B, K + 1], 1: train the value; 0: beyond a time limit (t + k > T)
    reward_mask: Float32Array  # [B, K], 1: train the reward; 0: beyond a time limit (t + k >= T)
    consistency_mask: Float32Array  # [B, K], 1: observation t + k + 1 exists; 0: past the end
    importance_weights: Float32Array  # [B], multiplies the loss of a sample; 1 without priority
    is_reanalyzed: Float32Array  # [B], 1: policies and bootstrap_values are fresh; 0: as stored
    episode_ids: Int64Array  # [B], which episode the sample came from
    positions: Int64Array  # [B], its position t in that episode
