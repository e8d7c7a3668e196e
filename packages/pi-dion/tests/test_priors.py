from __future__ import annotations

import numpy as np
import pytest

from icl25_pi_dion.priors import gaussian_process, sine_series


def draw(seed=0):
    return np.random.default_rng(seed)


def test_sine_series_has_unit_mean_square_and_vanishes_at_the_ends():
    x = np.linspace(0, 1, 101)
    s = sine_series(4000, x, draw())
    assert np.abs(s[:, [0, -1]]).max() < 1e-13
    assert np.mean(np.trapezoid(s**2, x, axis=1)) == pytest.approx(1, rel=0.05)


def test_sine_series_has_the_stated_variances_and_no_other_sines():
    x = np.linspace(0, 1, 65)
    s = sine_series(4000, x, draw(), n_modes=6, alpha=2, tau=3)
    coefficients = 2 / 64 * s @ np.sin(np.pi * np.outer(x, np.arange(1, 12)))
    found = coefficients.var(axis=0)
    stated = ((np.pi * np.arange(1, 7)) ** 2 + 9.0) ** -2
    np.testing.assert_allclose(found[:6], 2 * stated / stated.sum(), rtol=0.12)
    assert found[6:].max() < 1e-25


def test_gaussian_process_has_the_kernel_as_covariance():
    axes = [np.linspace(0, 1, 6), np.linspace(0, 2, 4)]
    g = gaussian_process(20000, axes, draw(), length_scale=0.4)
    assert g.shape == (20000, 6, 4)
    points = np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")], axis=1)
    squares = np.square(points[:, None] - points).sum(axis=2)
    np.testing.assert_allclose(np.cov(g.reshape(len(g), -1).T), np.exp(-squares / (2 * 0.4**2)), atol=0.05)


def test_gaussian_process_in_two_dimensions_is_a_product_of_factors():
    axis = np.linspace(0, 1, 9)
    kernel = np.exp(-np.square(axis[:, None] - axis) / (2 * 0.25**2)) + 1e-8 * np.eye(9)
    factor = np.linalg.cholesky(kernel)
    expected = factor @ draw(3).standard_normal((1, 9, 9)) @ factor.T
    np.testing.assert_allclose(gaussian_process(1, [axis, axis], draw(3)), expected, atol=1e-13)


def test_the_source_of_draws_decides():
    x = np.linspace(0, 1, 33)
    np.testing.assert_array_equal(sine_series(2, x, draw(1)), sine_series(2, x, draw(1)))
    assert np.abs(sine_series(2, x, draw(1)) - sine_series(2, x, draw(2))).max() > 0.1


def test_extreme_arguments_give_finite_draws():
    x = np.linspace(0, 1, 201)
    assert np.isfinite(sine_series(3, x, draw(), n_modes=199, alpha=80.0)).all()
    assert np.isfinite(gaussian_process(3, [x], draw(), length_scale=5.0)).all()


def test_bad_arguments_are_refused():
    x = np.linspace(0, 1, 5)
    with pytest.raises(ValueError, match="n must be >= 1, found 0"):
        sine_series(0, x, draw())
    with pytest.raises(ValueError, match="n_modes must be >= 1, found 0"):
        sine_series(1, x, draw(), n_modes=0)
    with pytest.raises(ValueError, match="length_scale must be > 0, found 0"):
        gaussian_process(1, [x], draw(), length_scale=0)
    with pytest.raises(ValueError, match="n must be >= 1"):
        gaussian_process(0, [x], draw())
