from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from icl25_pn_gail.evaluation import EvalResult, bootstrap_interval, interquartile_mean, interval_text


@pytest.mark.parametrize(
    ("samples", "mean"),
    [
        ([5], 5),
        ([1, 3], 2),
        ([1, 2, 9], (0.25 * 1 + 2 + 0.25 * 9) / 1.5),
        ([8, 0, 2, 4], 3),
        ([0, 1, 2, 3, 100], (0.75 * 1 + 2 + 0.75 * 3) / 2.5),
        (range(8), 3.5),
        ([-1000, 1, 1, 1, 1, 1, 1, 1000], 1),
    ],
)
def test_the_middle_half_counts(samples, mean):
    assert interquartile_mean(np.array(samples, float)) == pytest.approx(mean)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=10))
def test_four_copies_of_samples_are_trimmed_as_scipy_does(samples):
    four = np.repeat(samples, 4)
    assert interquartile_mean(four) == pytest.approx(float(scipy.stats.trim_mean(four, 0.25)), abs=1e-6)
    assert interquartile_mean(np.array(samples)) == pytest.approx(interquartile_mean(four), abs=1e-6)


def test_the_bootstrap_interval_of_a_mean_is_about_normal():
    samples = np.random.default_rng(1).normal(10, 3, 200)
    error = samples.std() / np.sqrt(200)
    for level, z in ((0.95, 1.96), (0.5, 0.6745)):
        low, high = bootstrap_interval(samples, level=level, n_resamples=4000)
        np.testing.assert_allclose([low, high], samples.mean() + np.array([-z, z]) * error, atol=0.12 * error)
    assert bootstrap_interval(samples) == bootstrap_interval(samples)
    assert bootstrap_interval(samples) != bootstrap_interval(samples, seed=1)


def test_the_bootstrap_interval_of_few_samples_is_that_of_all_resamples():
    # Of three samples the maximum is 9 with probability 1 - (2/3)^3 = 0.70, at most 3 with (2/3)^3 = 0.30, and 1 with
    # 1/27 = 0.04; so are the ends of its intervals.
    samples = np.array([1.0, 3.0, 9.0])
    assert bootstrap_interval(samples, np.max, level=0.9) == (3.0, 9.0)
    assert bootstrap_interval(samples, np.max, level=0.98) == (1.0, 9.0)
    assert bootstrap_interval(samples, np.max, level=0.2) == (9.0, 9.0)
    assert np.isnan(bootstrap_interval(np.array([4.0]))).all()  # one sample tells nothing of its spread


def test_episodes_are_summed_up():
    found = EvalResult(np.array([-1.0, -3.0, -2.0, -100.0]), np.array([3, 4, 5, 6]))
    assert found.mean == -26.5
    assert found.std == pytest.approx(np.std(found.returns, ddof=1))
    assert found.iqm == -2.5
    assert found.interval == bootstrap_interval(found.returns)
    low, high = found.interval
    assert str(found) == f"mean return -26.5 [{low:.1f}, {high:.1f}] over 4 episodes"
    one = EvalResult(np.array([-2.0]), np.array([7]))
    assert np.isnan(one.std)
    assert str(one) == "return -2.0 of 1 episode"
    assert (interval_text(*one.interval), interval_text(-2.04, 1)) == ("-", "-2.0 to 1.0")
