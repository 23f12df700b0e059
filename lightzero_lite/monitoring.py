"""Histograms of what scalars cannot show: weights, gradients, latents, priorities, searches.

Rank 0 looks at its own share alone, so that no other rank has to take part.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from lightzero_lite.learner import Learner
from lightzero_lite.networks import MuZeroModelMLP
from lightzero_lite.normalization import ObservationNormalizer
from lightzero_lite.replay import ReplayBuffer
from lightzero_lite.runtime.logging import NullLog
from lightzero_lite.search import TreeCache, simulation_depths, visit_entropy
from lightzero_lite.types import (
    BoolArray,
    RecurrentFn,
    ReplayBatch,
    RootOutput,
    SearchFn,
    SearchOutput,
)


class NullMonitor:
    """The monitor of a run without histograms, and of all ranks but one."""

    def watched(self, search: SearchFn) -> SearchFn:
        """Return a search whose answers are looked at."""
        return search

    def write(self, log: NullLog, *, train_iter: int, rng: np.random.Generator) -> None:
        """Write all histograms to the log."""


class Monitor(NullMonitor):
    """Looks at the parts of this rank."""

    def __init__(
        self,
        learner: Learner,
        buffer: ReplayBuffer,
        trees: TreeCache,
        *,
        normalizer: ObservationNormalizer,
        batch_size: int,
    ) -> None:
        """Take the parts that are looked at.

        Args:
            learner: Its model, with the gradients of its last update.
            buffer: Priorities, and positions whose latents are measured.
            trees: Where the watched searches leave their trees.
            normalizer: Makes of what the buffer stores what the networks see.
            batch_size: How many positions that are.
        """
        self.learner, self.buffer, self.trees = learner, buffer, trees
        self.normalizer, self.batch_size = normalizer, batch_size
        self.visit_counts: list[np.ndarray] = []  # of each search, [B, A]
        self.parents: list[np.ndarray] = []  # of each search's nodes, [B, N]

    def watched(self, search: SearchFn) -> SearchFn:
        """Return the search of a new collect phase; what was seen of the last one is forgotten."""
        self.visit_counts, self.parents = [], []

        def watch(
            root: RootOutput,
            recurrent_fn: RecurrentFn,
            *,
            rng: np.random.Generator,
            invalid_actions: BoolArray | None = None,
        ) -> SearchOutput:
            output = search(root, recurrent_fn, rng=rng, invalid_actions=invalid_actions)
            num_roots, num_actions = output.visit_counts.shape
            num_simulations = int(output.visit_counts[0].sum())
            tree = self.trees.get(num_roots, num_simulations, num_actions)
            # What can be worked out for many searches at once is left for later.
            self.visit_counts.append(output.visit_counts)
            self.parents.append(tree.nodes["parent"].copy())
            return output

        return watch

    def write(self, log: NullLog, *, train_iter: int, rng: np.random.Generator) -> None:
        """Write all histograms to the log.

        Args:
            log: The log of the run.
            train_iter: Their step.
            rng: Draws the positions whose latents are measured.
        """
        values = dict(self._networks())
        batch = self.normalizer.normalize_batch(self.buffer.sample(self.batch_size, rng))
        norms = latent_norms(self.learner.model, batch, self.learner.device)
        values |= {f"latent_norm_iter/k{k}": norm for k, norm in enumerate(norms)}
        values["replay_iter/priority"] = self.buffer.priorities()
        if self.visit_counts:
            visits, parents = np.concatenate(self.visit_counts), np.concatenate(self.parents)
            values["search_iter/visit_entropy"] = visit_entropy(visits)
            values["search_iter/depth"] = simulation_depths(parents)
        log.histograms(values, train_iter=train_iter)

    def _networks(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield weights and gradients, with their tags."""
        for name, parameter in self.learner.model.named_parameters():
            yield f"weights_iter/{name}", parameter.detach().cpu().numpy()
            if parameter.grad is not None:
                yield f"gradients_iter/{name}", parameter.grad.cpu().numpy()


@torch.no_grad()
def latent_norms(model: MuZeroModelMLP, batch: ReplayBatch, device: torch.device) -> np.ndarray:
    """Return the Euclidean norms of the latents after 0..K model steps, `[K + 1, B]`.

    Args:
        model: The networks; they run as in a search, in eval mode.
        batch: Observations to start from and actions to take.
        device: Where the model is.
    """
    was_training = model.training
    model.eval()
    actions = torch.from_numpy(batch.actions).long().to(device)
    latents = [model.representation_network(torch.from_numpy(batch.observations[:, 0]).to(device))]
    for k in range(actions.shape[1]):
        latents.append(model.dynamics_network(latents[-1], actions[:, k]))
    model.train(was_training)
    norms: np.ndarray = torch.stack(latents).norm(dim=-1).cpu().numpy()
    return norms
