from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from icl25_lp_conv import rsa

METHODS = ["kendall", "kendall_a", "spearman", "pearson"]
N = 12


def random_rsm(n: int = N, seed: int = 0, like: np.ndarray | None = None, noise: float = 1.0) -> np.ndarray:
    """A symmetric matrix of noise, added to another."""
    draw = noise * np.random.default_rng(seed).normal(size=(n, n))
    return draw + draw.T + (0 if like is None else like)


def entries(matrix: np.ndarray) -> np.ndarray:
    return matrix[np.tril_indices(len(matrix), -1)]


@pytest.fixture
def sessions() -> np.ndarray:
    return np.stack([random_rsm(seed=k, like=random_rsm(seed=99)) for k in range(5)], axis=2)


# --- noise ceilings


def test_ceiling_compares_each_session_with_the_mean_of_the_others(sessions):
    found = rsa.noise_ceiling(sessions)
    expected = [
        stats.kendalltau(entries(sessions[:, :, k]), entries(sessions[:, :, [j for j in range(5) if j != k]].mean(2)))
        for k in range(5)
    ]
    np.testing.assert_allclose(found, [tau.statistic for tau in expected], atol=1e-12)
    pearson = rsa.noise_ceiling(sessions, compare="pearson")
    others = entries(sessions[:, :, 1:].mean(2))
    assert pearson[0] == pytest.approx(np.corrcoef(entries(sessions[:, :, 0]), others)[0, 1], abs=1e-12)


def test_split_halves_are_halves(sessions):
    found = rsa.noise_ceiling(sessions, "split-half", compare="spearman", seed=1, n_splits=40)
    assert found.shape == (40,)
    possible = []
    for half in itertools.combinations(range(5), 2):
        rest = [k for k in range(5) if k not in half]
        halves = [entries(sessions[:, :, list(part)].mean(2)) for part in (half, rest)]
        possible.append(stats.spearmanr(*halves).statistic)
    gaps = np.abs(found[:, None] - possible)
    assert gaps.min(axis=1).max() < 1e-12
    assert len(set(gaps.argmin(axis=1))) == 10  # all ten ways to halve five sessions are drawn
    np.testing.assert_array_equal(
        found, rsa.noise_ceiling(sessions, "split-half", compare="spearman", seed=1, n_splits=40)
    )
    assert not np.array_equal(found, rsa.noise_ceiling(sessions, "split-half", "spearman", seed=2, n_splits=40))


@pytest.mark.parametrize("method", ["loo", "split-half"])
def test_sessions_that_agree_have_the_ceiling_one(method):
    same = np.repeat(random_rsm()[:, :, None], 4, axis=2)
    np.testing.assert_allclose(rsa.noise_ceiling(same, method), 1, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rsm_sessions": np.ones((4, 4, 1))}, "at least 2 sessions, found 1"),
        ({"rsm_sessions": np.ones((4, 4))}, "at least 2 sessions, found 1"),
        ({"rsm_sessions": np.full((4, 4, 3), np.nan)}, "session 0: 6 pairs of stimuli have NaN"),
        ({"rsm_sessions": np.ones((4, 4, 3))}, "equally similar"),
        ({"method": "jackknife"}, "'jackknife' of a noise ceiling, expected 'loo' or 'split-half'"),
        ({"compare": "tau"}, "unknown method 'tau'"),
        ({"method": "split-half", "n_splits": 0}, "n_splits must be >= 1"),
    ],
)
def test_faulty_sessions_are_refused(sessions, change, message):
    with pytest.raises(ValueError, match=message):
        rsa.noise_ceiling(**{"rsm_sessions": sessions, **change})


# --- permutation test


@pytest.mark.parametrize("method", METHODS)
def test_null_is_what_shuffled_rsms_give(method):
    a, b = random_rsm(5), random_rsm(5, seed=1, like=random_rsm(5))
    found = rsa.permutation_test(a, b, 60, method)
    possible = {
        round(rsa.compare_rsm(a[np.ix_(order, order)], b, method), 10)
        for order in map(list, itertools.permutations(range(5)))
    }
    assert {round(value, 10) for value in found.null} <= possible
    assert len(set(found.null.round(10))) > len(possible) / 4
    assert found.observed == pytest.approx(rsa.compare_rsm(a, b, method), abs=1e-14)
    assert found.p_value == (1 + (found.null > found.observed - 1e-9).sum()) / 61


