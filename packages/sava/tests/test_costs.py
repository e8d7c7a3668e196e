from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from icl25_sava import augmented_cost
from icl25_sava.costs import bounding_box, diameter, feature_cost


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_feature_cost_is_the_distance(p, dtype):
    rng = np.random.default_rng(0)
    X, Xv = rng.normal(size=(13, 4)).astype(dtype), rng.normal(size=(7, 4)).astype(dtype)
    expected = cdist(X, Xv) if p == 1 else cdist(X, Xv, "sqeuclidean") / 2
    C = feature_cost(X, Xv, p)
    assert C.dtype == dtype
    assert pytest.approx(expected, abs=1e-5 if dtype == np.float32 else 1e-12) == C


def test_a_large_offset_costs_no_precision():
    rng = np.random.default_rng(0)
    X, Xv = rng.normal(size=(13, 4)), rng.normal(size=(7, 4))
    expected = cdist(X, Xv, "sqeuclidean") / 2
    assert feature_cost(X + 1e6, Xv + 1e6, 2) == pytest.approx(expected, abs=1e-8)
    assert feature_cost(X, X, 2).min() >= 0


@pytest.mark.parametrize("p", [1, 2])
def test_augmented_cost_adds_the_class_distance(p):
    rng = np.random.default_rng(0)
    X, Xv = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
    y, yv, W = np.array([0, 1, 2, 1, 0]), np.array([2, 0, 0, 1]), rng.random((3, 3))
    C = augmented_cost(X, y, Xv, yv, W, lambda_x=0.5, lambda_y=3.0, p=p)
    half = 1 if p == 1 else 0.5
    for k in range(5):
        for j in range(4):
            distance = np.linalg.norm(X[k] - Xv[j]) ** p
            assert C[k, j] == pytest.approx(half * (0.5 * distance + 3 * W[y[k], yv[j]]), abs=1e-12)


def test_augmented_cost_refuses_what_it_cannot_price():
    X, W = np.ones((2, 3)), np.array([[0.0, np.nan], [0.0, 0.0]])
    y = np.array([0, 1])
    with pytest.raises(ValueError, match="no finite distance"):
        augmented_cost(X, y, X, y, W)
    assert np.isfinite(augmented_cost(X, y, X, np.array([0, 0]), W)).all()
    with pytest.raises(ValueError, match=r"outside 0\.\.1"):
        augmented_cost(X, np.array([0, 2]), X, y, np.zeros((2, 2)))
    with pytest.raises(ValueError, match="p must be 1 or 2"):
        augmented_cost(X, y, X, y, p=3)
    with pytest.raises(ValueError, match="same number of columns"):
        augmented_cost(X, y, np.ones((2, 4)), y)
    with pytest.raises(ValueError, match="yv must have shape"):
        augmented_cost(X, y, X, np.array([0]), np.zeros((2, 2)))


def test_diameter_is_the_diagonal_of_the_common_box():
    assert diameter(bounding_box(np.array([[0.0, 0], [1, 1]])), bounding_box(np.array([[3.0, 4]]))) == 5
