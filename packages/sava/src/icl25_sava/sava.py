"""SAVA: values of training rows from a hierarchy of small transport problems between batches."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from jaxtyping import Float
from sklearn.utils.validation import check_is_fitted

from icl25_sava.base import ValueEstimator, resolve_seed
from icl25_sava.outer import harm_scores, outer_plan
from icl25_sava.pairs import Recipe
from icl25_sava.store import Store
from icl25_sava.validation_side import Settings
from icl25_sava.valuation import Valuation

__all__ = ["SAVA", "dataset_distance"]


class SAVA(ValueEstimator):
    """Value of every training row: how much it brings the training set closer to a clean validation set.

    Both sets are cut into batches. For each pair of batches an entropic transport problem under the label-augmented
    cost c = lambda_x ||x - x'||^2 / 2 + lambda_y W[y, y'] / 2 gives calibrated gradients cg^(ij); an outer transport
    problem between the batches weighs them: s_k = K_t sum_j Pi_ij cg_k^(ij). The value is -s_k. Memory holds one batch
    pair, whatever the number of rows.

    Args:
        batch_size: most rows of a batch, >= 2. Larger is more faithful to LAVA and costs memory quadratically.
        eps: entropic regularisation, in units of the cost; ``"auto"`` takes a thousandth of the median cost.
        scaling: annealing factor in (0, 1).
        outer_reg: regularisation of the outer problem, on costs divided by their largest.
        lambda_x: weight of the features, >= 0.
        lambda_y: weight of the class distance, >= 0; 0 leaves labels out.
        p: 2 for half the squared distance, 1 for the plain distance.
        embedder: None (features as given), a callable, a scikit-learn transformer, or a name such as ``"pca:32"``,
            ``"mlp"``; see ``icl25_sava.make_embedder``. Values are only as good as this.
        label_distance: how class distances W come about: ``"auto"``, ``"sample"``, ``"gaussian"``, ``"means"``,
            ``"none"``, ``"first_batch"``, ``"per_pair"``, or an array (K, K) in the order of the sorted classes.
        label_samples: most rows per class and side for W.
        batching: ``"stratified"`` (default; values compare rows within a batch only), ``"shuffle"``, ``"sequential"``.
        solver: ``"annealed"`` (default); ``"sinkhorn"`` and ``"emd"`` converge and detect worse.
        outer: ``"ot"``, or ``"uniform"`` weights for all pairs of batches.
        batch_cost: ``"dual"`` (free) or ``"plan"`` (the cost of a further Sinkhorn plan, as in the authors' code).
        between: weight of the difference between batches: adds between * (sum_j K_t Pi_ij Cbar_ij - mean) to s_k.
        diameter: length scale at which annealing starts, a number or an array (K_t, K_v); from each pair when None.
        n_jobs: workers of joblib; inside ``joblib.parallel_config(backend="dask")`` those of a Dask cluster.
        device: ``"cpu"`` (NumPy); ``"cuda"``, ``"cuda:N"``, ``"mps"``, ``"auto"`` solve many pairs at once in PyTorch.
        dtype: ``"float32"`` or ``"float64"``.
        store: folder in which solved batches are kept; a run that broke off goes on from there.
        compat: ``"official"`` reproduces the authors' code with its faults: order of the file, W from the first
            batches, plan cost of raw inputs over the number of rows, diameter of raw inputs with the label.
        random_state: seed of batches and samples.
        verbose: 1 shows progress on standard error.

    Attributes:
        values_: value of each row, shape (N,), higher is better. Also ``scores_ = -values_`` and ``ranking_``.
        batch_costs_: transport cost of each pair of batches, shape (K_t, K_v).
        outer_plan_: weights of the pairs, shape (K_t, K_v), sum 1.
        label_distances_: W, shape (K, K), by position in ``classes_``; NaN where a class has no rows on that side.
        batch_index_: batch of each row, shape (N,).
        nearest_: number of the nearest validation row under the augmented cost, shape (N,); ``nearest_cost_`` its cost.
        distance_: the hierarchical transport distance between the two sets.
        classes_, labels_, n_features_in_, timings_: as their names say.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> y, y_val = np.arange(200) % 2, np.arange(80) % 2
        >>> X = rng.normal(size=(200, 4)) + 4 * y[:, None]
        >>> X_val = rng.normal(size=(80, 4)) + 4 * y_val[:, None]
        >>> y[:5] = 1 - y[:5]
        >>> model = SAVA(batch_size=64, random_state=0).fit(X, y, X_val, y_val)
        >>> sorted(model.ranking_[:5].tolist())
        [0, 1, 2, 3, 4]

    Source: Kessler, Le and Nguyen, "SAVA: Scalable Learning-Agnostic Data Valuation", ICLR 2025 (arXiv 2406.01130).
    """

    def __init__(
        self,
        batch_size: int = 1024,
        *,
        eps: float | str = 0.1,
        scaling: float = 0.5,
        outer_reg: float = 1e-2,
        lambda_x: float = 1.0,
        lambda_y: float = 1.0,
        p: int = 2,
        embedder: Any = None,
        label_distance: Any = "auto",
        label_samples: int = 256,
        batching: str = "stratified",
        solver: str = "annealed",
        outer: str = "ot",
        batch_cost: str = "dual",
        between: float = 0.0,
        diameter: Any = None,
        n_jobs: int | None = None,
        device: str = "cpu",
        dtype: str = "float32",
        store: str | Path | None = None,
        compat: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.batch_size = batch_size
        self.eps = eps
        self.scaling = scaling
        self.outer_reg = outer_reg
        self.lambda_x = lambda_x
        self.lambda_y = lambda_y
        self.p = p
        self.embedder = embedder
        self.label_distance = label_distance
        self.label_samples = label_samples
        self.batching = batching
        self.solver = solver
        self.outer = outer
        self.batch_cost = batch_cost
        self.between = between
        self.diameter = diameter
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype
        self.store = store
        self.compat = compat
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, X_val: Any = None, y_val: Any = None) -> Self:
        """Value the training rows.

        Args:
            X: training rows, shape (N, d), finite: array, memory map (rows are read batch by batch), PyTorch or JAX
                array, pandas DataFrame, pyarrow Table; or an iterable of (X, y) chunks, then y is None.
            y: training labels, shape (N,), of any sortable kind.
            X_val: clean validation rows, shape (M, d).
            y_val: their labels, shape (M,).

        Returns:
            The estimator.

        Raises:
            ValueError: bad data (NaN, infinity, shapes, continuous labels, fewer than two rows), a parameter out of
                range, or a store of another run.
            TypeError: a container or parameter of an unknown kind.

        Warns:
            UserWarning: one class in validation, training classes that validation lacks, rows that occur in both sets,
                data so close together that eps dominates, an order of rows that inverts values.
        """
        self.valuation_ = Valuation.begin(self._settings(), X, y, X_val, y_val)
        return self._finish()

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add training rows: only their batches are solved, then all values are weighed anew.

        Validation set, embedder and class distances stay as ``fit`` made them, so that values stay comparable.

        Args:
            X: new training rows, as in ``fit``.
            y: their labels.

        Returns:
            The estimator; its arrays now cover the earlier rows followed by the new ones.

        Raises:
            ValueError: bad data, see ``fit``.
            NotFittedError: before ``fit``.

        Warns:
            UserWarning: the class means of the new rows would move the class distances by more than a fifth.
        """
        check_is_fitted(self, "valuation_")
        self.valuation_.extend(X, y)
        return self._finish()

    @classmethod
    def load(cls, store: str | Path, **changes: Any) -> Self:
        """The fitted estimator of a store, without the training rows; ready for ``partial_fit``.

        Args:
            store: folder of the store.
            **changes: parameters that differ now: those that do not touch solved batches (``outer``, ``outer_reg``,
                ``between``, ``n_jobs``, ``device``, ``verbose``), and an ``embedder`` object, which no store can hold.

        Returns:
            The estimator. When the store's last run broke off it has no values yet: ``partial_fit`` (or ``fit``, for a
            first run) with the same rows goes on.

        Raises:
            ValueError: no store, a damaged one, or changes that would need all batches anew.
        """
        place = Store(store)
        params = place.meta["params"]
        if params["label_distance"] == "precomputed":
            params["label_distance"] = place.label_distances()
        options: dict[str, Any] = {**params, "store": str(store), "random_state": place.meta["seed"], **changes}
        model = cls(**options)
        model.valuation_ = Valuation.reopen(model._settings(), place)
        return model if model.valuation_.pending else model._finish()

    def _settings(self) -> Settings:
        self._check_parameters()
        official = self.compat == "official"
        recipe = Recipe(
            eps=0.0 if isinstance(self.eps, str) else self.eps,
            scaling=self.scaling,
            lambda_x=self.lambda_x,
            lambda_y=self.lambda_y,
            p=self.p,
            solver=self.solver,
            batch_cost="plan" if official else self.batch_cost,
            plan_on_raw=official,
            plan_over_rows=official,
            diameter_of_raw_and_label=official and self.diameter is None,
            per_pair_labels=isinstance(self.label_distance, str) and self.label_distance == "per_pair",
            dtype=self.dtype,
            device=_resolve_device(self.device),
        )
        return Settings(
            recipe=recipe,
            batch_size=self.batch_size,
            batching="contiguous" if official else self.batching,
            label_distance="first_batch" if official and isinstance(self.label_distance, str) else self.label_distance,
            label_samples=2**62 if official else self.label_samples,
            embedder=self.embedder,
            eps=self.eps,
            diameter=self.diameter,
            seed=resolve_seed(self.random_state),
            n_jobs=self.n_jobs,
            store=self.store,
            verbose=self.verbose,
            params=self._stored_params() if self.store is not None else {},
        )

    def _stored_params(self) -> dict[str, Any]:
        run_only = {"n_jobs", "device", "store", "random_state", "verbose"}
        params = {name: value for name, value in self.get_params(deep=False).items() if name not in run_only}
        if not isinstance(self.label_distance, str):
            params["label_distance"] = "precomputed"
        if not isinstance(self.embedder, str | None):
            params["embedder"] = None
        if self.diameter is not None:
            params["diameter"] = np.asarray(self.diameter).tolist()
        return params

    _CHOICES: ClassVar[dict[str, tuple[Any, ...]]] = {
        "p": (1, 2),
        "solver": ("annealed", "sinkhorn", "emd"),
        "outer": ("ot", "uniform"),
        "batch_cost": ("dual", "plan"),
        "batching": ("stratified", "shuffle", "sequential"),
        "dtype": ("float32", "float64"),
        "compat": (None, "official"),
    }

    def _check_parameters(self) -> None:
        for name, allowed in self._CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {getattr(self, name)!r}")
        if not isinstance(self.batch_size, int | np.integer) or isinstance(self.batch_size, bool):
            raise TypeError(f"batch_size must be an integer, got {self.batch_size!r}")
        if self.batch_size < 2:
            raise ValueError(f"batch_size must be at least 2, got {self.batch_size}")
        if self.label_samples < 1:
            raise ValueError(f"label_samples must be at least 1, got {self.label_samples}")
        if isinstance(self.eps, str):
            if self.eps != "auto":
                raise ValueError(f'eps must be a positive number or "auto", got {self.eps!r}')
        elif not (math.isfinite(self.eps) and self.eps > 0):
            raise ValueError(f"eps must be positive and finite, got {self.eps}")
        if not 0 < self.scaling < 1:
            raise ValueError(f"scaling must lie strictly between 0 and 1, got {self.scaling}")
        for name in ("lambda_x", "lambda_y"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ValueError(f"{name} must be finite and not negative, got {getattr(self, name)}")
        if not (math.isfinite(self.outer_reg) and self.outer_reg > 0):
            raise ValueError(f"outer_reg must be positive and finite, got {self.outer_reg}")
        if not math.isfinite(self.between):
            raise ValueError(f"between must be finite, got {self.between}")

    def _finish(self) -> Self:
        """Set what the solved batches determine."""
        valuation, side = self.valuation_, self.valuation_.side
        started = time.perf_counter()
        self.batch_costs_ = valuation.batch_costs()
        self.outer_plan_ = self._outer_plan(self.batch_costs_)
        ids = valuation.labels()
        scores = np.empty(len(ids))
        self.batch_index_ = np.empty(len(ids), np.int64)
        self.nearest_ = np.empty(len(ids), np.int64)
        self.nearest_cost_ = np.empty(len(ids))
        level = valuation.n_batches * (self.outer_plan_ * self.batch_costs_).sum(axis=1)
        counts = np.bincount(np.concatenate([np.full(len(rows), i) for i, rows, _ in valuation.solutions()]))
        offsets = self.between * (level - np.average(level, weights=counts))
        for i, rows, solution in valuation.solutions():
            scores[rows] = self._scores(solution.gradients, i, float(offsets[i]))
            self.batch_index_[rows] = i
            self.nearest_[rows], self.nearest_cost_[rows] = solution.nearest, solution.nearest_cost
        if not np.isfinite(scores).all():
            raise FloatingPointError("a score is not finite: rescale the features or raise eps")
        self.values_ = -scores
        self.distance_ = float((self.outer_plan_ * self.batch_costs_).sum())
        self.label_distances_ = side.W
        self.classes_ = side.classes
        self.labels_ = side.classes[ids]
        self.n_features_in_ = side.rows.n_features
        self.timings_ = {**valuation.timings, "weigh": time.perf_counter() - started}
        return self

    def _outer_plan(self, batch_costs: np.ndarray) -> Float[np.ndarray, "kt kv"]:
        if self.outer == "uniform":
            return np.full(batch_costs.shape, 1 / batch_costs.size)
        return outer_plan(batch_costs, self.outer_reg)

    def _scores(self, gradients: np.ndarray, number: int, offset: float) -> Float[np.ndarray, " b"]:
        return harm_scores(gradients, self.outer_plan_[number], len(self.outer_plan_), offset)


def _resolve_device(device: str) -> str:
    if device == "cpu":
        return device
    if device == "auto":
        from importlib.util import find_spec

        if find_spec("torch") is None:
            return "cpu"
    from icl25_shared import select_device

    return str(select_device(device, "torch"))


def dataset_distance(
    X: Any, y: Any, X_val: Any, y_val: Any, *, debias: bool = False, model: SAVA | None = None
) -> float:
    """Distance between two labelled data sets: the hierarchical transport cost that SAVA computes on its way.

    Args:
        X: rows of the first set, shape (n, d), as in ``SAVA.fit``.
        y: their labels, shape (n,).
        X_val: rows of the second set, shape (m, d).
        y_val: their labels, shape (m,).
        debias: subtract half the distance of each set to itself, which entropic regularisation and the class
            distances leave above zero.
        model: estimator whose parameters are used; ``SAVA(random_state=0)`` when None.

    Returns:
        The distance, in units of the cost (half squared features).

    Raises:
        ValueError: bad data, see ``SAVA.fit``.

    Source: OTDD (Alvarez-Melis and Fusi, NeurIPS 2020), by the hierarchical plan of SAVA (arXiv 2406.01130).
    """
    from sklearn.base import clone

    model = SAVA(random_state=0) if model is None else model

    def between(A: Any, a: Any, B: Any, b: Any) -> float:
        return clone(model).fit(A, a, B, b).distance_

    distance = between(X, y, X_val, y_val)
    if debias:
        import warnings

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*are equal to validation rows.*")
            distance -= (between(X, y, X, y) + between(X_val, y_val, X_val, y_val)) / 2
    return distance
