from __future__ import annotations

import numpy as np
import pytest

from icl25_sava import batchwise_weights, calibrated_gradient, entropic_gap


def test_calibrated_gradient_is_the_difference_to_the_mean_of_the_others():
    f = np.random.default_rng(0).normal(size=(9, 3))
    expected = [[f[k, j] - np.delete(f[:, j], k).mean() for j in range(3)] for k in range(9)]
    assert calibrated_gradient(f) == pytest.approx(np.array(expected), abs=1e-14)


def test_calibrated_gradient_sums_to_zero_and_ignores_the_constant():
    f = np.random.default_rng(0).normal(size=50).astype(np.float32)
    assert abs(calibrated_gradient(f).sum()) < 1e-6 * np.abs(f).sum()
    assert calibrated_gradient(f + 3) == pytest.approx(calibrated_gradient(f), abs=1e-5)


def test_batchwise_weights_are_shares():
    cg = np.array([[0.0, 1000.0], [0.0, -1000.0]])
    assert batchwise_weights(cg) == pytest.approx(np.array([[0.5, 1.0], [0.5, 0.0]]))


def test_batchwise_weights_survive_a_column_of_hopeless_rows():
    assert batchwise_weights(np.full((4, 1), -1e4)) == pytest.approx(np.full((4, 1), 0.25))


def test_batchwise_weights_need_a_row():
    with pytest.raises(ValueError, match="at least 1 row"):
        batchwise_weights(np.ones((0, 3)))


def test_a_single_row_has_no_gradient():
    with pytest.raises(ValueError, match="at least 2 rows"):
        calibrated_gradient(np.array([1.0]))
    with pytest.raises(ValueError, match="at least 2 rows"):
        entropic_gap(np.ones((1, 3)), 0.1)
    with pytest.raises(ValueError, match="eps must be positive"):
        entropic_gap(np.ones((2, 3)), 0.0)
    with pytest.raises(ValueError, match="negative"):
        entropic_gap(-np.ones((2, 3)), 0.1)
