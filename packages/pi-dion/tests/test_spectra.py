from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl25_pi_dion import InverseProblem
from icl25_pi_dion.problems import DarcyPermeability, HelmholtzCoefficient, ReactionDiffusionSource
from icl25_pi_dion.spectra import identifiability

RATES = 0.01 * (np.pi * np.arange(1, 25)) ** 2 + 0.1
GAINS = (1 - np.exp(-RATES)) / RATES
LINEAR = identifiability(ReactionDiffusionSource())
LEFT = identifiability(ReactionDiffusionSource(measurement="window", window=(0.0, 0.5)))


class Mean(InverseProblem):
    """A user's problem without a prior, whose sensors form no grid."""

    coords = ("x",)
    domain = ((0.0, 1.0),)
    target_shape = (9,)

    def sensors(self):
        return np.array([[0.5], [0.1], [0.9]])

    def forward(self, s):
        return jnp.array([1.0, 2.0, 2.0]) * jnp.mean(s**2)


def test_singular_values_of_the_linear_problem_in_closed_form():
    np.testing.assert_allclose(LINEAR.singular_values, GAINS[:20], atol=1e-12)
    expected = [0.9069177124, 0.7888237688, 0.6352326781]
    np.testing.assert_allclose(LINEAR.singular_values[:3], expected, atol=1e-10)


def test_singular_functions_of_the_linear_problem_are_sines():
    x = np.linspace(0, 1, 51)
    sines = np.sqrt(2) * np.sin(np.pi * np.outer(np.arange(1, 21), x))
    for functions in (LINEAR.right, LINEAR.left):
        np.testing.assert_allclose(np.abs(functions @ sines.T) / 50, np.eye(20), atol=1e-9)


def test_values_do_not_depend_on_the_mesh():
    coarse = identifiability(ReactionDiffusionSource(n_sensors=31), k=4)
    np.testing.assert_allclose(coarse.singular_values, LINEAR.singular_values[:4], atol=1e-10)
    full = identifiability(ReactionDiffusionSource(measurement="full", n_times=41), k=3)
    times = np.linspace(0, 1, 2001)
    norms = np.sqrt(np.trapezoid(((1 - np.exp(-np.outer(RATES[:3], times))) / RATES[:3, None]) ** 2, times))
    np.testing.assert_allclose(full.singular_values, norms, rtol=2e-3)


@pytest.mark.parametrize("kind", [HelmholtzCoefficient, DarcyPermeability])
def test_large_maps_agree_with_the_dense_decomposition(kind):
    problem = kind(n_grid=15)
    at = problem.sample_target(1, np.random.default_rng(1))[0]
    found = identifiability(problem, at, k=6, n_prior=2)
    w = np.full(15, 1 / 14)
    w[[0, -1]] /= 2
    root = np.sqrt(np.outer(w, w).ravel())
    with jax.enable_x64(True):
        _, push = jax.linearize(problem.forward, jnp.asarray(at))
        jacobian = np.asarray(jax.jit(jax.vmap(push))(np.eye(225))).T
    left, values, right = np.linalg.svd(root[:, None] * jacobian / root)
    np.testing.assert_allclose(found.singular_values, values[:6], rtol=1e-5)
    functions = found.right.reshape(6, -1) * root
    np.testing.assert_allclose(np.abs(np.sum(functions * right[:6], axis=1)), 1, atol=1e-5)
    np.testing.assert_allclose(jacobian @ found.right[2].ravel(), values[2] * found.left[2].ravel(), atol=1e-4)
    np.testing.assert_allclose(np.abs(np.sum(found.left.reshape(6, -1) * root * left[:, :6].T, axis=1)), 1, atol=1e-5)


