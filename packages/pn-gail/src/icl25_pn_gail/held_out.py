"""Predictions of a confidence classifier for labelled rows that it was not shown."""

from __future__ import annotations

import warnings
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from sklearn.base import clone

from icl25_pn_gail.classifier import ConfidenceClassifier
from icl25_pn_gail.demonstrations import Demonstrations

__all__ = ["HeldOut", "held_out_confidence"]


class HeldOut(NamedTuple):
    """Predictions for rows that were held out.

    Attributes:
        predicted: Predicted confidence of each row, (N,); NaN where it was not labelled.
        unit: What was held out together: ``row``, or ``episode`` where whole episodes were labelled or not.
        folds: Number of parts.
    """

    predicted: Float[np.ndarray, " n"]
    unit: Literal["row", "episode"]
    folds: int


def held_out_confidence(
    classifier: ConfidenceClassifier, demos: Demonstrations, folds: int = 5, seed: int = 0
) -> HeldOut:
    """Predict the confidence of each labelled row by a classifier that saw the labels of other rows only.

    Rows are held out as they are missing: whole episodes where unlabelled rows lie in episodes without any label, which
    are harder to predict, else single rows.

    Args:
        classifier: The classifier; copies of it are fitted.
        demos: Demonstrations of which at least two rows are labelled.
        folds: Number of parts, at least 2; fewer where there are fewer rows or episodes to hold out.
        seed: Seed of the division.

    Returns:
        The predictions.

    Raises:
        ValueError: If ``folds`` is less than 2, or fewer than two rows are labelled.

    Source:
        Cross-validation, for the comparison of classifiers in PN-GAIL (ICLR 2025) without known truth.
    """
    if folds < 2:
        raise ValueError(f"folds must be >= 2, found {folds}")
    labelled = demos.labelled
    if demos.n_labelled < 2:
        raise ValueError(f"at least two rows must be labelled to hold one out, found {demos.n_labelled}")
    unit, codes = _units(demos)
    members = np.unique(codes[labelled])
    folds = min(folds, len(members))
    part = np.full(codes.max() + 1, -1)
    part[np.random.default_rng(seed).permutation(members)] = np.arange(len(members)) % folds
    rows = demos.inputs()
    predicted = np.full(len(demos), np.nan)
    for fold in range(folds):
        held = labelled & (part[codes] == fold)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few labels, or equal ones: the fit on all of them says so
            fitted: Any = clone(classifier).fit(rows, np.where(held, np.nan, demos.confidence))
        predicted[held] = fitted.predict_confidence(rows[held])
    return HeldOut(predicted, unit, folds)


def _units(demos: Demonstrations) -> tuple[Literal["row", "episode"], np.ndarray]:
    """What is held out together, and its number for each row."""
    with_label = np.unique(demos.episode_codes[demos.labelled])
    apart = not np.isin(demos.episode_codes[~demos.labelled], with_label).any()
    if demos.episode is not None and apart and len(with_label) > 1:
        return "episode", demos.episode_codes
    return "row", np.arange(len(demos))
