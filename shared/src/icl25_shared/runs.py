"""Run folders: what a run was asked, what it made, with which versions, and how long it took."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import time
from collections.abc import Generator, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from icl25_shared.claims import Claim, write_claims
from icl25_shared.files import atomic_path, read_json, to_jsonable, write_json

__all__ = ["RunFolder", "atomic_path", "read_json", "to_jsonable", "write_json"]

# Dates inside a picture would make two equal runs differ.
_DATELESS = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


class Figure(Protocol):
    """What can be saved as a picture: a matplotlib figure, or anything with its ``savefig``."""

    def savefig(self, fname: Any, **kwargs: Any) -> None:
        """Write the picture to a path."""


class RunFolder:
    """The folder of one run, as a context manager that keeps its record in ``run.json``.

    The record holds the program, verb, configuration, seed, versions, start, duration, timings and status: ``running``
    while the block runs (and for ever, if the process is killed), then ``finished``, ``failed`` or ``interrupted``.
    Results proper go to other files, which hold neither times nor paths, so that the same seed gives the same bytes.
    Make one with ``create``.

    Attributes:
        folder: Where the files go.
    """

    def __init__(self, folder: Path, record: dict[str, Any], *, force: bool) -> None:
        self.folder = folder
        self._record = record
        self._force = force
        self._started = time.monotonic()

    @classmethod
    def create(
        cls, out: str | os.PathLike[str] | None, *, program: str, verb: str, config: Any, force: bool = False
    ) -> Self:
        """Make the folder and the first version of ``run.json``.

        Args:
            out: The folder; None makes a new one, ``runs/<program>-<verb>-<time>``.
            program: Name of the command, which is that of the distribution too, for instance ``"icl25-sava"``.
            verb: The verb that runs.
            config: The dataclass of the verb; its ``seed``, if it has one, is recorded on its own as well.
            force: Use the folder of an earlier run; files that this run writes replace those of the same name, others
                stay.

        Returns:
            The run folder; use it in a ``with`` statement.

        Raises:
            FileExistsError: If the folder holds the ``run.json`` of another run and ``force`` is false; one that failed
                and left nothing else does not count.
            NotADirectoryError: If ``out`` is a file.
            OSError: If the folder cannot be made.
        """
        started = datetime.now(UTC)
        folder = _new_folder(program, verb, started) if out is None else Path(out)
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(f"{folder} is a file, expected a folder for the run")
        if not force and (folder / "run.json").exists() and not _came_to_nothing(folder):
            raise FileExistsError(f"{folder} holds an earlier run; pass --force (force=True) to write over it")
        folder.mkdir(parents=True, exist_ok=True)
        record = {
            "program": program,
            "verb": verb,
            "config": to_jsonable(config),
            "seed": getattr(config, "seed", None),
            "versions": _versions(program),
            "started": started.isoformat(timespec="seconds"),
            "duration": None,
            "timings": {},
            "status": "running",
        }
        write_json(folder / "run.json", record, force=True)
        return cls(folder, record, force=force)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        self._record["status"] = "finished" if kind is None else "interrupted" if interrupted else "failed"
        if error is not None and not interrupted:
            self._record["error"] = f"{type(error).__name__}: {error}"
        self._record["duration"] = round(time.monotonic() - self._started, 3)
        if kind is None:
            write_json(self.folder / "run.json", self._record, force=True)
        else:
            with contextlib.suppress(OSError):  # a full disk must not hide the error that ended the run
                write_json(self.folder / "run.json", self._record, force=True)

    def path(self, name: str) -> Path:
        """Return the path of a file in the folder, for instance to pass to ``atomic_path``."""
        return self.folder / name

    def write_json(self, name: str, data: Any) -> Path:
        """Write a JSON file of results, atomically.

        Args:
            name: File name, for instance ``"result.json"``.
            data: Anything that ``to_jsonable`` takes.

        Returns:
            Where it stands.

        Raises:
            FileExistsError: If the file exists and the folder was made without ``force``.
            TypeError: If ``data`` holds an object that JSON cannot express.
        """
        write_json(self.path(name), data, force=self._force)
        return self.path(name)

    def write_claims(self, claims: Sequence[Claim]) -> Path:
        """Write ``claims.json``.

        Args:
            claims: The claims, with distinct ids.

        Returns:
            Where it stands.

        Raises:
            FileExistsError: If the file exists and the folder was made without ``force``.
            ValueError: If two claims have the same id.
        """
        path = self.path("claims.json")
        write_claims(path, claims, package=self._record["program"].removeprefix("icl25-"), force=self._force)
        return path

    def save_figure(self, figure: Figure, name: str, **options: Any) -> Path:
        """Save a matplotlib figure, atomically and without a date inside.

        Args:
            figure: A matplotlib figure.
            name: File name; its suffix chooses the format.
            **options: Passed on to ``figure.savefig``, for instance ``dpi``.

        Returns:
            Where it stands.

        Raises:
            FileExistsError: If the file exists and the folder was made without ``force``.
            ValueError: If matplotlib does not know the format.
        """
        path = self.path(name)
        options.setdefault("metadata", _DATELESS.get(path.suffix.lower()))
        with atomic_path(path, force=self._force) as temporary:
            figure.savefig(temporary, **options)
        return path

    @contextlib.contextmanager
    def timed(self, name: str) -> Generator[None]:
        """Add the wall-clock seconds of the block to ``timings`` in ``run.json``, under ``name``."""
        started = time.monotonic()
        try:
            yield
        finally:
            timings = self._record["timings"]
            timings[name] = round(timings.get(name, 0.0) + time.monotonic() - started, 3)


def _new_folder(program: str, verb: str, started: datetime) -> Path:
    stem = f"{program}-{verb}-{started.astimezone():%Y%m%d-%H%M%S}"
    for attempt in range(1, 1000):
        folder = Path("runs") / (stem if attempt == 1 else f"{stem}-{attempt}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise FileExistsError(f"runs/{stem} and its numbered successors exist already")


def _came_to_nothing(folder: Path) -> bool:
    """Whether the folder holds the record of a run that failed, and nothing besides."""
    with contextlib.suppress(ValueError):
        record = read_json(folder / "run.json")
        only = [path.name for path in folder.iterdir()] == ["run.json"]
        return only and isinstance(record, dict) and record.get("status") == "failed"
    return False


def _versions(program: str) -> dict[str, str]:
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    with contextlib.suppress(metadata.PackageNotFoundError):
        versions[program] = metadata.version(program)
        for requirement in metadata.requires(program) or []:
            name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
            with contextlib.suppress(metadata.PackageNotFoundError):  # an extra that is not installed
                versions[name] = metadata.version(name)
    return versions
