"""Results that depend on the seed alone, whatever runs beside them."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import torch

__all__ = ["seeded"]


@contextlib.contextmanager
def seeded(seed: int) -> Generator[None]:
    """Compute on one thread with a generator of this seed; the number of threads and the old generator are put back.

    How many threads share a sum decides the order of its terms, and so the last digits of a result.

    Args:
        seed: The seed.

    Source: ours.
    """
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(n_threads)
