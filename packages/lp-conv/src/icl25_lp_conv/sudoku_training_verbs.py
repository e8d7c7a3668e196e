"""The verbs that train a network to fill Sudoku boards, and score it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icl25_lp_conv.datasets.sudoku import load_csv, split
from icl25_lp_conv.model_files import save_model
from icl25_lp_conv.models import ModelSource, sudoku_cnn
from icl25_lp_conv.network_verbs import count_parameters, find_preset, read_sudoku_network
from icl25_lp_conv.output_verbs import make_table, open_run, output_file
from icl25_lp_conv.sudoku_training import SudokuScores, evaluate, train_sudoku
from icl25_shared import InputError, Output, atomic_path, get_logger, select_device, write_json

if TYPE_CHECKING:
    from icl25_lp_conv import cli_sudoku

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


def run_train(flags: cli_sudoku.SudokuTrain) -> Output:
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


def run_eval(flags: cli_sudoku.SudokuEval) -> Output:
    """Score a network."""
    out = None if flags.out is None else output_file(flags.out, "scores.json", flags.force, (".json",))
    model = read_sudoku_network(flags.model, flags.device)
    data = load_csv(flags.puzzles)
    scores = evaluate(model, *data, batch_size=flags.batch_size)
    view: list[Any] = [_score_table(f"{scores.n_puzzles:,} puzzles", scores)]
    if out is not None:
        write_json(out, scores, force=flags.force)
        view.append(f"scores in {out}")
    return Output(dataclasses.asdict(scores), view)


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


def _score_table(title: str, scores: SudokuScores) -> Any:
    rows = [(label, f"{getattr(scores, name):.2%}") for name, label in _SCORES.items()]
    return make_table(title, ["", "share"], rows)
