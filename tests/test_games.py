"""The rules of the games against slow ones, and their players against plain searches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from lightzero_lite.envs.games import alpha_beta as alpha_beta_player
from lightzero_lite.envs.games import minimax
from lightzero_lite.envs.games.connect_four import COLUMNS, ROWS, ConnectFour
from lightzero_lite.envs.games.pictures import CELL, COLOURS
from lightzero_lite.envs.games.tic_tac_toe import TicTacToe
from lightzero_lite.envs.opponents import find_opponent, random_player
from lightzero_lite.types import UserError

Board = tuple[str, ...]  # rows of "X", "O" and "."


def lines_of(board: Board, length: int) -> Iterator[str]:
    """Yield every straight run of `length` cells, read cell by cell."""
    rows, columns = len(board), len(board[0])
    for row in range(rows):
        for column in range(columns):
            for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
                cells = [(row + i * down, column + i * right) for i in range(length)]
                if all(0 <= r < rows and 0 <= c < columns for r, c in cells):
                    yield "".join(board[r][c] for r, c in cells)


def winner(board: Board, length: int) -> str | None:
    lines = set(lines_of(board, length))
    return next((player for player in "XO" if player * length in lines), None)


def mover(board: Board) -> str:
    text = "".join(board)
    return "X" if text.count("X") == text.count("O") else "O"


def seen_by_mover(board: Board) -> list[float]:
    own, text = mover(board), "".join(board)
    other = "O" if own == "X" else "X"
    return [float(cell == player) for player in (own, other) for cell in text]


def with_cell(board: Board, row: int, column: int) -> Board:
    line = board[row]
    changed = line[:column] + mover(board) + line[column + 1 :]
    return (*board[:row], changed, *board[row + 1 :])


def bits(board: Board, player: str) -> int:
    """Return a player's stones on a tic-tac-toe board as an integer."""
    return sum(1 << i for i, cell in enumerate("".join(board)) if cell == player)


EMPTY: Board = ("...", "...", "...")


