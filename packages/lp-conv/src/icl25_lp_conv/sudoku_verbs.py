"""The verbs that make and solve Sudoku puzzles; torch is imported only for a network that solves them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from icl25_lp_conv.datasets.sudoku import (
    Sudokus,
    format_board,
    generate,
    load_puzzles,
    metrics,
    parse_board,
    save_csv,
    solve,
)
from icl25_lp_conv.output_verbs import output_file
from icl25_shared import InputError, Output, get_logger, track

if TYPE_CHECKING:
    from icl25_lp_conv import cli_sudoku

_log = get_logger(__name__)
_RULE = "------+-------+------"


def run_gen(flags: cli_sudoku.SudokuGen) -> Output:
    """Generate puzzles."""
    out = output_file(flags.out, "puzzles.csv", flags.force, (".csv",))
    data = generate(flags.n, flags.seed, flags.clues, flags.unique)
    save_csv(out, data, force=flags.force)
    kind = "one solution each" if flags.unique else "one solution or more"
    view = [f"{flags.n:,} puzzles with {flags.clues} givens and {kind} in {out}, the first of them:"]
    view += _draw(data.puzzles[0], data.solutions[0])
    return Output({"out": str(out), "n": flags.n, "clues": flags.clues, "unique": flags.unique}, view)


def run_solve(flags: cli_sudoku.SudokuSolve) -> Output:
    """Solve puzzles."""
    out = None if flags.out is None else output_file(flags.out, "solved.csv", flags.force, (".csv",))
    is_file = Path(flags.puzzle).is_file()
    puzzles = load_puzzles(flags.puzzle) if is_file else parse_board(flags.puzzle)[None]
    if flags.model is None:
        solutions = _solve_all(puzzles, flags.puzzle if is_file else None)
    else:
        from icl25_lp_conv.network_verbs import read_sudoku_network
        from icl25_lp_conv.sudoku_training import complete

        solutions = complete(read_sudoku_network(flags.model, flags.device), puzzles)
    valid = metrics(solutions).solved
    data: dict[str, Any] = {
        "puzzles": [format_board(board) for board in puzzles],
        "solutions": [format_board(board) for board in solutions],
        "valid": valid.tolist(),
    }
    view = [format_board(board) for board in solutions] if is_file else _draw(puzzles[0], solutions[0])
    if out is not None:
        save_csv(out, Sudokus(puzzles, solutions), force=flags.force)
        data["out"] = str(out)
        view = [f"{len(puzzles):,} solutions in {out}"] if is_file else [*view, f"solution in {out}"]
    if not valid.all():
        _log.warning("%d of %d boards break the rules", (~valid).sum(), len(valid))
    return Output(data, view, ok=bool(valid.all()))


def _solve_all(puzzles: np.ndarray, path: str | None) -> np.ndarray:
    """Exact solutions; the row of a puzzle that has none is named."""
    solutions = np.empty_like(puzzles)
    for row, puzzle in enumerate(track(puzzles, "solving")):
        try:
            solutions[row] = solve(puzzle)
        except ValueError as error:
            raise InputError(str(error) if path is None else f"{path}, row {row + 1}: {error}") from error
    return solutions


def _draw(puzzle: np.ndarray, solution: np.ndarray) -> list[str]:
    """A puzzle and its solution side by side."""
    pairs = zip(_lines(puzzle), _lines(solution), strict=True)
    return ["\n".join(f"{left:<21}  {middle}  {right}".rstrip() for left, middle, right in _with_arrow(pairs))]


def _with_arrow(pairs: Any) -> Any:
    for number, (left, right) in enumerate(pairs):
        yield left, "->" if number == 5 else "  ", right


def _lines(board: np.ndarray) -> list[str]:
    digits = [["." if digit == 0 else str(digit) for digit in row] for row in board]
    rows = [" | ".join(" ".join(row[start : start + 3]) for start in (0, 3, 6)) for row in digits]
    return [*rows[:3], _RULE, *rows[3:6], _RULE, *rows[6:]]
