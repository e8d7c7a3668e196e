"""What the paper's CIFAR-10 and Clothing1M experiments claim, decided by rules fixed before they are run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from icl25_shared import Claim, Estimate, Rule

__all__ = ["FRACTIONS", "paper_claims"]

FRACTIONS = (0.1, 0.2, 0.3, 0.4)
"""Shares of the rows that are pruned."""

_ABOVE = Rule(">", 0.0, on="low")
_NOT_STATED = "figure without numbers"
_SEEDS = "The rule asks for the lower bound of the interval, and so for two seeds or more."


def paper_claims(auc: dict[str, pd.DataFrame], accuracy: dict[str, list[dict[str, list[float]]]]) -> list[Claim]:
    """The claims that the measurements allow to decide.

    Args:
        auc: per panel a table of AUC, a line per seed and a column per method; panels without known truth are absent.
        accuracy: per panel and seed the test accuracy by method, nothing pruned first, then per share of
            ``FRACTIONS``.

    Returns:
        The claims.

    Source: CIFAR-10 and Clothing1M experiments of Kessler et al. (ICLR 2025).
    """
    return [*_detection(auc), *_pruning(accuracy)]


def _detection(auc: dict[str, pd.DataFrame]) -> list[Claim]:
    with_lava = {panel: table for panel, table in auc.items() if "LAVA" in table}
    gaps = {panel: (table["SAVA"] - table["LAVA"]).abs() for panel, table in with_lava.items()}
    claims = []
    poison = gaps.pop("poison", None)
    if gaps:
        claims.append(
            Claim(
                id="as-good-as-lava",
                statement="SAVA finds wrong labels, noise and trojans as well as LAVA (largest difference of AUC)",
                paper=f"about equal ({_NOT_STATED})",
                source="CIFAR-10, labels, features, trojan",
                measured=Estimate.from_samples(np.max(list(gaps.values()), axis=0)),
                rule=Rule("<=", 0.06, on="every"),
                headline=True,
            )
        )
    if poison is not None:
        claims.append(
            Claim(
                id="poison-as-good-as-lava",
                statement="SAVA finds poison as well as LAVA (difference of AUC)",
                paper=f"about equal ({_NOT_STATED})",
                source="CIFAR-10, poison",
                measured=Estimate.from_samples(poison),
                rule=Rule("<=", 0.06, on="every"),
                note="With --embedder torch:... the poison is the paper's feature collision through that network; "
                "with any other it is a blend of pixels, which may lie closer to the validation images than clean "
                "images do. A tenth of all rows is the whole class where classes are equally large.",
            )
        )
    for panel, name in (("noisy features", "noisy-features"), ("trojan square", "trojan")):
        table = auc.get(panel)
        if table is not None and "KNN-Shapley" in table:
            claims.append(
                Claim(
                    id=f"{name}-above-knn-shapley",
                    statement=f"SAVA finds {panel} better than KNN-Shapley (difference of AUC)",
                    paper=f"better ({_NOT_STATED})",
                    source=f"CIFAR-10, {panel}",
                    measured=Estimate.from_samples(table["SAVA"] - table["KNN-Shapley"]),
                    rule=_ABOVE,
                    note=_SEEDS,
                )
            )
    return claims


def _pruning(accuracy: dict[str, list[dict[str, list[float]]]]) -> list[Claim]:
    # Axes: panel, seed, share; the first accuracy is that of nothing pruned.
    by_method: dict[str, Any] = {
        name: np.array([[line[name][1:] for line in found] for found in accuracy.values()])
        for name in next(iter(accuracy.values()))[0]
    }
    gain = (by_method["SAVA"] - by_method["random"]).mean(axis=0)
    claims = [
        Claim(
            id=f"pruning-{100 * share:.0f}-above-random",
            statement=f"Pruning {share:.0%} by SAVA trains a better network than pruning at random (accuracy)",
            paper=f"better ({_NOT_STATED})",
            source="pruning on Clothing1M; incremental CIFAR-10",
            measured=Estimate.from_samples(gain[:, k]),
            rule=_ABOVE,
            note=_SEEDS if k == 0 else "",
        )
        for k, share in enumerate(FRACTIONS)
    ]
    if "batch-wise LAVA" in by_method:
        lead = (by_method["SAVA"] - by_method["batch-wise LAVA"]).mean(axis=(0, 2))
        claims.append(
            Claim(
                id="pruning-above-batchwise-lava",
                statement="Pruning by SAVA trains a better network than by batch-wise LAVA (accuracy, mean of 10-40 %)",
                paper=f"better ({_NOT_STATED})",
                source="pruning on Clothing1M",
                measured=Estimate.from_samples(lead),
                rule=_ABOVE,
            )
        )
    return claims
