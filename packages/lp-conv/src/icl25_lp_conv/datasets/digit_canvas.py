"""Real handwritten digits at random places of a noisy canvas: a task whose answer needs a wide receptive field."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

__all__ = ["DigitCanvases", "digit_canvases", "place_digits", "split_digits"]

_SIDE, _ZOOM, _NOISE = 20, 1.5, 0.25


class DigitCanvases(NamedTuple):
    """Images and classes."""

    x: Float[np.ndarray, "n 1 side side"]
    """(n, 1, side, side) images: digits in [0, 1], plus noise where they lie on a canvas."""
    y: Int[np.ndarray, " n"]
    """(n,) digits 0 ... 9."""


def digit_canvases(n_train: int, n_test: int, seed: int) -> tuple[DigitCanvases, DigitCanvases]:
    """Place scikit-learn's digits, 1.5 times as large, anywhere on a canvas of 20 x 20 pixels with normal noise.

    Training and test images show different digits.

    Args:
        n_train: Number of training images, >= 1.
        n_test: Number of test images, >= 1; both together at most 1 797.
        seed: Seed of the choice, the places and the noise (standard deviation 0.25).

    Returns:
        Training and test images.

    Raises:
        ValueError: If there are not so many digits.

    Source: ours; the digits are those of scikit-learn (UCI optical recognition of handwritten digits, 1998).
    """
    rng = np.random.default_rng(seed)
    train, test = split_digits(n_train, n_test, rng)
    return DigitCanvases(place_digits(train.x, rng), train.y), DigitCanvases(place_digits(test.x, rng), test.y)


def split_digits(n_train: int, n_test: int, rng: np.random.Generator) -> tuple[DigitCanvases, DigitCanvases]:
    """Choose digits for training and for testing, 1.5 times as large as scikit-learn's and without a canvas yet.

    Args:
        n_train: Number of training digits, >= 1.
        n_test: Number of test digits, >= 1; both together at most 1 797.
        rng: Generator of the choice.

    Returns:
        Training and test digits of 12 x 12 pixels.

    Raises:
        ValueError: If there are not so many digits.

    Source: ours; the digits are those of scikit-learn (UCI optical recognition of handwritten digits, 1998).
    """
    from scipy import ndimage
    from sklearn.datasets import load_digits

    digits, y = load_digits(return_X_y=True)
    if min(n_train, n_test) < 1 or n_train + n_test > len(digits):
        raise ValueError(f"n_train and n_test must be >= 1 and together <= {len(digits)}, found {n_train} and {n_test}")
    chosen = rng.permutation(len(digits))[: n_train + n_test]
    large = ndimage.zoom(digits[chosen].reshape(-1, 8, 8) / 16, (1, _ZOOM, _ZOOM), order=1)
    x, y = large[:, None].astype(np.float32), y[chosen]
    return DigitCanvases(x[:n_train], y[:n_train]), DigitCanvases(x[n_train:], y[n_train:])


def place_digits(x: Float[np.ndarray, "n 1 k k"], rng: np.random.Generator) -> Float[np.ndarray, "n 1 20 20"]:
    """Place digits anywhere on canvases of 20 x 20 pixels with normal noise of standard deviation 0.25.

    Args:
        x: (n, 1, k, k) digits, k <= 20.
        rng: Generator of the places and the noise.

    Returns:
        (n, 1, 20, 20) images.

    Source: ours.
    """
    size = x.shape[-1]
    canvas = rng.normal(0, _NOISE, (len(x), _SIDE, _SIDE))
    places = rng.integers(0, _SIDE - size + 1, (len(x), 2))
    for image, digit, (row, column) in zip(canvas, x[:, 0], places, strict=True):
        image[row : row + size, column : column + size] += digit
    return canvas[:, None].astype(np.float32)