@pytest.mark.parametrize("method", ["kendall", "spearman"])
def test_related_rsms_are_told_from_unrelated_ones(method):
    a = random_rsm()
    related = rsa.permutation_test(a, random_rsm(seed=1, like=a, noise=0.5), 199, method)
    assert related.p_value == 1 / 200
    # The test holds its level: of unrelated pairs about one in ten has a p-value up to 0.1.
    p = np.array([rsa.permutation_test(a, random_rsm(seed=k), 39, method, seed=k).p_value for k in range(100, 140)])
    assert 0 < (p <= 0.1).sum() < 12
    assert 0.35 < p.mean() < 0.65


@pytest.mark.parametrize("method", METHODS)
def test_shuffles_that_change_nothing_reach_the_observed_value(method):
    """With one stimulus apart from the others, a shuffle that leaves it in place gives the same value."""
    a = np.zeros((4, 4))
    a[0] = a[:, 0] = 1
    found = rsa.permutation_test(a, a, 400, method)
    assert 0.2 < found.p_value < 0.3


def test_draws_depend_on_the_seed_alone():
    a, b = random_rsm(), random_rsm(seed=1)
    for function, name in ((rsa.permutation_test, "null"), (rsa.bootstrap, "samples")):
        one = getattr(function(a, b, 120, seed=5), name)
        np.testing.assert_array_equal(one, getattr(function(a, b, 120, seed=5, n_jobs=2), name))
        np.testing.assert_array_equal(one, getattr(function(a, b, 120, seed=5), name))
        assert not np.array_equal(one, getattr(function(a, b, 120, seed=6), name))
        generator = np.random.default_rng(0)
        assert not np.array_equal(
            getattr(function(a, b, 120, seed=generator), name), getattr(function(a, b, 120, seed=generator), name)
        )


# --- bootstrap


@pytest.mark.parametrize("method", METHODS)
def test_samples_leave_out_pairs_of_a_stimulus_with_itself(method):
    """Of an RSM with itself every sample is 1; a pair of a stimulus with itself would be an outlier in one of two."""
    a = random_rsm()
    b = a.copy()
    np.fill_diagonal(a, 1e3)
    np.fill_diagonal(b, -1e3)
    found = rsa.bootstrap(a, b, 60, method)
    if method == "kendall_a":
        # Stimuli drawn twice make ties, which tau-a counts against the similarity.
        assert 0.8 < found.samples.min() < 1
    else:
        np.testing.assert_allclose(found.samples, 1, atol=1e-12)


def test_interval_covers_the_observed_and_narrows_with_more_stimuli():
    widths = {}
    for n in (12, 48):
        a = random_rsm(n)
        found = rsa.bootstrap(a, random_rsm(n, seed=1, like=a), 100, "spearman", confidence=0.8)
        assert found.low < found.observed < found.high
        low, high = np.quantile(found.samples, [0.1, 0.9])
        assert (found.low, found.high) == pytest.approx((low, high))
        assert found.std == pytest.approx(found.samples.std())
        assert found.n_undefined == 0
        widths[n] = high - low
    assert widths[48] < widths[12] / 2


def test_samples_without_a_similarity_are_counted():
    with pytest.warns(UserWarning, match=r"\d+ of 200 bootstrap samples of 3 stimuli define no similarity"):
        found = rsa.bootstrap(random_rsm(3), random_rsm(3, seed=1), 200)
    # Three different stimuli must be drawn, which 6 of the 27 draws of three are.
    assert found.n_undefined == np.isnan(found.samples).sum()
    assert found.n_undefined / 200 == pytest.approx(21 / 27, abs=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_samples": 0}, "n_samples must be >= 1"),
        ({"confidence": 1.0}, "confidence must lie between 0 and 1"),
        ({"n_samples": 1, "seed": 1}, "none of 1 bootstrap samples of 3 stimuli"),
    ],
)
def test_faulty_bootstraps_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        rsa.bootstrap(random_rsm(3), random_rsm(3, seed=1), **options)


# --- tables


