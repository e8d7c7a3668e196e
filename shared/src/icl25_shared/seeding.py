"""Random generators: one seed in, independent streams out."""

from __future__ import annotations

import random
import sys

import numpy as np

__all__ = ["seed_everything", "spawn_generators"]

_LEGACY_SEED_LIMIT = 2**32  # numpy's global generator takes 32 bits


def seed_everything(seed: int) -> np.random.Generator:
    """Seed the global state of every generator that is loaded, and return a fresh generator of the same seed.

    It is for scripts and command lines, whose libraries may draw from global state behind their back; library code
    takes a generator instead. ``random`` and numpy are always seeded, torch (all devices) if it has been imported.
    jax has no global state: use ``jax.random.key(seed)``.

    Args:
        seed: A whole number >= 0. Numpy's global generator holds 32 bits, so it gets ``seed`` modulo 2**32.

    Returns:
        ``np.random.default_rng(seed)``.

    Raises:
        TypeError: If ``seed`` is not a whole number.
        ValueError: If ``seed`` is negative.
    """
    seed = _checked_seed(seed)
    random.seed(seed)
    np.random.seed(seed % _LEGACY_SEED_LIMIT)  # noqa: NPY002 - the global state is what is to be seeded
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed % 2**63)
    return np.random.default_rng(seed)


def spawn_generators(seed_or_generator: int | np.random.Generator, n: int) -> list[np.random.Generator]:
    """Spawn ``n`` statistically independent generators, for instance one for each worker or repetition.

    The i-th generator depends on the seed and on i alone, not on ``n``, so that adding repetitions leaves the earlier
    ones as they were. Spawning twice from the same ``Generator`` gives different children, as numpy does.

    Args:
        seed_or_generator: A whole number >= 0, or the generator to spawn from.
        n: How many generators, >= 0.

    Returns:
        The generators, in order.

    Raises:
        TypeError: If the seed is neither a whole number nor a generator.
        ValueError: If the seed or ``n`` is negative.

    Example:
        >>> first, second = spawn_generators(0, 2)
        >>> float(first.random()) == float(second.random())
        False
    """
    if n < 0:
        raise ValueError(f"n must be >= 0, found {n}")
    if isinstance(seed_or_generator, np.random.Generator):
        return seed_or_generator.spawn(n)
    sequence = np.random.SeedSequence(_checked_seed(seed_or_generator))
    return [np.random.default_rng(child) for child in sequence.spawn(n)]


def _checked_seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise TypeError(f"seed must be a whole number, found {seed!r} of type {type(seed).__name__}")
    if seed < 0:
        raise ValueError(f"seed must be >= 0, found {seed}")
    return int(seed)
