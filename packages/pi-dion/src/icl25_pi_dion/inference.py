"""From measurements to unknowns and their diagnostics, compiled once for each size of batch."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float

from icl25_pi_dion.checks import Measurements
from icl25_pi_dion.network import PIDION, Coefficients
from icl25_pi_dion.objective import (
    BOUNDARY_POINTS,
    Objective,
    collocation_points,
    edge_misfit,
    edge_points,
    residual_of,
    unknown,
)
from icl25_pi_dion.refinement import freeze, refine

__all__ = ["Inference", "Inverted"]

LARGEST_BATCH = 1024
LARGEST_REFINED = 64  # measurements whose Jacobians are held at once
RESIDUAL_POINTS = 256
REFINEMENT_POINTS = 800


class Inverted(NamedTuple):
    """Inversions as arrays.

    Attributes:
        s: The unknown at the points asked for.
        u: The solution at the points asked for.
        residual: Root mean square residual, in its unit.
        misfit: Root mean square misfit, in units of sigma_m.
        indicator: Square root of the loss of the measurement.
        features: Coefficients R, which tell measurements apart where sensors differ.
    """

    s: Float[np.ndarray, "n n_s"]
    u: Float[np.ndarray, "n n_u"]
    residual: Float[np.ndarray, " n"]
    misfit: Float[np.ndarray, " n"]
    indicator: Float[np.ndarray, " n"]
    features: Float[np.ndarray, "n p"]


class Inference:
    """Inverts with a trained network.

    Args:
        net: The network.
        objective: The loss it was trained on, for the diagnostics.
        noise_std: Noise of the measurements over sigma_m, for the refinement.
    """

    def __init__(self, net: PIDION, objective: Objective, noise_std: float = 0.0) -> None:
        self.objective = objective
        self.noise_std = noise_std
        self._graph, self._state = nnx.split(net)
        self._plain = jax.jit(self._invert)
        self._refined = jax.jit(partial(self._invert, refined=True), static_argnames="steps")
        problem = objective.problem
        key = jax.random.key(0)
        self._points = np.asarray(collocation_points(key, problem, RESIDUAL_POINTS, jnp.float32, stratified=True))
        edge = edge_points(jax.random.fold_in(key, 2), problem, BOUNDARY_POINTS, jnp.float32)
        self._edge = None if edge is None or objective.weights.boundary == 0 else np.asarray(edge)
        fine = jax.random.fold_in(key, 1)
        self._fine = np.asarray(collocation_points(fine, problem, REFINEMENT_POINTS, jnp.float32, stratified=True))

    def __call__(
        self,
        readings: Measurements,
        points_s: Float[np.ndarray, "n_s d_s"],
        points_u: Float[np.ndarray, "n_u d"],
        steps: int = 0,
    ) -> Inverted:
        """Invert measurements in batches whose sizes are powers of two, so that few sizes are compiled.

        Args:
            readings: Checked measurements.
            points_s: Where to evaluate the unknown, shape (n_s, d_s).
            points_u: Where to evaluate the solution, shape (n_u, d).
            steps: Steps of refinement, 0 for none. They are computed in double precision.

        Returns:
            The inversions.
        """
        parts: list[Inverted] = []
        largest = LARGEST_REFINED if steps else LARGEST_BATCH
        n = len(readings.values)
        with jax.enable_x64(steps > 0):
            dtype = jnp.float64 if steps else jnp.float32
            state = jax.tree.map(lambda part: jnp.asarray(np.asarray(part), dtype), self._state)
            fixed = [np.asarray(part, dtype) for part in (points_s, points_u, self._fine if steps else self._points)]
            for first in range(0, n, largest):
                size = min(largest, n - first)
                padded = 1 << (size - 1).bit_length()
                rows = first + np.minimum(np.arange(padded), size - 1)
                own = readings.locations.ndim == 3
                locations = readings.locations[rows] if own else readings.locations
                mask = None if readings.mask is None else readings.mask[rows]
                inputs = (np.asarray(readings.values[rows], dtype), np.asarray(locations, dtype), mask, *fixed)
                found = self._refined(state, *inputs, steps=steps) if steps else self._plain(state, *inputs)
                parts.append(Inverted(*(np.asarray(part)[:size] for part in found)))
        return Inverted(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def features(self, readings: Measurements) -> Float[np.ndarray, "n p"]:
        """Return the coefficients R alone.

        Args:
            readings: Checked measurements.

        Returns:
            The coefficients.
        """
        problem = self.objective.problem
        none = np.zeros((0, len(problem.target_coords))), np.zeros((0, len(problem.coords)))
        return self(readings, *none).features

    def _invert(
        self,
        state: Any,
        values: Float[Array, "B m"],
        locations: Float[Array, "*B m d"],
        mask: Bool[Array, "B m"] | None,
        points_s: Float[Array, "n_s d_s"],
        points_u: Float[Array, "n_u d"],
        points: Float[Array, "P d"],
        *,
        refined: bool = False,
        steps: int = 0,
    ) -> Inverted:
        net = nnx.merge(self._graph, state)
        objective = self.objective
        start = net.coefficients(values, locations, mask)
        edge = None if self._edge is None else jnp.asarray(self._edge, values.dtype)
        found: Coefficients = start
        if refined:
            frozen = freeze(objective, net, points, locations, edge)
            found, _ = refine(objective, net, frozen, start, values, mask, steps=steps, noise_std=self.noise_std)
        residual = residual_of(objective.problem, net, *found, points) / objective.residual_scale
        terms = objective.sensor_terms(net, found.recon, values, locations, mask)
        square = jnp.mean(residual**2, axis=1)
        weights = objective.weights
        loss = weights.physics * square + weights.data * terms["data"] + weights.h1 * terms.get("h1", 0.0)
        if edge is not None:
            off = edge_misfit(objective.problem, net, found.recon, edge)
            loss += weights.boundary * jnp.mean(off**2, axis=1)
        found_arrays: Any = (
            unknown(net, found.inverse, points_s),
            found.recon @ net.basis(points_u).T,
            jnp.sqrt(square),
            jnp.sqrt(terms["data"]),
            jnp.sqrt(loss),
            start.recon[:, : net.p],
        )
        return Inverted(*found_arrays)
