from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from icl25_lp_conv import rsa
from icl25_lp_conv.rsa_matrices import FeatureSums

METHODS = ["kendall", "kendall_a", "spearman", "pearson"]
N = 12


def random_rsm(n: int = N, seed: int = 0, like: np.ndarray | None = None, noise: float = 1.0) -> np.ndarray:
    """A symmetric matrix of noise, added to another."""
    draw = noise * np.random.default_rng(seed).normal(size=(n, n))
    return draw + draw.T + (0 if like is None else like)


def entries(matrix: np.ndarray) -> np.ndarray:
    return matrix[np.tril_indices(len(matrix), -1)]


def count_taus(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Tau-a and tau-b by going through all pairs."""
    pairs = list(itertools.combinations(range(len(x)), 2))
    signs = [(np.sign(x[i] - x[j]), np.sign(y[i] - y[j])) for i, j in pairs]
    balance = sum(a * b for a, b in signs)
    untied = [sum(bool(pair[k]) for pair in signs) for k in (0, 1)]
    return balance / len(pairs), balance / np.sqrt(float(untied[0] * untied[1]))


# --- matrices


def test_rsm_is_the_formula():
    features = np.random.default_rng(0).normal(size=(6, 2, 5)) * 3 + 1
    flat = features.reshape(6, 10)
    centred = flat - flat.mean(0)
    std = centred.std(1) + 1e-7
    found = rsa.rsm(features)
    np.testing.assert_allclose(found, np.cov(centred, bias=True) / np.outer(std, std), atol=1e-12)
    cosine = [[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a in centred] for b in centred]
    np.testing.assert_allclose(rsa.rsm(features, "cosine"), cosine, atol=1e-12)
    distances = [[-np.linalg.norm(a - b) for a in flat] for b in flat]
    np.testing.assert_allclose(rsa.rsm(features, "euclidean"), distances, atol=1e-7)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), scale=st.floats(0.1, 100), n=st.integers(3, 9), d=st.integers(10, 30))
def test_rsm_ignores_a_common_factor_and_a_constant_of_each_feature(seed, scale, n, d):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, d))
    moved = scale * features + rng.normal(size=d) * 10
    # 1e-7 beside the standard deviation is all that a factor can change.
    np.testing.assert_allclose(rsa.rsm(moved), rsa.rsm(features), atol=1e-4)
    np.testing.assert_allclose(rsa.rsm(moved, "cosine"), rsa.rsm(features, "cosine"), atol=1e-8)


@pytest.mark.parametrize("metric", ["pearson", "cosine", "euclidean"])
def test_features_may_come_in_blocks(monkeypatch, metric):
    features = np.random.default_rng(0).normal(size=(5, 37)).astype(np.float32) + 3
    expected = rsa.rsm(features, metric)
    sums = FeatureSums(5)
    for start, stop in ((0, 10), (10, 11), (11, 37)):
        sums.add(features[:, start:stop])
    np.testing.assert_allclose(sums.similarity(metric), expected, atol=1e-12)
    monkeypatch.setattr("icl25_lp_conv.rsa_matrices._BLOCK", 20)
    np.testing.assert_allclose(rsa.rsm(features, metric), expected, atol=1e-12)


@pytest.mark.parametrize("metric", ["pearson", "cosine", "euclidean"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_features_are_an_error(metric, dtype):
    same = np.tile(np.random.default_rng(0).normal(size=30).astype(dtype), (5, 1))
    # Rounding alone is no variation.
    almost = same * (1 + np.finfo(dtype).eps * np.arange(5, dtype=dtype)[:, None] / 5)
    for features in (same, almost, np.zeros((5, 30), dtype)):
        with pytest.raises(rsa.ConstantFeaturesError, match="constant, up to rounding errors, for 5 of 5 stimuli"):
            rsa.rsm(features, metric)


def test_one_stimulus_without_variation_is_named():
    features = np.random.default_rng(0).normal(size=(5, 30))
    features[3] = features[[0, 1, 2, 4]].mean(0)  # all features at their mean
    with pytest.raises(rsa.ConstantFeaturesError, match="1 of 5 stimuli, first for stimulus 3"):
        rsa.rsm(features)
    assert np.isfinite(rsa.rsm(features, "euclidean")).all()


@pytest.mark.parametrize(
    ("features", "metric", "message"),
    [
        (np.zeros((2, 4)), "pearson", "features has 2 stimuli, expected at least 3"),
        (np.zeros((4, 0)), "pearson", "at least one feature"),
        (np.array([[1.0, 2], [3, 1], [np.nan, 4]]), "pearson", "NaN or infinities, first for stimulus 2"),
        (np.eye(4), "manhattan", "'manhattan', expected one of pearson, cosine, euclidean"),
    ],
)
def test_faulty_features_are_refused(features, metric, message):
    with pytest.raises(ValueError, match=message):
        rsa.rsm(features, metric)


# --- comparison


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(3, 7), levels=st.integers(2, 30))
def test_correlations_are_those_counted_by_hand(seed, n, levels):
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(levels, size=(n, n)).astype(float) for _ in range(2))
    a, b = a + a.T, b + b.T
    x, y = entries(a), entries(b)
    if x.min() == x.max() or y.min() == y.max():
        return
    tau_a, tau_b = count_taus(x, y)
    assert rsa.compare_rsm(a, b, "kendall_a") == tau_a
    assert rsa.compare_rsm(a, b, "kendall") == pytest.approx(tau_b, abs=1e-12)
    assert rsa.compare_rsm(a, b, "spearman") == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
    assert rsa.compare_rsm(a, b, "pearson") == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_an_rsm_is_like_itself_and_unlike_its_opposite(method):
    a = random_rsm()
    assert rsa.compare_rsm(a, a, method) == pytest.approx(1, abs=1e-14)
    assert rsa.compare_rsm(a, -a, method) == pytest.approx(-1, abs=1e-14)
    b = random_rsm(seed=1)
    b[np.diag_indices(N)] = np.nan  # the diagonal is not used
    assert rsa.compare_rsm(a, b, method) == rsa.compare_rsm(b, a, method)


@pytest.mark.parametrize("method", ["kendall", "kendall_a", "spearman"])
def test_ranks_ignore_strictly_increasing_maps(method):
    a, b = random_rsm(), random_rsm(seed=1, like=random_rsm())
    expected = rsa.compare_rsm(a, b, method)
    assert rsa.compare_rsm(np.exp(a), b**3 + 7, method) == pytest.approx(expected, abs=1e-14)
    assert rsa.compare_rsm(np.exp(a), b, "pearson") != pytest.approx(rsa.compare_rsm(a, b, "pearson"), abs=1e-3)


def with_value(value: float, i: int = 4, j: int = 2, symmetric: bool = True) -> np.ndarray:
    matrix = random_rsm()
    matrix[i, j] = value
    if symmetric:
        matrix[j, i] = value
    return matrix


@pytest.mark.parametrize(
    ("a", "b", "method", "message"),
    [
        (random_rsm(2), random_rsm(2), "kendall", "a has 2 stimuli, expected at least 3"),
        (random_rsm(), random_rsm(11), "kendall", "a has 12 stimuli, but b has 11"),
        (random_rsm(), with_value(np.nan), "kendall", "b: 1 pairs of stimuli .* NaN .* stimuli 4 and 2"),
        (random_rsm(), with_value(np.inf, symmetric=False), "kendall", "b: 1 pairs of stimuli"),
        (random_rsm(), with_value(np.nan, 2, 4, symmetric=False), "kendall", "b: 1 pairs .* stimuli 4 and 2"),
        (with_value(50, symmetric=False), random_rsm(), "kendall", r"a is not symmetric: 50 at \(4, 2\)"),
        (np.ones((4, 4)), random_rsm(4), "kendall", "a: all pairs of stimuli are equally similar"),
        (random_rsm(4), np.eye(4), "pearson", "b: all pairs of stimuli are equally similar"),
        (np.zeros((4, 5)), random_rsm(4), "kendall", r"a has shape \(4, 5\)"),
        (np.zeros((4, 4, 1)), random_rsm(4), "kendall", r"a has shape \(4, 4, 1\), expected \(n, n\)"),
        (random_rsm(), random_rsm(), "tau", "'tau', expected one of kendall, kendall_a, spearman, pearson"),
    ],
)
def test_faulty_rsms_are_refused(a, b, method, message):
    for compare in (rsa.compare_rsm, rsa.permutation_test, rsa.bootstrap):
        with pytest.raises(ValueError, match=message):
            compare(a, b, method=method)
