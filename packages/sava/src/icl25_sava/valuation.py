"""A valuation from raw inputs to solved batches: what SAVA, LAVA and the batch-wise baseline share.

``Valuation`` holds the frozen side and the ledger of solved training batches. The estimators differ only in how
they cut batches and in how they weigh the ledger together.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from icl25_sava.batching import make_batches
from icl25_sava.checks import warn_about_classes, warn_about_duplicates
from icl25_sava.inputs import MappedRows, Rows, encode_labels, fingerprint, read_labels, read_rows
from icl25_sava.pairs import Batch, BatchSolution, solve_batch
from icl25_sava.store import DiskLedger, Ledger, MemoryLedger, Segment, Store
from icl25_sava.validation_side import Settings, ValidationSide, digest
from icl25_shared import track

__all__ = ["Valuation"]

_LEDGER_BYTES = 1 << 29  # solutions that would take more memory than this go to a temporary folder


class Valuation:
    """The frozen validation side, the training rows seen so far, and the ledger of their solved batches."""

    side: ValidationSide
    segments: list[Segment]
    ledger: Ledger
    store: Store | None
    timings: dict[str, float]

    @classmethod
    def begin(cls, settings: Settings, X: Any, y: Any, X_val: Any, y_val: Any) -> Valuation:
        """Read and check the inputs, fix everything that later calls share, and solve the first training batches.

        Args:
            settings: the resolved parameters.
            X: training rows, see ``icl25_sava.inputs.read_rows``.
            y: training labels.
            X_val: validation rows.
            y_val: validation labels.

        Returns:
            The valuation, all batches solved.

        Raises:
            ValueError: an input is wrong, or the store belongs to another run.
        """
        self, started = cls(), time.perf_counter()
        ignored = settings.recipe.lambda_y == 0
        train, y = read_rows(X, "X", y)
        labels = read_labels(y, len(train), "y", ignored=ignored)
        val, y_val = read_rows(X_val, "X_val", y_val)
        val_labels = read_labels(y_val, len(val), "y_val", ignored=ignored)
        _check_sizes(train, val)
        classes = _known_classes(labels, val_labels)
        ids, val_ids = encode_labels(labels, classes, "y"), encode_labels(val_labels, classes, "y_val")
        if not ignored:
            warn_about_classes(classes, ids, val_ids)
        warn_about_duplicates(train, val)

        self.store = None if settings.store is None else Store(settings.store)
        if self.store is not None and self.store.exists:
            settings = replace(settings, seed=self.store.meta["seed"])
        self.side = ValidationSide(settings, val, val_ids, classes)
        segment = self._new_segment(train, ids, 0)
        self.side.freeze(train, segment.y, segment.batches)
        self.segments = [segment]
        if self.store is not None:
            self._enter_store(self.store, segment)
        self._choose_ledger()
        self.timings = {"prepare": time.perf_counter() - started}
        self._solve(train, segment, first=0)
        return self

    @classmethod
    def reopen(cls, settings: Settings, store: Store) -> Valuation:
        """Take up a valuation from its store, without the training rows.

        Args:
            settings: the resolved parameters; those that decide values must be those of the store.
            store: the store.

        Returns:
            The valuation.

        Raises:
            ValueError: the store was written with other settings, by another embedder, or is not complete.
        """
        self, meta = cls(), store.meta
        _compare(settings.identity(), meta["config"], store)
        self.store = store
        saved = store.validation()
        val = Rows(saved["X"].reshape(len(saved["X"]), *saved["sample_shape"]))
        self.side = ValidationSide(replace(settings, seed=meta["seed"]), val, saved["y"], store.classes())
        if not np.allclose(self.side.centre, saved["centre"], rtol=1e-3, atol=1e-6 * np.abs(saved["centre"]).max()):
            raise ValueError(f"the embedder is not the one with which the store {store.folder} was made")
        new = len(self.side.classes) - len(saved["means"])
        self.side.means = np.vstack([saved["means"], np.full((new, saved["means"].shape[1]), np.nan)])
        self.side.W, self.side.eps = store.label_distances(), float(meta["eps"])
        self.segments = store.segments()
        self.ledger = store.ledger
        self.timings = {}
        return self

    def extend(self, X: Any, y: Any) -> None:
        """Solve the batches of new training rows against the frozen validation side.

        Args:
            X: new training rows.
            y: their labels.

        Raises:
            ValueError: an input is wrong, or the store waits for the rest of other rows.
        """
        side = self.side
        train, y = read_rows(X, "X", y)
        labels = read_labels(y, len(train), "y", ignored=side.settings.recipe.lambda_y == 0)
        _check_sizes(train, side.rows)
        unseen = np.setdiff1d(labels, side.classes)
        known = np.concatenate([side.classes, unseen.astype(np.result_type(side.classes, unseen))])
        ids = encode_labels(labels, known, "y")
        if self.pending:
            self._resume_last(train, ids)
            return
        warn_about_duplicates(train, side.rows)
        segment = self._new_segment(train, ids, len(self.segments))
        side.welcome(side.class_sample(train, ids, len(self.segments)), known)
        self.segments.append(segment)
        if self.store is not None:
            self.store.save_classes(side.W, side.classes)
            self.store.add_segment(segment)
        self._solve(train, segment, first=self.n_batches - len(segment.batches))

    def set_workers(self, n_jobs: int | None) -> None:
        """Change the number of workers of later calls."""
        self.side.settings = replace(self.side.settings, n_jobs=n_jobs)

    @property
    def n_batches(self) -> int:
        """Number of training batches K_t."""
        return sum(len(segment.batches) for segment in self.segments)

    @property
    def pending(self) -> list[int]:
        """Numbers of the training batches that are not solved yet."""
        done = self.ledger.done()
        return [number for number in range(self.n_batches) if number not in done]

    def labels(self) -> np.ndarray:
        """Class ids of all training rows in the order given, shape (N,)."""
        return np.concatenate([segment.y for segment in self.segments])

    def batch_costs(self) -> np.ndarray:
        """Transport cost of each pair of batches, shape (K_t, K_v)."""
        return np.stack([self.ledger.get(number).costs for number in range(self.n_batches)])

    def solutions(self) -> Iterator[tuple[int, np.ndarray, BatchSolution]]:
        """Each training batch: its number, the numbers of its rows in all training rows, its solution."""
        number = offset = 0
        for segment in self.segments:
            for rows in segment.batches:
                yield number, rows + offset, self.ledger.get(number)
                number += 1
            offset += len(segment)

    def _new_segment(self, train: Rows, ids: np.ndarray, call: int) -> Segment:
        settings = self.side.settings
        rng = np.random.default_rng([settings.seed, 1, call])
        size = settings.batch_size or max(2, len(train))
        batches = make_batches(ids, size, batching=settings.batching, rng=rng)
        return Segment(ids, batches, fingerprint(train, ids) if self.store is not None else "")

    def _enter_store(self, store: Store, segment: Segment) -> None:
        side, settings = self.side, self.side.settings
        val_fingerprint = fingerprint(side.rows, side.y)
        if store.exists:
            meta = store.meta
            _compare(settings.identity(), meta["config"], store)
            if meta["validation_fingerprint"] != val_fingerprint:
                raise ValueError(f"the store {store.folder} was made with other validation data")
            if meta["segments"][0]["fingerprint"] != segment.fingerprint:
                raise ValueError(f"the store {store.folder} was made with other training data")
            if len(meta["segments"]) > 1:
                raise ValueError(f"the store {store.folder} has been added to; load it instead of fitting it again")
            side.W = store.label_distances()
            return
        store.create(
            {
                "package": {"icl25-sava": version("icl25-sava")},
                "config": settings.identity(),
                "config_hash": digest(settings.identity()),
                "params": settings.params,
                "seed": settings.seed,
                "eps": side.eps,
                "n_features": side.rows.n_features,
                "n_validation": len(side.rows),
                "validation_fingerprint": val_fingerprint,
            },
            side.W,
            side.classes,
            {
                "X": side.rows.array,
                "sample_shape": np.array(side.rows.sample_shape),
                "y": side.y,
                "centre": side.centre,
                "means": side.means,
            },
            segment,
        )

    def _choose_ledger(self) -> None:
        n = sum(len(segment) for segment in self.segments)
        size = n * len(self.side.batches) * np.dtype(self.side.settings.recipe.dtype).itemsize
        if self.store is not None:
            self.ledger = self.store.ledger
        else:
            self.ledger = DiskLedger() if size > _LEDGER_BYTES else MemoryLedger()

    def _resume_last(self, train: Rows, ids: np.ndarray) -> None:
        last = self.segments[-1]
        if last.fingerprint != fingerprint(train, ids):
            folder = self.store.folder if self.store is not None else ""
            raise ValueError(
                f"the store {folder} waits for the rest of other rows; pass the rows of the run that broke off"
            )
        self._solve(train, last, first=self.n_batches - len(last.batches))

    def _solve(self, train: Rows, segment: Segment, first: int) -> None:
        started, done = time.perf_counter(), self.ledger.done()
        todo = [number for number in range(len(segment.batches)) if first + number not in done]
        recipe = self.side.recipe()
        tasks = (
            delayed(_solve_numbered)(
                first + number,
                self._task(train, segment, segment.batches[number]),
                self.side.batches,
                self.side.W,
                recipe,
                self._diameters(first + number),
            )
            for number in todo
        )
        results = Parallel(n_jobs=self.side.settings.n_jobs, return_as="generator_unordered")(tasks)
        if self.side.settings.verbose:
            results = track(results, "training batches", total=len(todo))
        for number, solution in results:
            self.ledger.put(number, solution)
        self.timings["solve"] = time.perf_counter() - started

    def _task(self, train: Rows, segment: Segment, rows: np.ndarray) -> Batch | tuple[MappedRows, dict[str, Any]]:
        """A batch for a worker: by its place on disk where it can read it there itself, else by its rows."""
        if self.side.settings.embedder is None:
            handle = train.handle(rows)
            if isinstance(handle, MappedRows):
                return handle, {"y": segment.y[rows], **self.side.batch_arguments()}
        return self.side.batch(train, segment.y, rows)

    def _diameters(self, number: int) -> np.ndarray | None:
        given = self.side.settings.diameter
        if given is None:
            return None
        values = np.asarray(given, np.float64)
        if values.ndim == 2:
            if values.shape[1] != len(self.side.batches) or number >= len(values):
                raise ValueError(f"diameter must be a number or have shape (K_t, K_v), got {values.shape}")
            return values[number]
        return np.full(len(self.side.batches), float(values))


def _solve_numbered(number: int, *arguments: Any) -> tuple[int, BatchSolution]:
    return number, solve_batch(*arguments)


def _known_classes(labels: np.ndarray, val_labels: np.ndarray) -> np.ndarray:
    texts = [array.dtype.kind in "UST" for array in (labels, val_labels)]
    if texts[0] != texts[1]:
        raise ValueError(f"y holds {labels.dtype} labels, y_val {val_labels.dtype}: use one kind on both sides")
    return np.unique(np.concatenate([np.unique(labels), np.unique(val_labels)]))


def _check_sizes(train: Rows, val: Rows) -> None:
    if train.n_features != val.n_features:
        raise ValueError(f"X has {train.n_features} features, X_val has {val.n_features}")
    if len(train) < 2:
        raise ValueError(f"X must have at least 2 rows, got {len(train)}")


def _compare(now: dict[str, Any], before: dict[str, Any], store: Store) -> None:
    differing = [key for key in now if now[key] != before.get(key)]
    if differing:
        named = ", ".join(f"{key} {before.get(key)!r} -> {now[key]!r}" for key in differing[:3])
        raise ValueError(f"the store {store.folder} was made with other settings: {named}")
