"""Train networks with different kernels on Sudokus: can they see rows, columns and boxes?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from icl25_lp_conv.datasets import sudoku
from icl25_lp_conv.models import presets, sudoku_cnn
from icl25_lp_conv.reproducibility import run_all, seeded
from icl25_lp_conv.sudoku_training import SudokuScores, evaluate, train_sudoku

__all__ = ["SudokuSizes", "sudoku_scores"]

SUDOKU_VARIANTS = {"3x3": "base", "7x7": "large", "Lp p=2": "lp2"}
"""The preset of each kind of kernel that is compared, by name."""


@dataclass(frozen=True, kw_only=True)
class SudokuSizes:
    """How large the experiment is.

    Attributes:
        n_train: Puzzles to train on.
        n_test: Puzzles to test on.
        blanks: Blank cells of a puzzle.
        depth: Blocks of the network.
        width: Channels of its layers.
        epochs: Passes through the puzzles.
        lr: Step size of Adam.
    """

    n_train: int = 20_000
    n_test: int = 2_000
    blanks: int = 36
    depth: int = 6
    width: int = 32
    epochs: int = 3
    lr: float = 1e-3


def sudoku_scores(
    variants: Sequence[str], seeds: Sequence[int], sizes: SudokuSizes, *, n_jobs: int = 1
) -> dict[str, list[SudokuScores]]:
    """Scores on new puzzles of networks with each kind of kernel, at each seed.

    Args:
        variants: Names from ``SUDOKU_VARIANTS``.
        seeds: Seeds of puzzles, initial weights and order; the same for every variant.
        sizes: How large the experiment is.
        n_jobs: Worker processes; the result does not depend on it.

    Returns:
        Lists of scores in the order of the seeds, by variant.

    Source: the paper's Sudoku experiment, reduced.
    """
    return run_all(partial(_scores, sizes=sizes), variants, seeds, n_jobs=n_jobs)


def _scores(variant: str, seed: int, sizes: SudokuSizes) -> SudokuScores:
    n = sizes.n_train
    data = sudoku.generate(n + sizes.n_test, seed=seed, clues=81 - sizes.blanks)
    with seeded(seed):
        model = presets[SUDOKU_VARIANTS[variant]](sudoku_cnn(depth=sizes.depth, width=sizes.width), transfer="none")
        train_sudoku(model, data.puzzles[:n], data.solutions[:n], epochs=sizes.epochs, lr=sizes.lr, seed=seed)
        return evaluate(model, data.puzzles[n:], data.solutions[n:])
