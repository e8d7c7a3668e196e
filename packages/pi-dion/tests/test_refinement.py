"""The refinement minimises the loss of training, with its true Jacobian; and what each term of that loss is."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl25_pi_dion.network import PIDION, Coefficients
from icl25_pi_dion.objective import Batch, Objective, Weights, edge_points, residual_of, unknown
from icl25_pi_dion.problem import Dirichlet, TargetScale
from icl25_pi_dion.problems import DarcyPermeability, HelmholtzCoefficient, ReactionDiffusionSource
from icl25_pi_dion.refinement import _linearised, _rows, freeze, refine

RNG = np.random.default_rng(0)


class Soft(ReactionDiffusionSource):
    """Quadratic reaction with values on the boundary that are not zero, as a term of the loss."""

    def boundary(self):
        return Dirichlet(lambda y: 0.3 + y[:, 0], hard=False)


PROBLEMS = {
    "hard": ReactionDiffusionSource(k=0.5, n_sensors=7, n_modes=3),
    "soft": Soft(k=0.5, n_sensors=7, n_modes=3),
    "helmholtz": HelmholtzCoefficient(n_grid=5),
    "darcy": DarcyPermeability(n_grid=5),
}


@pytest.fixture(params=PROBLEMS)
def case(request, x64):
    """An objective, a network with random weights, measurements, and points."""
    problem = PROBLEMS[request.param]
    net = PIDION(problem, p=4, trunk=(5,), branch_hidden=(3,), fourier=1, rngs=0, dtype=jnp.float64)
    values = jnp.asarray(1 + RNG.standard_normal((3, len(problem.sensors()))))
    net.standardise(np.asarray(values.mean(axis=0)), 0.7, TargetScale(1.2, 1.5, 0.8))
    h1 = (tuple(problem.sensor_shape), (0.25,) * len(problem.sensor_shape))
    objective = Objective(problem, Weights(0.9, 3.0, 0.2, 0.5, 0.7), 0.8, 1.3, *h1)
    d = len(problem.coords)
    points = jnp.asarray(RNG.uniform(0.1, 0.9, (6, d)))
    edge = edge_points(jax.random.key(1), problem, 8, jnp.float64)
    return objective, net, values, points, edge


def batch_of(case, rows=slice(None), labels=None):
    objective, _, values, points, edge = case
    labels = np.zeros((0, len(objective.problem.target_points()))) if labels is None else labels
    return Batch(
        values[rows], jnp.asarray(objective.problem.sensors()), None, None, points, None, edge, jnp.asarray(labels)
    )


def test_each_term_is_what_it_says(case):
    objective, net, values, points, edge = case
    problem, scale = objective.problem, 0.7
    recon, inverse = net.coefficients(values)
    labels = 1 + RNG.uniform(size=(2, len(problem.target_points())))
    _, terms = objective(net, batch_of(case, labels=labels))
    residual = residual_of(problem, net, recon, inverse, points)
    assert float(terms["physics"]) == pytest.approx(float(np.mean(np.square(residual / 0.8))))
    u_hat = recon @ net.basis(jnp.asarray(problem.sensors())).T
    assert float(terms["data"]) == pytest.approx(float(np.mean(np.square((u_hat - values) / scale))))
    s_hat = unknown(net, inverse[:2], jnp.asarray(problem.target_points()))
    assert float(terms["label"]) == pytest.approx(float(np.mean(np.square((s_hat - labels) / 1.3))))
    if edge is None:
        assert "boundary" not in terms
    else:
        known = 0.3 + np.asarray(edge)[:, 0]
        off = (np.asarray(recon @ net.basis(edge).T) - known) / scale
        assert float(terms["boundary"]) == pytest.approx(float(np.mean(off**2)))


def test_the_loss_that_is_refined_is_that_of_training(case):
    objective, net, values, points, edge = case
    frozen = freeze(objective, net, points, jnp.asarray(objective.problem.sensors()), edge)
    found = np.sum(np.square(_rows(objective, net, frozen, net.coefficients(values), values, None)), axis=1)
    for i, loss in enumerate(found):
        assert loss == pytest.approx(float(objective(net, batch_of(case, slice(i, i + 1)))[0]), rel=1e-10)


def test_its_jacobian_is_that_of_automatic_differentiation(case):
    objective, net, values, points, edge = case
    frozen = freeze(objective, net, points, jnp.asarray(objective.problem.sensors()), edge)
    start = net.coefficients(values)
    k = start.recon.shape[1]

    def rows(theta):
        return _rows(objective, net, frozen, Coefficients(theta[None, :k], theta[None, k:]), values[:1], None)[0]

    exact = jax.jacfwd(rows)(jnp.concatenate([start.recon[0], start.inverse[0]]))
    value, jacobian = _linearised(objective, net, frozen, start, values, None)
    np.testing.assert_allclose(jacobian[0], exact, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(value, _rows(objective, net, frozen, start, values, None), rtol=1e-12)


def test_no_loss_grows_and_noise_holds_the_coefficients_back(case):
    objective, net, values, points, edge = case
    frozen = freeze(objective, net, points, jnp.asarray(objective.problem.sensors()), edge)
    start = net.coefficients(values)
    moved = []
    for noise in (0.0, 0.1, 10.0):
        found, loss = refine(objective, net, frozen, start, values, steps=4, noise_std=noise)
        assert (loss[:, 1] <= loss[:, 0]).all()
        assert (loss[:, 1] < loss[:, 0]).any()
        np.testing.assert_array_equal(found.recon[:, -1], 1)  # the weight of the lifting
        moved.append(float(np.sum(np.square(found.inverse - start.inverse))))
    assert moved[0] > moved[1] > moved[2] > 0
