"""The ground cost between labelled rows, and the length scale of a pair of batches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer, Real

__all__ = ["Box", "augmented_cost", "bounding_box", "diameter", "feature_cost"]

_BLOCK_ELEMENTS = 1 << 17


class Box(NamedTuple):
    """Axis-parallel bounding box of a set of rows."""

    low: Float[np.ndarray, " d"]
    """Smallest value of each feature, shape (d,)."""
    high: Float[np.ndarray, " d"]
    """Largest value of each feature, shape (d,)."""


def bounding_box(X: Real[np.ndarray, "n d"]) -> Box:
    """Bounding box of the rows of X, shape (n, d), n >= 1."""
    return Box(X.min(axis=0).astype(np.float64), X.max(axis=0).astype(np.float64))


def diameter(*boxes: Box) -> float:
    """Diagonal of the smallest box around all ``boxes``, in units of the features."""
    low = np.min([box.low for box in boxes], axis=0)
    high = np.max([box.high for box in boxes], axis=0)
    return float(np.linalg.norm(high - low))


def feature_cost(X: Float[np.ndarray, "n d"], Xv: Float[np.ndarray, "m d"], p: int = 2) -> Float[np.ndarray, "n m"]:
    """Half the squared Euclidean distance (p = 2) or the Euclidean distance (p = 1) between rows.

    Both sets are moved by the mean of ``Xv`` first, so that a large common offset costs no precision; what rounding
    leaves below zero is set to zero.

    Args:
        X: rows, shape (n, d).
        Xv: rows, shape (m, d).
        p: 1 or 2.

    Returns:
        Cost, shape (n, m), of the precision of X.

    Source: SAVA (arXiv 2406.01130), ground cost between features.
    """
    centre = Xv.mean(axis=0, dtype=np.float64)
    A = (X - centre).astype(X.dtype)
    B = (Xv - centre).astype(X.dtype)
    C = A @ (-B.T)
    C += np.einsum("ij,ij->i", A, A)[:, None] / 2
    C += np.einsum("ij,ij->i", B, B) / 2
    np.maximum(C, 0, out=C)
    if p == 1:
        np.multiply(C, 2, out=C)
        np.sqrt(C, out=C)
    return C


def augmented_cost(
    X: Float[np.ndarray, "n _"],
    y: Integer[np.ndarray, " _"],
    Xv: Float[np.ndarray, "m _"],
    yv: Integer[np.ndarray, " _"],
    W: Real[np.ndarray, "k k"] | None = None,
    *,
    lambda_x: float = 1.0,
    lambda_y: float = 1.0,
    p: int = 2,
) -> Float[np.ndarray, "n m"]:
    """Cost between labelled rows: distance of the features plus distance of the classes.

    c = lambda_x ||x - x'||^2 / 2 + lambda_y W[y, y'] / 2 for p = 2; lambda_x ||x - x'|| + lambda_y W[y, y'] for p = 1.

    Args:
        X: features of the training rows, shape (n, d).
        y: class ids of the training rows, shape (n,), integers that index the rows of W.
        Xv: features of the validation rows, shape (m, d).
        yv: class ids of the validation rows, shape (m,), integers that index the columns of W.
        W: class-to-class distances, shape (k, k), see ``label_distances``; None leaves the label term out.
        lambda_x: weight of the features, >= 0.
        lambda_y: weight of the labels, >= 0.
        p: 1 or 2.

    Returns:
        Cost, shape (n, m), of the precision of X.

    Raises:
        ValueError: shapes do not match, a class id lies outside W, p is neither 1 nor 2, or W has no distance for a
            pair of classes that occurs.

    Source: SAVA (arXiv 2406.01130), ground cost between labelled rows; OTDD (Alvarez-Melis and Fusi, 2020).
    """
    if p not in (1, 2):
        raise ValueError(f"p must be 1 or 2, got {p}")
    if X.ndim != 2 or Xv.ndim != 2 or X.shape[1] != Xv.shape[1]:
        raise ValueError(f"X and Xv must have the same number of columns, got shapes {X.shape} and {Xv.shape}")
    C = feature_cost(X, Xv, p)
    if lambda_x != 1:
        C *= C.dtype.type(lambda_x)
    if W is None or lambda_y == 0:
        return C
    for name, ids, rows in (("y", y, X), ("yv", yv, Xv)):
        if ids.shape != (len(rows),):
            raise ValueError(f"{name} must have shape ({len(rows)},), got {ids.shape}")
        if ids.min() < 0 or ids.max() >= len(W):
            raise ValueError(f"{name} holds class ids outside 0..{len(W) - 1}")
    label_term = (W * (lambda_y if p == 1 else lambda_y / 2)).astype(C.dtype)[y]
    present = np.unique(yv)
    if not np.isfinite(label_term[:, present]).all():
        raise ValueError("W has no finite distance for a pair of classes that occurs in the data")
    step = max(1, _BLOCK_ELEMENTS // C.shape[1])
    for start in range(0, len(C), step):  # in pieces, so that no second array of the size of the cost is made
        C[start : start + step] += label_term[start : start + step].take(yv, axis=1)
    return C
