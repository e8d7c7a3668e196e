from __future__ import annotations

import numpy as np
import pytest

from icl25_sava import prune_mask, ranking

VALUES = np.array([0.5, -2.0, 0.1, -2.0, 3.0, 0.2])
LABELS = np.array(["a", "a", "a", "b", "b", "b"])


def test_ranking_is_stable_for_ties():
    assert ranking(VALUES).tolist() == [1, 3, 2, 5, 0, 4]


def test_a_value_that_is_missing_has_no_rank():
    with pytest.raises(ValueError, match="2 values are NaN, first at row 1"):
        ranking(np.array([0.5, np.nan, 1.0, np.nan]))


def test_fraction_threshold_and_budget():
    assert np.flatnonzero(prune_mask(VALUES, fraction=0.5)).tolist() == [1, 2, 3]
    assert np.flatnonzero(prune_mask(VALUES, threshold=0.15)).tolist() == [1, 2, 3]
    assert np.flatnonzero(prune_mask(VALUES, n=5)).tolist() == [1]
    assert not prune_mask(VALUES, fraction=0).any()
    assert not prune_mask(VALUES, n=6).any()


def test_per_class_keeps_proportions_and_the_exact_number():
    labels = np.repeat([0, 1, 2], [50, 30, 21])
    mask = prune_mask(np.random.default_rng(0).random(101), n=70, labels=labels)
    assert mask.sum() == 31
    assert np.abs(np.bincount(labels[mask]) - 31 * np.array([50, 30, 21]) / 101).max() < 1
    assert np.flatnonzero(prune_mask(VALUES, fraction=1 / 3, labels=LABELS)).tolist() == [1, 3]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fraction": 0.1, "n": 3},
        {"fraction": 1.0},
        {"fraction": -0.1},
        {"n": 0},
        {"n": 7},
        {"threshold": 0.0, "labels": LABELS},
        {"fraction": 0.5, "labels": LABELS[:3]},
    ],
)
def test_bad_requests_are_refused(options):
    with pytest.raises(ValueError):  # noqa: PT011  each message names its own option
        prune_mask(VALUES, **options)
