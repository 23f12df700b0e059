"""Reanalyze: fresh policy targets and bootstrap values for old data (MuZero, appendix H)."""

from __future__ import annotations

import numpy as np

from lightzero_lite.networks import MuZeroModelMLP
from lightzero_lite.predictor import Predictor
from lightzero_lite.types import BoolArray, Float32Array, ReplayBatch, SearchFn

BLOCK = 256  # roots of one search


class Reanalyzer:
    """Searches again, with the target network, what a share of each batch was made of."""

    def __init__(self, predictor: Predictor, *, reanalyze_ratio: float) -> None:
        """Take a predictor of its own.

        Args:
            predictor: Answers the searches; `refresh` loads the target network into it.
            reanalyze_ratio: Share of each batch that is searched again, 0 to 1.
        """
        self.predictor, self.reanalyze_ratio = predictor, reanalyze_ratio

    def refresh(
        self,
        batch: ReplayBatch,
        target_model: MuZeroModelMLP,
        search: SearchFn,
        rng: np.random.Generator,
    ) -> ReplayBatch:
        """Return the batch with fresh targets in its first round(ratio * B) samples.

        Samples are drawn independently, so the first ones are as good as any. Their policy targets
        inside the episode become the search's action_weights, and their bootstrap values the
        search's root values; `is_reanalyzed` says which samples those are.

        Args:
            batch: As the replay buffer drew it; it is left as it is.
            target_model: The network that the searches ask.
            search: A search without noise.
            rng: Handed to the search.
        """
        count = round(self.reanalyze_ratio * len(batch.actions))
        if count == 0:
            return batch
        self.predictor.load(target_model)
        policies, values = batch.policies.copy(), batch.bootstrap_values.copy()
        is_reanalyzed = batch.is_reanalyzed.copy()
        is_inside = batch.policy_mask[:count] == 1
        inside = batch.observations[:count][is_inside]
        legal = batch.legal_actions[:count][is_inside]
        policies[:count][is_inside], _ = self._search(inside, legal, search, rng)
        # Where nothing is bootstrapped the value is multiplied by 0: no search is spent on it.
        has_bootstrap = batch.bootstrap_discount[:count] != 0
        if has_bootstrap.any():
            ahead = batch.bootstrap_observations[:count][has_bootstrap]
            legal = batch.bootstrap_legal_actions[:count][has_bootstrap]
            _, values[:count][has_bootstrap] = self._search(ahead, legal, search, rng)
        is_reanalyzed[:count] = 1
        return batch._replace(
            policies=policies, bootstrap_values=values, is_reanalyzed=is_reanalyzed
        )

    def _search(
        self,
        observations: Float32Array,
        legal_actions: BoolArray,
        search: SearchFn,
        rng: np.random.Generator,
    ) -> tuple[Float32Array, Float32Array]:
        """Return policy targets [M, A] and root values [M] of observations [M, O].

        Searches run in blocks of one size, so that the predictor keeps one set of buffers.
        """
        weights, values = [], []
        for start in range(0, len(observations), BLOCK):
            block = observations[start : start + BLOCK]
            padded = np.zeros((BLOCK, *observations.shape[1:]), np.float32)
            padded[: len(block)] = block
            invalid = np.zeros((BLOCK, legal_actions.shape[1]), np.bool_)
            invalid[: len(block)] = ~legal_actions[start : start + BLOCK]
            output = search(
                self.predictor.initial(padded),
                self.predictor.recurrent_fn,
                rng=rng,
                invalid_actions=invalid,
            )
            weights.append(output.action_weights[: len(block)])
            values.append(output.root_value[: len(block)])
        return np.concatenate(weights), np.concatenate(values)
