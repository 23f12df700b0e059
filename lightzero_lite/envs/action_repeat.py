"""Actions that last several steps of the environment."""

from __future__ import annotations

from typing import Any

import gymnasium


class ActionRepeat(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes each action several times and adds up the rewards; the last observation counts.

    Random play moves further that way, and the search sees further with as many simulations. The
    end of an episode ends the repetition. An action mask is that of the last step.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], num_repeats: int) -> None:
        """Wrap an environment.

        Args:
            env: The environment, with its time limit: that counts its own steps.
            num_repeats: How often each action is taken, at least 1.
        """
        super().__init__(env)
        self.num_repeats = num_repeats

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take the action until it was taken often enough, or the episode ends."""
        total: Any
        observation, total, terminated, truncated, info = self.env.step(action)
        for _ in range(self.num_repeats - 1):
            if terminated or truncated:
                break
            observation, reward, terminated, truncated, info = self.env.step(action)
            total = total + reward
        return observation, total, terminated, truncated, info
