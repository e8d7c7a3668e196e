from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

from icl25_pi_dion import InverseOperator, InverseProblem, data
from icl25_pi_dion.calibration import relative_errors
from icl25_pi_dion.network import PIDION

N = 21
X = np.linspace(0, 1, N)
WAVES = np.sin(math.pi * np.outer(np.arange(1, 4), X))


class Beam(InverseProblem):
    """-u'' = s on a line with u = 0 at both ends: nothing but the equation."""

    coords, target_coords, domain = ("x",), ("x",), ((0.0, 1.0),)
    derivatives = ("u_xx",)
    sensor_shape = target_shape = (N,)

    def residual(self, d, s, y):
        return d.u_xx + s.value


class SimulatedBeam(Beam):
    """The same with a solver and a prior."""

    def forward(self, s):
        coefficients = jnp.asarray(WAVES, s.dtype) @ s * (2 / (N - 1))
        return (coefficients / (math.pi * jnp.arange(1, 4)) ** 2) @ jnp.asarray(WAVES, s.dtype)

    def sample_target(self, n, rng):
        return (rng.standard_normal((n, 3)) / [1, 2, 3]) @ WAVES


@pytest.fixture(scope="module")
def pairs():
    s = data.sample_prior(SimulatedBeam(), 300, seed=0)
    return s, data.simulate(SimulatedBeam(), s)


def fitted(problem, measurements, **options):
    net = PIDION(problem, 12, (24,), fourier=3)
    options = {"steps": 400, "batch_size": 40, "n_collocation": 40, "check_identifiable": False} | options
    return InverseOperator(problem, net, **options).fit(measurements)


@pytest.fixture(scope="module")
def calibrated(pairs):
    return fitted(SimulatedBeam(), pairs[1][:200], calibration=400)


def test_simulation_solves_the_equation(pairs):
    s, u = pairs
    second = np.diff(u, n=2, axis=1) * (N - 1) ** 2
    np.testing.assert_allclose(-second, s[:, 1:-1], atol=0.03 * np.abs(s).max())


def test_a_residual_alone_trains_and_predicts(pairs):
    s, m = pairs
    result = fitted(Beam(), m[:200]).predict(m[200:], return_u=True)
    assert result.s.shape == (100, N)
    assert relative_errors(result.s, s[200:]).mean() < 0.2
    assert relative_errors(result.u, m[200:]).mean() < 0.05
    assert np.isnan(result.error_estimate).all()
    with pytest.raises(NotImplementedError, match=r"Beam does not define forward\(s\)"):
        Beam().forward(jnp.zeros(N))


def test_a_problem_with_a_solver_is_learned_and_refined(calibrated, pairs):
    s, m = pairs[0][200:], pairs[1][200:]
    error = relative_errors(calibrated.predict(m).s, s).mean()
    assert error < 0.2
    assert relative_errors(calibrated.predict(m, refine=1).s, s).mean() < 0.75 * error


def test_a_solver_and_a_prior_calibrate_the_errors(calibrated):
    s = data.sample_prior(SimulatedBeam(), 1000, seed=1)
    result = calibrated.predict(data.simulate(SimulatedBeam(), s))
    assert 0.86 <= np.mean(relative_errors(result.s, s) <= result.error_estimate) <= 0.94


def test_a_problem_without_a_residual_says_so():
    class Empty(InverseProblem):
        sensor_shape = (N,)

    with pytest.raises(NotImplementedError, match=r"Empty does not define residual\(d, s, y\)"):
        InverseOperator(Empty(), steps=1).fit(np.ones((3, N)) * WAVES[0])
