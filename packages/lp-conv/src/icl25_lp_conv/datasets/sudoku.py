"""Sudoku puzzles: generated or read, split, and boards scored by rows, columns and boxes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer

from icl25_lp_conv.datasets.sudoku_files import (
    Sudokus,
    format_board,
    load_csv,
    load_puzzles,
    parse_board,
    save_csv,
)
from icl25_lp_conv.datasets.sudoku_solver import (
    as_boards,
    count_solutions,
    has_one_solution,
    random_solutions,
    solve,
    valid_units,
)
from icl25_shared import progress, spawn_generators

__all__ = [
    "SudokuMetrics",
    "SudokuSplit",
    "Sudokus",
    "count_solutions",
    "format_board",
    "generate",
    "load_csv",
    "load_puzzles",
    "metrics",
    "parse_board",
    "save_csv",
    "solve",
    "split",
]

# Puzzles are made in blocks, each from a generator of its own, so that the first ones do not depend on how many follow.
_BLOCK = 2000
_BASES = 200
_TRIES = 100


class SudokuSplit(NamedTuple):
    """Sudokus to train on and sudokus to test with."""

    train: Sudokus
    test: Sudokus


class SudokuMetrics(NamedTuple):
    """How well boards keep the rules, one number for each board.

    Attributes:
        row: (...) share of the 9 rows that hold each of 1 .. 9 once.
        col: (...) the same for columns.
        box: (...) the same for boxes.
        solved: (...) whether all 27 do; the board need not be the solution that the puzzle came with.
        number: (...) share of the 81 cells that equal the solution, or None where no solution was given.
    """

    row: Float[np.ndarray, "*n"]
    col: Float[np.ndarray, "*n"]
    box: Float[np.ndarray, "*n"]
    solved: Bool[np.ndarray, "*n"]
    number: Float[np.ndarray, "*n"] | None


def generate(n: int, seed: int = 0, clues: int = 45, unique: bool = False) -> Sudokus:
    """Generate puzzles whose solutions are spread over all completed boards.

    Of every 2000 solutions the first 200 come from random searches of their own; the others, too, are images of those
    under relabelled digits, permuted rows, columns and bands, and transposition. The givens are cells drawn at random.
    The same seed gives the same bytes, and the first puzzles do not depend on n.

    Args:
        n: How many puzzles, >= 1.
        seed: Seed of all draws, >= 0.
        clues: Givens of each puzzle, 17 .. 81.
        unique: Draw the givens so that each puzzle has one solution alone. It takes some 2 ms a puzzle with 36 clues
            and 15 ms with 24; below 23 it rarely succeeds.

    Returns:
        The puzzles and their solutions, int8.

    Raises:
        ValueError: If n, the seed or the number of clues is out of range, or if ``unique`` cannot be had with so few
            clues.
        TypeError: If the seed is no whole number.

    Source: the paper's Sudoku task (its data are the public 1M-Sudoku set, made likewise by computer); the generator is
        ours.

    Example:
        >>> puzzles, solutions = generate(3, seed=1, clues=30)
        >>> (puzzles > 0).sum(axis=(1, 2)).tolist(), bool(metrics(solutions).solved.all())
        ([30, 30, 30], True)
    """
    if n < 1:
        raise ValueError(f"n must be >= 1, found {n}")
    if not 17 <= clues <= 81:
        raise ValueError(f"clues must be 17 .. 81, found {clues}")
    blocks = []
    with progress("generating puzzles", total=n) as bar:
        for number, rng in enumerate(spawn_generators(seed, -(-n // _BLOCK))):
            size = min(_BLOCK, n - number * _BLOCK)
            for_bases, for_puzzles = rng.spawn(2)
            solutions = _symmetric_images(random_solutions(min(size, _BASES), for_bases), rng)[:size]
            # The first `clues` cells of a random order stay.
            order = rng.random((_BLOCK, 81)).argsort(axis=1)[:size]
            blanks = order[:, clues:]
            if unique:
                blanks = np.empty_like(blanks)
                for row, generator in enumerate(for_puzzles.spawn(size)):
                    blanks[row] = _unique_blanks(solutions[row], order[row], clues, generator)
                    bar.advance()
            else:
                bar.advance(size)
            puzzles = solutions.reshape(size, 81).copy()
            np.put_along_axis(puzzles, blanks, 0, axis=1)
            blocks.append((puzzles.reshape(size, 9, 9), solutions))
    return Sudokus(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def split(data: Sudokus, seed: int = 42, train: float = 0.8) -> SudokuSplit:
    """Split sudokus at random.

    Args:
        data: At least two sudokus.
        seed: Seed of the permutation, >= 0.
        train: Share to train on, between 0 and 1; rounded to whole sudokus, at least one on either side.

    Returns:
        The two parts, which share no row of ``data``.

    Raises:
        ValueError: If there are fewer than two sudokus or the share is out of range.

    Source: the paper's Sudoku task (80 / 20, seed 42).
    """
    n = len(data.puzzles)
    if n < 2:
        raise ValueError(f"a split needs at least 2 sudokus, found {n}")
    if not 0 < train < 1:
        raise ValueError(f"train must lie between 0 and 1, found {train}")
    order = np.random.default_rng(seed).permutation(n)
    n_train = min(max(round(train * n), 1), n - 1)
    parts = (Sudokus(data.puzzles[rows], data.solutions[rows]) for rows in (order[:n_train], order[n_train:]))
    return SudokuSplit(*parts)


def metrics(
    pred: Integer[np.ndarray, "*n 9 9"], solution: Integer[np.ndarray, "*m 9 9"] | None = None
) -> SudokuMetrics:
    """Score boards: the share of rows, columns and boxes that are right, and whether all are.

    Right means valid, each of 1 .. 9 once, and not equal to the solution; ``number`` alone compares with it.

    Args:
        pred: (n, 9, 9) boards or (9, 9) one board, digits 1 .. 9; add 1 to classes that count from 0.
        solution: The solutions, of the shape of ``pred``, or (9, 9) one for all boards.

    Returns:
        Arrays of shape (n,), or () for one board.

    Raises:
        ValueError: If the shapes do not fit or a digit is not in 1 .. 9.
        TypeError: If an array holds no whole numbers.

    Source: the paper's Sudoku metrics.

    Example:
        >>> board = np.add.outer([0, 3, 6, 1, 4, 7, 2, 5, 8], np.arange(9)) % 9 + 1
        >>> board[0, [0, 1]] = board[0, [1, 0]]
        >>> scores = metrics(board)
        >>> float(scores.row), round(float(scores.col), 3), float(scores.box), bool(scores.solved)
        (1.0, 0.778, 1.0, False)
    """
    pred = as_boards(pred, "pred", lowest=1)
    shape = pred.shape[:-2]
    valid = valid_units(pred.reshape(-1, 9, 9))
    row, col, box = (np.asarray(valid[:, part : part + 9].mean(axis=1)).reshape(shape) for part in (0, 9, 18))
    number = None
    if solution is not None:
        solution = as_boards(solution, "solution", lowest=1)
        if solution.shape not in (pred.shape, (9, 9)):
            raise ValueError(f"solution must have the shape {pred.shape} of pred or (9, 9), found {solution.shape}")
        number = np.asarray((pred == solution).mean(axis=(-2, -1)))
    return SudokuMetrics(row, col, box, valid.all(axis=1).reshape(shape), number)


def _symmetric_images(bases: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A block of boards, each base in turn under a random symmetry; the draws do not depend on the number of bases."""
    digits = rng.random((_BLOCK, 9)).argsort(axis=1).astype(np.int8) + 1
    lines = [
        3 * bands[:, :, None] + rng.random((_BLOCK, 3, 3)).argsort(axis=2)
        for bands in (rng.random((_BLOCK, 3)).argsort(axis=1) for _ in range(2))
    ]
    rows, columns = (line.reshape(_BLOCK, 9) for line in lines)
    transposed = rng.random(_BLOCK) < 0.5
    boards = np.resize(bases, (_BLOCK, 9, 9))
    each = np.arange(_BLOCK)[:, None, None]
    boards = boards[each, rows[:, :, None], columns[:, None, :]]
    boards = digits[each, boards - 1]
    boards[transposed] = boards[transposed].swapaxes(1, 2)
    return boards


