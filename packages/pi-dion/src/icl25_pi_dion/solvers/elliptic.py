"""The Helmholtz and the Darcy equation on the unit square with u = 0 on its boundary, by five-point differences."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from icl25_pi_dion.solvers.grids import difference_eigenvalues, sine_matrix

__all__ = ["darcy", "helmholtz", "poisson"]


@partial(jax.jit, static_argnames=("tolerance", "max_iterations"))
def helmholtz(
    q: Float[Array, "_ _"], f: Float[Array, "_ _"], *, tolerance: float | None = None, max_iterations: int = 1000
) -> Float[Array, "n n"]:
    """Solve -Laplace(u) - q u = f by five-point differences and conjugate gradients, of second order in the mesh width.

    Args:
        q: The coefficient at n x n uniform nodes, n >= 3, edges included, first axis x; below the first eigenvalue
            2 pi^2 = 19.74 of minus the Laplacian.
        f: The load at the same nodes. Values at the edges have no effect.
        tolerance: Relative residual to reach, in the energy norm of the Laplacian. Default: 1e-12 in double, 1e-6 in
            single precision.
        max_iterations: Most iterations.

    Returns:
        u at the nodes, in the precision of ``q``; NaN everywhere if the iteration did not converge.

    Raises:
        ValueError: If ``q`` is not square or too small, or ``f`` has another shape.

    Source:
        Cho and Son (ICLR 2025), Helmholtz; the scheme is textbook, preconditioned by a fast Poisson solver.
    """
    laplace = _eigenvalues(q, f)
    inner = q[1:-1, 1:-1]
    # What stays below the first eigenvalue is inverted together with the Laplacian, and exactly where q is constant.
    shift = jax.lax.stop_gradient(jnp.minimum(inner.mean(), laplace[0, 0] / 2))
    root = jnp.sqrt(laplace - shift)

    def operator(v: Float[Array, "k k"]) -> Float[Array, "k k"]:
        return v - _transform((inner - shift) * _transform(v / root)) / root

    v = _conjugate_gradients(operator, _transform(f[1:-1, 1:-1].astype(q.dtype)) / root, tolerance, max_iterations)
    return jnp.pad(_transform(v / root), 1)


@partial(jax.jit, static_argnames=("tolerance", "max_iterations"))
def darcy(
    a: Float[Array, "_ _"], f: Float[Array, "_ _"], *, tolerance: float | None = None, max_iterations: int = 1000
) -> Float[Array, "n n"]:
    """Solve -div(a grad u) = f by five-point differences and conjugate gradients, of second order in the mesh width.

    The flux through the face between two nodes takes the mean of the two permeabilities.

    Args:
        a: The permeability at n x n uniform nodes, n >= 3, edges included, first axis x; > 0.
        f: The load at the same nodes. Values at the edges have no effect.
        tolerance: Relative residual to reach, in the energy norm of the Laplacian. Default: 1e-12 in double, 1e-6 in
            single precision.
        max_iterations: Most iterations.

    Returns:
        u at the nodes, in the precision of ``a``; NaN everywhere if the iteration did not converge.

    Raises:
        ValueError: If ``a`` is not square or too small, or ``f`` has another shape.

    Source:
        Cho and Son (ICLR 2025), Darcy flow; the scheme is textbook, preconditioned by a fast Poisson solver between
        scalings by 1 / sqrt(a) (Concus and Golub, 1973).
    """
    root = jnp.sqrt(_eigenvalues(a, f))
    scale = jax.lax.rsqrt(a[1:-1, 1:-1])
    across_x = (a[1:, 1:-1] + a[:-1, 1:-1]) / 2 * (len(a) - 1) ** 2
    across_y = (a[1:-1, 1:] + a[1:-1, :-1]) / 2 * (len(a) - 1) ** 2

    def operator(v: Float[Array, "k k"]) -> Float[Array, "k k"]:
        u = jnp.pad(scale * _transform(v / root), 1)
        flux_x = across_x * jnp.diff(u[:, 1:-1], axis=0)
        flux_y = across_y * jnp.diff(u[1:-1], axis=1)
        return _transform(-scale * (jnp.diff(flux_x, axis=0) + jnp.diff(flux_y, axis=1))) / root

    load = _transform(scale * f[1:-1, 1:-1].astype(a.dtype)) / root
    v = _conjugate_gradients(operator, load, tolerance, max_iterations)
    return jnp.pad(scale * _transform(v / root), 1)


def poisson(f: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """Solve -Laplace(u) = f by five-point differences, directly and outside of jax.

    Args:
        f: The load at n x n uniform nodes, n >= 3, edges included. Values at the edges have no effect.

    Returns:
        u at the nodes.

    Source:
        Textbook: the sine transform diagonalises the differences.
    """
    modes, side = sine_matrix(len(f)), difference_eigenvalues(len(f))
    return np.pad(modes @ (modes @ f[1:-1, 1:-1] @ modes / (side[:, None] + side)) @ modes, 1)


def _eigenvalues(coefficient: Float[Array, "..."], f: Float[Array, "..."]) -> Float[Array, "k k"]:
    """Eigenvalues of the Laplacian's differences on the grid of two arrays that must fit each other."""
    shape = coefficient.shape
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 3 or f.shape != shape:
        raise ValueError(f"coefficient and load must be on one square grid of >= 3 nodes, found {shape} and {f.shape}")
    side = jnp.asarray(difference_eigenvalues(shape[0]), coefficient.dtype)
    return side[:, None] + side


def _transform(field: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """The sine transform along both axes, which is its own inverse."""
    modes = jnp.asarray(sine_matrix(len(field) + 2), field.dtype)
    return modes @ field @ modes


def _conjugate_gradients(
    operator: Callable[[Array], Array], load: Float[Array, "k k"], tolerance: float | None, max_iterations: int
) -> Float[Array, "k k"]:
    """Solve a symmetric system, or say NaN; preconditioning is part of the operator, so that residuals are errors."""
    reached = (1e-12 if load.dtype == jnp.float64 else 1e-6) if tolerance is None else tolerance
    v, _ = jax.scipy.sparse.linalg.cg(operator, load, tol=reached, atol=0.0, maxiter=max_iterations)
    # Rounding leaves the true residual somewhat above the one that the iteration updates.
    miss = jnp.sum(jnp.square(operator(jax.lax.stop_gradient(v)) - load))
    solved = jax.lax.stop_gradient(miss <= (100 * reached) ** 2 * jnp.sum(jnp.square(load)))
    return jnp.where(solved, v, jnp.nan)
