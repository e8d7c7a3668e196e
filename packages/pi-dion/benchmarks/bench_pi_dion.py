"""Time the physics loss against nested derivatives for each sample, training steps, inversions and solvers."""

import argparse
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from icl25_pi_dion import PIDION, InverseOperator, data
from icl25_pi_dion.losses import physics
from icl25_pi_dion.problems import DarcyPermeability, HelmholtzCoefficient, ReactionDiffusionSource


def milliseconds(*functions, rounds=3, calls=5):
    """Median milliseconds of each, in turn by blocks of calls, of which the first is not counted."""
    times = [[] for _ in functions]
    for _ in range(rounds):
        for series, function in zip(times, functions, strict=True):
            for call in range(calls + 1):
                start = time.perf_counter()
                jax.block_until_ready(function())
                if call:
                    series.append(1e3 * (time.perf_counter() - start))
    return [statistics.median(series) for series in times]


def loss_functions(problem, n_samples, n_points, p=64):
    """Value and gradient of the same physics loss, with shared derivatives and with those of each sample."""
    net = PIDION(problem, p=p, trunk=(64, 64), rngs=0)
    graph, params, rest = nnx.split(net, nnx.Param, ...)
    rng = np.random.default_rng(0)
    values = jnp.asarray(rng.standard_normal((n_samples, problem.n_sensors)), jnp.float32)
    points = jnp.asarray(rng.uniform(size=(n_points, 2)), jnp.float32)

    def shared(params):
        net = nnx.merge(graph, params, rest)
        return physics(problem, net.basis, *net.coefficients(values), points, net.target_basis)

    def nested(params):
        net = nnx.merge(graph, params, rest)

        def residual(recon, inverse, y):
            def u(y):
                return net.basis(y[None])[0] @ recon

            second, first = jax.hessian(u)(y), jax.grad(u)(y)
            s = net.target_basis(y[None, :1])[0] @ inverse
            value = u(y)
            return first[1] - problem.D * second[0, 0] + problem.kappa * value - problem.k * value**2 - s

        every_point = jax.vmap(residual, in_axes=(None, None, 0))
        return jnp.mean(jax.vmap(every_point, in_axes=(0, 0, None))(*net.coefficients(values), points) ** 2)

    return params, jax.jit(jax.value_and_grad(shared)), jax.jit(jax.value_and_grad(nested))


def derivatives():
    """The fast derivative."""
    problem = ReactionDiffusionSource()
    params, shared, nested = loss_functions(problem, 100, 512)
    ours, theirs = milliseconds(lambda: shared(params), lambda: nested(params), calls=3)
    print(f"physics loss, value and gradient, 100 samples, 512 points, p = 64: {ours:.2f} ms")
    print(f"  vmap(hessian) of each sample: {theirs:.0f} ms, {theirs / ours:.0f} times as long")
    print(f"  the same value: {shared(params)[0]:.7f} and {nested(params)[0]:.7f}")
    sizes = (25, 50, 100, 200, 400)
    made = [loss_functions(problem, n, 512)[:2] for n in sizes]
    times = milliseconds(*(lambda params=params, loss=loss: loss(params) for params, loss in made), calls=15)
    for n, ms in zip(sizes, times, strict=True):
        print(f"  {n:4d} samples: {ms:.2f} ms")


def steps():
    """Milliseconds a training step, compilation excluded."""
    for problem, optimizer, branch in (
        (ReactionDiffusionSource(), "muon", "mlp"),
        (ReactionDiffusionSource(), "adam", "mlp"),
        (HelmholtzCoefficient(), "muon", "mlp"),
        (HelmholtzCoefficient(), "muon", "cnn"),
        (HelmholtzCoefficient(), "adam", "mlp"),
        (DarcyPermeability(), "muon", "mlp"),
    ):
        shape = problem.sensor_shape
        measurements = np.random.default_rng(0).standard_normal((500, *shape)) * 0.01 + 0.3
        net = PIDION(problem, branch=branch, rngs=0)
        operator = InverseOperator(problem, net, optimizer, 250, calibration=0, check_identifiable=False)
        operator.fit(measurements)
        chunks = [row["seconds"] / 50 for row in operator.history_[1:] if "val_residual" not in row]
        first = operator.history_[0]["seconds"]
        name = type(problem).__name__
        print(f"{name} {optimizer} {branch}: {1e3 * min(chunks):.1f} ms a step, compiled in {first:.1f} s")


def inversions():
    """A thousand inversions in one call."""
    problem = ReactionDiffusionSource()
    measurements = data.simulate(problem, data.sample_prior(problem, 1000, seed=0))
    operator = InverseOperator(problem, steps=100, calibration=0, check_identifiable=False).fit(measurements)
    for refine in (0, 1, 3):
        (ms,) = milliseconds(lambda refine=refine: operator.predict(measurements, refine=refine).s)
        print(f"1,000 inversions, refine={refine}: {ms:.1f} ms")


def solvers():
    """A thousand reference solutions, compilation included."""
    for problem in (ReactionDiffusionSource(k=0.01, kappa=0.0), HelmholtzCoefficient(), DarcyPermeability()):
        unknowns = data.sample_prior(problem, 1000, seed=0)
        start = time.perf_counter()
        data.simulate(problem, unknowns)
        print(f"{type(problem).__name__}: 1,000 solutions in {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    parts = {part.__name__: part for part in (derivatives, steps, inversions, solvers)}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=parts, help="default: all")
    chosen = parser.parse_args().part
    for name, part in parts.items():
        if chosen in (None, name):
            part()
