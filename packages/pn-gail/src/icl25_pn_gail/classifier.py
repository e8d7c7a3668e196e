"""The estimator that fills in missing confidences, from a few labelled rows and many unlabelled ones."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
from jaxtyping import Float, Int
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from icl25_pn_gail.classifier_training import Layer, Risk, Sampling, initial_layers, logits, train
from icl25_pn_gail.label_checks import check_confidence, check_rows, column_names

__all__ = ["ConfidenceClassifier"]

FEW_LABELS = 10


class ConfidenceClassifier(BaseEstimator):
    """Predicts the confidence of each row, the probability that it is optimal; a scikit-learn estimator.

    A tanh network with dropout is trained by Adam with AMSGrad; a step draws ``batch_size`` labelled rows and, for each
    of them, as many unlabelled rows as there are in the data, at most 1,024 rows in all.

    Args:
        method: Risk that is minimised: ``"bsc"``, balanced semi-supervised; ``"sc"``, that of 2IWIL, which
            underestimates; ``"supervised"``, of labelled rows alone.
        alpha: Weight of the positive part of the balance of ``"bsc"``; ``"auto"`` for the share of unlabelled rows.
        beta: Weight of the negative part, or of the unlabelled rows in ``"sc"``; likewise.
        clip: Bound of the balance of ``"bsc"``, > 0; None for none.
        hidden: Widths of the hidden layers.
        dropout: Share of hidden units that a step leaves out, in [0, 1).
        lr: Learning rate, > 0.
        steps: Number of steps. The paper's authors make 25,000 of one labelled row. The default is longer training: on
            demonstrations of the pendulum their number leaves the confidence of good rows at 0.65, 5,000 steps of eight
            rows at 0.42, and the default at 0.84, where 1 is right.
        batch_size: Labelled rows of a step.
        standardize: Bring every feature to mean 0 and standard deviation 1 over all rows of ``fit``.
        random_state: Seed of weights and draws: the same number gives the same bytes. None for another fit each time.

    Attributes:
        n_features_in_: Number of features d.
        feature_names_in_: Their names, shape (d,), if ``fit`` got a data frame.
        classes_: 0, not optimal, and 1, optimal.
        n_labelled_: Rows of ``fit`` with a label.
        n_unlabelled_: Rows without.
        constant_: The one confidence that all labels have, and which is predicted everywhere; else None.
        layers_: The network, empty if there is a constant.
        mean_: What is subtracted from each feature, shape (d,).
        scale_: What it is divided by, shape (d,).

    Source: PN-GAIL (ICLR 2025), balanced semi-supervised classification; 2IWIL (Wu et al., 2019) for ``"sc"``.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(200, 2))
        >>> confidence = np.where(np.arange(200) < 40, 1 / (1 + np.exp(-4 * rows[:, 0])), np.nan)
        >>> classifier = ConfidenceClassifier(lr=3e-3, steps=500).fit(rows, confidence)
        >>> classifier.predict([[1.0, 0.0], [-1.0, 0.0]]).tolist()
        [1, 0]
    """

    def __init__(
        self,
        method: str = "bsc",
        alpha: float | str = "auto",
        beta: float | str = "auto",
        clip: float | None = 0.01,
        hidden: Sequence[int] = (40, 40),
        dropout: float = 0.5,
        lr: float = 3e-4,
        steps: int = 20_000,
        batch_size: int = 8,
        standardize: bool = True,
        random_state: int | np.integer | np.random.RandomState | None = 0,
    ) -> None:
        self.method = method
        self.alpha = alpha
        self.beta = beta
        self.clip = clip
        self.hidden = hidden
        self.dropout = dropout
        self.lr = lr
        self.steps = steps
        self.batch_size = batch_size
        self.standardize = standardize
        self.random_state = random_state

    def fit(self, X: Any, r: Any) -> Self:
        """Train on rows of which some are labelled.

        Args:
            X: Features, shape (n, d), finite: array, lists or data frame.
            r: Confidence of each row, shape (n,), from 0 to 1; NaN where unlabelled.

        Returns:
            The estimator itself.

        Raises:
            ValueError: If X, r or an argument of the estimator is out of range, lengths differ, or no row is labelled.
            TypeError: If X is a sparse matrix.
        """
        self._check_arguments()
        rows = check_rows(X)
        r = check_confidence(r, "r", len(rows), unlabelled=True)
        labels = r[~np.isnan(r)]
        if len(labels) == 0:
            raise ValueError(
                f"r needs at least 1 labelled row, found {len(r)} NaN; without any label only method 'gail' applies"
            )
        for stale in ("layers_", "feature_names_in_"):  # what a fit that fails must not leave behind
            vars(self).pop(stale, None)
        names = column_names(X)
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        self.n_features_in_ = rows.shape[1]
        self.classes_ = np.array([0, 1])
        self.n_labelled_, self.n_unlabelled_ = len(labels), len(r) - len(labels)
        self.mean_, self.scale_ = _standardisation(rows) if self.standardize else _identity(rows)
        self.constant_: float | None = None
        if np.ptp(labels) == 0:
            warnings.warn(
                f"all {len(labels)} labels are {labels[0]:g}: nothing can be learned, and this is predicted everywhere",
                stacklevel=2,
            )
            self.constant_ = float(labels[0])
            self.layers_: list[Layer] = []
            return self
        if len(labels) < FEW_LABELS:
            warnings.warn(
                f"only {len(labels)} rows are labelled: predictions from fewer than {FEW_LABELS} are not reliable",
                stacklevel=2,
            )
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        unlabelled = 0 if self.method == "supervised" else self.n_unlabelled_
        layers = train(
            initial_layers([self.n_features_in_, *self.hidden, 1], rng),
            self._standardised(rows).astype(np.float32),
            r,
            self._risk(float(labels.mean())),
            Sampling.of(len(labels), unlabelled, self.batch_size),
            rng,
            method=self.method,
            steps=self.steps,
            lr=self.lr,
            dropout=self.dropout,
        )
        if not all(np.isfinite(array).all() for layer in layers for array in layer):
            raise ValueError(f"training diverged: the network is not finite at lr={self.lr}; use a lower one")
        self.layers_ = layers
        return self

    def predict_confidence(self, X: Any) -> Float[np.ndarray, " n"]:
        """Probability that each row is optimal.

        Args:
            X: Features, shape (n, d), as in ``fit``.

        Returns:
            Confidences from 0 to 1.

        Raises:
            NotFittedError: Before ``fit``.
            ValueError: If X is no table of finite numbers with the features of ``fit``.
            TypeError: If X is a sparse matrix.
        """
        check_is_fitted(self, "layers_")
        rows = check_rows(X, self.n_features_in_)
        names, expected = column_names(X), getattr(self, "feature_names_in_", None)
        if names is not None and expected is not None and names != list(expected):
            raise ValueError(f"X must have the columns {list(expected)}, as in fit, found {names}")
        if self.constant_ is not None:
            return np.full(len(rows), self.constant_)
        g = logits(self.layers_, self._standardised(rows)).astype(np.float64)
        return np.exp(-np.logaddexp(0, -g))

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n 2"]:
        """Probability that each row is not optimal, and that it is.

        Args:
            X: Features, shape (n, d), as in ``fit``.

        Returns:
            Two columns, 1 - confidence and confidence.

        Raises:
            NotFittedError: Before ``fit``.
            ValueError: As ``predict_confidence``.
        """
        confidence = self.predict_confidence(X)
        return np.stack([1 - confidence, confidence], axis=1)

    def predict(self, X: Any) -> Int[np.ndarray, " n"]:
        """Whether each row is rather optimal.

        Args:
            X: Features, shape (n, d), as in ``fit``.

        Returns:
            1 where the confidence is at least one half, else 0.

        Raises:
            NotFittedError: Before ``fit``.
            ValueError: As ``predict_confidence``.
        """
        return (self.predict_confidence(X) >= 0.5).astype(np.int64)

    def score(self, X: Any, r: Any) -> float:
        """Closeness of the predictions, 1 - mean |predicted - true|.

        Args:
            X: Features, shape (n, d), as in ``fit``.
            r: True confidences, shape (n,), from 0 to 1; rows where they are NaN do not count.

        Returns:
            1 for exact predictions; the higher the better.

        Raises:
            NotFittedError: Before ``fit``.
            ValueError: If X or r is out of range, lengths differ, or no row is labelled.
        """
        predicted = self.predict_confidence(X)
        r = check_confidence(r, "r", len(predicted), unlabelled=True)
        known = ~np.isnan(r)
        if not known.any():
            raise ValueError(f"r needs at least 1 labelled row to score on, found {len(r)} NaN")
        return float(1 - np.mean(np.abs(predicted[known] - r[known])))

    def fill(self, X: Any, r: Any) -> Float[np.ndarray, " n"]:
        """Put predictions where the confidence is missing.

        Args:
            X: Features, shape (n, d), as in ``fit``.
            r: Confidences, shape (n,), from 0 to 1; NaN where missing.

        Returns:
            r where it is known, elsewhere the prediction.

        Raises:
            NotFittedError: Before ``fit``.
            ValueError: If X or r is out of range, or lengths differ.
        """
        predicted = self.predict_confidence(X)
        r = check_confidence(r, "r", len(predicted), unlabelled=True)
        return np.where(np.isnan(r), predicted, r)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All that the fitted estimator knows, as plain arrays for an NPZ file.

        Returns:
            Arrays by name, none of which needs pickle.

        Raises:
            NotFittedError: Before ``fit``.
        """
        check_is_fitted(self, "layers_")
        seed = int(self.random_state) if isinstance(self.random_state, int | np.integer) else None
        arguments = {**self.get_params(), "hidden": [int(width) for width in self.hidden], "random_state": seed}
        arrays = {
            "arguments": np.array(json.dumps(arguments, default=lambda number: number.item())),
            "counts": np.array([self.n_labelled_, self.n_unlabelled_]),
            "constant": np.array(math.nan if self.constant_ is None else self.constant_),
            "mean": self.mean_,
            "scale": self.scale_,
        }
        if hasattr(self, "feature_names_in_"):
            arrays["feature_names"] = self.feature_names_in_.astype(str)
        for index, layer in enumerate(self.layers_):
            arrays |= {f"layer{index}/{part}": np.asarray(array) for part, array in layer._asdict().items()}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Rebuild a fitted estimator.

        Args:
            arrays: What ``to_arrays`` gave, an array of each name, with the shapes that it had: scalars and shapes
                (d,), (inputs, outputs).

        Returns:
            The estimator, which predicts the same.

        Raises:
            ValueError: If an array is missing or its shape does not fit the others.
        """
        missing = [name for name in ("arguments", "counts", "constant", "mean", "scale") if name not in arrays]
        if missing:
            raise ValueError(f"the arrays of a confidence classifier lack {', '.join(missing)}")
        arguments: dict[str, Any] = json.loads(str(arrays["arguments"]))
        arguments["hidden"] = tuple(arguments["hidden"])
        made = cls(**arguments)
        made.mean_, made.scale_ = np.asarray(arrays["mean"]), np.asarray(arrays["scale"])
        made.n_features_in_ = len(made.mean_)
        made.classes_ = np.array([0, 1])
        made.n_labelled_, made.n_unlabelled_ = (int(count) for count in arrays["counts"])
        constant = float(arrays["constant"])
        made.constant_ = None if math.isnan(constant) else constant
        if "feature_names" in arrays:
            made.feature_names_in_ = np.asarray(arrays["feature_names"]).astype(object)
        sizes = [made.n_features_in_, *made.hidden, 1]
        made.layers_ = _read_layers(arrays, sizes) if made.constant_ is None else []
        return made

    def _risk(self, mean_confidence: float) -> Risk:
        share = self.n_unlabelled_ / (self.n_labelled_ + self.n_unlabelled_)
        alpha, beta = (share if weight == "auto" else float(weight) for weight in (self.alpha, self.beta))
        return Risk(alpha, beta, math.inf if self.clip is None else float(self.clip), mean_confidence)

    def _standardised(self, rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        return (rows - self.mean_) / self.scale_

    def _check_arguments(self) -> None:
        if self.method not in ("bsc", "sc", "supervised"):
            raise ValueError(f"method must be 'bsc', 'sc' or 'supervised', found {self.method!r}")
        for name in ("alpha", "beta"):
            weight = getattr(self, name)
            if weight != "auto" and not (isinstance(weight, int | float | np.number) and 0 <= weight <= 1):
                raise ValueError(f"{name} must be 'auto' or from 0 to 1, found {weight!r}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip must be above 0, or None, found {self.clip}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), found {self.dropout}")
        if not 0 < self.lr < math.inf:
            raise ValueError(f"lr must be above 0, found {self.lr}")
        counts = [("steps", self.steps), ("batch_size", self.batch_size), *(("hidden", width) for width in self.hidden)]
        for name, value in counts:
            if not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name} must hold whole numbers above 0, found {value!r}")


def _standardisation(rows: Float[np.ndarray, "n d"]) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """Mean and standard deviation of each feature, 1 for one that is constant."""
    return rows.mean(axis=0), np.where(np.ptp(rows, axis=0) > 0, rows.std(axis=0), 1.0)


def _identity(rows: Float[np.ndarray, "n d"]) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    return np.zeros(rows.shape[1]), np.ones(rows.shape[1])


def _read_layers(arrays: Mapping[str, np.ndarray], sizes: Sequence[int]) -> list[Layer]:
    """Layers of these widths."""
    layers = []
    for index, shape in enumerate(pairwise(sizes)):
        weight, bias = (np.asarray(arrays.get(f"layer{index}/{part}", np.nan)) for part in ("weight", "bias"))
        if weight.shape != shape or bias.shape != shape[1:]:
            raise ValueError(
                f"layer {index} of a confidence classifier must have shapes {shape} and {shape[1:]}, "
                f"found {weight.shape} and {bias.shape}"
            )
        layers.append(Layer(weight, bias))
    return layers
