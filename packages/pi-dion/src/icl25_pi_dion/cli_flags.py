"""What the verbs share: how flags show in the help, and what is checked before anything slow is imported."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tyro

from icl25_shared import InputError

PROBLEMS = ("rd", "rd-quadratic", "helmholtz", "darcy")
DATA_ENDINGS = (".npz", ".npy", ".csv", ".parquet", ".pq", ".h5", ".hdf5", ".nc")
RESULT_ENDINGS = (".npz", ".csv", ".parquet", ".nc", ".h5", ".hdf5")
PICTURE_ENDINGS = (".png", ".pdf", ".svg")


def value(metavar: str, *aliases: str) -> Any:
    """How a flag without a default value shows in the help, where its own text says what happens without it."""
    return tyro.conf.arg(metavar=metavar, aliases=aliases or None, help_behavior_hint="")


def settings_flag() -> Any:
    """How ``--set`` shows in the help; it may be given several times."""
    return tyro.conf.arg(name="set", metavar="KEY=VALUE", help_behavior_hint="")


def check_files(*paths: Path | None, endings: Sequence[str] = ()) -> None:
    """Refuse files that do not exist or are of an unknown kind, before the import of jax takes seconds."""
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise InputError(f"{path} is a folder, expected a file")
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such file")
        if endings and path.suffix.lower() not in endings:
            raise InputError(f"{path}: unknown kind of file {path.suffix!r}, expected one of {', '.join(endings)}")


def check_problem(name: str | None) -> None:
    """Refuse what is neither the name of a problem nor a Python file that exists."""
    if name is None or name in PROBLEMS:
        return
    file, colon, _ = name.partition(".py:")
    path = Path(f"{file}.py" if colon else name)
    if path.suffix == ".py":
        check_files(path)
        return
    close = difflib.get_close_matches(name, PROBLEMS, n=1)
    hint = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(PROBLEMS)}, or a file such as my_pde.py"
    raise InputError(f"there is no problem {name!r}; {hint}")


def check_run(folder: Path) -> None:
    """Refuse what is no folder of a finished training."""
    if not folder.exists():
        raise FileNotFoundError(f"{folder}: no such folder")
    if not folder.is_dir():
        raise InputError(f"{folder} is a file, expected the folder of a training")
    if not (folder / "config.json").is_file():
        unfinished = (folder / "run.json").is_file()
        hint = (
            "its training has not ended: `train --resume` goes on with it" if unfinished else "there is no config.json"
        )
        raise InputError(f"{folder} holds no trained operator ({hint})")


def output_file(out: Path | None, default: str, endings: Iterable[str], *, force: bool) -> Path:
    """The file to write to, refused before the work begins where it cannot be written after it."""
    path = Path(default) if out is None else out
    if path.is_dir():
        raise InputError(f"--out {path} is a folder, expected a file such as {path / default}")
    if path.suffix.lower() not in endings:
        raise InputError(f"--out {path}: unknown kind of file {path.suffix!r}, expected one of {', '.join(endings)}")
    if (path.exists() or path.is_symlink()) and not force:
        raise InputError(f"--out {path} exists: --force replaces it")
    if path.parent.exists() and not path.parent.is_dir():
        raise InputError(f"--out {path}: {path.parent} is a file, expected a folder")
    return path
