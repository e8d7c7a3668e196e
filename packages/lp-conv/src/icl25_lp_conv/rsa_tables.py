"""Tables of similarities between layers and areas: over sessions, and the best layer of each area."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Num

__all__ = ["best_layers", "median_ceilings", "summarize"]

_COLUMNS = ("layer", "area", "session", "ssm", "corrected")


def summarize(table: pd.DataFrame, ceilings: Mapping[str, Num[np.ndarray, "..."]] | None = None) -> pd.DataFrame:
    """Aggregate a table of ``rsa`` over sessions, as the authors do.

    Args:
        table: columns ``layer``, ``area``, ``session``, ``ssm`` and ``corrected``.
        ceilings: For each area (k,) noise ceilings to divide by in place of those with which the table was made.

    Returns:
        A row for each layer and area, in the order of the table: ``layer``, ``area``, ``n_sessions``, ``ssm`` (median
        over sessions), ``std`` (over sessions, of the population; NaN for a single session), ``corrected`` (``ssm``
        divided by the median ceiling of the area) and ``error`` (``std`` divided by the median ceiling, halved).
        Without ceilings the last two are NaN.

    Raises:
        ValueError: If a column is missing, or an area has no ceilings or ceilings that are no numbers.

    Source: aggregation of the authors' code for its figures on the visual cortex.
    """
    missing = [column for column in _COLUMNS if column not in table]
    if missing:
        raise ValueError(f"table lacks the columns {', '.join(missing)}")
    scale = None if ceilings is None else median_ceilings(ceilings, list(map(str, table["area"].unique())))
    rows = []
    for _, part in table.groupby(["layer", "area"], sort=False):
        layer, area = part[["layer", "area"]].iloc[0]
        corrected = part["corrected"] if scale is None else part["ssm"] / scale[str(area)]
        rows.append(
            {
                "layer": layer,
                "area": area,
                "n_sessions": len(part),
                "ssm": part["ssm"].median(skipna=False),
                "std": _std(part["ssm"]),
                "corrected": corrected.median(skipna=False),
                "error": _std(corrected) / 2,
            }
        )
    return pd.DataFrame(rows)


def best_layers(summary: pd.DataFrame) -> pd.DataFrame:
    """The score of a network for each area: that of its most similar layer.

    A maximum over many layers is high by chance too, so compare networks with about as many layers.

    Args:
        summary: A table of ``summarize``, or of ``rsa`` itself.

    Returns:
        The rows of the summary that hold the highest ``ssm`` of an area, one for each area. Layers without a similarity
        (NaN) are passed over.

    Raises:
        ValueError: If a column is missing, or no layer has a similarity.

    Source: our reading of how the paper scores a network.
    """
    summary = summarize(summary) if "session" in summary else summary
    if not {"layer", "area", "ssm"} <= set(summary):
        raise ValueError("summary lacks the columns layer, area and ssm, expected a table of `summarize`")
    known = summary.dropna(subset=["ssm"])
    if known.empty:
        raise ValueError("no layer has a similarity to any area")
    return known.loc[known.groupby("area", sort=False)["ssm"].idxmax()].reset_index(drop=True)


def median_ceilings(ceilings: Mapping[str, Num[np.ndarray, "..."]], areas: Sequence[str]) -> dict[str, float]:
    """The median noise ceiling of each area.

    Args:
        ceilings: For each area (k,) noise ceilings.
        areas: Names of the areas that are needed.

    Returns:
        The medians.

    Raises:
        ValueError: If an area has no ceilings, or they are not 1-D, finite and of a positive median.

    Source: the paper, where it compares networks with the visual cortex.
    """
    found = {}
    for area in areas:
        if area not in ceilings:
            raise ValueError(f"area {area!r} has no noise ceilings; there are those of {', '.join(ceilings) or 'none'}")
        values = np.asarray(ceilings[area], dtype=np.float64)
        if values.ndim != 1 or not values.size or not np.isfinite(values).all():
            raise ValueError(f"noise ceilings of area {area!r} must be a list of finite numbers, found {values}")
        found[area] = float(np.median(values))
        if found[area] <= 0:
            raise ValueError(f"noise ceilings of area {area!r} have the median {found[area]:g}, expected one above 0")
    return found


def _std(values: pd.Series) -> float:
    return float(np.std(values.to_numpy())) if len(values) > 1 else np.nan
