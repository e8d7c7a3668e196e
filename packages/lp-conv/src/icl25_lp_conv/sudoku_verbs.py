"""The verbs of the Sudoku task: make puzzles, train a network on them, score it, and solve puzzles."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from icl25_lp_conv.datasets.sudoku import (
    Sudokus,
    format_board,
    generate,
    load_csv,
    load_puzzles,
    metrics,
    parse_board,
    save_csv,
    solve,
    split,
)
from icl25_lp_conv.model_files import load_model, save_model
from icl25_lp_conv.models import ModelSource, sudoku_cnn
from icl25_lp_conv.network_verbs import count_parameters, find_preset, make_table, open_run, output_file
from icl25_lp_conv.sudoku_training import SudokuScores, complete, evaluate, train_sudoku
from icl25_shared import InputError, Output, atomic_path, get_logger, select_device, track, write_json

if TYPE_CHECKING:
    from torch import nn

    from icl25_lp_conv import cli

_log = get_logger(__name__)
_SPLIT_SEED = 42
_SAVE_EVERY = 500  # steps
_RUN_FILES = ("checkpoint.safetensors", "metrics.jsonl", "model.safetensors", "scores.json")
_SCORES = {
    "number": "cells as in the solution",
    "blank": "blank cells as in the solution",
    "row": "rows with each digit once",
    "col": "columns with each digit once",
    "box": "boxes with each digit once",
    "solved": "boards without a mistake",
}
_RULE = "------+-------+------"


def run_gen(flags: cli.SudokuGen) -> Output:
    """Generate puzzles."""
    out = output_file(flags.out, "puzzles.csv", flags.force, (".csv",))
    data = generate(flags.n, flags.seed, flags.clues, flags.unique)
    save_csv(out, data, force=flags.force)
    kind = "one solution each" if flags.unique else "one solution or more"
    view = [f"{flags.n:,} puzzles with {flags.clues} givens and {kind} in {out}, the first of them:"]
    view += _draw(data.puzzles[0], data.solutions[0])
    return Output({"out": str(out), "n": flags.n, "clues": flags.clues, "unique": flags.unique}, view)


def run_train(flags: cli.SudokuTrain) -> Output:
    """Train a network and score it on the puzzles that were held out."""
    preset = find_preset(flags.preset)
    if not 0 < flags.train_share < 1:
        raise InputError(f"--train-share must lie between 0 and 1, found {flags.train_share}")
    source = ModelSource(f"sudoku-cnn(depth={flags.depth}, width={flags.width})")
    model = preset(sudoku_cnn(flags.depth, flags.width, seed=flags.seed), inplace=True)
    parts = split(load_csv(flags.puzzles), _SPLIT_SEED, flags.train_share)
    run = open_run(flags, "sudoku-train", _RUN_FILES)
    lines = _Lines(run.path("metrics.jsonl"))
    with run:
        losses = train_sudoku(
            model,
            *parts.train,
            epochs=flags.epochs,
            seed=flags.seed,
            batch_size=flags.batch_size,
            lr=flags.lr,
            device=select_device(flags.device),
            checkpoint=run.path("checkpoint.safetensors"),
            save_every=_SAVE_EVERY,
            on_epoch=lines.add,
        )
        lines.write(losses)
        scores = evaluate(model, *parts.test)
        save_model(run.path("model.safetensors"), model.cpu(), source, force=True)
        write_json(run.path("scores.json"), scores, force=True)
    data = {
        "out": str(run.folder),
        "preset": flags.preset,
        "parameters": count_parameters(model),
        "puzzles": {"train": len(parts.train.puzzles), "held_out": len(parts.test.puzzles)},
        "losses": losses,
        "scores": scores,
    }
    title = f"{scores.n_puzzles:,} puzzles that were held out"
    view = [
        _score_table(title, scores),
        f"loss: {losses[0]:.4g} in the first epoch, {losses[-1]:.4g} in the last",
        f"network in {run.path('model.safetensors')}",
    ]
    return Output(data, view)


def run_eval(flags: cli.SudokuEval) -> Output:
    """Score a network."""
    out = None if flags.out is None else output_file(flags.out, "scores.json", flags.force, (".json",))
    model = _load(flags.model, flags.device)
    data = load_csv(flags.puzzles)
    scores = evaluate(model, *data, batch_size=flags.batch_size)
    view: list[Any] = [_score_table(f"{scores.n_puzzles:,} puzzles", scores)]
    if out is not None:
        write_json(out, scores, force=flags.force)
        view.append(f"scores in {out}")
    return Output(dataclasses.asdict(scores), view)


def run_solve(flags: cli.SudokuSolve) -> Output:
    """Solve puzzles."""
    out = None if flags.out is None else output_file(flags.out, "solved.csv", flags.force, (".csv",))
    is_file = Path(flags.puzzle).is_file()
    puzzles = load_puzzles(flags.puzzle) if is_file else parse_board(flags.puzzle)[None]
    if flags.model is None:
        solutions = _solve_all(puzzles, flags.puzzle if is_file else None)
    else:
        solutions = complete(_load(flags.model, flags.device), puzzles)
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


class _Lines:
    """The file of losses, a line for each epoch, whole at any time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.losses: dict[int, float] = {}
        if path.exists():
            entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            self.losses = {entry["epoch"]: entry["loss"] for entry in entries}

    def add(self, epoch: int, loss: float) -> None:
        self.losses = {number: known for number, known in self.losses.items() if number < epoch} | {epoch: loss}
        self._write()
        _log.info("epoch %d: loss %.4g", epoch, loss)

    def write(self, losses: list[float]) -> None:
        """All losses at the end, those of a run that broke off included."""
        self.losses = dict(enumerate(losses, start=1))
        self._write()

    def _write(self) -> None:
        text = "".join(json.dumps({"epoch": epoch, "loss": loss}) + "\n" for epoch, loss in self.losses.items())
        with atomic_path(self.path, force=True) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _load(path: Path, device: str) -> nn.Module:
    return load_model(path).model.to(select_device(device))


def _solve_all(puzzles: np.ndarray, path: str | None) -> np.ndarray:
    """Exact solutions; the row of a puzzle that has none is named."""
    solutions = np.empty_like(puzzles)
    for row, puzzle in enumerate(track(puzzles, "solving")):
        try:
            solutions[row] = solve(puzzle)
        except ValueError as error:
            raise InputError(str(error) if path is None else f"{path}, row {row + 1}: {error}") from error
    return solutions


def _score_table(title: str, scores: SudokuScores) -> Any:
    rows = [(label, f"{getattr(scores, name):.2%}") for name, label in _SCORES.items()]
    return make_table(title, ["", "share"], rows)


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
