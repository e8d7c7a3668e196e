"""Random functions that unknowns are drawn from: sums of sines, and Gaussian processes on grids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

__all__ = ["gaussian_process", "sine_series"]

JITTER = 1e-8  # keeps the Cholesky factor of a nearly singular kernel real


def sine_series(
    n: int,
    x: Float[np.ndarray, " n_x"],
    rng: np.random.Generator,
    *,
    n_modes: int = 24,
    alpha: float = 3.0,
    tau: float = 10.0,
) -> Float[np.ndarray, "n n_x"]:
    """Draw sums of sines s = sum c_j sin(j pi x), which vanish at 0 and 1.

    The coefficients are independent, c_j ~ N(0, ((j pi)^2 + tau^2)^-alpha) times a common factor that makes the mean
    square of s over [0, 1] one on average.

    Args:
        n: How many.
        x: Places from 0 to 1, shape (n_x,).
        rng: Source of the draws.
        n_modes: Number of sines, >= 1.
        alpha: Smoothness, > 0.
        tau: Inverse length scale: sines with j pi below it are about equally strong.

    Returns:
        The functions, one a row.

    Raises:
        ValueError: If ``n`` or ``n_modes`` is below 1.

    Source:
        The usual Gaussian random field of operator learning; Cho and Son (ICLR 2025) leave the prior open.
    """
    _check_count(n=n, n_modes=n_modes)
    wave = np.pi * np.arange(1, n_modes + 1)
    # Relative to the first: a large alpha would underflow otherwise.
    variance = ((wave**2 + tau**2) / (wave[0] ** 2 + tau**2)) ** -alpha
    deviation = np.sqrt(2 * variance / variance.sum())
    return (rng.standard_normal((n, n_modes)) * deviation) @ np.sin(np.outer(wave, x))


def gaussian_process(
    n: int, axes: Sequence[Float[np.ndarray, "_"]], rng: np.random.Generator, *, length_scale: float = 0.25
) -> Float[np.ndarray, "n ..."]:
    """Draw from the Gaussian process with mean 0 and kernel exp(-|y - y'|^2 / (2 length_scale^2)) on a grid.

    The kernel is a product over the axes, and so is its Cholesky factor: in two dimensions g = L Z L^T.

    Args:
        n: How many.
        axes: The values of each coordinate of the grid.
        rng: Source of the draws.
        length_scale: Length scale, > 0.

    Returns:
        The functions, shape (n, size of each axis).

    Raises:
        ValueError: If ``n`` is below 1 or ``length_scale`` is not positive.

    Source:
        Textbook; Cho and Son (ICLR 2025) leave the prior open.
    """
    _check_count(n=n)
    if not length_scale > 0:
        raise ValueError(f"length_scale must be > 0, found {length_scale}")
    g = rng.standard_normal((n, *map(len, axes)))
    for axis, places in enumerate(axes, start=1):
        kernel = np.exp(-np.square(places[:, None] - places) / (2 * length_scale**2)) + JITTER * np.eye(len(places))
        g = np.moveaxis(np.moveaxis(g, axis, -1) @ np.linalg.cholesky(kernel).T, -1, axis)
    return g


def _check_count(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be >= 1, found {count}")
