"""Physics-informed networks for u and s of one measurement: nothing is learnt for the next one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Float, Key

from icl25_pi_dion.baselines.base import Baseline, check_counts, check_seed
from icl25_pi_dion.baselines.loop import Loop
from icl25_pi_dion.checks import check_measurements
from icl25_pi_dion.network import PIDION
from icl25_pi_dion.objective import Objective, at_sensors, collocation_points, draw_batch, residual_of, unknown
from icl25_pi_dion.optimizers import make_optimizer
from icl25_pi_dion.preparation import chosen_weights, grid_spacing, on_device, rows_of
from icl25_pi_dion.problem import InverseProblem

__all__ = ["PINN", "PINNResult"]

CHECKED_POINTS = 1024


class PINNResult(NamedTuple):
    """The inversion of one measurement.

    Attributes:
        s: The unknown on the target grid.
        u: The solution at the sensors.
        residual_rms: Root mean square residual at points that were not trained on, in its unit.
        misfit_rms: Root mean square misfit, over that of the measurement.
        history: Mean loss of each 50 steps.
    """

    s: Float[np.ndarray, "*shape"]
    u: Float[np.ndarray, " m"]
    residual_rms: float
    misfit_rms: float
    history: Float[np.ndarray, " c"]


class _Free(nnx.Module):
    """A branch that knows one measurement alone: its coefficients are parameters, the last layer of a network of y."""

    def __init__(self, p: int, *, rngs: nnx.Rngs) -> None:
        self.coefficients = nnx.Param(jax.random.normal(rngs.params(), (p,)))

    def __call__(self, z: Float[Array, "B m"]) -> Float[Array, "B p"]:
        return jnp.broadcast_to(self.coefficients[...], (len(z), len(self.coefficients)))


class PINN(Baseline):
    """Physics-informed networks of one measurement, trained from scratch for each.

    One network is u(y), one is s(y), each with the features, the hard boundary and the scales of ``PIDION``; the loss,
    its weights and the fresh collocation points are those of ``InverseOperator``.

    Args:
        problem: The inverse problem.
        steps: Number of steps for each measurement.
        optimizer: ``"muon"``, ``"adam"``, ``"lbfgs"`` or an optax transformation.
        n_collocation: Collocation points a step. Default: 300 for one dimension of space, 400 for more.
        trunk: Widths of the hidden layers. Default: (48, 48), or (64, 64).
        weights: Weights of the terms of the loss; those not named keep the defaults of ``InverseOperator``.
        noise_std: Standard deviation of the noise over the root mean square of the measurement, which sets weights as
            in ``InverseOperator``.
        seed: Seed of weights and draws, a whole number >= 0.
        learning_rate: At the start; it falls to 1 % along a cosine. Default: 2e-2 for muon, 1e-3 for Adam.

    Raises:
        ValueError: If an argument is out of range.

    Source:
        Raissi, Perdikaris and Karniadakis (2019), as the baseline for each instance of Cho and Son (ICLR 2025).
    """

    def __init__(
        self,
        problem: InverseProblem,
        steps: int = 3000,
        optimizer: str | optax.GradientTransformation = "muon",
        n_collocation: int | None = None,
        trunk: Sequence[int] | None = None,
        weights: Mapping[str, float] | None = None,
        noise_std: float = 0.0,
        seed: int = 0,
        learning_rate: float | None = None,
    ) -> None:
        check_counts(steps=steps, n_collocation=n_collocation)
        check_seed(seed)
        if not (np.isfinite(noise_std) and noise_std >= 0):
            raise ValueError(f"noise_std must be >= 0, found {noise_std}")
        self.problem, self.steps, self.optimizer, self.n_collocation = problem, steps, optimizer, n_collocation
        self.trunk, self.weights, self.noise_std = trunk, weights, noise_std
        self.seed, self.learning_rate = seed, learning_rate
        chosen = chosen_weights(problem, weights, noise_std)
        if chosen.data == 0:
            raise ValueError("weight data is 0: u = 0, s = 0 would solve the problem")
        n_points = n_collocation or (300 if _in_line(problem) else 400)
        self._net = self._new_net()
        self._graph, _, _ = nnx.split(self._net, nnx.Param, ...)
        all_sensors = chosen.h1 > 0
        h1 = (tuple(problem.sensor_shape or ()), grid_spacing(problem)) if all_sensors else ((), ())
        objective = Objective(problem, chosen, h1_shape=h1[0], h1_spacing=h1[1])

        def loss(params: Any, key: Key[Array, ""], data: Any) -> Float[Array, ""]:
            readings, rest, residual_scale = data
            batch = draw_batch(
                key, readings, problem, batch_size=1, n_points=n_points, stratified=True, all_sensors=all_sensors
            )
            _, terms = objective(nnx.merge(self._graph, params, rest), batch)
            # The unit of the residual is that of this measurement, and no constant of the compiled program.
            terms["physics"] = terms.get("physics", jnp.zeros(())) / residual_scale**2
            return sum((getattr(chosen, name) * term for name, term in terms.items()), start=jnp.zeros(()))

        self._loop = Loop(loss, make_optimizer(optimizer, steps, learning_rate), steps, "training the PINN")
        self._inspect = jax.jit(self._inspected)

    def predict(self, M: Any) -> Float[np.ndarray, "n *shape"]:
        """Invert measurements, one after the other.

        Args:
            M: Measurements, shape (n, *sensor_shape).

        Returns:
            The unknowns on the target grid.

        Raises:
            ValueError: If the measurements do not fit, or one is zero.
            Diverged: If a loss does not stay finite.
        """
        readings = check_measurements(M, self.problem)
        return np.stack([self._solve(rows_of(readings, np.array([i]))).s for i in range(len(readings.values))])

    def solve(self, m: Any) -> PINNResult:
        """Train the networks of one measurement.

        Args:
            m: The measurement, shape (*sensor_shape).

        Returns:
            The unknown, the solution and the losses.

        Raises:
            ValueError: If the measurement does not fit, or is zero.
            Diverged: If the loss does not stay finite.
        """
        return self._solve(check_measurements(np.asarray(m)[None], self.problem))

    def _solve(self, readings: Any) -> PINNResult:
        if not readings.values.any():
            raise ValueError("the measurement is zero: u = 0, s = 0 would solve the problem")
        net = nnx.clone(self._net)
        target = self.problem.target_scale(readings.values)
        size = float(np.sqrt(np.mean(readings.values**2)))
        net.standardise(np.zeros(readings.values.shape[1]), size, target)
        _, params, rest = nnx.split(net, nnx.Param, ...)
        none = np.zeros((0, len(self.problem.target_points())))
        scale = jnp.asarray(target.residual, jnp.float32)
        data = (on_device(readings, np.zeros(0, int), none), rest, scale)
        params, history = self._loop.run(params, data, self.seed)
        s, u, residual, misfit = self._inspect(params, data)
        shape = self.problem.target_grid
        return PINNResult(np.asarray(s).reshape(shape), np.asarray(u), float(residual), float(misfit), history)

    def _new_net(self) -> PIDION:
        rngs = nnx.Rngs(self.seed)
        in_line = _in_line(self.problem)
        p = (48 if in_line else 96) if self.trunk is None else tuple(self.trunk)[-1]
        return PIDION(self.problem, p, self.trunk, _Free(p, rngs=rngs), "own", rngs=rngs)

    def _inspected(self, params: Any, data: Any) -> tuple[Array, Array, Array, Array]:
        readings, rest, scale = data
        net = nnx.merge(self._graph, params, rest)
        recon, inverse = net.coefficients(readings.values)
        s = unknown(net, inverse, jnp.asarray(self.problem.target_points(), jnp.float32))[0]
        u = at_sensors(net, recon, readings.locations)[0]
        points = collocation_points(jax.random.key(self.seed + 1), self.problem, CHECKED_POINTS, jnp.float32)
        residual = residual_of(self.problem, net, recon, inverse, points) / scale
        misfit = (u - readings.values[0]) / net.field_scale[...]
        return s, u, jnp.sqrt(jnp.mean(residual**2)), jnp.sqrt(jnp.mean(misfit**2))


def _in_line(problem: InverseProblem) -> bool:
    return sum(letter != "t" for letter in problem.coords) < 2
