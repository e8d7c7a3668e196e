from __future__ import annotations

import numpy as np
import pytest

from icl25_sava import datasets
from icl25_sava.datasets import augmented_digits, load_digits_split, make_gaussians


def test_digits_are_cut_into_three_disjoint_parts():
    split = load_digits_split(1000, 400, seed=0)
    assert [len(part.y) for part in split] == [1000, 400, 397]
    assert all(part.X.shape == (len(part.y), 64) and part.X.dtype == np.float32 for part in split)
    everything = np.concatenate([part.X for part in split])
    assert everything.min() == 0
    assert everything.max() == 1
    again = load_digits_split(1000, 400, seed=0)
    assert np.array_equal(again.train.X, split.train.X)
    assert not np.array_equal(load_digits_split(1000, 400, seed=1).train.X, split.train.X)
    with pytest.raises(ValueError, match="leave one of the 1797 digits"):
        load_digits_split(1500, 400)


def rows(X):
    return {row.tobytes() for row in np.round(X * 16).astype(np.int8)}


def test_augmented_digits_share_no_original(monkeypatch):
    for bound in ("_MAX_ANGLE", "_MAX_LOG_SCALE", "_MAX_SHIFT"):  # unmoved, a copy shows which original it is of
        monkeypatch.setattr(datasets, bound, 0.0)
    split, originals = augmented_digits(1500, 600, seed=0), load_digits_split(1000, 400, seed=0)
    train, val, test = (rows(part.X) for part in split)
    assert train == rows(originals.train.X)
    assert val == rows(originals.val.X)
    assert test == rows(originals.test.X)
    assert not train & val
    assert not (train | val) & test


def test_augmented_digits_are_moved_seeded_and_in_range():
    split = augmented_digits(1500, 600, seed=0)
    assert [len(part.y) for part in split] == [1500, 600, 397]
    assert split.train.X.min() >= 0
    assert split.train.X.max() <= 1
    assert len(rows(split.train.X)) > 1400
    assert np.array_equal(augmented_digits(1500, 600, seed=0).train.X, split.train.X)


def test_gaussians_have_the_sizes_asked_for():
    split = make_gaussians(300, 80, n_classes=4, n_features=6, seed=2)
    assert split.train.X.shape == (300, 6)
    assert split.val.X.shape == (80, 6)
    assert set(np.unique(split.train.y)) == set(range(4))
    again = make_gaussians(300, 80, n_classes=4, n_features=6, seed=2)
    assert np.array_equal(again.train.X, split.train.X)
