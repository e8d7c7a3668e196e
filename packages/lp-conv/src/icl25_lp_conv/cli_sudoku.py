"""The command line of the Sudoku task: the verbs that begin with sudoku."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from icl25_lp_conv.cli_flags import check_files, value
from icl25_shared import CommonFlags, Output


@dataclass(frozen=True, kw_only=True)
class SudokuGen(CommonFlags):
    """Generate Sudoku puzzles with their solutions, as CSV with the columns quizzes and solutions.

    The file is --out (puzzles.csv without it).
    """

    n: int = 10_000
    """Number of puzzles."""
    clues: int = 45
    """Givens of each puzzle, 17 to 81."""
    unique: bool = False
    """Let each puzzle have one solution alone; takes milliseconds a puzzle, and longer below 30 clues."""
    out: Annotated[Path | None, value("FILE", "-o")] = None
    """CSV file to write."""

    def run(self) -> Output:
        """Generate."""
        from icl25_lp_conv.sudoku_verbs import run_gen

        return run_gen(self)


@dataclass(frozen=True, kw_only=True)
class SudokuTrain(CommonFlags):
    """Train a network to fill Sudoku boards, and score it on puzzles that were held out.

    The defaults are those of the paper, for a GPU; try --depth 6 --width 32 --lr 1e-3 --epochs 3 on a CPU. The run
    folder --out gets model.safetensors, metrics.jsonl, scores.json and a checkpoint.
    """

    puzzles: tyro.conf.Positional[Path]
    """CSV file with the columns quizzes and solutions, 81 digits each, 0 for a blank."""
    preset: Annotated[str, tyro.conf.arg(metavar="NAME")] = "lp2"
    """What becomes of its convolutions, as for `train`: base, large, lp2, lp4, ..."""
    depth: int = 15
    """Blocks of the network."""
    width: int = 512
    """Channels of a block."""
    epochs: int = 20
    """Passes over the puzzles."""
    batch_size: int = 100
    """Puzzles in a step."""
    lr: float = 1e-4
    """Learning rate of Adam."""
    train_share: float = 0.8
    """Share of the puzzles to train on; the rest, the same ones for every seed, is held out."""
    resume: bool = False
    """Go on with the run in --out that broke off; the result is that of an uninterrupted run."""

    def run(self) -> Output:
        """Train."""
        check_files(self.puzzles)
        from icl25_lp_conv.sudoku_training_verbs import run_train

        return run_train(self)


@dataclass(frozen=True, kw_only=True)
class SudokuEval(CommonFlags):
    """Score a network on puzzles: cells, rows, columns, boxes and whole boards that are right."""

    model: tyro.conf.Positional[Path]
    """Model file written by `sudoku train`."""
    puzzles: tyro.conf.Positional[Path]
    """CSV file with the columns quizzes and solutions."""
    batch_size: int = 500
    """Puzzles in one forward pass."""
    out: Annotated[Path | None, value("FILE", "-o")] = None
    """JSON file to write the scores to."""

    def run(self) -> Output:
        """Score."""
        check_files(self.model, self.puzzles)
        from icl25_lp_conv.sudoku_training_verbs import run_eval

        return run_eval(self)


@dataclass(frozen=True, kw_only=True)
class SudokuSolve(CommonFlags):
    """Solve Sudoku puzzles: exactly, or with a trained network, which may err.

    With --model the network writes the cell of which it is surest, and looks again; exit status 1 says that a board
    breaks the rules.
    """

    puzzle: tyro.conf.Positional[str]
    """81 digits in reading order, 0 or . for a blank, or a CSV file with the column quizzes."""
    model: Annotated[Path | None, value("FILE")] = None
    """Model file written by `sudoku train`. Default: an exact solver."""
    out: Annotated[Path | None, value("FILE", "-o")] = None
    """CSV file to write puzzles and solutions to."""

    def run(self) -> Output:
        """Solve."""
        if not set(self.puzzle) <= set("0123456789. \n"):
            check_files(Path(self.puzzle))
        check_files(self.model)
        from icl25_lp_conv.sudoku_verbs import run_solve

        return run_solve(self)
