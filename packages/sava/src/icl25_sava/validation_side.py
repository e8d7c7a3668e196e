"""What the first fit freezes: embedder, validation batches, class distances.

Everything later is measured against this side, so that values of rows that come on different days stay comparable.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Integer

from icl25_sava.batching import make_batches
from icl25_sava.checks import warn_about_drift, warn_about_scale
from icl25_sava.class_distances import class_rows, pairwise_label_distances, resolve_method
from icl25_sava.costs import bounding_box, diameter, feature_cost
from icl25_sava.embedders import make_embedder
from icl25_sava.inputs import Rows
from icl25_sava.pairs import Batch, Recipe, make_batch

__all__ = ["Settings", "ValidationSide", "class_means", "digest"]

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
            "label_distance": distance if isinstance(distance, str) else digest(np.asarray(distance)),
            "embedder": self.embedder if isinstance(self.embedder, str | None) else type(self.embedder).__name__,
        }


class ValidationSide:
    """Embedder, validation batches and class distances, fixed by the first fit.

    Args:
        settings: the resolved parameters.
        rows: validation rows, as given.
        y: their class ids, shape (M,).
        classes: the classes, by their ids.

    Raises:
        ValueError: the embedder cannot be made or fitted, or gives another number of rows.
    """

    W: Float[np.ndarray, "k k"]
    eps: float
    means: Float[np.ndarray, "k d"]

    def __init__(self, settings: Settings, rows: Rows, y: Integer[np.ndarray, " m"], classes: np.ndarray) -> None:
        self.settings, self.rows, self.y, self.classes = settings, rows, y, classes
        shape = rows.sample_shape if len(rows.sample_shape) > 1 else None
        embedder = make_embedder(settings.embedder, random_state=settings.seed, image_shape=shape)
        raw = rows.take(np.arange(len(rows)))
        self.embedder = embedder.fit(raw, classes[y])
        features = np.asarray(self.embedder.transform(raw))
        self.centre = features.mean(axis=0, dtype=np.float64)
        rng = np.random.default_rng([settings.seed, 2])
        size = settings.batch_size or max(2, len(raw))
        batches = make_batches(y, size, batching=settings.batching, rng=rng, min_rows=1)
        self.batches = [self.batch(rows, y, index) for index in batches]

    def batch(self, rows: Rows, y: Integer[np.ndarray, " n"], index: Integer[np.ndarray, " b"]) -> Batch:
        """Rows of either side, embedded, centred and cast.

        Args:
            rows: the rows.
            y: class ids of all rows.
            index: which rows.

        Returns:
            The batch.
        """
        return make_batch(rows.take(index), y[index], index, embed=self.embedder, **self.batch_arguments())

    def batch_arguments(self) -> dict[str, Any]:
        """What ``icl25_sava.pairs.make_batch`` needs besides the rows and the embedder."""
        recipe = self.settings.recipe
        keep_raw = recipe.plan_on_raw or recipe.diameter_of_raw_and_label
        return {"centre": self.centre, "dtype": recipe.dtype, "keep_raw": keep_raw}

    def recipe(self) -> Recipe:
        """How pairs of batches are solved, the regularisation resolved."""
        return replace(self.settings.recipe, eps=self.eps)

    def freeze(self, train: Rows, y: Integer[np.ndarray, " n"], batches: list[np.ndarray]) -> None:
        """Resolve the regularisation and the class distances from the first training rows.

        Args:
            train: training rows.
            y: their class ids.
            batches: row numbers of their batches, for the distances that are defined by batches.

        Raises:
            ValueError: class distances that were given do not fit.

        Warns:
            UserWarning: the data lie closer together than ``eps`` can resolve.
        """
        self._resolve_eps(train)
        sample = self.class_sample(train, y, 0)
        self.means = class_means(sample)
        distance, n_classes = self.settings.label_distance, len(self.classes)
        if self.settings.recipe.lambda_y == 0 or (isinstance(distance, str) and distance == "none"):
            self.W = np.zeros((n_classes, n_classes))
        elif not isinstance(distance, str):
            self.W = _given_label_distances(distance, n_classes)
        elif distance == "precomputed":
            raise ValueError("label_distance='precomputed': pass the (K, K) array itself as label_distance")
        elif distance == "first_batch":
            found = self._first_rows(self.batch(train, y, index) for index in batches)
            self.W = self._distances(found, self._first_rows(iter(self.batches)), "sample")
        elif distance == "per_pair":
            self.W = np.full((n_classes, n_classes), np.nan)
        else:
            self.W = self._distances(sample, self._by_class(), distance)

    def class_sample(self, train: Rows, y: Integer[np.ndarray, " n"], call: int) -> list[np.ndarray]:
        """Embedded training rows of each class, at most ``label_samples`` of each, drawn from all rows of a call.

        Args:
            train: training rows.
            y: their class ids.
            call: number of the call, which gives each its own draw.

        Returns:
            An array (n_k, d) per class.
        """
        rng = np.random.default_rng([self.settings.seed, 4, call])
        parts = class_rows(y, max(len(self.classes), int(y.max()) + 1), self.settings.label_samples, rng)
        return [self.batch(train, y, rows).X if len(rows) else self._no_rows() for rows in parts]

    def welcome(self, sample: list[np.ndarray], known: np.ndarray) -> None:
        """Grow by classes that only new training rows have; what was frozen stays. Say when the data have drifted.

        Args:
            sample: ``class_sample`` of the new rows.
            known: all classes, the frozen ones first.

        Raises:
            ValueError: there is a new class although the class distances were given.

        Warns:
            UserWarning: the class means moved by more than a fifth.
        """
        if len(known) > len(self.classes):
            self._add_classes(known, sample)
        if self.settings.recipe.lambda_y != 0:
            enough = [rows if len(rows) >= _DRIFT_ROWS else rows[:0] for rows in sample]
            warn_about_drift(self.means, class_means(enough), class_means(self._by_class()))

    def _add_classes(self, known: np.ndarray, sample: list[np.ndarray]) -> None:
        old, new = len(self.classes), len(known)
        distance = self.settings.label_distance
        if not isinstance(distance, str):
            raise ValueError(f"the new rows bring classes without a given distance: {known[old:].tolist()}")
        W = np.full((new, new), np.nan)
        W[:old, :old] = self.W
        if self.settings.recipe.lambda_y == 0 or distance == "none":
            W[:] = 0
        elif distance != "per_pair":
            method = "sample" if distance == "first_batch" else distance
            W[old:, :old] = self._distances(sample[old:], self._by_class(), method)
        self.W, self.classes = W, known
        self.means = np.vstack([self.means, np.full((new - old, self.means.shape[1]), np.nan)])

    def _no_rows(self) -> np.ndarray:
        return np.empty((0, len(self.centre)), self.settings.recipe.dtype)

    def _by_class(self) -> list[np.ndarray]:
        """Embedded validation rows of each class, at most ``label_samples`` of each."""
        X, y = (np.concatenate([getattr(batch, part) for batch in self.batches]) for part in ("X", "y"))
        rng = np.random.default_rng([self.settings.seed, 3])
        return [X[rows] for rows in class_rows(y, len(self.classes), self.settings.label_samples, rng)]

    def _first_rows(self, batches: Iterator[Batch]) -> list[np.ndarray]:
        """Rows of each class in the first batch; of a class that it lacks, in the first batch that has it."""
        found: list[np.ndarray] = [self._no_rows()] * len(self.classes)
        for batch in batches:
            for c, rows in enumerate(class_rows(batch.y, len(self.classes))):
                if len(rows) and not len(found[c]):
                    found[c] = batch.X[rows]
            if all(len(rows) for rows in found):
                break
        return found

    def _distances(self, train: list[np.ndarray], val: list[np.ndarray], method: str) -> np.ndarray:
        recipe = self.settings.recipe
        pairs = sum(len(rows) > 0 for rows in train) * sum(len(rows) > 0 for rows in val)
        method = resolve_method(method, pairs, len(self.centre))
        return pairwise_label_distances(train, val, method, eps=self.eps, scaling=recipe.scaling, p=recipe.p)

    def _resolve_eps(self, train: Rows) -> None:
        settings, recipe = self.settings, self.settings.recipe
        rng = np.random.default_rng([settings.seed, 5])
        index = np.sort(rng.choice(len(train), min(len(train), 512), replace=False))
        some = self.batch(train, np.zeros(len(train), np.int64), index).X
        if isinstance(settings.eps, str):
            others = np.concatenate([batch.X for batch in self.batches])[:512]
            self.eps = max(1e-3 * float(np.median(feature_cost(some, others, recipe.p) * recipe.lambda_x)), 1e-12)
            return
        self.eps = settings.eps
        if recipe.solver != "emd" and recipe.potentials:
            span = diameter(bounding_box(some), *(batch.box for batch in self.batches))
            warn_about_scale(span, self.eps, recipe.p, stacklevel=6)


def class_means(by_class: list[np.ndarray]) -> Float[np.ndarray, "k d"]:
    """Mean of the rows of each class, NaN for a class without rows.

    Args:
        by_class: an array (n_k, d) per class.

    Returns:
        Means, shape (k, d).
    """
    d = by_class[0].shape[1]
    return np.stack([rows.mean(axis=0, dtype=np.float64) if len(rows) else np.full(d, np.nan) for rows in by_class])


def digest(value: Any) -> str:
    """Hash of an array or of JSON-able data.

    Args:
        value: the data.

    Returns:
        64 hexadecimal digits.
    """
    content = value.tobytes() if isinstance(value, np.ndarray) else json.dumps(value, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()


def _given_label_distances(distance: Any, n_classes: int) -> np.ndarray:
    W = np.asarray(distance, np.float64)
    if W.shape != (n_classes, n_classes):
        raise ValueError(
            f"label_distance must have shape ({n_classes}, {n_classes}), by the sorted classes, got {W.shape}"
        )
    return W
