"""Results that depend on the seed alone, whatever runs beside them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

import torch
from joblib import Parallel, delayed

__all__ = ["run_all", "seeded"]

T = TypeVar("T")


def run_all(
    run: Callable[[str, int], T], variants: Sequence[str], seeds: Sequence[int], *, n_jobs: int
) -> dict[str, list[T]]:
    """Run every variant at every seed, in worker processes.

    Args:
        run: What to run, a function of a module with the variant's name and the seed as arguments.
        variants: Names of the variants; those with 3x3 kernels are quick and come last, so that no long run is left
            alone at the end.
        seeds: The seeds.
        n_jobs: Worker processes; results must not depend on them.

    Returns:
        For each variant its results, in the order of the seeds.

    Source: ours.
    """
    runs = sorted(((variant, seed) for variant in variants for seed in seeds), key=lambda one: one[0] == "3x3")
    found = dict(zip(runs, Parallel(n_jobs=n_jobs)(delayed(run)(*one) for one in runs), strict=True))
    return {variant: [found[variant, seed] for seed in seeds] for variant in variants}


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
