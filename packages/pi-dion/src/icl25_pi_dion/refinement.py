"""Refine one inversion: with the trunk frozen, solve for its coefficients by damped Gauss-Newton steps."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from icl25_pi_dion.autodiff import trunk_jet
from icl25_pi_dion.losses import exponential, first_derivatives
from icl25_pi_dion.network import PIDION, Coefficients
from icl25_pi_dion.objective import Objective, edge_misfit
from icl25_pi_dion.problem import Derivatives

__all__ = ["Frozen", "freeze", "refine"]

DAMPING = 1e-6  # of the diagonal, at the start
HALVINGS = 6
PULL = 1e-10  # weight of staying with the network's coefficients where there is no noise: it makes them unique
SMALLEST_GAIN = 1e-4  # relative decrease of the loss after which the steps end


class Frozen(NamedTuple):
    """The trunk at the points of the refinement: what of the loss does not depend on the coefficients.

    Attributes:
        u: The functions of u and their derivatives at collocation points, by name.
        s: Those of the unknown, or of its logarithm.
        sensors: The functions of u at the sensors, or at those of each measurement.
        points: The collocation points.
        edge: Points on the boundary, where its values are a term of the loss; None where there is no such term.
    """

    u: dict[str, Float[Array, "P k"]]
    s: dict[str, Float[Array, "P k_s"]]
    sensors: Float[Array, "*B m k"]
    points: Float[Array, "P d"]
    edge: Float[Array, "E d"] | None


def freeze(
    objective: Objective,
    net: PIDION,
    points: Float[Array, "P d"],
    sensors: Float[Array, "*B m d"],
    edge: Float[Array, "E d"] | None = None,
) -> Frozen:
    """Evaluate the trunk once.

    Args:
        objective: The loss.
        net: The network.
        points: Collocation points, shape (P, d).
        sensors: Sensors, shape (m, d), or (B, m, d) where each measurement has its own.
        edge: Points on the boundary, shape (E, d), where its values are a term of the loss.

    Returns:
        The frozen trunk.
    """
    problem = objective.problem
    coords = tuple(problem.target_coords)
    names = ("s", *problem.target_derivatives)
    if net.positive:
        names = (*names, *first_derivatives(names, coords))
    where = points[:, jnp.asarray(problem.target_axes)]
    return Frozen(
        trunk_jet(net.basis, points, ("u", *problem.derivatives), problem.coords),
        trunk_jet(net.target_basis, where, names, coords),
        net.basis(sensors.reshape(-1, sensors.shape[-1])).reshape(*sensors.shape[:-1], -1),
        points,
        edge if objective.weights.boundary > 0 else None,
    )


def refine(
    objective: Objective,
    net: PIDION,
    frozen: Frozen,
    start: Coefficients,
    values: Float[Array, "B m"],
    mask: Bool[Array, "B m"] | None = None,
    *,
    steps: int,
    noise_std: float = 0.0,
    damping: float = DAMPING,
) -> tuple[Coefficients, Float[Array, "B 2"]]:
    """Minimise the loss of each measurement on its own over the coefficients R and I.

    u and s are linear in them, and a residual acts point by point, so the Jacobian is the frozen trunk with each row
    multiplied by a partial derivative of the residual. The loss of no measurement grows.

    Args:
        objective: The loss.
        net: The network, for its scales.
        frozen: Its trunk, from ``freeze``.
        start: Where to begin: what the branches say.
        values: Measurements, shape (B, m).
        mask: Which readings count, shape (B, m).
        steps: Most steps.
        noise_std: Noise of the measurements over sigma_m: how strongly coefficients are held to the network's.
        damping: Levenberg's damping, over the diagonal.

    Returns:
        The coefficients, and the loss of each measurement before and after.

    Source:
        Stability estimates of Cho and Son (ICLR 2025) bound the error by the loss that is minimised here.
    """
    k = start.recon.shape[1] - 1  # the last weight, of the lifting, is 1
    scale_s = net.log_scale
    root = jnp.sqrt(jnp.asarray(net.p, values.dtype))
    scales = (
        jnp.concatenate([jnp.full(k, 1.0) * net.field_scale[...], jnp.full(start.inverse.shape[1], 1.0) * scale_s])
        / root
    )
    pull = jnp.maximum(PULL, noise_std**2) / len(scales) / scales**2
    origin = jnp.concatenate([start.recon[:, :k], start.inverse], axis=1)

    def unpack(theta: Float[Array, "B K"]) -> Coefficients:
        return Coefficients(jnp.concatenate([theta[:, :k], start.recon[:, k:]], axis=1), theta[:, k:])

    def loss_of(theta: Float[Array, "B K"]) -> Float[Array, " B"]:
        rows = _rows(objective, net, frozen, unpack(theta), values, mask)
        return jnp.sum(rows**2, axis=1) + jnp.sum(pull * (theta - origin) ** 2, axis=1)

    def step(state: tuple, _: None) -> tuple[tuple, None]:
        theta, loss, active = state
        rows, jacobian = _linearised(objective, net, frozen, unpack(theta), values, mask)
        jacobian = jnp.concatenate([jacobian[..., :k], jacobian[..., k + 1 :]], axis=-1)
        normal = jnp.einsum("bqi,bqj->bij", jacobian, jacobian)
        normal += jnp.eye(len(scales)) * (damping * jnp.einsum("bii->bi", normal) + pull)[:, None, :]
        slope = jnp.einsum("bqi,bq->bi", jacobian, rows) + pull * (theta - origin)
        move = -jnp.linalg.solve(normal, slope[..., None])[..., 0]

        def halve(_: Array, best: tuple) -> tuple:
            theta_best, loss_best, size = best
            trial = theta + size * move
            value = loss_of(trial)
            better = (value < loss_best) & (loss_best >= loss) & active
            return jnp.where(better[:, None], trial, theta_best), jnp.where(better, value, loss_best), size / 2

        found, value, _ = jax.lax.fori_loop(0, HALVINGS + 1, halve, (theta, loss, jnp.ones((), theta.dtype)))
        return (found, value, active & (value < (1 - SMALLEST_GAIN) * loss)), None

    before = loss_of(origin)
    first = (origin, before, jnp.ones(len(origin), bool))
    (theta, after, _), _ = jax.lax.scan(step, first, None, length=steps)
    return unpack(theta), jnp.stack([before, after], axis=1)


def _residual(objective: Objective, net: PIDION, frozen: Frozen, u: dict, raw: dict) -> Float[Array, "B P"]:
    problem = objective.problem
    s = raw if net.reference is None else exponential(raw, net.reference, tuple(problem.target_coords))
    value = problem.residual(Derivatives(u, "derivatives"), Derivatives({"value": s["s"], **s}, ""), frozen.points)
    weight = jnp.sqrt(objective.weights.physics / len(frozen.points)) / objective.residual_scale
    return value * weight


def _sensor_rows(
    objective: Objective, net: PIDION, sensors: Float[Array, "*B m"], mask: Bool[Array, "B m"] | None
) -> Float[Array, "*B r"]:
    """Rows of the misfit, and of its differences, from values at the sensors (last axis): a linear map."""
    w, m = objective.weights, sensors.shape[-1]
    scaled = sensors / net.field_scale[...]
    if mask is None:
        rows = [scaled * jnp.sqrt(w.data / m)]
    else:
        counted = jnp.sqrt(w.data / jnp.maximum(mask.sum(axis=-1, keepdims=True), 1))
        rows = [jnp.where(mask, scaled * counted, 0)]
    if w.h1 > 0:
        grid = scaled.reshape(*scaled.shape[:-1], *objective.h1_shape)
        for axis, h in enumerate(objective.h1_spacing):
            slopes = jnp.diff(grid, axis=axis - len(objective.h1_shape)) / h
            slopes = slopes.reshape(*scaled.shape[:-1], -1)
            rows.append(slopes * jnp.sqrt(w.h1 / slopes.shape[-1]))
    return jnp.concatenate(rows, axis=-1)


def _rows(objective, net, frozen, coefficients, values, mask) -> Float[Array, "B r"]:
    u = {name: coefficients.recon @ part.T for name, part in frozen.u.items()}
    raw = {name: coefficients.inverse @ part.T for name, part in frozen.s.items()}
    own = frozen.sensors.ndim == 3
    u_hat = jnp.einsum("bk,bmk->bm" if own else "bk,mk->bm", coefficients.recon, frozen.sensors)
    misfit = u_hat - values
    parts = [_residual(objective, net, frozen, u, raw), _sensor_rows(objective, net, misfit, mask)]
    if frozen.edge is not None:
        edge = edge_misfit(objective.problem, net, coefficients.recon, frozen.edge)
        parts.append(edge * jnp.sqrt(objective.weights.boundary / len(frozen.edge)))
    return jnp.concatenate(parts, axis=1)


def _linearised(
    objective, net, frozen, coefficients, values, mask
) -> tuple[Float[Array, "B r"], Float[Array, "B r K"]]:
    u = {name: coefficients.recon @ part.T for name, part in frozen.u.items()}
    raw = {name: coefficients.inverse @ part.T for name, part in frozen.s.items()}

    def residual(u: dict, raw: dict) -> Float[Array, "B P"]:
        return _residual(objective, net, frozen, u, raw)

    zeros = jax.tree.map(jnp.zeros_like, (u, raw))

    def partial(which: int, name: str) -> Float[Array, "B P"]:
        """Derivative of the residual by one field, at all points at once."""
        tangents = tuple(dict(part) for part in zeros)
        tangents[which][name] = jnp.ones_like(tangents[which][name])
        return jax.jvp(residual, (u, raw), tangents)[1]

    by_u = sum(partial(0, name)[..., None] * part for name, part in frozen.u.items())
    by_s = sum(partial(1, name)[..., None] * part for name, part in frozen.s.items())
    physics = jnp.concatenate([by_u, by_s], axis=-1)
    rows = _rows(objective, net, frozen, coefficients, values, mask)

    def by_coefficient(column: Float[Array, "*B m"]) -> Float[Array, "B r"]:
        return _sensor_rows(objective, net, jnp.broadcast_to(column, values.shape), mask)

    sensor = jax.vmap(by_coefficient, in_axes=-1, out_axes=-1)(frozen.sensors)
    linear = [sensor]
    if frozen.edge is not None:
        weight = jnp.sqrt(objective.weights.boundary / len(frozen.edge)) / net.field_scale[...]
        edge = net.basis(frozen.edge) * weight
        linear.append(jnp.broadcast_to(edge, (len(values), *edge.shape)))
    by_recon = jnp.concatenate(linear, axis=1)  # these rows do not depend on the unknown
    by_both = jnp.pad(by_recon, ((0, 0), (0, 0), (0, by_s.shape[-1])))
    return rows, jnp.concatenate([physics, by_both], axis=1)
