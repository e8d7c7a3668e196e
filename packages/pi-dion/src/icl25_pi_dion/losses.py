"""The terms of the loss: the equation at collocation points, the measurements, and labels where there are some."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from icl25_pi_dion.autodiff import axes_of, trunk_jet
from icl25_pi_dion.problem import Derivatives, InverseProblem

__all__ = ["data", "fields", "h1", "label", "physics", "residual"]

LARGEST_BLOCK = 5e7  # samples times points whose derivatives are held at once

Basis = Callable[[Float[Array, "P d"]], Float[Array, "P k"]]


def physics(
    problem: InverseProblem,
    trunk: Basis,
    recon: Float[Array, "B k"],
    inverse: Float[Array, "B k_s"],
    points: Float[Array, "P d"],
    target_trunk: Basis | None = None,
    reference: float | Float[Array, ""] | None = None,
) -> Float[Array, ""]:
    """Mean square of the residual of the equation over all samples and points.

    Args:
        problem: The inverse problem.
        trunk: Functions of which u is made, on all points at once.
        recon: Their coefficients for each sample, R.
        inverse: Coefficients of the unknown, I.
        points: Collocation points.
        target_trunk: Functions of which s is made, on the coordinates of s. None: those of u, on all coordinates.
        reference: s_0, where s = s_0 exp(I T) is positive; None where s = I T.

    Returns:
        mean_{b, q} F[u, s](y_q; m_b)^2.

    Source:
        Cho and Son (ICLR 2025), the physics loss.
    """
    n_blocks = -(-len(recon) * len(points) // int(LARGEST_BLOCK))
    if n_blocks == 1:
        return jnp.mean(residual(problem, trunk, recon, inverse, points, target_trunk, reference) ** 2)

    @jax.checkpoint
    def squares(block: Float[Array, "Q d"]) -> Float[Array, "Q"]:
        return jnp.mean(residual(problem, trunk, recon, inverse, block, target_trunk, reference) ** 2, axis=0)

    return jnp.mean(jax.lax.map(lambda y: squares(y[None])[0], points, batch_size=-(-len(points) // n_blocks)))


def residual(
    problem: InverseProblem,
    trunk: Basis,
    recon: Float[Array, "B k"],
    inverse: Float[Array, "B k_s"],
    points: Float[Array, "P d"],
    target_trunk: Basis | None = None,
    reference: float | Float[Array, ""] | None = None,
) -> Float[Array, "B P"]:
    """Residual of the equation for every sample at every point; arguments as for ``physics``.

    Args:
        problem: The inverse problem.
        trunk: Functions of which u is made.
        recon: Their coefficients, shape (B, k).
        inverse: Coefficients of the unknown, shape (B, k_s).
        points: Collocation points, shape (P, d).
        target_trunk: Functions of which s is made.
        reference: s_0 of a positive unknown.

    Returns:
        F[u, s].

    Raises:
        ValueError: If the residual of the problem has another shape.
    """
    d, s = fields(problem, trunk, recon, inverse, points, target_trunk, reference)
    value = problem.residual(d, s, points)
    if value.shape != (len(recon), len(points)):
        raise ValueError(
            f"{type(problem).__name__}.residual must return one value for each of {len(recon)} samples and "
            f"{len(points)} points, found shape {value.shape}"
        )
    return value


def fields(
    problem: InverseProblem,
    trunk: Basis,
    recon: Float[Array, "B k"],
    inverse: Float[Array, "B k_s"],
    points: Float[Array, "P d"],
    target_trunk: Basis | None = None,
    reference: float | Float[Array, ""] | None = None,
) -> tuple[Derivatives, Derivatives]:
    """Evaluate u, s and the derivatives that the problem declares; arguments as for ``physics``.

    The derivatives of the trunk are computed once for each point and combined by one product of matrices for each name:
    the cost of a sample more is that of the products alone.

    Args:
        problem: The inverse problem.
        trunk: Functions of which u is made.
        recon: Their coefficients, shape (B, k).
        inverse: Coefficients of the unknown, shape (B, k_s).
        points: Collocation points, shape (P, d).
        target_trunk: Functions of which s is made.
        reference: s_0 of a positive unknown.

    Returns:
        Derivatives of u and of s, arrays of shape (B, P).
    """
    jet = trunk_jet(trunk, points, ("u", *problem.derivatives), problem.coords)
    d = {name: recon @ values.T for name, values in jet.items()}
    if target_trunk is None:
        where, coords, target_trunk = points, tuple(problem.coords), trunk
    else:
        where, coords = points[:, jnp.asarray(problem.target_axes)], tuple(problem.target_coords)
    names = ("s", *problem.target_derivatives)
    if reference is not None:
        names = (*names, *first_derivatives(names, coords))
    raw = {name: inverse @ values.T for name, values in trunk_jet(target_trunk, where, names, coords).items()}
    s = raw if reference is None else exponential(raw, reference, coords)
    return (
        Derivatives(d, f"{type(problem).__name__}.derivatives"),
        Derivatives({"value": s["s"], **s}, f"{type(problem).__name__}.target_derivatives"),
    )


def data(
    u_hat: Float[Array, "B Q"],
    measured: Float[Array, "B Q"],
    scale: float | Float[Array, ""] = 1.0,
    mask: Bool[Array, "B Q"] | None = None,
) -> Float[Array, ""]:
    """Mean square of the misfit at the sensors.

    Args:
        u_hat: Predicted values, shape (B, Q).
        measured: Measured values, shape (B, Q).
        scale: Unit of the misfit, sigma_m, shape ().
        mask: Which readings count, shape (B, Q); None for all.

    Returns:
        mean_{b, j} ((u_hat(y_j; m_b) - m_bj) / sigma_m)^2.

    Raises:
        TypeError: If shapes do not fit, as jax does.

    Source:
        Cho and Son (ICLR 2025), the data loss.
    """
    square = jnp.square((u_hat - measured) / scale)
    if mask is None:
        return jnp.mean(square)
    return jnp.sum(jnp.where(mask, square, 0)) / jnp.maximum(jnp.sum(mask), 1)


def h1(
    u_hat: Float[Array, "B m"],
    measured: Float[Array, "B m"],
    shape: Sequence[int],
    spacing: Sequence[float],
    scale: float | Float[Array, ""] = 1.0,
) -> Float[Array, ""]:
    """Mean square of the differences of the misfit between neighbouring sensors of a grid, by their distance.

    Args:
        u_hat: Predicted values at all sensors.
        measured: Measured values.
        shape: Shape of the grid of sensors.
        spacing: Distance of neighbours along each axis.
        scale: Unit of the misfit, sigma_m.

    Returns:
        The sum over axes of mean ((e_{j+1} - e_j) / h)^2, e the misfit in units of ``scale``.
    """
    misfit = ((u_hat - measured) / scale).reshape(len(u_hat), *shape)
    return sum(
        (jnp.mean((jnp.diff(misfit, axis=axis + 1) / h) ** 2) for axis, h in enumerate(spacing)),
        start=jnp.zeros((), misfit.dtype),
    )


def label(s_hat: Float[Array, "B Q"], s: Float[Array, "B Q"], scale: float = 1.0) -> Float[Array, ""]:
    """Mean square of the error of the unknown, for samples with labels.

    Args:
        s_hat: Predicted unknown.
        s: Its label.
        scale: Unit of the error.

    Returns:
        mean_{b, j} ((s_hat - s) / scale)^2.
    """
    return jnp.mean(jnp.square((s_hat - s) / scale))


def first_derivatives(names: Iterable[str], coords: Sequence[str]) -> tuple[str, ...]:
    """Name the first derivatives of log s that derivatives of a positive unknown need.

    Args:
        names: Names of derivatives of s.
        coords: Its coordinates.

    Returns:
        Their names.
    """
    return tuple(f"s_{coords[axis]}" for name in names for axis in axes_of(name, coords))


def exponential(
    raw: Mapping[str, Float[Array, "B P"]], reference: float | Float[Array, ""], coords: Sequence[str]
) -> dict[str, Float[Array, "B P"]]:
    """Turn derivatives of r into those of s_0 exp(r), up to the second.

    Args:
        raw: r and its derivatives, named as those of s, each of shape (B, P); ``first_derivatives`` are among them.
        reference: s_0.
        coords: The coordinates of s.

    Returns:
        s and the same derivatives of it.

    Raises:
        ValueError: If a derivative is of higher order.
    """
    s = reference * jnp.exp(raw["s"])
    found = {}
    for name, value in raw.items():
        axes = axes_of(name, coords)
        if len(axes) > 2:
            raise ValueError(f"{name!r}: of a positive unknown, derivatives up to the second are available")
        first = [raw[f"s_{coords[axis]}"] for axis in axes]
        found[name] = s if not axes else s * value if len(axes) == 1 else s * (value + first[0] * first[1])
    return found
