from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import sqrtm

from icl25_sava import label_distances
from icl25_sava.class_distances import class_rows, resolve_method


def test_class_distances_of_the_authors_code(golden):
    arrays = golden("label_distances")
    W = label_distances(arrays["X1"], arrays["y1"], arrays["X2"], arrays["y2"])
    assert np.abs(W - arrays["W"]).max() <= 1e-3


def test_gaussian_distance_is_that_of_bures():
    rng = np.random.default_rng(0)
    X, Xv = rng.normal(size=(40, 3)) @ rng.normal(size=(3, 3)), 1 + rng.normal(size=(30, 3)) @ rng.normal(size=(3, 3))
    S, T = np.cov(X.T, bias=True), np.cov(Xv.T, bias=True)
    root = sqrtm(S)
    bures = np.trace(S + T - 2 * np.real(sqrtm(root @ T @ root)))
    squared = np.sum((X.mean(0) - Xv.mean(0)) ** 2) + bures
    y, yv = np.zeros(40), np.zeros(30)
    assert label_distances(X, y, Xv, yv, "gaussian") == pytest.approx(squared / 2, abs=1e-9)
    assert label_distances(X, y, Xv, yv, "gaussian", p=1) == pytest.approx(np.sqrt(squared), abs=1e-9)


def test_gaussian_distance_of_equal_sets_is_zero_and_of_single_rows_that_of_the_points():
    X = np.random.default_rng(0).normal(size=(20, 3))
    assert label_distances(X, np.zeros(20), X, np.zeros(20), "gaussian") == pytest.approx(0, abs=1e-9)
    W = label_distances(X[:1], [0], X[1:2], [0], "gaussian")
    assert pytest.approx(np.sum((X[0] - X[1]) ** 2) / 2) == W


def test_means_and_none():
    X, Xv = np.array([[0.0, 0], [2, 0]]), np.array([[1.0, 4]])
    assert label_distances(X, ["a", "a"], Xv, ["a"], "means") == pytest.approx(8)
    assert label_distances(X, ["a", "b"], Xv, ["a"], "none") == pytest.approx(np.zeros((2, 2)))


def test_a_class_that_one_side_lacks_has_no_distance_there():
    rng = np.random.default_rng(0)
    W = label_distances(rng.normal(size=(6, 2)), [0, 0, 1, 1, 2, 2], rng.normal(size=(4, 2)), [0, 0, 3, 3])
    assert np.isfinite(W[:3][:, [0, 3]]).all()
    assert np.isnan(W[3]).all()
    assert np.isnan(W[:, [1, 2]]).all()


def test_labels_of_any_kind_give_the_same_distances(sets):
    W = label_distances(*sets.data)
    names = np.array(["cat", "dog", "emu"])
    assert np.array_equal(label_distances(sets.X, names[sets.y], sets.X_val, names[sets.y_val]), W)


def test_samples_are_bounded_seeded_and_whole_below_the_limit():
    y = np.array([0, 1, 0, 0, 1, 0])
    parts = class_rows(y, 3, 2, np.random.default_rng(0))
    assert [len(part) for part in parts] == [2, 2, 0]
    assert parts[1].tolist() == [1, 4]
    assert set(parts[0]) <= {0, 2, 3, 5}
    again = class_rows(y, 3, 2, np.random.default_rng(0))
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


def test_automatic_choice_by_size():
    assert resolve_method("auto", 100, 512) == "sample"
    assert resolve_method("auto", 2501, 256) == "gaussian"
    assert resolve_method("auto", 2501, 257) == "means"
    assert resolve_method("means", 1, 1) == "means"
    with pytest.raises(ValueError, match="label_distance must be one of"):
        resolve_method("cosine", 1, 1)


def test_methods_that_need_batches_are_refused(sets):
    with pytest.raises(ValueError, match="defined by batches"):
        label_distances(*sets.data, method="per_pair")
    with pytest.raises(ValueError, match="y must have shape"):
        label_distances(sets.X, sets.y[:-1], sets.X_val, sets.y_val)