@pytest.fixture
def table() -> pd.DataFrame:
    rows = [
        ("late", "V1", 0, 0.1),
        ("late", "V1", 1, 0.4),
        ("late", "V1", 2, 0.2),
        ("late", "V2", 0, 0.9),
        ("early", "V1", 0, 0.3),
        ("early", "V1", 1, 0.3),
        ("early", "V1", 2, 0.6),
        ("early", "V2", 0, 0.8),
    ]
    found = pd.DataFrame(rows, columns=["layer", "area", "session", "ssm"])
    return found.assign(corrected=found["ssm"] / found["area"].map({"V1": 0.5, "V2": 1.0}))


def test_summary_is_the_median_over_sessions_by_the_median_ceiling(table):
    summary = rsa.summarize(table)
    assert summary[["layer", "area"]].to_numpy().tolist() == [
        ["late", "V1"],
        ["late", "V2"],
        ["early", "V1"],
        ["early", "V2"],
    ]
    assert summary["n_sessions"].tolist() == [3, 1, 3, 1]
    assert summary["ssm"].tolist() == pytest.approx([0.2, 0.9, 0.3, 0.8])
    assert summary["corrected"].tolist() == pytest.approx([0.4, 0.9, 0.6, 0.8])
    std = np.std([0.1, 0.4, 0.2])
    assert summary["std"].tolist() == pytest.approx([std, np.nan, np.std([0.3, 0.3, 0.6]), np.nan], nan_ok=True)
    assert summary["error"][0] == pytest.approx(std / 0.5 / 2)
    other = rsa.summarize(table, {"V1": np.array([0.1, 0.25, 5.0]), "V2": np.array([2.0]), "unused": np.ones(2)})
    assert other["corrected"].tolist() == pytest.approx([0.8, 0.45, 1.2, 0.4])
    assert other["error"][0] == pytest.approx(std / 0.25 / 2)


def test_score_of_a_network_is_its_best_layer(table):
    for source in (table, rsa.summarize(table)):
        best = rsa.best_layers(source)
        assert best[["layer", "area"]].to_numpy().tolist() == [["early", "V1"], ["late", "V2"]]
        assert best["corrected"].tolist() == pytest.approx([0.6, 0.9])


def test_tables_that_lack_something_are_refused(table):
    with pytest.raises(ValueError, match="table lacks the columns session, ssm"):
        rsa.summarize(table.drop(columns=["session", "ssm"]))
    with pytest.raises(ValueError, match="summary lacks the columns"):
        rsa.best_layers(pd.DataFrame({"layer": ["a"]}))
    with pytest.raises(ValueError, match="area 'V2' has no noise ceilings"):
        rsa.summarize(table, {"V1": np.ones(2)})


# --- rsatoolbox


@pytest.mark.extra
def test_rsatoolbox_reads_the_same_dissimilarities():
    from rsatoolbox.rdm import compare

    a, b = random_rsm(), random_rsm(seed=1)
    rdms = rsa.to_rsatoolbox({"conv1": a, "V1": b})
    np.testing.assert_allclose(rdms.get_matrices(), np.stack([(1 - m) * (1 - np.eye(N)) for m in (a, b)]), atol=1e-12)
    assert list(rdms.rdm_descriptors["name"]) == ["conv1", "V1"]
    for method, theirs in (("kendall", "tau-b"), ("kendall_a", "tau-a"), ("spearman", "spearman"), ("pearson", "corr")):
        assert compare(rdms[0], rdms[1], method=theirs)[0, 0] == pytest.approx(rsa.compare_rsm(a, b, method), abs=1e-9)


@pytest.mark.extra
@pytest.mark.parametrize(
    ("rsms", "message"),
    [
        ({}, "rsms is empty"),
        ({"a": random_rsm(4), "b": random_rsm(5)}, "these numbers of them: {'a': 4, 'b': 5}"),
        ({"a": np.triu(random_rsm(4))}, "RSM 'a' is not symmetric"),
    ],
)
def test_faulty_rsms_are_not_handed_on(rsms, message):
    with pytest.raises(ValueError, match=message):
        rsa.to_rsatoolbox(rsms)


def test_missing_rsatoolbox_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rsatoolbox.rdm", None)
    with pytest.raises(ImportError, match=r"pip install 'icl25-lp-conv\[rsatoolbox\]'"):
        rsa.to_rsatoolbox({"a": random_rsm()})
