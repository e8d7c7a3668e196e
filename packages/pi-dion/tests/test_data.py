from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from icl25_pi_dion import InverseProblem
from icl25_pi_dion.data import sample_prior, simulate, simulate_fields
from icl25_pi_dion.problems import DarcyPermeability, HelmholtzCoefficient, ReactionDiffusionSource

LINEAR = ReactionDiffusionSource()


class Integral(InverseProblem):
    """A user's problem that defines nothing but forward."""

    sensor_shape = (4,)
    target_shape = (8,)
    coords = ("x",)
    domain = ((0.0, 1.0),)

    def forward(self, s):
        return jnp.cumsum(s)[1::2] / 8


def test_shapes_and_precision():
    s = sample_prior(LINEAR, 5, seed=1)
    assert s.shape == (5, 51)
    assert s.dtype == simulate(LINEAR, s).dtype == np.float64
    full = ReactionDiffusionSource(measurement="full", n_times=6)
    assert simulate(full, s).shape == (5, 51, 6)
    assert simulate_fields(full, s).shape == (5, 51, 6)
    darcy = DarcyPermeability(n_grid=9, measurement="part")
    a = sample_prior(darcy, 3)
    assert a.shape == (3, 9, 9)
    assert simulate(darcy, a).shape == (3, 5, 5)
    u = simulate_fields(darcy, a)
    assert u.shape == (3, 9, 9)
    np.testing.assert_array_equal(u[:, 2:7, 2:7], simulate(darcy, a))


def test_measurements_equal_the_closed_form_in_double_precision():
    x, n = np.linspace(0, 1, 51), np.arange(1, 25)
    s = sample_prior(LINEAR, 4, seed=2)
    rate = 0.01 * (np.pi * n) ** 2 + 0.1
    waves = np.sin(np.pi * np.outer(n, x))
    expected = (s @ waves.T / 25 * (1 - np.exp(-rate)) / rate) @ waves
    np.testing.assert_allclose(simulate(LINEAR, s), expected, atol=1e-13)


def test_seeds_decide():
    np.testing.assert_array_equal(sample_prior(LINEAR, 3, seed=1), sample_prior(LINEAR, 3, seed=1))
    s = sample_prior(LINEAR, 3, seed=1)
    assert np.abs(s - sample_prior(LINEAR, 3, seed=2)).max() > 0.1
    noisy = simulate(LINEAR, s, noise=0.1, seed=1)
    np.testing.assert_array_equal(noisy, simulate(LINEAR, s, noise=0.1, seed=1))
    assert np.abs(noisy - simulate(LINEAR, s, noise=0.1, seed=2)).max() > 0.01


def test_noise_is_relative_to_the_deviation_of_the_measurements_and_independent_of_the_draws():
    s = sample_prior(LINEAR, 2000, seed=3)
    clean = simulate(LINEAR, s, chunk=2000)
    noise = simulate(LINEAR, s, noise=0.05, seed=3, chunk=2000) - clean
    deviation = np.sqrt(np.mean(np.square(clean - clean.mean(axis=0))))
    assert noise.std() == pytest.approx(0.05 * deviation, rel=0.02)
    correlation = np.corrcoef(np.hstack([noise, s[:, 1:-1]]).T)[:51, 51:]
    assert np.abs(correlation).max() < 0.12
    # The draws of one seed, in the order in which they are made.
    same = np.random.default_rng(3).standard_normal(noise.shape)
    assert abs(np.corrcoef(same.ravel(), noise.ravel())[0, 1]) < 0.02


def test_noise_is_not_relative_to_the_mean_of_a_sensor():
    s = 100 + np.random.default_rng(0).standard_normal((500, 8))
    clean = simulate(Integral(), s)
    noise = simulate(Integral(), s, noise=0.5) - clean
    assert noise.std() == pytest.approx(0.5 * np.sqrt(clean.var(axis=0).mean()), rel=0.06)


def test_noise_of_a_single_sample_is_relative_to_its_size():
    s = np.sin(np.pi * np.linspace(0, 1, 51))[None]
    noise = simulate(LINEAR, s, noise=0.1) - simulate(LINEAR, s)
    assert noise.std() == pytest.approx(0.1 * np.sqrt(np.mean(simulate(LINEAR, s) ** 2)), rel=0.3)


def test_chunks_do_not_matter():
    problem = HelmholtzCoefficient(n_grid=9)
    q = sample_prior(problem, 7)
    whole = simulate(problem, q)
    np.testing.assert_allclose(simulate(problem, q, chunk=3), whole, atol=1e-11)
    np.testing.assert_allclose(simulate(problem, q.reshape(7, -1), chunk=1)[4], whole[4], atol=1e-11)


def test_two_processes_give_the_same():
    s = sample_prior(LINEAR, 25, seed=4)
    np.testing.assert_allclose(simulate(LINEAR, s, chunk=4, n_jobs=2), simulate(LINEAR, s), atol=1e-13)


def test_problems_of_the_user():
    s = np.arange(16.0).reshape(2, 8)
    np.testing.assert_allclose(simulate(Integral(), s), np.cumsum(s, axis=1)[:, 1::2] / 8)
    with pytest.raises(NotImplementedError, match=r"Integral does not define solve\(s\)"):
        simulate_fields(Integral(), s)
    with pytest.raises(NotImplementedError, match="no prior"):
        sample_prior(Integral(), 2)
    with pytest.raises(NotImplementedError, match="cannot be simulated"):
        simulate(InverseProblem(), np.zeros((1, 51)))


def test_bad_input_is_refused():
    s = sample_prior(LINEAR, 3)
    with pytest.raises(ValueError, match="n must be >= 1, found 0"):
        sample_prior(LINEAR, 0)
    for noise in (-0.1, np.nan):
        with pytest.raises(ValueError, match="noise must be >= 0"):
            simulate(LINEAR, s, noise=noise)
    with pytest.raises(ValueError, match="chunk must be >= 1, found 0"):
        simulate(LINEAR, s, chunk=0)
    for wrong in (s[:, :50], s[:0], s[0], s[..., None]):
        with pytest.raises(ValueError, match=r"S must have a row of shape \(51,\) for each function"):
            simulate(LINEAR, wrong)
    s[1, 7] = np.nan
    with pytest.raises(ValueError, match="S has 1 values that are not finite, first in sample 1, value 7"):
        simulate(LINEAR, s)
    q = np.full((2, 9, 9), 5.0)
    q[1, 4, 4] = 30.0
    with pytest.raises(ValueError, match="sample 1: q reaches 30"):
        simulate(HelmholtzCoefficient(n_grid=9), q)


def test_solutions_that_blow_up_are_refused():
    s = np.sin(np.pi * np.linspace(0, 1, 51)) * np.array([[0.1], [400.0]])
    with pytest.raises(ValueError, match=r"sample 1 has no solution \(1 of 2\)"):
        simulate(ReactionDiffusionSource(k=5.0), s)
