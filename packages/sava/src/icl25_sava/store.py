"""Where solved batches are kept: in memory, or in a folder from which a run goes on after a crash."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float, Integer

from icl25_sava.pairs import BatchSolution
from icl25_shared import atomic_path, write_json

__all__ = ["DiskLedger", "Ledger", "MemoryLedger", "Segment", "Store"]

_NEAREST: Any = np.dtype([("row", np.int64), ("cost", np.float64)])
_FORMAT = 1


class Ledger(Protocol):
    """Solutions of training batches by their number."""

    def put(self, number: int, solution: BatchSolution) -> None:
        """Keep the solution of a batch."""

    def get(self, number: int) -> BatchSolution:
        """The solution of a batch that is done."""

    def done(self) -> set[int]:
        """Numbers of the batches that are done."""


class MemoryLedger:
    """Solutions in memory."""

    def __init__(self) -> None:
        self._solutions: dict[int, BatchSolution] = {}

    def put(self, number: int, solution: BatchSolution) -> None:
        """Keep the solution of a batch."""
        self._solutions[number] = solution

    def get(self, number: int) -> BatchSolution:
        """The solution of a batch that is done."""
        return self._solutions[number]

    def done(self) -> set[int]:
        """Numbers of the batches that are done."""
        return set(self._solutions)


class DiskLedger:
    """Solutions in a folder: ``cg/``, ``cbar/``, ``nearest/`` and, written last, a mark in ``done/``.

    Args:
        folder: the folder; made when missing.
        temporary: a temporary folder that is removed with this object, instead.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._temporary = None
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="icl25-sava-", ignore_cleanup_errors=True)
            folder = Path(self._temporary.name)
        self.folder = folder
        for part in ("cg", "cbar", "nearest", "done"):
            (folder / part).mkdir(parents=True, exist_ok=True)

    def put(self, number: int, solution: BatchSolution) -> None:
        """Write the solution of a batch; a crash in between leaves it undone."""
        nearest = np.empty(len(solution.nearest), _NEAREST)
        nearest["row"], nearest["cost"] = solution.nearest, solution.nearest_cost
        for part, array in (("cg", solution.gradients), ("cbar", solution.costs), ("nearest", nearest)):
            _save(self.folder / part / f"{number:06d}.npy", array)
        with atomic_path(self.folder / "done" / f"{number:06d}", force=True) as path:
            path.touch()

    def get(self, number: int) -> BatchSolution:
        """Read the solution of a batch that is done.

        Raises:
            ValueError: a file is missing or damaged; the message names it.
        """
        gradients, costs, nearest = (
            _load(self.folder / part / f"{number:06d}.npy") for part in ("cg", "cbar", "nearest")
        )
        return BatchSolution(gradients, costs, nearest["row"], nearest["cost"].astype(gradients.dtype))

    def done(self) -> set[int]:
        """Numbers of the batches that are done."""
        return {int(path.name) for path in (self.folder / "done").iterdir() if path.name.isdigit()}


class Segment:
    """The rows that one ``fit`` or ``partial_fit`` brought, and how they were cut into batches.

    Args:
        y: class ids of the rows, shape (n,).
        batches: row numbers of each batch, counted from the first row of the segment.
        fingerprint: hash of the rows' data.
    """

    def __init__(self, y: Integer[np.ndarray, " n"], batches: list[np.ndarray], fingerprint: str = "") -> None:
        self.y, self.batches, self.fingerprint = y, batches, fingerprint

    def __len__(self) -> int:
        return len(self.y)


