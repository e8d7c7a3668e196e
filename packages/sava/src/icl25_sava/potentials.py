"""Dual potentials of one optimal-transport problem: annealed (the default), converged Sinkhorn, exact.

All three return ``f`` (one number per training row) and ``g`` (one per validation row) for a cost matrix ``C``,
in the convention OT_eps(a, b) = min <P, C> + eps KL(P || a b^T), whose value is sum(a f) + sum(b g).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Real

__all__ = ["Potentials", "annealed_potentials", "annealing_schedule", "emd_potentials", "sinkhorn_potentials"]

_BLOCK_ELEMENTS = 1 << 17  # elements of the working buffer of a sweep: it stays in the second-level cache


class Potentials(NamedTuple):
    """Dual potentials of one problem (or of a stack of problems of one shape)."""

    f: Float[Any, "*k n"]
    """Potential of the training rows, shape (n,), in units of the cost."""
    g: Float[Any, "*k m"]
    """Potential of the validation rows, shape (m,), in units of the cost."""


def annealing_schedule(diameter: float, eps: float = 0.1, scaling: float = 0.5, p: int = 2) -> list[float]:
    """Temperatures of the annealed solver, from the squared diameter down to ``eps``.

    The first temperature stands twice, as in the code that accompanies the paper: a sweep is spent on it.

    Args:
        diameter: length scale D > 0 of the data, in units of the features; 0 is read as ``eps ** (1 / p)``.
        eps: last temperature, > 0, in units of the cost.
        scaling: factor in (0, 1) by which the length scale shrinks from one temperature to the next.
        p: power of the distance in the cost: temperatures start at D ** p.

    Returns:
        The temperatures, largest first; ``[D**p, eps]`` when D ** p <= eps.

    Raises:
        ValueError: ``eps`` or ``diameter`` is not positive and finite, or ``scaling`` lies outside (0, 1).

    Source: SAVA (arXiv 2406.01130), the annealed Sinkhorn loop of its reference implementation.
    """
    if not (math.isfinite(eps) and eps > 0):
        raise ValueError(f"eps must be positive and finite, got {eps}")
    if not 0 < scaling < 1:
        raise ValueError(f"scaling must lie strictly between 0 and 1, got {scaling}")
    if not (math.isfinite(diameter) and diameter >= 0):
        raise ValueError(f"diameter must be finite and not negative, got {diameter}")
    if diameter == 0:
        diameter = eps ** (1 / p)
    start = diameter**p
    steps = np.arange(p * math.log(diameter), math.log(eps), p * math.log(scaling))
    return [start, *np.exp(steps).tolist(), eps]


def annealed_potentials(
    C: Real[Any, "n m"],
    a: Real[Any, " _"] | None = None,
    b: Real[Any, " _"] | None = None,
    *,
    eps: float = 0.1,
    scaling: float = 0.5,
    diameter: float,
    p: int = 2,
) -> Potentials:
    """Dual potentials after one symmetrised Sinkhorn sweep per temperature of an annealing schedule.

    This is not a converged Sinkhorn, on purpose: with a dozen sweeps the potentials do not yet carry the common price
    that converged duals charge every row of an over-supplied class, and wrong labels stand out more clearly.

    Args:
        C: cost, shape (n, m), finite. NumPy, PyTorch or JAX; the result is of the same kind and precision.
        a: weights of the training rows, shape (n,), positive, sum 1; uniform when None.
        b: weights of the validation rows, shape (m,), positive, sum 1; uniform when None.
        eps: entropic regularisation at the end, in units of the cost.
        scaling: factor of the annealing in (0, 1): closer to 1 means more sweeps.
        diameter: length scale at which the annealing starts, in units of the features.
        p: power of the distance in the cost.

    Returns:
        ``Potentials(f, g)`` of shapes (n,) and (m,).

    Raises:
        ValueError: shapes do not match, C is empty or not finite, weights are not positive, or a parameter is out of
            range.

    Example:
        >>> import numpy as np
        >>> f, g = annealed_potentials(np.array([[0.0, 1.0], [1.0, 0.0]]), diameter=1.0)
        >>> f.round(6)
        array([0.034655, 0.034655])

    Source: SAVA (arXiv 2406.01130), OT sub-problem between two batches; Feydy et al. 2019 for the symmetrised sweep.
    """
    schedule = annealing_schedule(diameter, eps, scaling, p)
    C, log_a, log_b = _checked(C, a, b)
    return anneal(C, log_a, log_b, schedule)


def anneal(C: Any, log_a: Any, log_b: Any, schedule: Sequence[Any]) -> Potentials:
    """Run the annealed solver over checked arrays.

    Args:
        C: cost, shape (n, m); for backends other than NumPy also a stack (k, n, m).
        log_a: logarithm of the training weights, shape (n,).
        log_b: logarithm of the validation weights, shape (m,).
        schedule: temperatures: numbers, or arrays of shape (k, 1) for a stack.

    Returns:
        ``Potentials(f, g)``.

    Source: SAVA (arXiv 2406.01130), the annealed Sinkhorn loop of its reference implementation.
    """
    sweep = _NumpySweep(C, log_a, log_b) if isinstance(C, np.ndarray) else _BackendSweep(C, log_a, log_b)
    f, g = sweep(schedule[0], *sweep.zeros())
    for temperature in schedule:
        f_new, g_new = sweep(temperature, f, g)
        f, g = (f + f_new) / 2, (g + g_new) / 2
    return Potentials(*sweep(schedule[-1], f, g))


class _NumpySweep:
    """Both soft-minima of one Sinkhorn sweep from a single pass of exponentials.

    f~_i = -e log sum_j exp(log b_j + (g_j - C_ij) / e) is a row sum of K_ij = exp((g_j - C_ij) / e - r_i), r_i the row
    maximum. The same K gives g~: exp((f_i - C_ij) / e) = K_ij exp(r_i + f_i / e) exp(-g_j / e), a weighted column sum.
    Columns whose sum comes close to underflow are computed once more by themselves.
    """

    def __init__(self, C: np.ndarray, log_a: np.ndarray, log_b: np.ndarray) -> None:
        self.C, self.log_a, self.b = C, log_a, np.exp(log_b)
        n, m = C.shape
        self.rows = max(1, min(n, _BLOCK_ELEMENTS // m))
        self.buffer = np.empty((self.rows, m), C.dtype)
        tiny = float(np.finfo(C.dtype).tiny)
        # Exponents are cut here, just above the subnormal numbers, with which processors calculate ten times slower.
        self.lowest = C.dtype.type(math.log(tiny) + 6)
        # What the cut, and underflow, change in a column sum above this is below its rounding error.
        self.safe = math.sqrt(tiny) * 1e-5

    def zeros(self) -> tuple[np.ndarray, np.ndarray]:
        n, m = self.C.shape
        return np.zeros(n, self.C.dtype), np.zeros(m, self.C.dtype)

    def __call__(self, e: float, f: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        C, dtype = self.C, self.C.dtype
        n = len(C)
        f_new = np.empty_like(f)
        scaled_g = g / dtype.type(e)
        log_weight = self.log_a + f / dtype.type(e)
        columns, shift = np.zeros_like(g), -math.inf
        for start in range(0, n, self.rows):
            rows = slice(start, min(n, start + self.rows))
            K = self.buffer[: rows.stop - start]
            np.multiply(C[rows], dtype.type(-1 / e), out=K)
            K += scaled_g
            r = K.max(axis=1)
            K -= r[:, None]
            np.maximum(K, self.lowest, out=K)
            np.exp(K, out=K)
            f_new[rows] = (np.log(K @ self.b) + r) * dtype.type(-e)
            w = r + log_weight[rows]
            top = float(w.max())
            if top > shift:
                columns *= math.exp(shift - top)
                shift = top
            columns += np.exp(w - dtype.type(shift)) @ K
        weak = columns < self.safe
        columns[weak] = 1
        g_new = g - dtype.type(e) * (np.log(columns) + dtype.type(shift))
        if weak.any():
            g_new[weak] = self._column_softmin(e, log_weight, np.flatnonzero(weak))
        return f_new, g_new

    def _column_softmin(self, e: float, h: np.ndarray, index: np.ndarray) -> np.ndarray:
        out = np.empty(len(index), self.C.dtype)
        step = max(1, _BLOCK_ELEMENTS // len(h))
        for start in range(0, len(index), step):
            part = slice(start, start + step)
            x = h[:, None] - self.C[:, index[part]] / self.C.dtype.type(e)
            r = x.max(axis=0)
            out[part] = -e * (np.log(np.exp(x - r).sum(axis=0)) + r)
        return out


class _BackendSweep:
    """The sweep for PyTorch, JAX and any other array library that POT knows; works on stacks of problems."""

    def __init__(self, C: Any, log_a: Any, log_b: Any) -> None:
        self.nx = _backend(C)
        self.C, self.log_a, self.log_b = C, log_a, log_b

    def zeros(self) -> tuple[Any, Any]:
        return 0 * self.C[..., :, 0], 0 * self.C[..., 0, :]

    def __call__(self, e: Any, f: Any, g: Any) -> tuple[Any, Any]:
        scaled = self.C / (e[..., None] if hasattr(e, "shape") else e)
        to_rows, to_columns = (self.log_b + g / e)[..., None, :], (self.log_a + f / e)[..., :, None]
        return (
            -e * self.nx.logsumexp(to_rows - scaled, axis=-1),
            -e * self.nx.logsumexp(to_columns - scaled, axis=-2),
        )


def sinkhorn_potentials(
    C: Real[np.ndarray, "n m"],
    a: Real[np.ndarray, " _"] | None = None,
    b: Real[np.ndarray, " _"] | None = None,
    *,
    eps: float = 0.1,
    tol: float = 1e-9,
    max_iter: int = 10_000,
) -> Potentials:
    """Dual potentials of a Sinkhorn iteration run to convergence, for study: see the warning below.

    Converged duals find wrong labels *less* well than the annealed ones when class counts differ between the two sets.

    Args:
        C: cost, shape (n, m), finite.
        a: weights of the training rows, shape (n,), positive, sum 1; uniform when None.
        b: weights of the validation rows, shape (m,), positive, sum 1; uniform when None.
        eps: entropic regularisation, > 0, in units of the cost.
        tol: largest violation of a marginal at which the iteration stops.
        max_iter: largest number of iterations; a warning says when it was reached.

    Returns:
        ``Potentials(f, g)`` in double precision, shifted so that mean(f) under ``a`` equals mean(g) under ``b``; the
        plan is ``a b^T exp((f + g - C) / eps)``.

    Raises:
        ValueError: shapes do not match, C is empty or not finite, weights are not positive, or eps is not positive.

    Source: Cuturi 2013; solved by POT in the log domain.
    """
    if not (math.isfinite(eps) and eps > 0):
        raise ValueError(f"eps must be positive and finite, got {eps}")
    import ot

    C, log_a, log_b = _checked(np.asarray(C, np.float64), a, b)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # POT's own, reworded below
        _, log = ot.sinkhorn(
            np.exp(log_a), np.exp(log_b), C, eps, method="sinkhorn_log", numItermax=max_iter, stopThr=tol, log=True
        )
    if log["err"] and log["err"][-1] > tol:
        warnings.warn(
            f"Sinkhorn stopped after {max_iter} iterations with a marginal error of {log['err'][-1]:.1e} > {tol:.1e}",
            RuntimeWarning,
            stacklevel=2,
        )
    return _centred(eps * (log["log_u"] - log_a), eps * (log["log_v"] - log_b), log_a, log_b)


def emd_potentials(
    C: Real[np.ndarray, "n m"],
    a: Real[np.ndarray, " _"] | None = None,
    b: Real[np.ndarray, " _"] | None = None,
    *,
    max_iter: int = 10_000_000,
) -> Potentials:
    """Dual potentials of the exact, unregularised problem (network simplex), for study.

    They are not unique where the optimal plan splits into components, and find wrong labels less well than the
    annealed ones.

    Args:
        C: cost, shape (n, m), finite.
        a: weights of the training rows, shape (n,), positive, sum 1; uniform when None.
        b: weights of the validation rows, shape (m,), positive, sum 1; uniform when None.
        max_iter: largest number of simplex pivots.

    Returns:
        ``Potentials(f, g)`` in double precision with f_i + g_j <= C_ij, shifted as in ``sinkhorn_potentials``.

    Raises:
        ValueError: shapes do not match, C is empty or not finite, or weights are not positive.
        RuntimeError: the simplex did not finish within ``max_iter``.

    Source: Bonneel et al. 2011; solved by POT.
    """
    import ot

    C, log_a, log_b = _checked(np.asarray(C, np.float64), a, b)
    _, log = ot.emd(np.exp(log_a), np.exp(log_b), C, numItermax=max_iter, log=True)
    if log["warning"] is not None:
        raise RuntimeError(f"the network simplex did not finish: {log['warning']}")
    return _centred(log["u"], log["v"], log_a, log_b)


def _centred(f: np.ndarray, g: np.ndarray, log_a: np.ndarray, log_b: np.ndarray) -> Potentials:
    shift = (np.exp(log_b) @ g - np.exp(log_a) @ f) / 2
    return Potentials(f + shift, g - shift)


def _backend(C: Any) -> Any:
    """POT's functions for the library of an array. POT brings every array library that is installed: hence late."""
    import ot

    return ot.backend.get_backend(C)


