"""Photographs to show, and a simulated visual cortex to record from: energy units with Gaussian receptive fields."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from icl25_lp_conv.rsa_matrices import rsm

__all__ = ["AREAS", "photo_crops", "simulate_cortex"]

AREAS = {"fine": 3.0, "middle": 6.0, "coarse": 12.0}
"""Wavelength in pixels to which the units of each simulated area are tuned."""

_PHOTOS = ("astronaut", "camera", "chelsea", "coffee", "coins", "rocket", "brick", "grass", "gravel", "moon")
_N_ORIENTATIONS, _N_UNITS = 6, 80


def photo_crops(n: int = 118, side: int = 32, seed: int = 0) -> Float[np.ndarray, "n 1 side side"]:
    """Grey crops of the photographs that come with scikit-image, as stimuli.

    Args:
        n: Number of crops, >= 1; 118 is the number of natural scenes in the Allen Brain Observatory.
        side: Their width and height in pixels, 8 to 128. A crop shows a square of 128 x 128 pixels, reduced.
        seed: Seed of the places.

    Returns:
        (n, 1, side, side) images, each of mean 0 and standard deviation 1.

    Raises:
        ValueError: If ``n`` or ``side`` is out of range.

    Source: ours, in place of the natural scenes that the paper shows to mice (representational similarity).
    """
    from skimage import data
    from skimage.color import rgb2gray
    from skimage.transform import resize

    if n < 1 or not 8 <= side <= 128:
        raise ValueError(f"n must be >= 1 and side from 8 to 128, found {n} and {side}")
    rng = np.random.default_rng(seed)
    photos = [getattr(data, name)() for name in _PHOTOS]
    grey = [rgb2gray(photo) if photo.ndim == 3 else photo / 255 for photo in photos]
    crops = np.empty((n, 1, side, side), np.float32)
    for i in range(n):
        photo = grey[i % len(grey)]
        row, column = (rng.integers(0, size - 128 + 1) for size in photo.shape)
        crop = resize(photo[row : row + 128, column : column + 128], (side, side), anti_aliasing=True)
        crops[i] = (crop - crop.mean()) / (crop.std() + 1e-6)
    return crops


def simulate_cortex(
    stimuli: Float[np.ndarray, "n 1 side side"], n_sessions: int = 6, noise: float = 0.5, seed: int = 0
) -> dict[str, Float[np.ndarray, "n n sessions"]]:
    """Record the representation of stimuli in simulated areas, several times.

    A unit has an orientation, a place and the wavelength of its area; it responds with the energy of a quadrature pair
    of Gabor filters, averaged under a Gaussian around its place. A session records 80 units drawn at random, with
    normal noise.

    Args:
        stimuli: (n, 1, side, side) images.
        n_sessions: Number of sessions in each area.
        noise: Standard deviation of the noise, in units of that of the unit's responses.
        seed: Seed of units and noise.

    Returns:
        For each of ``AREAS``, (n, n, n_sessions) correlations between the responses to the stimuli.

    Source: ours, in place of the recordings of the Allen Brain Observatory (representational similarity); the energy
        model is that of Adelson and Bergen (1985).
    """
    from scipy import ndimage, signal

    rng = np.random.default_rng(seed)
    images = stimuli[:, 0].astype(np.float64)
    brain = {}
    for area, wavelength in AREAS.items():
        energies = []
        for k in range(_N_ORIENTATIONS):
            even, odd = _gabor_pair(wavelength, math.pi * k / _N_ORIENTATIONS)
            parts = [signal.fftconvolve(images, kernel[None], mode="same", axes=(1, 2)) for kernel in (even, odd)]
            energy = np.hypot(*parts)
            energies.append(ndimage.gaussian_filter(energy, (0, wavelength / 2, wavelength / 2)))
        units = np.stack(energies, 1).reshape(len(images), -1)
        sessions = []
        for _ in range(n_sessions):
            responses = units[:, rng.choice(units.shape[1], _N_UNITS, replace=False)]
            sessions.append(rsm(responses + noise * responses.std(0) * rng.standard_normal(responses.shape)))
        brain[area] = np.stack(sessions, -1)
    return brain


def _gabor_pair(wavelength: float, orientation: float) -> tuple[np.ndarray, np.ndarray]:
    """An even and an odd Gabor filter with an envelope of half a wavelength, the even one without a mean."""
    radius = math.ceil(1.5 * wavelength)
    rows, columns = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    phase = 2 * math.pi / wavelength * (columns * math.cos(orientation) + rows * math.sin(orientation))
    envelope = np.exp(-(rows**2 + columns**2) / (2 * (wavelength / 2) ** 2))
    even = envelope * np.cos(phase)
    return even - envelope * (even.sum() / envelope.sum()), envelope * np.sin(phase)