def _unique_blanks(solution: np.ndarray, order: np.ndarray, clues: int, rng: np.random.Generator) -> np.ndarray:
    """Cells to blank, each in turn from the end of an order while one solution is left; else of another order."""
    full = solution.ravel().tolist()
    for _ in range(_TRIES):
        blanks = _blanks_of_order(full, order[::-1].tolist(), 81 - clues)
        if len(blanks) == 81 - clues:
            return np.array(blanks, np.int64)
        order = rng.permutation(81)
    raise ValueError(
        f"no puzzle with one solution and {clues} clues was found for a board in {_TRIES} tries; "
        "ask for 24 clues or more, or do without unique"
    )


def _blanks_of_order(full: list[int], order: list[int], n_blanks: int) -> list[int]:
    # More givens never add solutions: if all these cells can be blanked together, so can each of them in turn.
    blanks = order[:n_blanks]
    hidden = set(blanks)
    if has_one_solution([0 if cell in hidden else digit for cell, digit in enumerate(full)]):
        return blanks
    blanks = []
    cells = list(full)
    for cell in order:
        if len(blanks) == n_blanks:
            break
        cells[cell] = 0
        if has_one_solution(cells, without=cell, solution=full):
            blanks.append(cell)
        else:
            cells[cell] = full[cell]
    return blanks