def test_few_sensors_go_through_the_adjoint():
    problem = HelmholtzCoefficient(n_grid=15, measurement="sensors", n_sensors=6)
    found = identifiability(problem, np.full(225, 5.0), n_prior=2)
    assert found.right.shape == (6, 15, 15)
    step = 1e-4
    with jax.enable_x64(True):
        ends = [problem.forward(5 + sign * step * found.right[1].ravel()) for sign in (1, -1)]
    slope = np.asarray(ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(slope, found.singular_values[1] * found.left[1], rtol=1e-4, atol=1e-8)


def test_signal_to_noise_in_closed_form():
    variances = (np.arange(1, 25) ** 2 * np.pi**2 + 100.0) ** -3
    variances *= 2 / variances.sum()
    deviation = np.sqrt(np.sum(GAINS**2 * variances) / 2 * 50 / 51)
    # White noise of size 1 at 51 nodes has this deviation along a function of L2 norm 1.
    ratio = GAINS * np.sqrt(variances / 2) / (0.01 * deviation * np.sqrt(1 / 50))
    np.testing.assert_allclose(LINEAR.signal_to_noise(0.01), ratio[:20], rtol=0.2)
    assert LINEAR.n_identifiable(0.01) == np.sum(ratio > 1) == 11
    np.testing.assert_array_equal(LINEAR.visible(0.01), np.arange(20) < 11)
    many = identifiability(ReactionDiffusionSource(), n_prior=3000)
    for noise in (0.001, 0.01, 0.1):
        shares = np.sum(variances / (1 + (ratio * 0.01 / noise) ** 2)) / variances.sum()
        assert many.expected_error(noise) == pytest.approx(np.sqrt(shares), rel=0.04)


def test_more_noise_leaves_more_error_up_to_that_of_the_prior():
    errors = [LINEAR.expected_error(noise) for noise in (1e-4, 1e-2, 1e-1, 1.0, 1e6)]
    assert np.all(np.diff(errors) > 0)
    assert errors[-1] == pytest.approx(1, abs=0.02)


def test_left_half_is_flagged_and_the_whole_is_not():
    assert LINEAR.shortcoming(0.01) == LINEAR.shortcoming(0.05) == ""
    assert LEFT.expected_error(0.01) > 0.3 > 0.05 > LINEAR.expected_error(0.01)
    for noise in (0.001, 0.01, 0.1):
        assert "does not determine the unknown" in LEFT.shortcoming(noise)
    assert "expected relative error of 36%" in LEFT.shortcoming(0.01)


def test_too_few_visible_directions_are_flagged():
    seen = LINEAR.n_identifiable(1.0)
    assert 0 < seen < 5
    assert f"{seen} of the 20 strongest" in LINEAR.shortcoming(1.0, most_error=1.0)
    assert LINEAR.shortcoming(1.0, most_error=1.0, least_directions=seen) == ""


@pytest.mark.parametrize("kind", [HelmholtzCoefficient, DarcyPermeability])
def test_elliptic_problems_are_not_flagged(kind):
    assert identifiability(kind(n_grid=9, measurement="part"), k=8, n_prior=200).shortcoming(0.01) == ""


def test_unseen_patterns_lie_where_nothing_is_measured():
    x = np.linspace(0, 1, 51)
    patterns = LEFT.unseen(0.01, 2)
    assert patterns.shape == (2, 51)
    assert np.sum(patterns[:, x > 0.5] ** 2) > 0.97 * np.sum(patterns**2)
    everything = LEFT.unseen(0.01, 400)
    assert np.sum(everything**2) / 50 == pytest.approx(LEFT.expected_error(0.01) ** 2 * LEFT.prior.power, rel=1e-6)


def test_problems_without_a_prior_have_a_spectrum_alone():
    spectrum = identifiability(Mean(), np.full(9, 2.0), k=2)
    # The mean has the L2 norm of its weights over those of the integral; each sensor stands for 0.8 / 3 of the line.
    expected = 4 * np.sqrt(9 * 0.8 / 3) * np.sqrt(8 / 81 * (7 + 2 * 2))
    assert spectrum.singular_values[0] == pytest.approx(expected, rel=1e-12)
    assert spectrum.singular_values[1] < 1e-12
    assert len(spectrum.plot().axes) == 3
    for ask in (spectrum.expected_error, spectrum.signal_to_noise, spectrum.shortcoming, spectrum.unseen):
        with pytest.raises(ValueError, match="no prior"):
            ask(0.01)


def test_the_seed_decides():
    problem = ReactionDiffusionSource(n_sensors=11, n_modes=4)
    first, again, other = (identifiability(problem, k=3, seed=seed, n_prior=5) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.right, again.right)
    assert first.expected_error() == again.expected_error() != other.expected_error()


def test_pictures():
    figure = LEFT.plot()
    assert "11 of 20 visible" in figure.axes[0].get_title(loc="left")
    np.testing.assert_array_equal(figure.axes[1].lines[0].get_ydata(), LEFT.right[0])
    np.testing.assert_array_equal(figure.axes[2].lines[0].get_ydata(), LEFT.unseen()[0])
    plane = identifiability(DarcyPermeability(n_grid=5), k=2, n_prior=5).plot()
    assert sum(bool(axes.collections) for axes in plane.axes) >= 4
    with pytest.raises(ValueError, match="noise must be > 0"):
        LEFT.plot(0.0)


def test_bad_input_is_refused():
    problem = ReactionDiffusionSource()
    with pytest.raises(ValueError, match="k >= 1 and n_prior >= 2, found 0 and 400"):
        identifiability(problem, k=0)
    with pytest.raises(ValueError, match="s must have 51 finite values"):
        identifiability(problem, np.ones(50))
    with pytest.raises(ValueError, match="sample 0: q reaches 25"):
        identifiability(HelmholtzCoefficient(n_grid=5), np.full(25, 25.0))
    with pytest.raises(ValueError, match="no solution where it is linearised"):
        identifiability(ReactionDiffusionSource(k=5.0), 400 * np.sin(np.pi * np.linspace(0, 1, 51)))
    with pytest.raises(NotImplementedError, match="does not define forward"):
        identifiability(type("Bare", (InverseProblem,), {"sensor_shape": (51,)})())
    with pytest.raises(ValueError, match="noise must be > 0, found 0"):
        LINEAR.expected_error(0.0)


def test_a_prior_of_few_directions_needs_no_more_of_them_seen():
    problem = ReactionDiffusionSource(n_sensors=21, n_modes=3)
    assert identifiability(problem).n_identifiable() == 3
    assert not identifiability(problem).shortcoming()
