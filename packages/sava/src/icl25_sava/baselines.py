"""What SAVA is compared with, in the same API: LAVA, batch-wise LAVA, KNN-Shapley, nearest cost, chance."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Self

import numpy as np
from jaxtyping import Float, Integer

from icl25_sava.base import ValueEstimator, resolve_seed
from icl25_sava.embedders import make_embedder
from icl25_sava.gradients import batchwise_weights
from icl25_sava.inputs import read_labels, read_rows
from icl25_sava.pairs import blas_on_one_thread
from icl25_sava.sava import SAVA
from icl25_sava.validation_side import Settings

__all__ = ["LAVA", "BatchwiseLAVA", "KNNShapley", "NearestCost", "RandomValues", "knn_shapley"]


class LAVA(SAVA):
    """Value of every training row from one transport problem between the whole sets: SAVA with one batch a side.

    Args:
        max_memory_mb: refuse problems whose cost matrix and working arrays would take more, in MB.
        eps: entropic regularisation, or ``"auto"``.
        scaling: annealing factor.
        lambda_x: weight of the features.
        lambda_y: weight of the class distance.
        p: 2 or 1.
        embedder: as in ``SAVA``.
        label_distance: as in ``SAVA``.
        label_samples: most rows per class and side for W.
        solver: ``"annealed"``, ``"sinkhorn"`` or ``"emd"``.
        diameter: length scale at which annealing starts.
        device: as in ``SAVA``.
        dtype: ``"float32"`` or ``"float64"``.
        compat: ``"official"`` takes W from all rows and the diameter from raw inputs with the label.
        random_state: seed of the sample for W.
        verbose: 1 shows progress.

    Attributes:
        values_, scores_, ranking_, distance_, nearest_, nearest_cost_, label_distances_: as in ``SAVA``.

    Source: Just et al., "LAVA: Data Valuation without Pre-Specified Learning Algorithms", ICLR 2023.
    """

    def __init__(
        self,
        max_memory_mb: float = 2048,
        *,
        eps: float | str = 0.1,
        scaling: float = 0.5,
        lambda_x: float = 1.0,
        lambda_y: float = 1.0,
        p: int = 2,
        embedder: Any = None,
        label_distance: Any = "auto",
        label_samples: int = 256,
        solver: str = "annealed",
        diameter: Any = None,
        device: str = "cpu",
        dtype: str = "float32",
        compat: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            eps=eps,
            scaling=scaling,
            lambda_x=lambda_x,
            lambda_y=lambda_y,
            p=p,
            embedder=embedder,
            label_distance=label_distance,
            label_samples=label_samples,
            solver=solver,
            diameter=diameter,
            device=device,
            dtype=dtype,
            compat=compat,
            random_state=random_state,
            verbose=verbose,
        )
        self.max_memory_mb = max_memory_mb

    def fit(self, X: Any, y: Any = None, X_val: Any = None, y_val: Any = None) -> Self:
        """Value the training rows.

        Args:
            X: training rows, shape (N, d), see ``SAVA.fit``.
            y: training labels, shape (N,).
            X_val: validation rows, shape (M, d).
            y_val: validation labels, shape (M,).

        Returns:
            The estimator.

        Raises:
            ValueError: bad data, or a cost matrix over ``max_memory_mb``; the message gives its size.
            TypeError: a container of an unknown kind.
        """
        rows, y = read_rows(X, "X", y)
        val, y_val = read_rows(X_val, "X_val", y_val)
        needed = 2.2 * len(rows) * len(val) * np.dtype(self.dtype).itemsize / 1e6
        if needed > self.max_memory_mb:
            raise ValueError(
                f"LAVA needs about {needed:,.0f} MB for {len(rows):,} x {len(val):,} rows, over max_memory_mb = "
                f"{self.max_memory_mb:,.0f}: use SAVA, which works in batches"
            )
        return super().fit(
            rows.array.reshape(len(rows), *rows.sample_shape), y, val.array.reshape(len(val), *val.sample_shape), y_val
        )

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Not defined: the single problem holds all rows.

        Args:
            X: unused.
            y: unused.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("LAVA solves one problem over all rows: use SAVA to add rows")

    def _settings(self) -> Settings:
        return replace(super()._settings(), batch_size=None, batching="sequential")


class BatchwiseLAVA(SAVA):
    """Batch-wise LAVA: each batch's gradients squashed, normalised and averaged over validation batches.

    The parameters are those of ``SAVA``; ``outer``, ``outer_reg`` and ``between`` have no effect.

    Source: batch-wise baseline of SAVA (arXiv 2406.01130): s_k = mean_j u_kj / sum_l u_lj, u = (tanh(cg) + 1) / 2.
    """

    def _outer_plan(self, batch_costs: np.ndarray) -> Float[np.ndarray, "kt kv"]:
        return np.full(batch_costs.shape, 1 / batch_costs.size)

    def _scores(self, gradients: np.ndarray, number: int, offset: float) -> Float[np.ndarray, " b"]:
        return batchwise_weights(gradients).mean(axis=1)


class NearestCost(SAVA):
    """Value of a row by the label-augmented cost to the nearest validation row alone, without any transport.

    Nearly always as good at finding bad rows as SAVA, and cheaper; it gives no distance between the sets. The
    parameters are those of ``SAVA``; those of the solver and of the outer problem have no effect.

    Source: our baseline.
    """

    def _settings(self) -> Settings:
        settings = super()._settings()
        return replace(settings, recipe=replace(settings.recipe, potentials=False, device="cpu"))

    def _outer_plan(self, batch_costs: np.ndarray) -> Float[np.ndarray, "kt kv"]:
        return np.full(batch_costs.shape, 1 / batch_costs.size)

    def _finish(self) -> Self:
        super()._finish()
        self.values_ = -self.nearest_cost_
        del self.distance_
        return self


class KNNShapley(ValueEstimator):
    """Exact Shapley values of the unweighted k-nearest-neighbour utility, averaged over validation rows.

    Args:
        k: number of neighbours, >= 1.
        embedder: as in ``SAVA``.
        random_state: seed of the embedder.

    Attributes:
        values_: Shapley value of each row, shape (N,); they sum to the utility of the whole set.

    Source: Jia et al., "Efficient Task-Specific Data Valuation for Nearest Neighbor Algorithms", VLDB 2019, Theorem 1.
    """

    def __init__(self, k: int = 10, *, embedder: Any = None, random_state: Any = None) -> None:
        self.k = k
        self.embedder = embedder
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, X_val: Any = None, y_val: Any = None) -> Self:
        """Value the training rows.

        Args:
            X: training rows, shape (N, d), see ``SAVA.fit``.
            y: training labels, shape (N,).
            X_val: validation rows, shape (M, d).
            y_val: validation labels, shape (M,).

        Returns:
            The estimator.

        Raises:
            ValueError: bad data or ``k`` < 1.
            TypeError: a container of an unknown kind.
        """
        started = time.perf_counter()
        rows, y = read_rows(X, "X", y)
        val, y_val = read_rows(X_val, "X_val", y_val)
        labels, val_labels = read_labels(y, len(rows), "y"), read_labels(y_val, len(val), "y_val")
        if rows.n_features != val.n_features:
            raise ValueError(f"X has {rows.n_features} features, X_val has {val.n_features}")
        shape = val.sample_shape if len(val.sample_shape) > 1 else None
        seed = resolve_seed(self.random_state)
        embedder = make_embedder(self.embedder, random_state=seed, image_shape=shape)
        embedder.fit(val.array, val_labels)
        features = np.concatenate([embedder.transform(chunk) for _, chunk in rows.chunks()])
        self.values_ = knn_shapley(features, labels, np.asarray(embedder.transform(val.array)), val_labels, self.k)
        self.labels_, self.classes_ = labels, np.unique(labels)
        self.n_features_in_ = rows.n_features
        self.timings_ = {"solve": time.perf_counter() - started}
        return self


def knn_shapley(
    X: Float[np.ndarray, "n d"] | Integer[np.ndarray, "n d"],
    y: np.ndarray,
    X_val: Float[np.ndarray, "m d"] | Integer[np.ndarray, "m d"],
    y_val: np.ndarray,
    k: int = 10,
) -> Float[np.ndarray, " n"]:
    """Exact Shapley values of the utility "share of the min(k, |S|) nearest rows of S that match, over k".

    Args:
        X: training rows, shape (n, d).
        y: training labels, shape (n,).
        X_val: validation rows, shape (m, d).
        y_val: validation labels, shape (m,).
        k: number of neighbours, >= 1.

    Returns:
        Values, shape (n,), mean over the validation rows. Memory is bounded: a few validation rows at a time.

    Raises:
        ValueError: ``k`` < 1.

    Source: Jia et al., VLDB 2019, Theorem 1; for n < k the recursion starts from min(k, n) / k shares.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    n, m = len(X), len(X_val)
    centre = X_val.mean(axis=0, dtype=np.float64)
    A, B = X - centre, X_val - centre
    norms = np.einsum("ij,ij->i", A, A)
    values = np.zeros(n)
    position = np.arange(1, n)
    factor = np.minimum(k, position) / (k * position)
    step = max(1, (1 << 22) // n)
    with blas_on_one_thread():
        for start in range(0, m, step):
            D = norms - 2 * B[start : start + step] @ A.T
            order = np.argsort(D, axis=1, kind="stable")
            match = (y[order] == y_val[start : start + step, None]).astype(np.float64)
            shapley = np.empty_like(match)
            shapley[:, -1] = match[:, -1] * min(k, n) / (k * n)
            differences = (match[:, :-1] - match[:, 1:]) * factor
            shapley[:, :-1] = shapley[:, -1:] + np.cumsum(differences[:, ::-1], axis=1)[:, ::-1]
            for row_order, row_values in zip(order, shapley, strict=True):
                values[row_order] += row_values
    return values / m


class RandomValues(ValueEstimator):
    """Values drawn at random: the level that a method must beat.

    Args:
        random_state: seed.

    Source: our baseline.
    """

    def __init__(self, *, random_state: Any = None) -> None:
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, X_val: Any = None, y_val: Any = None) -> Self:
        """Draw a value for each row.

        Args:
            X: training rows, shape (N, d); only their number counts.
            y: training labels, shape (N,); zeros when None.
            X_val: unused.
            y_val: unused.

        Returns:
            The estimator.

        Raises:
            ValueError: bad data.
        """
        rows, y = read_rows(X, "X", y)
        self.labels_ = read_labels(y, len(rows), "y", ignored=True)
        self.classes_ = np.unique(self.labels_)
        self.values_ = np.random.default_rng(resolve_seed(self.random_state)).random(len(rows))
        self.n_features_in_ = rows.n_features
        self.timings_ = {}
        return self
