"""The loss of a batch: which points and sensors are drawn, and how the terms are weighted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, Key

from icl25_pi_dion import losses
from icl25_pi_dion.network import PIDION
from icl25_pi_dion.problem import InverseProblem

__all__ = ["Batch", "Objective", "TrainingData", "Weights", "collocation_points", "draw_batch"]

MOST_SENSORS = 400  # sensors whose misfit is evaluated in one step
BOUNDARY_POINTS = 128


@dataclass(frozen=True)
class Weights:
    """Weights of the terms of the loss.

    Attributes:
        physics: Of the residual.
        data: Of the misfit, in units of the standard deviation of all measurements.
        h1: Of the differences of the misfit between neighbouring sensors.
        label: Of the error on labelled samples.
        boundary: Of the boundary values, where they are not built into the network.
    """

    physics: float = 1.0
    data: float = 10.0
    h1: float = 0.0
    label: float = 1.0
    boundary: float = 1.0


class TrainingData(NamedTuple):
    """What is trained on, as arrays on the device.

    Attributes:
        values: Measurements, flattened.
        locations: Sensors, shared by all samples or each sample its own.
        mask: Which readings count; None for all.
        labelled: Numbers of the samples with labels.
        labels: Their unknowns on the target grid, flattened.
    """

    values: Float[Array, "n m"]
    locations: Float[Array, "*n m d"]
    mask: Bool[Array, "n m"] | None
    labelled: Int[Array, " l"]
    labels: Float[Array, "l n_s"]


class Batch(NamedTuple):
    """What one step sees.

    Attributes:
        values: Measurements of the batch.
        locations: Sensors.
        seen: Readings that the branches see.
        counted: Readings whose misfit counts; None for all.
        points: Collocation points.
        columns: Sensors whose misfit is evaluated; None for all.
        edge: Points on the boundary, where its values are a term of the loss.
        labels: Labels of the first samples of the batch, none where there are none.
    """

    values: Float[Array, "B m"]
    locations: Float[Array, "*B m d"]
    seen: Bool[Array, "B m"] | None
    counted: Bool[Array, "B m"] | None
    points: Float[Array, "P d"]
    columns: Int[Array, " Q"] | None
    edge: Float[Array, "E d"] | None
    labels: Float[Array, "L n_s"]


@dataclass(frozen=True)
class Objective:
    """The loss of the method on one batch.

    Attributes:
        problem: The inverse problem.
        weights: Weights of the terms.
        residual_scale: Unit of the residual.
        label_scale: Unit of the error of labels.
        h1_shape: Shape of the grid of sensors, for the h1 term.
        h1_spacing: Distances of neighbours along its axes.
    """

    problem: InverseProblem
    weights: Weights
    residual_scale: float | Float[Array, ""] = 1.0
    label_scale: float = 1.0
    h1_shape: tuple[int, ...] = ()
    h1_spacing: tuple[float, ...] = ()

    def __call__(self, net: PIDION, batch: Batch) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
        """Compute the loss and its terms before weighting.

        Args:
            net: The network.
            batch: The batch.

        Returns:
            The weighted sum, and the terms by name.
        """
        w, terms = self.weights, {}
        recon, inverse = net.coefficients(batch.values, batch.locations, batch.seen)
        if w.physics > 0:
            terms["physics"] = _physics(self.problem, net, recon, inverse, batch.points) / self.residual_scale**2
        if w.data > 0 or w.h1 > 0:
            values, counted, where = batch.values, batch.counted, batch.locations
            if batch.columns is not None:
                values, where = values[:, batch.columns], where[..., batch.columns, :]
                counted = None if counted is None else counted[:, batch.columns]
            u_hat = at_sensors(net, recon, where)
            terms["data"] = losses.data(u_hat, values, net.field_scale[...], counted)
            if w.h1 > 0:
                terms["h1"] = losses.h1(u_hat, values, self.h1_shape, self.h1_spacing, net.field_scale[...])
        if batch.edge is not None and w.boundary > 0:
            terms["boundary"] = jnp.mean(jnp.square(edge_misfit(self.problem, net, recon, batch.edge)))
        if len(batch.labels) and w.label > 0:
            grid = jnp.asarray(self.problem.target_points(), batch.values.dtype)
            s_hat = unknown(net, inverse[: len(batch.labels)], grid)
            terms["label"] = losses.label(s_hat, batch.labels, self.label_scale)
        total = sum((getattr(w, name) * term for name, term in terms.items()), start=jnp.zeros(()))
        return total, terms

    def sensor_terms(
        self,
        net: PIDION,
        recon: Float[Array, "B k"],
        values: Float[Array, "B m"],
        locations: Float[Array, "*B m d"],
        mask: Bool[Array, "B m"] | None,
    ) -> dict[str, Float[Array, " B"]]:
        """Misfit terms of each sample.

        Args:
            net: The network.
            recon: Coefficients of u, shape (B, k).
            values: Measurements, shape (B, m).
            locations: Sensors, shape (m, d) or (B, m, d).
            mask: Which readings count, shape (B, m).

        Returns:
            Mean square misfit, ``data``, and that of its differences, ``h1``, where it has a weight; before weighting.
        """
        misfit = (at_sensors(net, recon, locations) - values) / net.field_scale[...]
        counted = jnp.ones(misfit.shape, bool) if mask is None else mask
        terms = {"data": jnp.mean(misfit**2, axis=1, where=counted)}
        if self.weights.h1 > 0:
            terms["h1"] = jax.vmap(
                lambda e: losses.h1(e[None], jnp.zeros_like(e[None]), self.h1_shape, self.h1_spacing)
            )(misfit)
        return terms


def unknown(net: PIDION, inverse: Float[Array, "B k_s"], points: Float[Array, "n_s d_s"]) -> Float[Array, "B n_s"]:
    """Evaluate s_hat.

    Args:
        net: The network.
        inverse: Coefficients of the unknown, shape (B, k_s).
        points: Where, in the coordinates of s, shape (n_s, d_s).

    Returns:
        The values.
    """
    raw = inverse @ net.target_basis(points).T
    return raw if net.reference is None else net.reference * jnp.exp(raw)


def residual_of(
    problem: InverseProblem,
    net: PIDION,
    recon: Float[Array, "B k"],
    inverse: Float[Array, "B k_s"],
    points: Float[Array, "P d"],
) -> Float[Array, "B P"]:
    """Residual of the equation for a network's coefficients.

    Args:
        problem: The inverse problem.
        net: The network.
        recon: Coefficients of u, shape (B, k).
        inverse: Coefficients of the unknown, shape (B, k_s).
        points: Where, shape (P, d).

    Returns:
        F[u_hat, s_hat].
    """
    return losses.residual(problem, *_arguments(problem, net, recon, inverse, points))


def _physics(problem, net, recon, inverse, points) -> Float[Array, ""]:
    return losses.physics(problem, *_arguments(problem, net, recon, inverse, points))


def _arguments(problem, net, recon, inverse, points):
    """The arguments of the losses; a shared trunk reads the coordinates of s, which then are those of u."""
    return net.basis, recon, inverse, points, net.target_basis, net.reference


def at_sensors(net: PIDION, recon: Float[Array, "B k"], where: Float[Array, "*B Q d"]) -> Float[Array, "B Q"]:
    """Evaluate u_hat at sensors.

    Args:
        net: The network.
        recon: Coefficients of u, shape (B, k).
        where: Sensors, shape (Q, d), or (B, Q, d) where each sample has its own.

    Returns:
        The values.
    """
    if where.ndim == 2:
        return recon @ net.basis(where).T
    basis = net.basis(where.reshape(-1, where.shape[-1])).reshape(*where.shape[:2], -1)
    return jnp.einsum("bk,bqk->bq", recon, basis)


def edge_misfit(
    problem: InverseProblem, net: PIDION, recon: Float[Array, "B k"], edge: Float[Array, "E d"]
) -> Float[Array, "B E"]:
    """How far u_hat is off its known values on the boundary.

    Args:
        problem: The inverse problem.
        net: The network.
        recon: Coefficients of u, shape (B, k).
        edge: Points on the boundary, shape (E, d).

    Returns:
        The differences, in units of sigma_m.
    """
    condition = problem.boundary()
    known = 0.0 if condition is None else condition.lifting(edge)
    return (recon @ net.basis(edge).T - known) / net.field_scale[...]


def draw_batch(
    key: Key[Array, ""],
    data: TrainingData,
    problem: InverseProblem,
    *,
    batch_size: int,
    n_points: int,
    stratified: bool = False,
    sensor_dropout: float = 0.0,
    all_sensors: bool = False,
) -> Batch:
    """Draw samples with replacement, fresh collocation points, and sensors.

    Args:
        key: Random key of the step.
        data: What is trained on.
        problem: The inverse problem.
        batch_size: Number of samples; where some samples are labelled, half of the batch is drawn from them.
        n_points: Number of collocation points.
        stratified: One point in each of ``n_points`` strata of every coordinate (a Latin hypercube).
        sensor_dropout: Each sample loses a share of its sensors, uniform from 0 to this, before the branches see it.
        all_sensors: Evaluate the misfit at all sensors.

    Returns:
        The batch.
    """
    keys = jax.random.split(key, 7)
    n, m = data.values.shape
    n_labelled = len(data.labelled)
    half = 0 if n_labelled == 0 else batch_size if n_labelled == n else batch_size // 2
    rows = jax.random.randint(keys[0], (batch_size,), 0, n)
    labels = data.labels[:0]
    if half:
        drawn = jax.random.randint(keys[1], (half,), 0, n_labelled)
        labels = data.labels[drawn]
        rows = rows.at[:half].set(data.labelled[drawn])
    mask = None if data.mask is None else data.mask[rows]
    seen = mask
    if sensor_dropout > 0:
        share = jax.random.uniform(keys[2], (batch_size, 1), maxval=sensor_dropout)
        kept = jax.random.uniform(keys[3], (batch_size, m)) >= share
        seen = kept if mask is None else kept & mask
    columns = None
    if m > MOST_SENSORS and not all_sensors:
        columns = jax.random.randint(keys[4], (MOST_SENSORS,), 0, m)
    dtype = data.values.dtype
    locations = data.locations if data.locations.ndim == 2 else data.locations[rows]
    points = collocation_points(keys[5], problem, n_points, dtype, stratified=stratified)
    edge = edge_points(keys[6], problem, BOUNDARY_POINTS, dtype)
    return Batch(data.values[rows], locations, seen, mask, points, columns, edge, labels)


def collocation_points(
    key: Key[Array, ""], problem: InverseProblem, n: int, dtype: DTypeLike, *, stratified: bool = False
) -> Float[Array, "n d"]:
    """Draw points uniformly in the domain.

    Args:
        key: Random key.
        problem: The inverse problem.
        n: How many.
        dtype: Of the points.
        stratified: Draw a Latin hypercube.

    Returns:
        The points.
    """
    d = len(problem.coords)
    low, high = (jnp.asarray(ends, dtype) for ends in zip(*problem.domain, strict=True))
    # From (0, 1]: where time starts, the solution is known.
    unit = 1 - jax.random.uniform(key, (n, d), dtype)
    if stratified:
        keys = jax.random.split(jax.random.fold_in(key, 1), d)
        cells = jnp.stack([jax.random.permutation(k, n) for k in keys], axis=1)
        unit = (cells + unit) / n
    return low + unit * (high - low)


def edge_points(key: Key[Array, ""], problem: InverseProblem, n: int, dtype: DTypeLike) -> Float[Array, "n d"] | None:
    """Draw points on the boundary, and at the start of time, where the values of u are a term of the loss.

    Args:
        key: Random key.
        problem: The inverse problem.
        n: How many.
        dtype: Of the points.

    Returns:
        The points; None where the network has the values built in, or there are none.
    """
    condition = problem.boundary()
    if condition is None or condition.hard:
        return None
    faces: Sequence[tuple[int, float]] = [
        (axis, end)
        for axis, (letter, ends) in enumerate(zip(problem.coords, problem.domain, strict=True))
        for end in (ends if letter != "t" else ends[:1] if condition.initial else ())
    ]
    where, which = jax.random.split(key)
    points = collocation_points(where, problem, n, dtype)
    face = jax.random.randint(which, (n,), 0, len(faces))
    axes, ends = (jnp.asarray(np.array(part)) for part in zip(*faces, strict=True))
    hit = axes[face][:, None] == jnp.arange(points.shape[1])
    return jnp.where(hit, ends[face][:, None].astype(dtype), points)
