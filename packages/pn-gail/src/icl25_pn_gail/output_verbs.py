"""Where the results of verbs go, tables for the screen, and the device that the work runs on."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from icl25_pn_gail.compile_cache import use_compile_cache
from icl25_pn_gail.evaluation import interval_text
from icl25_shared import CommonFlags, InputError, RunFolder, atomic_path, read_json, select_device

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from icl25_pn_gail.cli import Train
    from icl25_pn_gail.demonstrations import Demonstrations
    from icl25_pn_gail.evaluation import EvalResult

PROGRAM = "icl25-pn-gail"
CHECKPOINT = "checkpoint.msgpack"
_TRAINED = (
    *("policy.msgpack", "config.json", "history.csv", "confidence.parquet", "report.md", CHECKPOINT),
    *("learning.png", "confidence.png", "discriminator.png"),
)
_TEXT = frozenset({"", "what", "level", "looked at", "found", "group", "method", "episode"})


@contextlib.contextmanager
def computing_on(device: str) -> Generator[None]:
    """Compute on a device by the name of --device; compiled programs are kept for the next time."""
    import jax

    use_compile_cache()
    with jax.default_device(select_device(device, "jax")):
        yield


def open_results(flags: CommonFlags, verb: str, *names: str) -> RunFolder:
    """The folder of results, refused before the work begins where files are in the way."""
    if flags.out is not None and not flags.force:
        for name in names:
            if (flags.out / name).exists():
                raise InputError(f"{flags.out / name} exists: --force replaces it")
    return RunFolder.create(flags.out, program=PROGRAM, verb=verb, config=flags, force=flags.force)


def check_training_folder(flags: Train) -> None:
    """Refuse an --out that holds something else than the run to go on with, before the work begins."""
    if flags.resume:
        _check_resumable(flags)
    elif flags.out is not None and flags.out.is_dir():
        _in_the_way(flags.out, force=flags.force)
    elif flags.out is not None and flags.out.exists():
        raise InputError(f"{flags.out} is a file, expected a folder for the run")


def open_training(flags: Train) -> RunFolder:
    """The folder of a training: new, begun anew (--force: its files are removed) or to be gone on with (--resume)."""
    if not flags.resume and flags.out is not None and flags.out.is_dir():
        for path in _in_the_way(flags.out, force=flags.force):
            path.unlink()
    force = flags.force or flags.resume
    return RunFolder.create(flags.out, program=PROGRAM, verb="train", config=flags, force=force)


def _check_resumable(flags: Train) -> None:
    if flags.force:
        raise InputError("--resume and --force exclude each other: the one goes on, the other begins anew")
    if flags.out is None:
        raise InputError("--resume goes on with the run of a folder: name it with --out")
    if not _is_training(flags.out):
        raise InputError(f"there is no training to resume in {flags.out}")
    if not (flags.out / CHECKPOINT).is_file():
        warnings.warn(f"{flags.out} holds no checkpoint: the training begins anew", stacklevel=3)


def _in_the_way(folder: Path, *, force: bool) -> list[Path]:
    """Files of an earlier training, which may be removed; nothing that another program may have put there."""
    found = [folder / name for name in _TRAINED if (folder / name).exists()]
    if found and not force:
        raise InputError(f"{found[0]} exists: --resume goes on with a run that broke off, --force begins anew")
    if found and not _is_training(folder):
        raise InputError(f"{found[0]} exists, but {folder} is no run folder of {PROGRAM} train: choose another --out")
    return found


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
        table.add_row(*map(Text, row))  # texts, not markup: a name may hold brackets
    return Group(Text(title, style="italic"), table)


def described(demos: Demonstrations) -> str:
    """What demonstrations there are, in a few words."""
    kinds = [(len(demos), "row"), (demos.n_episodes, "episode"), (demos.obs_dim, "observation")]
    kinds.append((demos.act_dim, "choice" if demos.discrete else "action"))
    counts = [f"{n:,} {noun}{'s' if n != 1 else ''}" for n, noun in kinds]
    return ", ".join([*counts, f"{demos.n_labelled:,} with a confidence"])


def shown(number: float | None, form: str = ".4g") -> str:
    """A number for a table, or a dash where there is none."""
    return "-" if number is None or number != number else format(number, form)


def write_demos(path: Path, demos: Demonstrations, *, force: bool) -> None:
    """Write demonstrations to a file whose ending says its kind."""
    writers = {".npz": demos.to_npz, ".csv": demos.to_csv}
    writers.get(path.suffix.lower(), demos.to_parquet)(path, force=force)


def save_picture(path: Path, figure: Figure, *, force: bool) -> None:
    """Write a picture, without a date inside."""
    dateless: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with atomic_path(path, force=force) as temporary:
        figure.savefig(temporary, metadata=dateless.get(path.suffix.lower()))


def evaluation_rows(result: EvalResult) -> list[tuple[str, str]]:
    """Lines of a table that sum up episodes."""
    returns = result.returns
    return [
        ("mean return", f"{result.mean:.1f}"),
        ("  95 % interval", interval_text(*result.interval)),
        ("mean of the middle half", f"{result.iqm:.1f}"),
        ("lowest, highest return", f"{returns.min():.1f}, {returns.max():.1f}"),
        ("mean length", f"{result.lengths.mean():.1f}"),
    ]
