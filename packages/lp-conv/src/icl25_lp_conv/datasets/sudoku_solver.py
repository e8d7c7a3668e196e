"""Sudoku as a game: its units, which boards break its rules, an exact solver, and random completed boards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from jaxtyping import Bool, Integer

__all__ = [
    "as_boards",
    "count_solutions",
    "describe_conflict",
    "find_conflicts",
    "has_one_solution",
    "random_solutions",
    "solve",
    "valid_units",
]

_KINDS = ("row", "column", "box")


def _unit_cells() -> np.ndarray:
    cells = np.arange(81).reshape(9, 9)
    boxes = cells.reshape(3, 3, 3, 3).swapaxes(1, 2).reshape(9, 9)
    return np.concatenate([cells, cells.T, boxes])


_UNITS = _unit_cells()  # (27, 9) cells of the 9 rows, 9 columns and 9 boxes, a cell being 9 row + column
_ALL_DIGITS = np.int16(2**10 - 2)

# Sets of cells are 81-bit integers, so that one operation treats the whole board.
_BOARD = 2**81 - 1
_UNIT_SETS = [sum(1 << int(cell) for cell in unit) for unit in _UNITS]
_PEERS = [
    sum(1 << int(peer) for peer in np.setdiff1d(_UNITS[np.equal(_UNITS, cell).any(axis=1)], cell)) for cell in range(81)
]
_IN_ORDER = [range(9)] * 81


def as_boards(boards: Any, name: str, *, lowest: int) -> Integer[np.ndarray, "*n 9 9"]:
    """See that an array holds Sudoku boards, and give it back as int8.

    Args:
        boards: (..., 9, 9) whole numbers.
        name: What to call the array in an error.
        lowest: The smallest digit allowed: 0 where cells may be blank, else 1.

    Returns:
        (..., 9, 9) the boards.

    Raises:
        TypeError: If the array holds no whole numbers.
        ValueError: If the last two axes are not 9 and 9, or a number is not in lowest .. 9; the first such board and
            cell are named.

    Source: ours.
    """
    array = np.asarray(boards)
    if array.shape[-2:] != (9, 9):
        raise ValueError(f"{name} must have the shape (9, 9) or (n, 9, 9), found {array.shape}")
    if not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"{name} must hold whole numbers, found {array.dtype}")
    wrong = (array < lowest) | (array > 9)
    if wrong.any():
        *board, row, column = (int(index) for index in np.argwhere(wrong)[0])
        where = f"row {row + 1}, column {column + 1}" + (f" of board {board[0]}" if board else "")
        raise ValueError(f"{name} must hold digits {lowest} .. 9, found {array[wrong][0]} in {where}")
    return array.astype(np.int8, copy=False)


def valid_units(boards: Integer[np.ndarray, "n 9 9"]) -> Bool[np.ndarray, "n 27"]:
    """Which rows, columns and boxes hold each of the digits 1 .. 9 once.

    Args:
        boards: (n, 9, 9) digits 0 .. 9.

    Returns:
        (n, 27): the 9 rows from the top, the 9 columns from the left, the 9 boxes in reading order.

    Source: the rules of Sudoku.
    """
    bits = _digit_bits(boards)
    return np.stack([np.bitwise_or.reduce(bits[:, unit], axis=1) == _ALL_DIGITS for unit in _UNITS], axis=1)


def find_conflicts(boards: Integer[np.ndarray, "n 9 9"]) -> Bool[np.ndarray, "n 27"]:
    """Which rows, columns and boxes hold some digit twice; blanks do not count.

    Args:
        boards: (n, 9, 9) digits, 0 for a blank.

    Returns:
        (n, 27) in the order of ``valid_units``.

    Source: the rules of Sudoku.
    """
    bits = _digit_bits(boards)
    # Bits that all differ add up to their union; a digit that is there twice carries over.
    return np.stack(
        [bits[:, unit].sum(axis=1, dtype=np.int16) != np.bitwise_or.reduce(bits[:, unit], axis=1) for unit in _UNITS],
        axis=1,
    )


def describe_conflict(board: Integer[np.ndarray, "9 9"]) -> str | None:
    """Say which row, column or box of a board holds which digit twice.

    Args:
        board: (9, 9) digits, 0 for a blank.

    Returns:
        For instance ``"digit 5 stands twice in row 1"``, the first conflict, or None if there is none.

    Source: the rules of Sudoku.
    """
    for unit, digits in enumerate(board.ravel()[_UNITS]):
        counts = np.bincount(digits, minlength=10)
        counts[0] = 0
        if counts.max() > 1:
            times = "twice" if counts.max() == 2 else f"{counts.max()} times"
            return f"digit {counts.argmax()} stands {times} in {_KINDS[unit // 9]} {unit % 9 + 1}"
    return None


def solve(puzzle: Integer[np.ndarray, "9 9"]) -> Integer[np.ndarray, "9 9"]:
    """Solve a puzzle exactly, by propagation and search.

    A puzzle of several solutions gets one of them, always the same. Puzzles take about a millisecond; to prove that
    some rare puzzle has no solution can take minutes.

    Args:
        puzzle: (9, 9) digits, 0 for a blank.

    Returns:
        (9, 9) digits 1 .. 9, a valid board that has the givens of the puzzle.

    Raises:
        ValueError: If the puzzle has no solution; where two givens conflict, the unit and the digit are named. Also if
            the shape or a digit is wrong.
        TypeError: If the puzzle holds no whole numbers.

    Source: ours.

    Example:
        >>> puzzle = np.zeros((9, 9), int)
        >>> puzzle[0, :8] = [8, 7, 6, 5, 4, 3, 2, 1]
        >>> solve(puzzle)[0]
        array([8, 7, 6, 5, 4, 3, 2, 1, 9], dtype=int8)
    """
    solution = next(_solutions(_checked_candidates(puzzle)), None)
    if solution is None:
        raise ValueError("the puzzle has no solution, though no two of its givens conflict")
    return _to_board(solution)


def count_solutions(puzzle: Integer[np.ndarray, "9 9"], limit: int = 2) -> int:
    """Count the solutions of a puzzle, up to a limit.

    Args:
        puzzle: (9, 9) digits, 0 for a blank.
        limit: Stop at so many, >= 1; 2 is enough to tell whether there is just one.

    Returns:
        The number of solutions, at most ``limit``; 0 where givens conflict.

    Raises:
        ValueError: If the shape or a digit is wrong or the limit is below 1.
        TypeError: If the puzzle holds no whole numbers.

    Source: ours.
    """
    if limit < 1:
        raise ValueError(f"limit must be >= 1, found {limit}")
    puzzle = as_boards(puzzle, "puzzle", lowest=0)
    if describe_conflict(puzzle) is not None:
        return 0
    return _count(_candidates(puzzle.ravel().tolist()), limit)


def has_one_solution(cells: Sequence[int], without: int | None = None, solution: Sequence[int] = ()) -> bool:
    """Whether a puzzle that is known to be solvable has one solution alone.

    Args:
        cells: 81 digits in reading order, 0 for a blank, that do not conflict.
        without: A cell that was just blanked in a puzzle of one solution: only other digits there need be tried.
        solution: The solution, 81 digits, if ``without`` is given.

    Returns:
        True or False.

    Source: ours.
    """
    candidates = _candidates(cells)
    needed = 2
    if without is not None:
        candidates[solution[without] - 1] &= ~(1 << without)
        needed = 1
    return _count(candidates, needed) < needed


def random_solutions(n: int, rng: np.random.Generator) -> Integer[np.ndarray, "n 9 9"]:
    """Draw completed boards: three boxes of the diagonal at random, the rest by search in a random order of digits.

    Every board can come out, though not all with the same probability.

    Args:
        n: How many, >= 0.
        rng: Where the draws come from; the first boards do not depend on n.

    Returns:
        (n, 9, 9) digits 1 .. 9, valid boards.

    Source: ours.
    """
    boards = np.zeros((n, 9, 9), np.int8)
    for board in boards:
        for start in (0, 3, 6):
            board[start : start + 3, start : start + 3] = rng.permutation(9).reshape(3, 3) + 1
        orders = rng.random((81, 9)).argsort(axis=1).tolist()
        board[:] = _to_board(next(_solutions(_candidates(board.ravel().tolist()), orders)))
    return boards


def _digit_bits(boards: np.ndarray) -> np.ndarray:
    """(n, 81) the bit of each cell's digit, 0 for a blank."""
    return np.left_shift(np.int16(1), boards.reshape(-1, 81).astype(np.int16)) & _ALL_DIGITS


