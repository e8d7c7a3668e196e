from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icl25_sava.batching import make_batches


@given(
    n=st.integers(2, 300),
    batch_size=st.integers(2, 60),
    classes=st.integers(1, 6),
    batching=st.sampled_from(["stratified", "shuffle", "sequential", "contiguous"]),
    seed=st.integers(0, 100),
)
def test_every_row_is_in_one_batch_and_no_batch_is_too_small(n, batch_size, classes, batching, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        batches = make_batches(y, batch_size, batching=batching, rng=rng)
    assert np.array_equal(np.sort(np.concatenate(batches)), np.arange(n))
    sizes = [len(batch) for batch in batches]
    assert min(sizes) >= 2
    assert max(sizes) <= batch_size + 1
    if batching != "contiguous":
        assert max(sizes) - min(sizes) <= 1


def test_stratified_batches_hold_each_class_in_proportion():
    rng = np.random.default_rng(0)
    y = np.sort(rng.choice(4, 2000, p=[0.5, 0.3, 0.15, 0.05]))
    share = np.bincount(y) / 2000
    for batch in make_batches(y, 200, rng=rng):
        assert np.abs(np.bincount(y[batch], minlength=4) - share * len(batch)).max() <= 2


def test_contiguous_batches_keep_full_batches_and_the_tail():
    sizes = [len(b) for b in make_batches(np.zeros(60, int), 32, batching="contiguous")]
    assert sizes == [32, 28]
    assert [len(b) for b in make_batches(np.zeros(65, int), 32, batching="contiguous")] == [32, 33]


def test_rows_sorted_by_class_are_warned_about():
    y = np.repeat(np.arange(4), 100)
    with pytest.warns(UserWarning, match="label changes only 3 times"):
        make_batches(y, 50, batching="sequential")


def test_the_seed_decides(sets):
    first, second, other = (make_batches(sets.y, 50, rng=np.random.default_rng(s)) for s in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_bad_sizes_are_refused():
    y = np.zeros(10, int)
    with pytest.raises(ValueError, match="batch_size must be at least 2"):
        make_batches(y, 1)
    with pytest.raises(ValueError, match="at least 2 rows"):
        make_batches(y[:1], 4)
    with pytest.raises(ValueError, match="batching must be one of"):
        make_batches(y, 4, batching="random")
    with pytest.raises(ValueError, match="needs a generator"):
        make_batches(y, 4, batching="shuffle")
