"""Data that the package makes: unknown functions drawn from a prior, their solutions and their measurements."""

from __future__ import annotations

from collections.abc import Callable

import jax
import joblib
import numpy as np
from jaxtyping import Array, Float

from icl25_pi_dion.problem import InverseProblem

__all__ = ["sample_prior", "simulate", "simulate_fields"]


def sample_prior(problem: InverseProblem, n: int, seed: int = 0) -> Float[np.ndarray, "n ..."]:
    """Draw unknown functions from the prior of a problem.

    Args:
        problem: The problem; it defines ``sample_target``.
        n: How many, >= 1.
        seed: Seed of the draws.

    Returns:
        The functions on the target grid, shape (n, *target_grid).

    Raises:
        ValueError: If ``n`` is below 1.
        NotImplementedError: If the problem has no prior.

    Source:
        This package's.
    """
    if n < 1:
        raise ValueError(f"n must be >= 1, found {n}")
    drawn = problem.sample_target(n, np.random.default_rng(seed))
    return np.asarray(drawn, float).reshape(n, *problem.target_grid)


def simulate(
    problem: InverseProblem,
    S: Float[np.ndarray, "n ..."],
    noise: float = 0.0,
    seed: int = 0,
    *,
    chunk: int = 100,
    n_jobs: int | None = None,
) -> Float[np.ndarray, "n ..."]:
    """Solve the equation for known functions and measure, in double precision.

    Args:
        problem: The problem; it defines ``forward``.
        S: Unknown functions on the target grid, shape (n, *target_grid), or flattened (n, n_s).
        noise: Standard deviation of the added Gaussian noise, relative to that of the clean measurements: the root mean
            square of what they differ by from the mean of each sensor, or of themselves where they are all equal.
        seed: Seed of the noise, which is independent of functions drawn with the same seed.
        chunk: Functions that are solved at once, which bounds the memory.
        n_jobs: Processes of joblib, each of which compiles for itself: worth it for many thousands of functions.
            Default: that of an active ``joblib.parallel_config``, else this process alone.

    Returns:
        The measurements, shape (n, *sensor_shape).

    Raises:
        ValueError: If ``S`` has a wrong shape, is not finite or not allowed by the problem, ``noise`` is negative, or a
            solution does not exist; the message names the sample.
        NotImplementedError: If the problem does not define ``forward``.

    Source:
        This package's.

    Example:
        >>> from icl25_pi_dion.problems import ReactionDiffusionSource
        >>> problem = ReactionDiffusionSource()
        >>> simulate(problem, sample_prior(problem, 3)).shape
        (3, 51)
    """
    if not (np.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise must be >= 0, found {noise}")
    targets = _checked(problem, S)
    clean = _solved(problem.forward, targets, chunk, n_jobs)
    if noise > 0:
        # A child of the seed: functions and noise of one seed must not be made of the same numbers.
        rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
        clean += noise * _deviation(clean) * rng.standard_normal(clean.shape)
    return clean.reshape(len(targets), *(problem.sensor_shape or (-1,)))


def simulate_fields(
    problem: InverseProblem, S: Float[np.ndarray, "n ..."], *, chunk: int = 100, n_jobs: int | None = None
) -> Float[np.ndarray, "n ..."]:
    """Solve the equation for known functions, in double precision.

    Args:
        problem: The problem; it defines ``solve``, as those of this package do.
        S: Unknown functions on the target grid, shape (n, *target_grid), or flattened (n, n_s).
        chunk: Functions that are solved at once, which bounds the memory.
        n_jobs: As in ``simulate``.

    Returns:
        The solutions at ``problem.solution_points()``, as grids, a row for each function.

    Raises:
        ValueError: As in ``simulate``.
        NotImplementedError: If the problem does not define ``solve``.

    Source:
        This package's.
    """
    solve = getattr(problem, "solve", None)
    if solve is None:
        raise NotImplementedError(f"{type(problem).__name__} does not define solve(s)")
    return _solved(solve, _checked(problem, S), chunk, n_jobs)


def _checked(problem: InverseProblem, S: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n n_s"]:
    shape = problem.target_grid
    if S.ndim < 2 or len(S) == 0 or (S.shape[1:] != shape and S.shape[1:] != (int(np.prod(shape)),)):
        raise ValueError(f"S must have a row of shape {shape} for each function and at least one, found {S.shape}")
    targets = np.asarray(S, float).reshape(len(S), -1)
    bad = np.argwhere(~np.isfinite(targets))
    if len(bad):
        raise ValueError(f"S has {len(bad)} values that are not finite, first in sample {bad[0][0]}, value {bad[0][1]}")
    problem.check_target(targets)
    return targets


def _solved(
    function: Callable[[Array], Array], targets: Float[np.ndarray, "n n_s"], chunk: int, n_jobs: int | None
) -> Float[np.ndarray, "n ..."]:
    if chunk < 1:
        raise ValueError(f"chunk must be >= 1, found {chunk}")
    n, chunk = len(targets), min(chunk, len(targets))
    starts = range(0, n, chunk)
    with joblib.Parallel(n_jobs=n_jobs) as parallel:
        if parallel.n_jobs == 1:
            parts = _in_chunks(function, targets, chunk)
        else:
            # A few large tasks: each of them compiles.
            rows = chunk * max(1, -(-len(starts) // joblib.effective_n_jobs(parallel.n_jobs)))
            tasks = (joblib.delayed(_in_chunks)(function, targets[i : i + rows], chunk) for i in range(0, n, rows))
            parts = [part for task in parallel(tasks) for part in task]
    solutions = np.concatenate(parts)
    lost = np.flatnonzero(~np.isfinite(solutions.reshape(n, -1)).all(axis=1))
    if len(lost):
        raise ValueError(
            f"sample {lost[0]} has no solution ({len(lost)} of {n}): it blows up, or the solver did not converge"
        )
    return solutions


def _in_chunks(
    function: Callable[[Array], Array], targets: Float[np.ndarray, "n n_s"], chunk: int
) -> list[Float[np.ndarray, "_ ..."]]:
    """Evaluate a function of one row for all rows, a chunk at a time; one shape, so that it is compiled once."""
    with jax.enable_x64(True):
        solve = jax.jit(jax.vmap(function))
        parts = []
        for start in range(0, len(targets), chunk):
            rows = targets[start : start + chunk]
            filled = np.concatenate([rows, np.repeat(rows[:1], chunk - len(rows), axis=0)])
            parts.append(np.array(solve(filled))[: len(rows)])
    return parts


def _deviation(clean: Float[np.ndarray, "n m"]) -> float:
    size = float(np.sqrt(np.mean(np.square(clean))))
    deviation = float(np.sqrt(np.mean(np.square(clean - clean.mean(axis=0)))))
    return deviation if deviation > 1e-9 * size else size
