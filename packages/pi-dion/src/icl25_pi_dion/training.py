"""The training loop: chunks of compiled steps, validation without labels, early stops, and states to resume from."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

from icl25_pi_dion import losses
from icl25_pi_dion.network import PIDION
from icl25_pi_dion.objective import (
    Batch,
    Objective,
    TrainingData,
    at_sensors,
    collocation_points,
    draw_batch,
    residual_of,
)
from icl25_pi_dion.optimizers import scaled

__all__ = ["Diverged", "Schedule", "TrainState", "Trainer", "Validation"]

VALIDATION_POINTS = 1024
TRAINING_SAMPLES = 100  # on which the residual between the points is looked at
LATER_LOSSES = 10  # checks without progress after which training stops
OVERFITTED = 10.0  # squared residual between the collocation points over that of the training, at which it stops
PROGRESS = 0.01  # what counts as progress, relative


class Diverged(RuntimeError):
    """The loss became infinite or not a number, at smaller learning rates too."""


class TrainState(NamedTuple):
    """Everything that training goes on from.

    Attributes:
        params: Parameters of the network.
        opt_state: State of the optimiser.
        best: Parameters with the smallest validation loss so far.
        step: Number of steps done.
        best_loss: That validation loss.
        stale: Checks since the last progress.
        reference_loss: Validation loss at the last progress.
        rate: Factor of all updates: halved where training diverged.
        stopped: Why training ended before its last step; empty while it goes on.
    """

    params: Any
    opt_state: Any
    best: Any
    step: int = 0
    best_loss: float = math.inf
    stale: int = 0
    reference_loss: float = math.inf
    rate: float = 1.0
    stopped: str = ""


class Validation(NamedTuple):
    """Losses on points that training does not use.

    Attributes:
        residual: Root mean square residual of the validation measurements, in its unit.
        misfit: Their root mean square misfit, in units of sigma_m.
        between: Root mean square residual of training measurements: where it is far above that of the training, the
            network meets the equation at the collocation points alone.
    """

    residual: float
    misfit: float
    between: float


@dataclass(frozen=True)
class Schedule:
    """How long and on how much to train.

    Attributes:
        steps: Number of steps.
        batch_size: Samples a step.
        n_collocation: Collocation points a step.
        chunk: Steps compiled into one call.
        check_every: Steps between two validations, a multiple of ``chunk``.
        fresh_points: Draw new points in every step; else the points of the first step are kept.
        stratified: Draw points as a Latin hypercube.
        sensor_dropout: Largest share of sensors hidden from the branches.
        noise_std: Noise of the measurements in units of sigma_m; training stops where the misfit falls below 0.7 of it.
        early_stop: Stop after 10 checks without 1 % progress.
        fixed_batch: Keep one batch for each chunk, as line searches need.
    """

    steps: int
    batch_size: int
    n_collocation: int
    chunk: int = 50
    check_every: int = 100
    fresh_points: bool = True
    stratified: bool = False
    sensor_dropout: float = 0.0
    noise_std: float = 0.0
    early_stop: bool = True
    fixed_batch: bool = False


@dataclass
class Trainer:
    """Trains a network in chunks; ``run`` yields after each.

    Attributes:
        net: The network; its constants are read, its parameters only to start from.
        objective: The loss.
        optimizer: The optimiser.
        schedule: How long.
        data: What is trained on.
        validation: What is validated on.
        seed: Seed of all draws.
        mesh: Devices over which the samples of a batch are spread; None for one device.
    """

    net: PIDION
    objective: Objective
    optimizer: optax.GradientTransformationExtraArgs
    schedule: Schedule
    data: TrainingData
    validation: TrainingData
    seed: int
    mesh: Mesh | None = None

    def __post_init__(self) -> None:
        self._graph, self._params, self._rest = nnx.split(self.net, nnx.Param, ...)
        self._key = jax.random.key(self.seed)
        self._chunk = jax.jit(self._run_chunk)
        self._validate = jax.jit(self._validation)
        problem, dtype = self.objective.problem, self.data.values.dtype
        points = jax.random.fold_in(self._key, 2**31 - 1)
        self._points = collocation_points(points, problem, VALIDATION_POINTS, dtype)
        if self.mesh is not None:
            self._params = jax.device_put(self._params, NamedSharding(self.mesh, PartitionSpec()))

    def identity(self) -> str:
        """Hash what decides the training beside the length of its history: data, weights, options and seed."""
        digest = hashlib.sha256(repr((self.objective.weights, self.schedule, self.seed)).encode())
        for part in jax.tree.leaves((self._params, self._rest, self.data, self.validation)):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()

    def start(self) -> TrainState:
        """Return the state before the first step."""
        return TrainState(self._params, self.optimizer.init(self._params), self._params)

    def finished(self, state: TrainState) -> PIDION:
        """Return the network with the best parameters of a state."""
        return nnx.merge(self._graph, state.best, self._rest)

    def run(self, state: TrainState) -> Iterator[tuple[TrainState, dict[str, float]]]:
        """Train from a state to the end.

        Args:
            state: Where to begin.

        Yields:
            The state after each chunk, and a row of history: step, total, each term, val_residual, val_misfit (where it
            was checked), rate and seconds.

        Raises:
            Diverged: If the loss is not finite after the rate was halved twice.
        """
        halvings = round(-math.log2(state.rate))
        while state.step < self.schedule.steps and not state.stopped:
            started = time.perf_counter()
            size = min(self.schedule.chunk, self.schedule.steps - state.step)
            params, opt_state, total, terms = self._chunk(
                state.params, state.opt_state, state.step + jnp.arange(size), jnp.asarray(state.rate), self.data
            )
            if not math.isfinite(float(total)):
                halvings += 1
                if halvings > 2:
                    raise Diverged(
                        f"the loss is not finite after step {state.step}, at a quarter of the learning rate too; "
                        "choose a smaller learning_rate, or check the measurements and the residual"
                    )
                state = state._replace(rate=state.rate / 2)
                continue
            state = state._replace(params=params, opt_state=opt_state, step=state.step + size)
            row = {"step": state.step, "total": float(total), **{name: float(term) for name, term in terms.items()}}
            if state.step % self.schedule.check_every == 0 or state.step == self.schedule.steps:
                state, checked = self._check(state, row)
                row |= checked
            row |= {"rate": state.rate, "seconds": time.perf_counter() - started}
            yield state, row

    def validate(self, params: Any) -> Validation:
        """Compute the losses on the validation data.

        Args:
            params: Parameters of the network.

        Returns:
            The losses.
        """
        return Validation(*map(float, self._validate(params, self.data, self.validation, self._points)))

    def _check(self, state: TrainState, row: dict[str, float]) -> tuple[TrainState, dict[str, float]]:
        """Keep the best parameters, and see whether to stop."""
        found = self.validate(state.params)
        weights = self.objective.weights
        loss = weights.physics * found.residual**2 + weights.data * found.misfit**2
        if not weights.physics and not weights.data:
            loss = row["total"]
        if loss < state.best_loss:
            state = state._replace(best=state.params, best_loss=loss)
        if loss < (1 - PROGRESS) * state.reference_loss:
            state = state._replace(reference_loss=loss, stale=0)
        else:
            state = state._replace(stale=state.stale + 1)
        stopped = ""
        if "physics" in row and found.between**2 > OVERFITTED * row["physics"]:
            stopped = "overfitting"
        elif self.schedule.early_stop and state.stale >= LATER_LOSSES:
            stopped = "no progress"
        noise = self.schedule.noise_std
        if noise > 0 and "data" in row and math.sqrt(row["data"]) < 0.7 * noise:
            stopped = "misfit below the noise"
        return state._replace(stopped=stopped), {"val_residual": found.residual, "val_misfit": found.misfit}

    def _run_chunk(
        self, params: Any, opt_state: Any, steps: Int[Array, " c"], rate: Float[Array, ""], data: TrainingData
    ) -> tuple[Any, Any, Float[Array, ""], dict[str, Float[Array, ""]]]:
        def one(carry: tuple[Any, Any], step: Int[Array, ""]) -> tuple[tuple[Any, Any], Any]:
            params, opt_state = carry
            batch = self._draw(step, data)

            def loss(params: Any) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
                return self.objective(nnx.merge(self._graph, params, self._rest), batch)

            (total, terms), gradient = jax.value_and_grad(loss, has_aux=True)(params)
            updates, opt_state = self.optimizer.update(
                gradient, opt_state, params, value=total, grad=gradient, value_fn=lambda p: loss(p)[0]
            )
            return (optax.apply_updates(params, scaled(updates, rate)), opt_state), (total, terms)

        (params, opt_state), (totals, terms) = jax.lax.scan(one, (params, opt_state), steps)
        return params, opt_state, totals.mean(), {name: values.mean() for name, values in terms.items()}

    def _draw(self, step: Int[Array, ""], data: TrainingData) -> Batch:
        plan, weights = self.schedule, self.objective.weights
        draw = step // plan.chunk if plan.fixed_batch else step
        options = {
            "batch_size": plan.batch_size,
            "n_points": plan.n_collocation,
            "stratified": plan.stratified,
            "sensor_dropout": plan.sensor_dropout,
            "all_sensors": weights.h1 > 0,
        }
        batch = draw_batch(jax.random.fold_in(self._key, draw), data, self.objective.problem, **options)
        if not plan.fresh_points:
            first = draw_batch(jax.random.fold_in(self._key, 0), data, self.objective.problem, **options)
            batch = batch._replace(points=first.points)
        return batch if self.mesh is None else _spread(batch, self.mesh)

    def _validation(
        self, params: Any, train: TrainingData, held_out: TrainingData, points: Float[Array, "P d"]
    ) -> tuple[Float[Array, ""], ...]:
        net = nnx.merge(self._graph, params, self._rest)

        def rms_residual(recon: Float[Array, "B k"], inverse: Float[Array, "B k_s"]) -> Float[Array, ""]:
            value = residual_of(self.objective.problem, net, recon, inverse, points)
            return jnp.sqrt(jnp.mean(value**2)) / self.objective.residual_scale

        coefficients = net.coefficients(held_out.values, held_out.locations, held_out.mask)
        u_hat = at_sensors(net, coefficients.recon, held_out.locations)
        misfit = jnp.sqrt(losses.data(u_hat, held_out.values, net.field_scale[...], held_out.mask))
        some = jax.tree.map(lambda part: part[:TRAINING_SAMPLES], (train.values, train.mask))
        own_sensors = train.locations.ndim == 3
        locations = train.locations[:TRAINING_SAMPLES] if own_sensors else train.locations
        between = rms_residual(*net.coefficients(some[0], locations, some[1]))
        return rms_residual(*coefficients), misfit, between


def _spread(batch: Batch, mesh: Mesh) -> Batch:
    """Lay the samples of a batch over the devices; points and sensors that all samples share go to every device."""
    rows = NamedSharding(mesh, PartitionSpec(mesh.axis_names[0]))
    spread: Callable[[Any], Any] = lambda part: jax.lax.with_sharding_constraint(part, rows)  # noqa: E731
    own_sensors = batch.locations.ndim == 3
    return batch._replace(
        values=spread(batch.values),
        locations=spread(batch.locations) if own_sensors else batch.locations,
        seen=None if batch.seen is None else spread(batch.seen),
        counted=None if batch.counted is None else spread(batch.counted),
    )
