"""Where the results of verbs go, tables for the screen, and the device that the work runs on."""

from __future__ import annotations

import contextlib
import shutil
import warnings
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from icl25_pi_dion.compile_cache import use_compile_cache
from icl25_shared import InputError, RunFolder, atomic_path, read_json, select_device

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from icl25_pi_dion import cli

PROGRAM = "icl25-pi-dion"
CHECKPOINT = "checkpoint"
_TRAINED = ("config.json", "standardisation.json", "calibration.json", "history.csv", "loss.png", "inversions.png")
_TRAINED_FOLDERS = (CHECKPOINT, "parameters")
_TEXT = frozenset({"", "sample", "score", "what"})


@contextlib.contextmanager
def computing_on(device: str) -> Generator[None]:
    """Compute on a device by the name of --device; compiled programs are kept for the next time."""
    import jax

    use_compile_cache()
    with jax.default_device(select_device(device, "jax")):
        yield


def open_training(flags: cli.Train) -> RunFolder:
    """The folder of a training: new, begun anew (--force: its files are removed) or to be gone on with (--resume)."""
    if flags.resume:
        _check_resumable(flags)
    elif flags.out is not None and flags.out.is_dir():
        _clear(flags.out, force=flags.force)
    force = flags.force or flags.resume
    return RunFolder.create(flags.out, program=PROGRAM, verb="train", config=flags, force=force)


def _check_resumable(flags: cli.Train) -> None:
    if flags.force:
        raise InputError("--resume and --force exclude each other: the one goes on, the other begins anew")
    if flags.out is None:
        raise InputError("--resume goes on with the run of a folder: name it with --out")
    if not _is_training(flags.out):
        raise InputError(f"there is no training to resume in {flags.out}")
    if not (flags.out / CHECKPOINT).is_dir():
        warnings.warn(f"{flags.out} holds no checkpoint: the training begins anew", stacklevel=3)


def _clear(folder: Path, *, force: bool) -> None:
    """Remove an earlier training, and nothing that another program may have put there."""
    found = [folder / name for name in (*_TRAINED, *_TRAINED_FOLDERS) if (folder / name).exists()]
    if not found:
        return
    if not force:
        raise InputError(f"{found[0]} exists: --resume goes on with a run that broke off, --force begins anew")
    if not _is_training(folder):
        raise InputError(f"{found[0]} exists, but {folder} is no run folder of {PROGRAM} train: choose another --out")
    for path in found:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _is_training(folder: Path) -> bool:
    try:
        record = read_json(folder / "run.json")
    except (OSError, ValueError):
        return False
    return isinstance(record, dict) and (record.get("program"), record.get("verb")) == (PROGRAM, "train")


def make_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> RenderableType:
    """A table whose columns of numbers are aligned to the right, below a title that is as long as it needs to be."""
    table = Table(show_header=any(columns))
    for column in columns:
        table.add_column(column, justify="left" if column in _TEXT else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return Group(Text(title, style="italic"), table)


def percent(value: float) -> str:
    """A share in percent, or a dash where it is not known."""
    return f"{100 * value:.3g} %" if value == value and abs(value) != float("inf") else "-"


def save_picture(path: Path, figure: Figure, *, force: bool) -> None:
    """Write a picture, without a date inside."""
    dateless: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with atomic_path(path, force=force) as temporary:
        figure.savefig(temporary, metadata=dateless.get(path.suffix.lower()))
