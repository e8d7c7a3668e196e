"""Class-to-class distances W: how far the rows of a training class lie from those of a validation class."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float, Integer, Real

from icl25_sava.costs import bounding_box, diameter, feature_cost
from icl25_sava.potentials import annealed_potentials

__all__ = ["LabelDistance", "class_rows", "label_distances", "pairwise_label_distances", "resolve_method"]

LabelDistance = Literal["auto", "sample", "first_batch", "per_pair", "gaussian", "means", "none", "precomputed"]

_ENTROPIC_PAIRS = 2_500  # more pairs of classes than this, and "auto" leaves the entropic distance
_GAUSSIAN_FEATURES = 256


def resolve_method(method: str, n_pairs: int, n_features: int) -> str:
    """The method that ``"auto"`` stands for: ``"sample"``, ``"gaussian"`` or ``"means"``, by the size of the problem.

    Args:
        method: one of ``LabelDistance``.
        n_pairs: number of (training class, validation class) pairs.
        n_features: number of features d.

    Returns:
        The method itself unless it is ``"auto"``.

    Raises:
        ValueError: the method is unknown.
    """
    if method not in get_args(LabelDistance):
        raise ValueError(f"label_distance must be one of {', '.join(get_args(LabelDistance))}, got {method!r}")
    if method != "auto":
        return method
    if n_pairs <= _ENTROPIC_PAIRS:
        return "sample"
    return "gaussian" if n_features <= _GAUSSIAN_FEATURES else "means"


def class_rows(
    y: Integer[np.ndarray, " n"], n_classes: int, limit: int | None = None, rng: np.random.Generator | None = None
) -> list[Integer[np.ndarray, " k"]]:
    """Row numbers of each class, at most ``limit`` of them, drawn without replacement and kept in order.

    Args:
        y: class ids, shape (n,).
        n_classes: number of classes K.
        limit: most rows of one class; all when None.
        rng: generator of the draw; needed where a class has more than ``limit`` rows.

    Returns:
        K arrays of row numbers; empty for a class without rows.
    """
    order = np.argsort(y, kind="stable")
    parts = np.split(order, np.searchsorted(y[order], np.arange(1, n_classes)))
    if limit is None or rng is None:
        return parts
    return [np.sort(rng.choice(part, limit, replace=False)) if len(part) > limit else part for part in parts]


def label_distances(
    X: Real[np.ndarray, "n d"],
    y: Any,
    Xv: Real[np.ndarray, "m d"],
    yv: Any,
    method: str = "sample",
    *,
    label_samples: int | None = None,
    eps: float = 0.1,
    scaling: float = 0.5,
    p: int = 2,
    random_state: int | None = 0,
) -> Float[np.ndarray, "k k"]:
    """Distance of every training class to every validation class.

    Args:
        X: features of the training rows, shape (n, d).
        y: their labels, shape (n,), of any sortable kind.
        Xv: features of the validation rows, shape (m, d).
        yv: their labels, shape (m,).
        method: ``"sample"`` (entropic OT value of the annealed duals, not debiased), ``"gaussian"`` (half the squared
            Bures-Wasserstein distance of the class Gaussians), ``"means"`` (half the squared distance of the class
            means), ``"none"`` (zeros).
        label_samples: most rows of one class that are used; all when None.
        eps: entropic regularisation of ``"sample"``.
        scaling: annealing factor of ``"sample"``.
        p: 2, or 1 for plain distances without the halves.
        random_state: seed of the draw of ``label_samples`` rows.

    Returns:
        W, shape (K, K); row and column i belong to the i-th of the sorted labels that occur in either set. NaN where a
        class has no rows on the side in question.

    Raises:
        ValueError: shapes do not match or the method is unknown.

    Source: SAVA (arXiv 2406.01130), label-to-label distances; OTDD (Alvarez-Melis and Fusi, 2020).
    """
    y, yv = np.asarray(y), np.asarray(yv)
    for name, labels, rows in (("y", y, X), ("yv", yv, Xv)):
        if labels.shape != (len(rows),):
            raise ValueError(f"{name} must have shape ({len(rows)},), got {labels.shape}")
    if X.ndim != 2 or Xv.ndim != 2 or X.shape[1] != Xv.shape[1]:
        raise ValueError(f"X and Xv must have the same number of columns, got shapes {X.shape} and {Xv.shape}")
    classes, ids = np.unique(np.concatenate([y, yv]), return_inverse=True)
    rng = np.random.default_rng(random_state)
    train = class_rows(ids[: len(y)], len(classes), label_samples, rng)
    val = class_rows(ids[len(y) :], len(classes), label_samples, rng)
    dtype = np.float64 if X.dtype == np.float64 else np.float32
    return pairwise_label_distances(
        [X[rows].astype(dtype) for rows in train],
        [Xv[rows].astype(dtype) for rows in val],
        method,
        eps=eps,
        scaling=scaling,
        p=p,
    )


def pairwise_label_distances(
    train: list[Float[np.ndarray, "_ d"]],
    val: list[Float[np.ndarray, "_ d"]],
    method: str = "sample",
    *,
    eps: float = 0.1,
    scaling: float = 0.5,
    p: int = 2,
) -> Float[np.ndarray, "kt kv"]:
    """Class distances from the rows of each class, see ``label_distances``.

    Args:
        train: one array (n_k, d) per training class.
        val: one array (m_k, d) per validation class.
        method: ``"sample"``, ``"gaussian"``, ``"means"``, ``"none"``; ``"auto"`` picks by size.
        eps: entropic regularisation of ``"sample"``.
        scaling: annealing factor of ``"sample"``.
        p: 1 or 2.

    Returns:
        W, shape (len(train), len(val)), float64; NaN where a class has no rows.

    Raises:
        ValueError: the method is unknown or needs the batches (``"first_batch"``, ``"per_pair"``).

    Source: SAVA (arXiv 2406.01130), label-to-label distances.
    """
    method = resolve_method(method, len(train) * len(val), train[0].shape[1] if train else 0)
    if method == "none":
        return np.zeros((len(train), len(val)))
    if method == "sample":
        distance = _EntropicDistance(train, val, eps, scaling, p)
    elif method in ("gaussian", "means"):
        distance = _GaussianDistance(train, val, p, means_only=method == "means")
    else:
        raise ValueError(f"the method {method!r} is defined by batches and has no meaning for whole classes")
    W = np.full((len(train), len(val)), np.nan)
    for i, rows in enumerate(train):
        for j, others in enumerate(val):
            if len(rows) and len(others):
                W[i, j] = distance(i, j)
    return W


class _EntropicDistance:
    """mean f + mean g of the annealed duals between two classes."""

    def __init__(self, train: list[np.ndarray], val: list[np.ndarray], eps: float, scaling: float, p: int) -> None:
        self.train, self.val = train, val
        self.boxes = [[bounding_box(rows) if len(rows) else None for rows in side] for side in (train, val)]
        self.eps, self.scaling, self.p = eps, scaling, p

    def __call__(self, i: int, j: int) -> float:
        boxes = [box for box in (self.boxes[0][i], self.boxes[1][j]) if box is not None]
        f, g = annealed_potentials(
            feature_cost(self.train[i], self.val[j], self.p),
            eps=self.eps,
            scaling=self.scaling,
            diameter=diameter(*boxes),
            p=self.p,
        )
        return float(f.mean(dtype=np.float64) + g.mean(dtype=np.float64))


class _GaussianDistance:
    """Half the squared 2-Wasserstein distance of the classes' Gaussians, or of their means alone."""

    def __init__(self, train: list[np.ndarray], val: list[np.ndarray], p: int, means_only: bool) -> None:
        self.p, self.means_only = p, means_only
        # A class without rows is asked for no distance.
        self.mean = [
            [rows.mean(axis=0, dtype=np.float64) if len(rows) else np.full(rows.shape[1], np.nan) for rows in side]
            for side in (train, val)
        ]
        if not means_only:
            self.cov = [[_covariance(rows) for rows in side] for side in (train, val)]
            self.root = [_matrix_root(cov) for cov in self.cov[0]]

    def __call__(self, i: int, j: int) -> float:
        squared = float(np.sum((self.mean[0][i] - self.mean[1][j]) ** 2))
        if not self.means_only:
            root, other = self.root[i], self.cov[1][j]
            spectrum = np.linalg.eigvalsh(root @ other @ root)
            cross = np.sqrt(np.clip(spectrum, 0, None)).sum()
            squared += float(np.trace(self.cov[0][i]) + np.trace(other) - 2 * cross)
        squared = max(squared, 0.0)
        return float(np.sqrt(squared)) if self.p == 1 else squared / 2


def _covariance(rows: np.ndarray) -> np.ndarray:
    """Covariance with the divisor n, which is also defined (zero) for a single row."""
    d = rows.shape[1]
    return np.zeros((d, d)) if len(rows) == 0 else np.atleast_2d(np.cov(rows.T.astype(np.float64), bias=True))


def _matrix_root(S: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(S)
    return (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
