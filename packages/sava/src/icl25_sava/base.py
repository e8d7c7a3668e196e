"""What every estimator of row values has in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from jaxtyping import Bool, Float, Integer
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from icl25_sava.selection import prune_mask, ranking

__all__ = ["ValueEstimator", "resolve_seed"]


class ValueEstimator(BaseEstimator):
    """Estimator that gives each training row a value, higher for rows that help.

    After ``fit``: ``values_`` (n,), ``scores_`` (n,) = ``-values_`` (the sign of the paper: high is harmful),
    ``ranking_`` (n,) row numbers from the worst, ``labels_`` (n,), ``classes_``, ``n_features_in_``, ``timings_``.
    """

    values_: Float[np.ndarray, " n"]
    labels_: np.ndarray

    @abstractmethod
    def fit(self, X: Any, y: Any = None, X_val: Any = None, y_val: Any = None) -> Self:
        """Value the training rows.

        Args:
            X: training rows, shape (n, d).
            y: training labels, shape (n,).
            X_val: validation rows, shape (m, d).
            y_val: validation labels, shape (m,).

        Returns:
            The estimator.

        Raises:
            ValueError: bad data, or a parameter out of range.
            TypeError: a container of an unknown kind.
        """

    @property
    def scores_(self) -> Float[np.ndarray, " n"]:
        """Harm of each row, shape (n,): the negative value."""
        check_is_fitted(self, "values_")
        return -self.values_

    @property
    def ranking_(self) -> Integer[np.ndarray, " n"]:
        """Row numbers from the worst value to the best, shape (n,); equal values keep their order."""
        check_is_fitted(self, "values_")
        return ranking(self.values_)

    def prune_mask(
        self,
        fraction: float | None = None,
        *,
        threshold: float | None = None,
        n: int | None = None,
        per_class: bool = False,
    ) -> Bool[np.ndarray, " n"]:
        """Which rows to prune; see ``icl25_sava.prune_mask``.

        Args:
            fraction: share of the rows to prune, in [0, 1).
            threshold: prune rows whose value is below it.
            n: number of rows to keep.
            per_class: prune the same share of every class.

        Returns:
            Mask, shape (n,), True for rows to prune.

        Raises:
            ValueError: none or several of the three are given, or one is out of range.
            NotFittedError: before ``fit``.
        """
        check_is_fitted(self, "values_")
        labels = self.labels_ if per_class else None
        return prune_mask(self.values_, fraction=fraction, threshold=threshold, n=n, labels=labels)

    def select(
        self,
        fraction: float | None = None,
        *,
        threshold: float | None = None,
        n: int | None = None,
        per_class: bool = False,
    ) -> Integer[np.ndarray, " k"]:
        """Row numbers to keep, ascending: the complement of ``prune_mask``.

        Args:
            fraction: share of the rows to prune, in [0, 1).
            threshold: prune rows whose value is below it.
            n: number of rows to keep.
            per_class: prune the same share of every class.

        Returns:
            Row numbers, shape (k,).

        Raises:
            ValueError: none or several of the three are given, or one is out of range.
            NotFittedError: before ``fit``.
        """
        return np.flatnonzero(~self.prune_mask(fraction, threshold=threshold, n=n, per_class=per_class))


def resolve_seed(random_state: Any) -> int:
    """An integer seed from what scikit-learn calls ``random_state``.

    Args:
        random_state: integer, ``np.random.Generator``, ``np.random.RandomState``, or None for a fresh seed.

    Returns:
        Seed in 0 .. 2**31 - 1.

    Raises:
        ValueError: a negative integer.
        TypeError: any other kind.
    """
    if random_state is None:
        random_state = np.random.default_rng()
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        if random_state < 0:
            raise ValueError(f"random_state must not be negative, got {random_state}")
        return int(random_state)
    raise TypeError(f"random_state must be an integer, a generator or None, got {type(random_state).__name__}")
