"""Which actions an environment allows: `info["action_mask"]`, or a part of a Dict observation.

Both forms are common: Gymnasium's own (Taxi-v4), and PettingZoo's Dict of exactly "observation" and
"action_mask", whose mask is not part of what the networks see. Nonzero means legal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from lightzero_lite.types import BoolArray, UserError

KEY = "action_mask"


def has_mask(space: spaces.Space[Any]) -> bool:
    """Return whether an observation of this space brings the mask with it."""
    return isinstance(space, spaces.Dict) and set(space.spaces) == {"observation", KEY}


def network_space(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Return the space of what the networks see: the observation without its mask."""
    if has_mask(space):
        assert isinstance(space, spaces.Dict)
        return space.spaces["observation"]
    return space


def legal_actions(mask: Any, num_actions: int, *, must_act: bool, option: str) -> BoolArray:
    """Return the mask of one state as `[A]`, True: legal.

    Args:
        mask: What the environment says; None: all actions are legal.
        num_actions: A.
        must_act: False: the environment terminated. Whatever it says, all are legal then.
        option: Names the environment in messages.

    Raises:
        UserError: The mask has another shape, or allows nothing though the episode goes on.
    """
    if mask is None or not must_act:
        return np.ones(num_actions, np.bool_)
    legal: BoolArray = np.array(mask, dtype=np.bool_)
    if legal.shape != (num_actions,):
        raise UserError(
            f"{option}: an action mask has shape {legal.shape}, but must have one entry "
            f"for each of the {num_actions} actions"
        )
    if not legal.any():
        raise UserError(
            f"{option}: an action mask allows no action, but the episode goes on: end "
            "it with terminated=True"
        )
    return legal


def find_mask(observation: Any, info: Mapping[str, Any], *, is_in_observation: bool) -> Any:
    """Return what an environment says of a state's actions, in its own form; None: nothing."""
    return observation[KEY] if is_in_observation else info.get(KEY)
