"""A valuation from raw inputs to solved batches: what SAVA, LAVA and the batch-wise baseline share.

:class:`Valuation` holds the frozen side (embedder, validation batches, class distances) and the ledger of solved
training batches. The estimators differ only in how they cut batches and in how they weigh the ledger together.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
from icl25_shared import track
from joblib import Parallel, delayed

from icl25_sava.batching import make_batches
from icl25_sava.checks import warn_about_classes, warn_about_drift, warn_about_duplicates, warn_about_scale
from icl25_sava.costs import bounding_box, diameter, feature_cost
from icl25_sava.embedders import make_embedder
from icl25_sava.inputs import MappedRows, Rows, encode_labels, fingerprint, read_labels, read_rows
from icl25_sava.class_distances import class_rows, pairwise_label_distances, resolve_method
from icl25_sava.pairs import Batch, BatchSolution, Recipe, make_batch, solve_batch
from icl25_sava.store import DiskLedger, Ledger, MemoryLedger, Segment, Store

__all__ = ["Settings", "Valuation"]

_LEDGER_BYTES = 1 << 29  # solutions that would take more memory than this go to a temporary folder
_DRIFT_ROWS = 30  # the mean of fewer rows of a class says little about drift


@dataclass(frozen=True)
class Settings:
    """Everything that decides the values, resolved from an estimator's parameters."""

    recipe: Recipe
    batch_size: int | None = 1024
    """Most rows of a batch; None for one batch on each side."""
    batching: str = "stratified"
    label_distance: Any = "auto"
    label_samples: int = 256
    embedder: Any = None
    eps: float | str = 0.1
    diameter: Any = None
    seed: int = 0
    n_jobs: int | None = None
    store: Any = None
    verbose: int = 0
    params: dict[str, Any] = field(default_factory=dict)
    """Parameters of the estimator as the store keeps them."""

    def identity(self) -> dict[str, Any]:
        """JSON-able description of what decides the solved batches."""
        recipe = {k: v for k, v in asdict(self.recipe).items() if k not in ("device", "eps")}
        named = {"batch_size": self.batch_size, "batching": self.batching, "label_samples": self.label_samples}
        distance = self.label_distance
        start = None if self.diameter is None else np.asarray(self.diameter).tolist()
        return {
            **recipe,
            **named,
            "eps": self.eps,
            "diameter": start,
            "label_distance": distance if isinstance(distance, str) else _digest(np.asarray(distance)),
            "embedder": self.embedder if isinstance(self.embedder, str | None) else type(self.embedder).__name__,
        }