def replies(board: Board) -> list[tuple[int, Board]]:
    free = [i for i, cell in enumerate("".join(board)) if cell == "."]
    return [(i, with_cell(board, i // 3, i % 3)) for i in free]


@cache
def number_of_games(board: Board) -> int:
    """Play every move of tic-tac-toe from here in the environment as well, and count the games."""
    env = TicTacToe()
    count = 0
    for action, after in replies(board):
        own = mover(board)
        env.own, env.other = bits(board, own), bits(board, "O" if own == "X" else "X")
        observation, reward, terminated, truncated, info = env.step(action)
        has_won, is_full = winner(after, 3) == own, "." not in "".join(after)
        assert observation.tolist() == seen_by_mover(after)
        assert (reward, terminated, truncated) == (float(has_won), has_won or is_full, False)
        assert info["action_mask"].tolist() == [cell == "." for cell in "".join(after)]
        count += 1 if terminated else number_of_games(after)
    return count


def test_every_move_of_every_game_of_tic_tac_toe() -> None:
    number_of_games.cache_clear()
    assert number_of_games(EMPTY) == 255_168
    # 5,478 positions in all, of which 958 end the game and have no moves.
    assert number_of_games.cache_info().currsize == 5_478 - 958


def test_random_games_of_connect_four_against_a_board_of_characters() -> None:
    env, rng, ends = ConnectFour(), np.random.default_rng(0), []
    for _ in range(60):
        board: Board = ("." * COLUMNS,) * ROWS
        observation, info = env.reset(seed=1)
        terminated = False
        while not terminated:
            assert observation.tolist() == seen_by_mover(board)
            free = [board[0][column] == "." for column in range(COLUMNS)]
            assert info["action_mask"].tolist() == free
            column = int(rng.choice(np.flatnonzero(free)))
            row = max(r for r in range(ROWS) if board[r][column] == ".")
            own, board = mover(board), with_cell(board, row, column)
            observation, reward, terminated, truncated, info = env.step(column)
            has_won = winner(board, 4) == own
            assert (reward, truncated) == (float(has_won), False)
            assert terminated == (has_won or "." not in "".join(board))
        assert env.render().split("\n") == list(board)
        ends.append(next(line for line in lines_of(board, 4) if line in ("XXXX", "OOOO")))
    assert set(ends) == {"XXXX", "OOOO"}


@pytest.mark.parametrize(
    ("moves", "reward"),
    [
        ([0, 1, 0, 1, 0, 1, 0], 1.0),  # a column
        ([0, 0, 1, 1, 2, 2, 3], 1.0),  # a row
        ([0, 1, 1, 2, 2, 3, 2, 3, 3, 6, 3], 1.0),  # a diagonal up
        ([3, 2, 2, 1, 1, 0, 1, 0, 0, 6, 0], 1.0),  # a diagonal down
        # Three on top of one column and one at the bottom of the next are no line.
        ([0, 0, 0, 0, 2, 0, 2, 0, 3, 1], 0.0),
    ],
)
def test_lines_of_connect_four_by_hand(moves: list[int], reward: float) -> None:
    env = ConnectFour()
    env.reset()
    results = [env.step(move)[1:3] for move in moves]
    assert results[:-1] == [(0.0, False)] * (len(moves) - 1)
    assert results[-1] == (reward, reward == 1.0)


def test_a_full_board_of_connect_four_is_a_draw() -> None:
    env, results = ConnectFour(), []
    env.reset()
    for column in [*(0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1), *(2, 3, 2, 3, 3, 2, 3, 2, 2, 3, 2, 3)]:
        results.append(env.step(column)[1:3])
    for column in [*(4, 5, 4, 5, 5, 4, 5, 4, 4, 5, 4, 5), *(6, 6, 6, 6, 6, 6)]:
        results.append(env.step(column)[1:3])
    assert results == [(0.0, False)] * 41 + [(0.0, True)]


@pytest.mark.parametrize("name", ["TicTacToe-v0", "ConnectFour-v0"])
def test_games_are_good_gymnasium_environments(name: str) -> None:
    env = gymnasium.make(name).unwrapped
    check_env(env, skip_render_check=True)
    assert env.metadata["num_players"] == 2
    env.reset()
    for action in (-1, 9):
        with pytest.raises(ValueError, match=f"{action} is "):
            env.step(action)
    assert gymnasium.make(name).spec.max_episode_steps == {"T": 9, "C": 42}[name[0]]


def test_taken_cells_and_full_columns_are_refused() -> None:
    for env, moves in ((TicTacToe(), [4]), (ConnectFour(), [4] * 6)):
        env.reset()
        for move in moves:
            env.step(move)
        with pytest.raises(ValueError, match=r"^\w+ 4 is (taken|full)"):
            env.step(4)


def test_a_board_as_text_and_as_a_picture() -> None:
    for moves, text in (([4, 0], "O..\n.X.\n..."), ([4, 0, 8], "O..\n.X.\n..X")):
        env = TicTacToe(render_mode="ansi")
        env.reset()
        for move in moves:
            env.step(move)
        assert env.render() == text
        env.render_mode = "rgb_array"
        picture = env.render()
        assert picture.shape == (3 * CELL, 3 * CELL, 3)
        centres = picture[CELL // 2 :: CELL, CELL // 2 :: CELL]
        expected = [[".XO".index(cell) for cell in line] for line in text.split("\n")]
        assert np.array_equal(centres, COLOURS[np.array(expected)])


# Players.


def outcomes(board: Board, perfect: str) -> set[str | None]:
    """Return who may win if one side plays any of its optimal moves, the other anything."""
    seen: dict[Board, set[str | None]] = {}

    def visit(current: Board) -> set[str | None]:
        if current in seen:
            return seen[current]
        champion = winner(current, 3)
        if champion or "." not in "".join(current):
            return {champion}
        own = mover(current)
        moves = replies(current)
        if own == perfect:
            other = "O" if own == "X" else "X"
            best = minimax.optimal_cells(bits(current, own), bits(current, other))
            moves = [(cell, after) for cell, after in moves if cell in best]
        seen[current] = set().union(*(visit(after) for _, after in moves))
        return seen[current]

    return visit(board)


def test_the_perfect_player_loses_no_game_against_any_replies() -> None:
    assert outcomes(EMPTY, "X") == {"X", None}
    assert outcomes(EMPTY, "O") == {"O", None}


def test_the_perfect_player_draws_from_all_optimal_moves() -> None:
    env, rng = TicTacToe(), np.random.default_rng(0)
    env.reset()
    legal = np.ones(9, np.bool_)
    assert {minimax.perfect(env, legal, rng) for _ in range(200)} == set(range(9))
    env.step(4)  # after the centre only the corners hold the draw
    assert {minimax.perfect(env, legal, rng) for _ in range(200)} == {0, 2, 6, 8}


def plain_value(board: Board, depth: int) -> int:
    """Return what the mover gets by minimax without cuts, on a board of characters."""
    values = [plain_move(board, column, depth) for column in range(COLUMNS)]
    known = [value for value in values if value is not None]
    return max(known) if depth > 0 and known else 0


def plain_move(board: Board, column: int, depth: int) -> int | None:
    if depth == 0 or board[0][column] != ".":
        return None
    own = mover(board)
    after = with_cell(board, max(r for r in range(ROWS) if board[r][column] == "."), column)
    return depth if winner(after, 4) == own else -plain_value(after, depth - 1)


def test_alpha_beta_is_a_plain_minimax() -> None:
    env, rng, decided = ConnectFour(render_mode="ansi"), np.random.default_rng(4), 0
    for number in range(16):
        env.reset()
        for _ in range(20):
            before = env.own, env.other
            legal = np.flatnonzero(env._info()["action_mask"])
            if env.step(rng.choice(legal))[2]:
                env.own, env.other = before  # a game that is over is taken back one move
                break
        depth = 1 + number % 3
        board = tuple(env.render().split("\n"))
        values = [
            alpha_beta_player.move_value(env.own, env.other, column, depth)
            for column in range(COLUMNS)
        ]
        assert values == [plain_move(board, column, depth) for column in range(COLUMNS)]
        known = [value for value in values if value is not None]
        decided += len(set(known)) > 1
        best = {column for column, value in enumerate(values) if value == max(known)}
        player = find_opponent(f"alpha_beta_{depth}", env)
        assert {player(env, legal, rng) for _ in range(40)} <= best
    assert decided > 4  # most positions have a threat to see


def test_opponents_are_found_by_name_and_others_refused_in_one_line() -> None:
    assert find_opponent("random", TicTacToe()) is random_player
    assert find_opponent("tests.test_games:first_legal", TicTacToe()) is first_legal
    own = "random, your own package.module:function"
    for name, game, known in (
        ("perfect", ConnectFour(), f"{own}, alpha_beta_N (N plies deep)"),
        ("alpha_beta_0", ConnectFour(), f"{own}, alpha_beta_N (N plies deep)"),
        ("alpha_beta_2", TicTacToe(), f"{own}, perfect"),
    ):
        with pytest.raises(UserError) as refused:
            find_opponent(name, game)
        kind = type(game).__name__
        assert str(refused.value) == (
            f"env.opponents: {kind} knows no player {name}: choose of {known}"
        )
    with pytest.raises(UserError, match=r"env\.opponents=\[tests\.test_games:none\]: "):
        find_opponent("tests.test_games:none", TicTacToe())


def test_random_players_are_uniform_over_the_legal_moves() -> None:
    legal, rng = np.array([False, True, True, False, True]), np.random.default_rng(0)
    counts = np.bincount([random_player(None, legal, rng) for _ in range(1500)], minlength=5)
    assert counts[0] == counts[3] == 0
    # Chi-square with 2 degrees of freedom: 13.8 is passed once in a thousand seeds.
    assert float(np.sum((counts[legal] - 500) ** 2 / 500)) < 13.8


def first_legal(game: Any, legal_actions: np.ndarray, rng: np.random.Generator) -> int:
    """Play the first legal action: a user's own opponent."""
    return int(legal_actions.argmax())