def _checked(C: Any, a: Any, b: Any) -> tuple[Any, Any, Any]:
    """The cost as a floating array of its own library, and the logarithms of both weights."""
    if len(C.shape) != 2 or min(C.shape) == 0:
        raise ValueError(f"C must be a non-empty matrix (n, m), got shape {tuple(C.shape)}")
    if isinstance(C, np.ndarray):
        C = np.ascontiguousarray(C, C.dtype if C.dtype in (np.float32, np.float64) else np.float64)
    # A sum is finite only where all its terms are; it may also overflow, which is then looked at closely.
    if not math.isfinite(float(C.sum())):
        bad = ~np.isfinite(C if isinstance(C, np.ndarray) else _backend(C).to_numpy(C))
        if bad.any():
            i, j = np.argwhere(bad)[0]
            raise ValueError(f"C has {int(bad.sum())} values that are NaN or infinite, first at row {i}, column {j}")
    return C, _log_weights(a, C.shape[0], "a", C), _log_weights(b, C.shape[1], "b", C)


def _log_weights(weights: Any, n: int, name: str, C: Any) -> Any:
    if weights is None:
        logs = np.full(n, -math.log(n))
    else:
        values = np.asarray(weights if isinstance(weights, np.ndarray) else _backend(C).to_numpy(weights), np.float64)
        if values.shape != (n,):
            raise ValueError(f"{name} must have shape ({n},), got {values.shape}")
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise ValueError(f"{name} must be positive and finite")
        if abs(values.sum() - 1) > 1e-4:
            raise ValueError(f"{name} must sum to 1, got {values.sum():.6g}")
        logs = np.log(values / values.sum())
    return logs.astype(C.dtype) if isinstance(C, np.ndarray) else _backend(C).from_numpy(logs, type_as=C)