class Store:
    """A folder that holds everything a valuation needs to be resumed, extended and read again.

    ``meta.json`` (settings, seed, classes, shapes, versions), ``W.npy``, ``validation.npz``, ``segments/`` (labels and
    batches of each call) and the files of ``DiskLedger``. No file holds a pickle.

    Args:
        folder: path of the store.

    Raises:
        ValueError: the folder exists and is neither empty nor a store, or was written in another format.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(f"the store {self.folder} is a file, expected a folder")
        if self.exists and self.meta.get("format") != _FORMAT:
            raise ValueError(f"the store {self.folder} has format {self.meta.get('format')}, expected {_FORMAT}")
        if not self.exists and self.folder.is_dir() and any(self.folder.iterdir()):
            raise ValueError(f"the folder {self.folder} is not empty and holds no store (no meta.json)")

    @property
    def exists(self) -> bool:
        """Whether the folder holds a store already."""
        return (self.folder / "meta.json").is_file()

    @property
    def meta(self) -> dict[str, Any]:
        """The content of ``meta.json``."""
        path = self.folder / "meta.json"
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ValueError(f"{self.folder} is not a store: it has no meta.json") from None
        except ValueError as error:
            raise ValueError(f"{path} is damaged: {error}") from None

    @property
    def ledger(self) -> DiskLedger:
        """The solved batches."""
        return DiskLedger(self.folder)

    def create(
        self,
        meta: dict[str, Any],
        W: np.ndarray,
        classes: np.ndarray,
        validation: dict[str, Any],
        segment: Segment,
    ) -> None:
        """Write a new store; ``meta.json`` comes last, so that a crash leaves no store at all.

        Args:
            meta: settings, JSON-able.
            W: class distances.
            classes: the classes, by their ids.
            validation: arrays of the validation set.
            segment: the rows of the first call.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.save_classes(W, classes)
        with atomic_path(self.folder / "validation.npz", force=True) as path:
            np.savez(path, **validation)
        self._write_segment(0, segment)
        self._write_meta({"format": _FORMAT, **meta, "segments": [_describe(segment)]})

    def add_segment(self, segment: Segment, **changes: Any) -> None:
        """Append the rows of one more call.

        Args:
            segment: the rows.
            **changes: entries of ``meta.json`` that the call changed.
        """
        meta = self.meta
        self._write_segment(len(meta["segments"]), segment)
        self._write_meta({**meta, **changes, "segments": [*meta["segments"], _describe(segment)]})

    def segments(self) -> list[Segment]:
        """The rows of every call, in order."""
        found = []
        for number, described in enumerate(self.meta["segments"]):
            arrays = _load(self.folder / "segments" / f"{number:03d}.npz")
            batches = np.split(arrays["order"], np.cumsum(arrays["sizes"])[:-1])
            found.append(Segment(arrays["y"], batches, described["fingerprint"]))
        return found

    def label_distances(self) -> Float[np.ndarray, "k k"]:
        """Class distances."""
        return _load(self.folder / "W.npy")

    def classes(self) -> np.ndarray:
        """The classes, by their ids."""
        return _load(self.folder / "classes.npy")

    def save_classes(self, W: np.ndarray, classes: np.ndarray) -> None:
        """Replace the class distances and the classes they belong to."""
        _save(self.folder / "W.npy", W)
        _save(self.folder / "classes.npy", classes)

    def validation(self) -> dict[str, np.ndarray]:
        """Arrays of the validation set."""
        return _load(self.folder / "validation.npz")

    def remove(self) -> None:
        """Delete the store, and nothing but what a store holds."""
        for part in ("cg", "cbar", "nearest", "done", "segments"):
            shutil.rmtree(self.folder / part, ignore_errors=True)
        for name in ("W.npy", "classes.npy", "validation.npz", "ids.json", "meta.json"):
            (self.folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _write_segment(self, number: int, segment: Segment) -> None:
        (self.folder / "segments").mkdir(exist_ok=True)
        with atomic_path(self.folder / "segments" / f"{number:03d}.npz", force=True) as path:
            np.savez(
                path,
                y=segment.y,
                order=np.concatenate(segment.batches),
                sizes=np.array([len(batch) for batch in segment.batches]),
            )

    def _write_meta(self, meta: dict[str, Any]) -> None:
        write_json(self.folder / "meta.json", meta, force=True)


def _describe(segment: Segment) -> dict[str, Any]:
    return {"n_rows": len(segment), "n_batches": len(segment.batches), "fingerprint": segment.fingerprint}


def _save(path: Path, array: np.ndarray) -> None:
    with atomic_path(path, force=True) as temporary:
        np.save(temporary, array)


def _load(path: Path) -> Any:
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            return dict(found)
    except FileNotFoundError:
        raise ValueError(f"the store is incomplete: {path} is missing") from None
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"the store is damaged: {path}: {error}") from None