class Valuation:
    """Embedder, validation batches, class distances and the ledger of solved training batches."""

    settings: Settings
    classes: np.ndarray
    embedder: Any
    centre: np.ndarray
    val_rows: Rows
    val_y: np.ndarray
    val: list[Batch]
    W: np.ndarray
    eps: float
    means: np.ndarray
    segments: list[Segment]
    ledger: Ledger
    store: Store | None
    timings: dict[str, float]

    @classmethod
    def begin(cls, settings: Settings, X: Any, y: Any, X_val: Any, y_val: Any) -> Valuation:
        """Read and check the inputs, fix everything that later calls share, and solve the first training batches.

        Args:
            settings: the resolved parameters.
            X: training rows, see :func:`icl25_sava.inputs.read_rows`.
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
        self.val_rows, y_val = read_rows(X_val, "X_val", y_val)
        val_labels = read_labels(y_val, len(self.val_rows), "y_val", ignored=ignored)
        if train.n_features != self.val_rows.n_features:
            raise ValueError(f"X has {train.n_features} features, X_val has {self.val_rows.n_features}")
        if len(train) < 2:
            raise ValueError(f"X must have at least 2 rows, got {len(train)}")
        self.classes = _known_classes(labels, val_labels)
        ids = encode_labels(labels, self.classes, "y")
        self.val_y = encode_labels(val_labels, self.classes, "y_val")
        if not ignored:
            warn_about_classes(self.classes, ids, self.val_y)
        warn_about_duplicates(train, self.val_rows)

        self.store = None if settings.store is None else Store(settings.store)
        if self.store is not None and self.store.exists:
            settings = _with_seed(settings, self.store.meta["seed"])
        self._prepare_validation(settings)
        segment = self._new_segment(train, ids, 0)
        self._resolve_eps(train)
        self._begin_label_distances(train, segment)
        self.segments = [segment]
        if self.store is not None:
            self._enter_store(segment)
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
        _compare(settings.identity(), meta["config"], store, "settings")
        self.store = store
        saved = store.validation()
        self.val_rows = Rows(saved["X"].reshape(len(saved["X"]), *saved["sample_shape"]))
        self.val_y, self.classes, means = saved["y"], store.classes(), saved["means"]
        self.means = np.vstack([means, np.full((len(self.classes) - len(means), means.shape[1]), np.nan)])
        self._prepare_validation(_with_seed(settings, meta["seed"]))
        if not np.allclose(self.centre, saved["centre"], rtol=1e-3, atol=1e-6 * np.abs(saved["centre"]).max()):
            raise ValueError(f"the embedder is not the one with which the store {store.folder} was made")
        self.W, self.eps = store.label_distances(), float(meta["eps"])
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
        train, y = read_rows(X, "X", y)
        ignored = self.settings.recipe.lambda_y == 0
        labels = read_labels(y, len(train), "y", ignored=ignored)
        if train.n_features != self.val_rows.n_features:
            raise ValueError(f"X has {train.n_features} features, X_val has {self.val_rows.n_features}")
        if len(train) < 2:
            raise ValueError(f"X must have at least 2 rows, got {len(train)}")
        unseen = np.setdiff1d(labels, self.classes)
        known = np.concatenate([self.classes, unseen.astype(np.result_type(self.classes, unseen))])
        ids = encode_labels(labels, known, "y")
        pending = self.pending
        if pending:
            self._resume_last(train, ids)
            return
        warn_about_duplicates(train, self.val_rows)
        segment = self._new_segment(train, ids, len(self.segments))
        sample = self._class_sample(train, segment.y, len(known), len(self.segments))
        if len(unseen):
            self._add_classes(known, sample)
        new_means = _means([rows if len(rows) >= _DRIFT_ROWS else rows[:0] for rows in sample])
        if not ignored:
            warn_about_drift(self.means, new_means, _means(self._val_by_class()))
        self.segments.append(segment)
        if self.store is not None:
            self.store.save_classes(self.W, self.classes)
            self.store.add_segment(segment)
        self._solve(train, segment, first=self.n_batches - len(segment.batches))

    def set_workers(self, n_jobs: int | None) -> None:
        """Change the number of workers of later calls."""
        self.settings = Settings(**{**self.settings.__dict__, "n_jobs": n_jobs})

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

    # ---- the validation side

    def _prepare_validation(self, settings: Settings) -> None:
        self.settings = settings
        embedder = make_embedder(
            settings.embedder, random_state=settings.seed, image_shape=_image_shape(self.val_rows.sample_shape)
        )
        everything = np.arange(len(self.val_rows))
        raw = self.val_rows.take(everything)
        self.embedder = embedder.fit(raw, self.classes[self.val_y])
        features = np.asarray(self.embedder.transform(raw))
        if features.ndim != 2 or len(features) != len(raw):
            raise ValueError(f"the embedder gave shape {features.shape} for {len(raw)} validation rows")
        self.centre = features.mean(axis=0, dtype=np.float64)
        rng = np.random.default_rng([settings.seed, 2])
        size = settings.batch_size or max(2, len(raw))
        batches = make_batches(self.val_y, size, batching=settings.batching, rng=rng, min_rows=1)
        self.val = [self._batch(self.val_rows, self.val_y, rows) for rows in batches]

    def _batch(self, rows: Rows, y: np.ndarray, index: np.ndarray) -> Batch:
        return make_batch(rows.take(index), y[index], index, embed=self.embedder, **self._batch_arguments())

    def _batch_arguments(self) -> dict[str, Any]:
        recipe = self.settings.recipe
        keep_raw = recipe.plan_on_raw or recipe.diameter_of_raw_and_label
        return {"centre": self.centre, "dtype": recipe.dtype, "keep_raw": keep_raw}

    def _val_by_class(self) -> list[np.ndarray]:
        """Embedded validation rows of each class, at most ``label_samples`` of each."""
        X, y = np.concatenate([b.X for b in self.val]), np.concatenate([b.y for b in self.val])
        rng = np.random.default_rng([self.settings.seed, 3])
        return [X[rows] for rows in class_rows(y, len(self.classes), self.settings.label_samples, rng)]

    def _resolve_eps(self, train: Rows) -> None:
        settings = self.settings
        rng = np.random.default_rng([settings.seed, 5])
        index = np.sort(rng.choice(len(train), min(len(train), 512), replace=False))
        some = self._batch(train, np.zeros(len(train), np.int64), index).X
        others = np.concatenate([batch.X for batch in self.val])[:512]
        if isinstance(settings.eps, str):
            cost = feature_cost(some, others, settings.recipe.p) * settings.recipe.lambda_x
            self.eps = max(1e-3 * float(np.median(cost)), 1e-12)
        else:
            self.eps = settings.eps
            span = diameter(bounding_box(some), *(batch.box for batch in self.val))
            if settings.recipe.solver != "emd" and settings.recipe.potentials:
                warn_about_scale(span, self.eps, settings.recipe.p, stacklevel=5)

    # ---- class distances

    def _begin_label_distances(self, train: Rows, segment: Segment) -> None:
        settings, n_classes = self.settings, len(self.classes)
        sample = self._class_sample(train, segment.y, n_classes, 0)
        self.means = _means(sample)
        distance = settings.label_distance
        if settings.recipe.lambda_y == 0 or (isinstance(distance, str) and distance == "none"):
            self.W = np.zeros((n_classes, n_classes))
        elif not isinstance(distance, str):
            self.W = _given_label_distances(distance, n_classes)
        elif distance == "precomputed":
            raise ValueError("label_distance='precomputed': pass the (K, K) array itself as label_distance")
        elif distance == "first_batch":
            self.W = self._first_batch_label_distances(train, segment)
        elif distance == "per_pair":
            self.W = np.full((n_classes, n_classes), np.nan)
        else:
            self.W = self._distances(sample, self._val_by_class(), distance)

    def _distances(self, train: list[np.ndarray], val: list[np.ndarray], method: str) -> np.ndarray:
        recipe = self.settings.recipe
        pairs = sum(len(rows) > 0 for rows in train) * sum(len(rows) > 0 for rows in val)
        method = resolve_method(method, pairs, len(self.centre))
        return pairwise_label_distances(train, val, method, eps=self.eps, scaling=recipe.scaling, p=recipe.p)

    def _first_batch_label_distances(self, train: Rows, segment: Segment) -> np.ndarray:
        """From the first batches; a class they lack comes from the first batch that has it."""
        n_classes = len(self.classes)
        sides = []
        for batches in (
            (self._batch(train, segment.y, rows) for rows in segment.batches),
            iter(self.val),
        ):
            found: list[np.ndarray] = [np.empty((0, len(self.centre)), self.settings.recipe.dtype)] * n_classes
            missing = n_classes
            for batch in batches:
                for c, rows in enumerate(class_rows(batch.y, n_classes)):
                    if len(rows) and not len(found[c]):
                        found[c] = batch.X[rows]
                        missing -= 1
                if not missing:
                    break
            sides.append(found)
        return self._distances(*sides, "sample")

    def _class_sample(self, train: Rows, y: np.ndarray, n_classes: int, call: int) -> list[np.ndarray]:
        """Embedded training rows of each class, at most ``label_samples`` of each, drawn from all rows of a call."""
        rng = np.random.default_rng([self.settings.seed, 4, call])
        parts = class_rows(y, n_classes, self.settings.label_samples, rng)
        return [
            self._batch(train, y, rows).X if len(rows) else np.empty((0, len(self.centre)), self.settings.recipe.dtype)
            for rows in parts
        ]

    def _add_classes(self, known: np.ndarray, sample: list[np.ndarray]) -> None:
        """Grow W by classes that only new training rows have; what was frozen stays."""
        settings, old, new = self.settings, len(self.classes), len(known)
        distance = settings.label_distance
        if not isinstance(distance, str):
            raise ValueError(f"the new rows bring classes without a given distance: {known[old:].tolist()}")
        W = np.full((new, new), np.nan)
        W[:old, :old] = self.W
        if settings.recipe.lambda_y == 0 or distance == "none":
            W[:] = 0
        elif distance != "per_pair":
            method = "sample" if distance == "first_batch" else distance
            W[old:, :old] = self._distances(sample[old:], self._val_by_class(), method)
        self.W, self.classes = W, known
        self.means = np.vstack([self.means, np.full((new - old, self.means.shape[1]), np.nan)])

    # ---- training batches

    def _new_segment(self, train: Rows, ids: np.ndarray, call: int) -> Segment:
        settings = self.settings
        rng = np.random.default_rng([settings.seed, 1, call])
        size = settings.batch_size or max(2, len(train))
        batches = make_batches(ids, size, batching=settings.batching, rng=rng)
        return Segment(ids, batches, fingerprint(train, ids) if self.store is not None else "")

    def _enter_store(self, segment: Segment) -> None:
        store, settings = self.store, self.settings
        assert store is not None  # noqa: S101  narrowed by the caller
        val_fingerprint = fingerprint(self.val_rows, self.val_y)
        if store.exists:
            meta = store.meta
            _compare(settings.identity(), meta["config"], store, "settings")
            if meta["validation_fingerprint"] != val_fingerprint:
                raise ValueError(f"the store {store.folder} was made with other validation data")
            if meta["segments"][0]["fingerprint"] != segment.fingerprint:
                raise ValueError(f"the store {store.folder} was made with other training data")
            if len(meta["segments"]) > 1:
                raise ValueError(f"the store {store.folder} has been added to; load it instead of fitting it again")
            self.W = store.label_distances()
            return
        store.create(
            {
                "package": {"icl25-sava": version("icl25-sava")},
                "config": settings.identity(),
                "config_hash": _digest(settings.identity()),
                "params": settings.params,
                "seed": settings.seed,
                "eps": self.eps,
                "n_features": self.val_rows.n_features,
                "n_validation": len(self.val_rows),
                "validation_fingerprint": val_fingerprint,
            },
            self.W,
            self.classes,
            {
                "X": self.val_rows.array,
                "sample_shape": np.array(self.val_rows.sample_shape),
                "y": self.val_y,
                "centre": self.centre,
                "means": self.means,
            },
            segment,
        )

    def _choose_ledger(self) -> None:
        n = sum(len(segment) for segment in self.segments)
        size = n * len(self.val) * np.dtype(self.settings.recipe.dtype).itemsize
        if self.store is not None:
            self.ledger = self.store.ledger
        else:
            self.ledger = DiskLedger() if size > _LEDGER_BYTES else MemoryLedger()

    def _resume_last(self, train: Rows, ids: np.ndarray) -> None:
        last = self.segments[-1]
        if last.fingerprint != fingerprint(train, ids):
            folder = self.store.folder if self.store is not None else ""
            raise ValueError(f"the store {folder} waits for the rest of other rows; pass the rows of the run that broke off")
        self._solve(train, last, first=self.n_batches - len(last.batches))

    def _solve(self, train: Rows, segment: Segment, first: int) -> None:
        started, done = time.perf_counter(), self.ledger.done()
        todo = [number for number in range(len(segment.batches)) if first + number not in done]
        recipe = Recipe(**{**asdict(self.settings.recipe), "eps": self.eps})
        tasks = (
            delayed(_solve_numbered)(
                first + number,
                self._task(train, segment, segment.batches[number]),
                self.val,
                self.W,
                recipe,
                self._diameters(first + number),
            )
            for number in todo
        )
        results = Parallel(n_jobs=self.settings.n_jobs, return_as="generator_unordered")(tasks)
        if self.settings.verbose:
            results = track(results, "training batches", total=len(todo))
        for number, solution in results:
            self.ledger.put(number, solution)
        self.timings["solve"] = time.perf_counter() - started

    def _task(self, train: Rows, segment: Segment, rows: np.ndarray) -> Batch | tuple[MappedRows, dict[str, Any]]:
        """A batch for a worker: by its place on disk where it can read it there itself, else by its rows."""
        if self.settings.embedder is None:
            handle = train.handle(rows)
            if isinstance(handle, MappedRows):
                return handle, {"y": segment.y[rows], **self._batch_arguments()}
        return self._batch(train, segment.y, rows)

    def _diameters(self, number: int) -> np.ndarray | None:
        given = self.settings.diameter
        if given is None:
            return None
        values = np.asarray(given, np.float64)
        if values.ndim == 2:
            if values.shape[1] != len(self.val) or number >= len(values):
                raise ValueError(f"diameter must be a number or have shape (K_t, K_v), got {values.shape}")
            return values[number]
        return np.full(len(self.val), float(values))


def _solve_numbered(number: int, *arguments: Any) -> tuple[int, BatchSolution]:
    return number, solve_batch(*arguments)


def _known_classes(labels: np.ndarray, val_labels: np.ndarray) -> np.ndarray:
    texts = [array.dtype.kind in "UST" for array in (labels, val_labels)]
    if texts[0] != texts[1]:
        raise ValueError(f"y holds {labels.dtype} labels, y_val {val_labels.dtype}: use one kind on both sides")
    return np.unique(np.concatenate([np.unique(labels), np.unique(val_labels)]))


def _given_label_distances(distance: Any, n_classes: int) -> np.ndarray:
    W = np.asarray(distance, np.float64)
    if W.shape != (n_classes, n_classes):
        raise ValueError(f"label_distance must have shape ({n_classes}, {n_classes}) in the order of the sorted classes, got {W.shape}")
    return W


def _means(by_class: list[np.ndarray]) -> np.ndarray:
    d = by_class[0].shape[1]
    return np.stack([rows.mean(axis=0, dtype=np.float64) if len(rows) else np.full(d, np.nan) for rows in by_class])


def _image_shape(sample_shape: tuple[int, ...]) -> tuple[int, ...] | None:
    return sample_shape if len(sample_shape) > 1 else None


def _with_seed(settings: Settings, seed: int) -> Settings:
    return Settings(**{**settings.__dict__, "seed": seed})


def _digest(value: Any) -> str:
    content = value.tobytes() if isinstance(value, np.ndarray) else json.dumps(value, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()


def _compare(now: dict[str, Any], before: dict[str, Any], store: Store, what: str) -> None:
    differing = [key for key in now if now[key] != before.get(key)]
    if differing:
        named = ", ".join(f"{key} {before.get(key)!r} -> {now[key]!r}" for key in differing[:3])
        raise ValueError(f"the store {store.folder} was made with other {what}: {named}")