def _checked_candidates(puzzle: np.ndarray) -> list[int]:
    puzzle = as_boards(puzzle, "puzzle", lowest=0)
    conflict = describe_conflict(puzzle)
    if conflict is not None:
        raise ValueError(f"the puzzle has no solution: {conflict}")
    return _candidates(puzzle.ravel().tolist())


def _candidates(cells: Sequence[int]) -> list[int]:
    """For each digit, the set of the cells where it may stand."""
    given = [0] * 10
    excluded = [0] * 10
    for cell, digit in enumerate(cells):
        given[digit] |= 1 << cell
        if digit:
            excluded[digit] |= _PEERS[cell]
    return [given[digit] | (given[0] & ~excluded[digit]) for digit in range(1, 10)]


def _count(candidates: list[int], limit: int) -> int:
    return sum(1 for _ in islice(_solutions(candidates), limit))


def _to_board(candidates: Sequence[int]) -> np.ndarray:
    board = np.zeros(81, np.int8)
    for digit, cells in enumerate(candidates, start=1):
        board[[cell for cell in range(81) if cells >> cell & 1]] = digit
    return board.reshape(9, 9)


def _solutions(candidates: list[int], orders: Sequence[Sequence[int]] = _IN_ORDER) -> Iterator[list[int]]:
    """Every solution, each as the cells of the nine digits; ``orders`` says in which order a cell tries its digits."""
    pending = [(candidates, _BOARD)]
    while pending:
        candidates, unplaced = pending.pop()
        unplaced = _propagate(candidates, unplaced)
        if unplaced is None:
            continue
        if not unplaced:
            yield candidates
            continue
        cell = _most_constrained(candidates, unplaced)
        for digit in reversed(orders[cell]):  # the last one pushed is tried first
            if candidates[digit] >> cell & 1:
                branch = list(candidates)
                _place(branch, digit, cell)
                pending.append((branch, unplaced & ~(1 << cell)))


