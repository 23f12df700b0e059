"""The environments of a rank, stepped together: in this process, or each in one of its own."""

from __future__ import annotations

from collections.abc import Sequence

from lightzero_lite.config import EnvConfig
from lightzero_lite.envs.adapter import EnvAdapter
from lightzero_lite.envs.factory import Env, EnvShape
from lightzero_lite.envs.remote import Workers
from lightzero_lite.types import Int32Array, ResetOptions, ResetResult, StepResult


class VectorEnv:
    """Environments of which those in play are stepped together, and each is reset when told to.

    env.vectorization=sync steps one after the other, async each in a process of its own. The data
    are the same.
    """

    def __init__(self, config: EnvConfig, num_envs: int) -> None:
        """Construct num_envs environments.

        Raises:
            UserError: One cannot be made or does not fit.
        """
        self.num_envs = num_envs
        self.local: list[EnvAdapter] = []
        self.workers: Workers | None = None
        if config.vectorization == "sync":
            self.local = [EnvAdapter(config, index) for index in range(num_envs)]
            self.shapes = [adapter.shape for adapter in self.local]
        elif num_envs:
            self.workers = Workers(config, num_envs)
            self.shapes = self.workers.shapes()

    @property
    def shape(self) -> EnvShape:
        """The sizes of each environment."""
        return self.shapes[0]

    @property
    def envs(self) -> list[Env]:
        """The environments of this process: none where they are stepped in others."""
        return [adapter.env for adapter in self.local]

    def __len__(self) -> int:
        """Return the number of environments."""
        return self.num_envs

    def reset_all(
        self,
        indices: Sequence[int],
        seeds: Sequence[int],
        options: Sequence[ResetOptions] | None = None,
    ) -> list[ResetResult]:
        """Start an episode in each of these environments, from its seed and with its options."""
        starts = list(zip(seeds, options or [None] * len(seeds), strict=True))
        if self.workers is None:
            pairs = zip(indices, starts, strict=True)
            return [self.local[index].reset(*start) for index, start in pairs]
        return self.workers.ask("reset", indices, starts)

    def step_all(self, indices: Sequence[int], actions: Int32Array) -> list[StepResult]:
        """Take an action, in [0, action_num), in each of these environments."""
        if self.workers is None:
            pairs = zip(indices, actions.tolist(), strict=True)
            return [self.local[index].step(action) for index, action in pairs]
        return self.workers.ask("step", indices, actions.tolist())

    def close(self) -> None:
        """Close all environments."""
        for adapter in self.local:
            adapter.close()
        if self.workers is not None:
            self.workers.close()
