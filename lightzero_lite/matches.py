"""Evaluation in games of two players: who plays whom from which seat, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lightzero_lite.config import Config
from lightzero_lite.runtime.logging import Fields
from lightzero_lite.types import EpisodeSummary, UserError

SEAT_NAMES = ("first", "second")


def check_players(config: Config, num_players: int) -> None:
    """Check that play, search and evaluation are set for as many players as the game has.

    Raises:
        UserError: The sign of the discount, env.opponents or env.action_repeat is for another
            number of players, or the seats cannot share the games equally.
    """
    name, discount = config.env.name, config.policy.discount_factor
    if num_players == 2 and discount >= 0:
        raise UserError(
            f"policy.discount_factor={discount}: {name} is a game of two players who alternate: "
            "set policy.discount_factor=-1"
        )
    if num_players == 1 and discount < 0:
        raise UserError(
            f"policy.discount_factor={discount}: {name} is for one player: set it to 0 or more"
        )
    num_repeats = config.env.action_repeat
    if num_players == 2 and num_repeats > 1:
        raise UserError(
            f"env.action_repeat={num_repeats} is for one player: leave it out of a game"
        )
    opponents, games = config.env.opponents, config.env.n_evaluator_episode
    if num_players == 1 and opponents:
        raise UserError(f"env.opponents=[{','.join(opponents)}]: {name} is for one player")
    if num_players == 2 and not opponents:
        raise UserError(f"{name} is a game of two players: set env.opponents=[random]")
    if num_players == 2 and games % 2:
        raise UserError(
            f"env.n_evaluator_episode={games} is odd: the agent plays half of it from each seat"
        )


def outcome_fields(summaries: Sequence[EpisodeSummary], opponents: Sequence[str]) -> Fields:
    """Return the shares of games won, drawn and lost against each opponent, in all and by seat.

    Args:
        summaries: Every game of an evaluation, in the order of their numbers.
        opponents: Their names; none: no fields. Each has equally many games, opponent after
            opponent, in which the agent has the two seats in turn.
    """
    fields: dict[str, float] = {}
    if not opponents:
        return fields
    returns = np.array([summary.episode_return for summary in summaries])
    for name, games in zip(opponents, np.split(returns, len(opponents)), strict=True):
        slug = name.rpartition(":")[2]
        fields |= _shares(slug, games)
        for seat, seat_name in enumerate(SEAT_NAMES):
            fields |= _shares(f"{slug}_{seat_name}", games[seat::2])
    return fields


def _shares(name: str, returns: np.ndarray) -> dict[str, float]:
    return {
        f"win_rate_{name}": float(np.mean(returns > 0)),
        f"draw_rate_{name}": float(np.mean(returns == 0)),
        f"loss_rate_{name}": float(np.mean(returns < 0)),
    }