def _propagate(candidates: list[int], unplaced: int) -> int | None:
    """Place what is forced, changing ``candidates``; give back the cells not yet placed, or None if they clash."""
    while True:
        once = twice = 0
        for cells in candidates:
            twice |= once & cells
            once |= cells
        if once != _BOARD:
            return None
        singles = unplaced & ~twice
        if singles:
            _place_singles(candidates, singles)
            unplaced &= ~singles
            continue
        hidden = _place_hidden(candidates, unplaced) if unplaced else 0
        if hidden is None:
            return None
        if not hidden:
            return unplaced
        unplaced &= ~hidden


def _place_singles(candidates: list[int], singles: int) -> None:
    """Place the only digit of each of these cells; where two of them clash, the latter leaves the former no digit."""
    for digit in range(9):
        cells = candidates[digit] & singles
        while cells:
            lowest = cells & -cells
            candidates[digit] &= ~_PEERS[lowest.bit_length() - 1]
            cells ^= lowest


def _place_hidden(candidates: list[int], unplaced: int) -> int | None:
    """Place digits that have one cell left in some unit; give back those cells, or None if a digit has no cell."""
    placed = 0
    for digit in range(9):
        for unit in _UNIT_SETS:
            cells = candidates[digit] & unit
            if not cells:
                return None
            if not cells & (cells - 1) and cells & unplaced & ~placed:
                _place(candidates, digit, cells.bit_length() - 1)
                placed |= cells
    return placed


def _place(candidates: list[int], digit: int, cell: int) -> None:
    bit = 1 << cell
    for other in range(9):
        candidates[other] &= ~bit
    candidates[digit] = candidates[digit] & ~_PEERS[cell] | bit


def _most_constrained(candidates: list[int], unplaced: int) -> int:
    """A cell with the fewest digits left, the first one; none has fewer than two."""
    once = twice = thrice = 0
    for cells in candidates:
        thrice |= twice & cells
        twice |= once & cells
        once |= cells
    pairs = unplaced & ~thrice
    if pairs:
        return (pairs & -pairs).bit_length() - 1
    left = (cell for cell in range(81) if unplaced >> cell & 1)
    return min(left, key=lambda cell: sum(cells >> cell & 1 for cells in candidates))
