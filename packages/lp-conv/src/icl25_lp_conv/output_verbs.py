"""Where the results of verbs go, and tables for the screen; without torch, which takes seconds to import."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from icl25_shared import InputError, RunFolder

if TYPE_CHECKING:
    from icl25_lp_conv import cli, cli_sudoku

_TEXT = frozenset({"", "layer", "area", "kernel", "padding", "network"})


def output_file(out: Path | None, default: str, force: bool, endings: Iterable[str], flag: str = "--out") -> Path:
    """The file to write to, refused before the work begins where it cannot be written after it."""
    path = Path(default) if out is None else out
    if path.is_dir():
        raise InputError(f"{flag} {path} is a folder, expected a file such as {path / default}")
    if not path.name.endswith(tuple(endings)):
        raise InputError(f"{flag} {path}: expected a name that ends in {' or '.join(endings)}")
    if path.exists() and not force:
        raise InputError(f"{flag} {path} exists: --force replaces it")
    return path


def output_files(out: Path | None, default: str, names: Sequence[str], force: bool) -> list[Path]:
    """The files to write in a folder, refused before the work begins where they cannot be written after it."""
    folder = Path(default) if out is None else out
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder} is a file, expected a folder")
    paths = [folder / name for name in names]
    for path in paths:
        if path.exists() and not force:
            raise InputError(f"{path} exists: --force replaces it")
    return paths


def open_run(flags: cli.Train | cli_sudoku.SudokuTrain, verb: str, names: Sequence[str]) -> RunFolder:
    """The folder of a training: new, begun anew (--force: its files are removed) or to be gone on with (--resume)."""
    if flags.resume:
        if flags.force:
            raise InputError("--resume and --force exclude each other: the one goes on, the other begins anew")
        if flags.out is None:
            raise InputError("--resume goes on with the run of a folder: name it with --out")
        if not (flags.out / "run.json").exists():
            raise InputError(f"there is no run to resume in {flags.out}")
        if not (flags.out / names[0]).exists():
            warnings.warn(f"{flags.out} holds no {names[0]}: the training begins anew", stacklevel=2)
    elif flags.out is not None:
        paths = [path for path in (flags.out / name for name in names) if path.exists()]
        if paths and not flags.force:
            raise InputError(f"{paths[0]} exists: --resume goes on with a run that broke off, --force begins anew")
        for path in paths:
            path.unlink()
    force = flags.force or flags.resume
    return RunFolder.create(flags.out, program="icl25-lp-conv", verb=verb, config=flags, force=force)


def make_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table whose columns of numbers are aligned to the right."""
    table = Table(title=title, title_justify="left", show_header=any(columns))
    for column in columns:
        # A name that is cut in the middle says nothing.
        table.add_column(column, justify="left" if column in _TEXT else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
