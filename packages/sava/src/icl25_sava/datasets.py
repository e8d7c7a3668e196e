"""Data that needs no download: Gaussian classes, and handwritten digits as they are or augmented."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer
from scipy import ndimage
from sklearn.datasets import load_digits

__all__ = ["DIGIT_SHAPE", "LabelledRows", "Split", "augmented_digits", "load_digits_split", "make_gaussians"]

DIGIT_SHAPE = (8, 8)
_N_DIGITS = 1797
_N_TEST_DIGITS = 397
_VALIDATION_SHARE = 2 / 7
_MAX_SHIFT, _MAX_ANGLE, _MAX_LOG_SCALE = 0.5, np.deg2rad(10), np.log(1.1)


class LabelledRows(NamedTuple):
    """Rows X, shape (n, d), and their labels y, shape (n,)."""

    X: Float[np.ndarray, "n d"]
    y: Integer[np.ndarray, " n"]


class Split(NamedTuple):
    """Three disjoint parts of one data set: rows to value, clean rows to value them by, and rows to test a model on."""

    train: LabelledRows
    val: LabelledRows
    test: LabelledRows


def make_gaussians(n_train: int, n_val: int, n_classes: int = 10, n_features: int = 16, seed: int = 0) -> Split:
    """Clean rows of Gaussian classes with unit covariance, whose centres are drawn from a standard normal law.

    Args:
        n_train: number of training rows, at least 1.
        n_val: number of validation rows, and of test rows, at least 1.
        n_classes: number of classes, at least 1; each row's class is drawn uniformly.
        n_features: number of features d, at least 1; two centres are about sqrt(2 d) apart.
        seed: seed of centres, classes and rows.

    Returns:
        Rows as float32 and labels 0 .. n_classes - 1: train (n_train, d), val and test (n_val, d).

    Raises:
        ValueError: a number is below 1.

    Example:
        >>> make_gaussians(100, 20).train.X.shape
        (100, 16)
    """
    for name, value in (("n_train", n_train), ("n_val", n_val), ("n_classes", n_classes), ("n_features", n_features)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((n_classes, n_features), np.float32)

    def draw(n: int) -> LabelledRows:
        y = rng.integers(n_classes, size=n)
        X = rng.standard_normal((n, n_features), np.float32)
        X += centres[y]
        return LabelledRows(X, y)

    return Split(draw(n_train), draw(n_val), draw(n_val))


def load_digits_split(n_train: int = 1000, n_val: int = 400, seed: int = 0) -> Split:
    """The 1 797 handwritten digits of scikit-learn, 8 x 8 pixels in [0, 1], in a random order cut into three parts.

    Args:
        n_train: number of training rows, at least 1.
        n_val: number of validation rows, at least 1; ``n_train + n_val`` is at most 1 796.
        seed: seed of the order.

    Returns:
        Rows as float32, shape (n, 64), and labels 0 .. 9; test holds the rows that are left.

    Raises:
        ValueError: a part is empty.

    Source: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998 (test part), as in scikit-learn.
    """
    if n_train < 1 or n_val < 1 or n_train + n_val >= _N_DIGITS:
        raise ValueError(
            f"n_train and n_val must be at least 1 and leave one of the {_N_DIGITS} digits to test on, "
            f"got {n_train} and {n_val}"
        )
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(_N_DIGITS)
    X = (digits.data[order] / 16).astype(np.float32)
    y = digits.target[order].astype(np.int64)
    cuts = (n_train, n_train + n_val)
    return Split(*(LabelledRows(*part) for part in zip(np.split(X, cuts), np.split(y, cuts), strict=True)))


def augmented_digits(n_train: int = 8192, n_val: int = 2048, seed: int = 0) -> Split:
    """More digits than there are: randomly moved copies of originals, no original in two parts.

    The originals are cut at random into 1 000 for training, 400 for validation and 397 for testing. Each part's
    originals are repeated in turn until it has its number of rows, and each of these copies is turned by an angle
    uniform in +-10 degrees, scaled by a factor log-uniform in [1 / 1.1, 1.1], both about the centre of the image, and
    shifted by up to half a pixel along each axis, by bilinear interpolation with zeros outside. The rows of a part are
    then put in random order. The test rows are the originals themselves, unmoved.

    Args:
        n_train: number of training rows, at least 1.
        n_val: number of validation rows, at least 1.
        seed: seed of cut, augmentation and order.

    Returns:
        Rows as float32 in [0, 1], shape (n, 64), and labels 0 .. 9.

    Raises:
        ValueError: a number is below 1.
    """
    if n_train < 1 or n_val < 1:
        raise ValueError(f"n_train and n_val must be at least 1, got {n_train} and {n_val}")
    n_kept = _N_DIGITS - _N_TEST_DIGITS
    n_val_originals = round(_VALIDATION_SHARE * n_kept)
    originals = load_digits_split(n_kept - n_val_originals, n_val_originals, seed)
    rng = np.random.default_rng([seed, 1])
    return Split(_augment(originals.train, n_train, rng), _augment(originals.val, n_val, rng), originals.test)


def _augment(originals: LabelledRows, n: int, rng: np.random.Generator) -> LabelledRows:
    source = rng.permutation(np.arange(n) % len(originals.y))
    angles = rng.uniform(-_MAX_ANGLE, _MAX_ANGLE, n)
    scales = np.exp(rng.uniform(-_MAX_LOG_SCALE, _MAX_LOG_SCALE, n))
    shifts = rng.uniform(-_MAX_SHIFT, _MAX_SHIFT, (n, 2))
    centre = (np.array(DIGIT_SHAPE) - 1) / 2
    X = np.empty((n, originals.X.shape[1]), np.float32)
    for row, (angle, scale, shift) in enumerate(zip(angles, scales, shifts, strict=True)):
        # affine_transform maps places of the output to places of the input, hence the inverse of what is described.
        cos, sin = np.cos(angle) / scale, np.sin(angle) / scale
        matrix = np.array([[cos, -sin], [sin, cos]])
        image = originals.X[source[row]].reshape(DIGIT_SHAPE)
        moved = ndimage.affine_transform(image, matrix, offset=centre - matrix @ (centre + shift), order=1)
        X[row] = moved.ravel()
    return LabelledRows(X, originals.y[source])
