"""Confidences from returns, sharpened, with noise, and reports on predictions."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icl25_pn_gail.confidence import add_noise, calibration_report, confidence_from_returns, sharpen


class TestFromReturns:
    def test_values(self):
        returns = [-100, -600, -1600]
        np.testing.assert_allclose(confidence_from_returns(returns), [1, 0.716531, 0.367879], atol=5e-7)
        np.testing.assert_allclose(confidence_from_returns(returns, "minmax"), [1, 2 / 3, 0])
        np.testing.assert_allclose(confidence_from_returns([*returns, -600.0], "rank"), [1, 0.5, 0, 0.5])

    @pytest.mark.parametrize("mode", ["exp", "minmax", "rank"])
    def test_unknown_returns_stay_unknown(self, mode):
        with_gap = confidence_from_returns([3.0, np.nan, 5.0, 4.0], mode)
        assert np.isnan(with_gap[1])
        np.testing.assert_allclose(with_gap[[0, 2, 3]], confidence_from_returns([3.0, 5.0, 4.0], mode))

    @settings(max_examples=100)
    @given(
        st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=9),
        st.sampled_from(["exp", "minmax", "rank"]),
    )
    def test_order_is_kept_and_the_best_is_certain(self, returns, mode):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            found = confidence_from_returns(returns, mode)
        assert found.min() >= 0
        assert found.max() <= 1
        order = np.argsort(returns)
        assert (np.diff(found[order]) >= 0).all()
        if np.sum(np.equal(returns, max(returns))) == 1:
            assert found[order[-1]] == pytest.approx(1)

    @pytest.mark.parametrize("mode", ["exp", "minmax", "rank"])
    def test_equal_returns(self, mode):
        with pytest.warns(UserWarning, match="all returns are 3: every confidence is 1"):
            np.testing.assert_array_equal(confidence_from_returns([3, 3, np.nan], mode), [1, 1, np.nan])

    def test_bad_input(self):
        for returns, mode, message in (
            ([1.0, np.inf], "exp", "infinite, first in row 1"),
            ([np.nan], "exp", "at least one score"),
            ([], "exp", "at least one score"),
            ([[1.0]], "exp", r"shape \(n,\)"),
            ([1.0, 2.0], "softmax", "found 'softmax'"),
        ):
            with pytest.raises(ValueError, match=message):
                confidence_from_returns(returns, mode)


class TestSharpen:
    def test_values(self):
        r = np.array([0.0, 0.2, 0.5, 0.8, 1.0, np.nan])
        np.testing.assert_allclose(sharpen(r, power=2), [0, 1 / 17, 0.5, 16 / 17, 1, np.nan])
        np.testing.assert_allclose(sharpen(r, power=1), r)
        np.testing.assert_array_equal(sharpen(r, threshold=0.5), [0, 0, 1, 1, 1, np.nan])
        np.testing.assert_array_equal(sharpen(r, threshold=0.6), [0, 0, 0, 1, 1, np.nan])
        np.testing.assert_array_equal(sharpen([0.49, 0.5, 0.51], power=1e6), [0, 0.5, 1])

    @settings(max_examples=100)
    @given(st.floats(1e-3, 1 - 1e-3), st.floats(0.2, 5))
    def test_multiplies_log_odds(self, r, power):
        (found,) = sharpen([r], power=power)
        odds = (r / (1 - r)) ** power  # not the other way round: near 1, the odds of a rounded number say little
        assert found == pytest.approx(odds / (1 + odds), rel=1e-9)

    def test_bad_input(self):
        for arguments, message in (
            ({}, "either power or threshold"),
            ({"power": 2, "threshold": 0.5}, "either power or threshold"),
            ({"power": 0}, "power must be above 0"),
            ({"threshold": 1.5}, "threshold must lie"),
        ):
            with pytest.raises(ValueError, match=message):
                sharpen([0.5], **arguments)
        with pytest.raises(ValueError, match=r"r must lie in \[0, 1\]"):
            sharpen([5.0], power=2)


class TestNoise:
    def test_distribution(self):
        r = np.full(20_000, 0.5)
        found = add_noise(r, 0.1, seed=0)
        assert found.mean() == pytest.approx(0.5, abs=0.005)
        assert found.std() == pytest.approx(0.1, rel=0.03)
        np.testing.assert_array_equal(found, add_noise(r, 0.1, seed=0))
        assert not np.array_equal(found, add_noise(r, 0.1, seed=1))
        np.testing.assert_array_equal(found, add_noise(r, 0.1, np.random.default_rng(0)))

    def test_stays_a_confidence(self):
        found = add_noise(np.array([0.0, 1.0, np.nan] * 50), 0.3, seed=0)
        known = found[~np.isnan(found)]
        assert known.min() == 0
        assert known.max() == 1
        assert np.isnan(found[2::3]).all()
        np.testing.assert_array_equal(add_noise([0.3, np.nan], 0, seed=0), [0.3, np.nan])

    def test_bad_input(self):
        with pytest.raises(ValueError, match="sigma must be >= 0"):
            add_noise([0.5], -0.1, seed=0)


class TestCalibration:
    def test_values(self):
        report = calibration_report([1.0, 0.0, 0.5, np.nan], [0.8, 0.1, 0.2, 0.9], bins=2)
        assert report.n_rows == 3
        assert report.mean_absolute_error == pytest.approx(0.2)
        assert report.bias == pytest.approx(-0.4 / 3)
        assert report.rmse == pytest.approx(np.sqrt(0.14 / 3))
        assert report.spearman == pytest.approx(1)
        assert report.auc == pytest.approx(1)
        table = report.reliability
        assert table.columns.tolist() == ["low", "high", "n", "predicted", "true"]
        np.testing.assert_allclose(table, [[0, 0.5, 2, 0.15, 0.25], [0.5, 1, 1, 0.8, 1]])

    def test_ranks(self):
        true, predicted = [0.1, 0.4, 0.6, 0.9], [0.3, 0.7, 0.2, 0.8]
        report = calibration_report(true, predicted)
        assert report.spearman == pytest.approx(1 - 6 * (1 + 1 + 4) / 60)
        assert report.auc == pytest.approx(2 / 4)

    def test_bounds_of_bins(self):
        table = calibration_report([0.5] * 4, [0.0, 0.25, 0.75, 1.0], bins=4).reliability
        assert table["n"].tolist() == [1, 1, 0, 2]
        assert table[["predicted", "true"]].iloc[2].isna().all()

    def test_undefined_ranks(self):
        report = calibration_report([0.9, 0.9], [0.2, 0.4])
        assert (report.spearman, report.auc) == (None, None)
        assert calibration_report([0.1, 0.9], [0.4, 0.4]).spearman is None

    def test_bad_input(self):
        for arguments, message in (
            (([0.5], [0.5, 0.5]), "r_true must have 2 values"),
            (([0.5], [np.nan]), "r_hat must be known"),
            (([np.nan], [0.5]), "at least one true confidence"),
            (([2.0], [0.5]), r"r_true must lie in \[0, 1\]"),
            (([0.5], [0.5], 0), "bins must be >= 1"),
        ):
            with pytest.raises(ValueError, match=message):
                calibration_report(*arguments)
