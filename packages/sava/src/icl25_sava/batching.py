"""Cutting rows into batches: stratified by default, because values compare rows within a batch only."""

from __future__ import annotations

import warnings
from typing import Literal, get_args

import numpy as np
from jaxtyping import Integer

__all__ = ["Batching", "make_batches"]

Batching = Literal["stratified", "shuffle", "sequential", "contiguous"]


def make_batches(
    y: Integer[np.ndarray, " n"],
    batch_size: int,
    *,
    batching: str = "stratified",
    rng: np.random.Generator | None = None,
    min_rows: int = 2,
) -> list[Integer[np.ndarray, " b"]]:
    """Row numbers of each batch; together they hold every row once.

    Args:
        y: class ids, shape (n,).
        batch_size: most rows of a batch, >= 2. Sizes differ by at most one row, so no tail of a few rows is left; to
            keep ``min_rows`` in every batch a batch may exceed ``batch_size`` by one row.
        batching: ``"stratified"`` (every batch has each class in proportion), ``"shuffle"`` (random order),
            ``"sequential"`` (the order given), ``"contiguous"`` (the order given in full batches and a tail, as in the
            authors' code; a tail shorter than ``min_rows`` joins the batch before it).
        rng: generator of the random orders; needed by ``"stratified"`` and ``"shuffle"``.
        min_rows: fewest rows of a batch: 2 for training rows, 1 for validation rows.

    Returns:
        Arrays of row numbers, one per batch.

    Raises:
        ValueError: ``batch_size`` < 2, no rows, fewer rows than ``min_rows``, unknown ``batching``, or no generator.

    Warns:
        UserWarning: the order given is kept although it is sorted by class, which inverts the values.

    Source: SAVA (arXiv 2406.01130), batches of both sets; balanced sizes and stratification are ours.
    """
    n = len(y)
    if batch_size < 2:
        raise ValueError(f"batch_size must be at least 2, got {batch_size}")
    if n < min_rows:
        raise ValueError(f"at least {min_rows} rows are needed, got {n}")
    if batching not in get_args(Batching):
        raise ValueError(f"batching must be one of {', '.join(get_args(Batching))}, got {batching!r}")
    if batching == "contiguous":
        starts = [*range(0, n, batch_size)]
        if len(starts) > 1 and n - starts[-1] < min_rows:
            starts.pop()
        return np.split(np.arange(n), starts[1:])
    n_batches = max(1, min(-(-n // batch_size), n // min_rows))
    if batching == "sequential":
        if n_batches > 1:
            _warn_if_sorted(y, batch_size)
        order = np.arange(n)
    elif rng is None:
        raise ValueError(f"batching {batching!r} draws at random and needs a generator")
    elif batching == "shuffle":
        order = rng.permutation(n)
    else:
        order = _stratified_order(y, rng)
    return np.array_split(order, n_batches)


def _stratified_order(y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows sorted by (random rank within the class + uniform) / class size: any stretch is a fair sample of classes."""
    n = len(y)
    shuffled = rng.permutation(n)
    by_class = shuffled[np.argsort(y[shuffled], kind="stable")]
    counts = np.bincount(y)
    ends = np.cumsum(counts)
    rank = np.arange(n) - np.repeat(ends - counts, counts)
    position = (rank + rng.random(n)) / np.repeat(counts, counts)
    return by_class[np.argsort(position, kind="stable")]


def _warn_if_sorted(y: np.ndarray, batch_size: int) -> None:
    changes = int(np.count_nonzero(np.diff(y)))
    n_classes = len(np.unique(y))
    expected = (len(y) - 1) * (1 - np.sum((np.bincount(y) / len(y)) ** 2))
    if n_classes > 1 and changes < 0.2 * expected:
        warnings.warn(
            f"batching keeps the order of rows, but the label changes only {changes} times in {len(y)} rows: batches "
            f'of {batch_size} rows then hold few classes and values can invert; use batching="stratified"',
            UserWarning,
            stacklevel=4,
        )
