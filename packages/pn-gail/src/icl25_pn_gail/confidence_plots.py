"""Pictures of confidences: how they are spread and how true they are, and what each method makes of them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from icl25_pn_gail.plotting import (
    BAD,
    COLOURS,
    GREY,
    INK,
    draw_grid,
    legend_above,
    line_looks,
    make_figure,
    require_columns,
    title_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_confidence", "plot_mixture"]

_SHARES = {
    "demonstrations": ("demonstrations", "#B5B5B5"),
    "gail": ("GAIL", line_looks(["gail"])["gail"].color),
    "iwil": ("2IWIL", line_looks(["2iwil"])["2iwil"].color),
    "pn_gail": ("PN-GAIL", line_looks(["pn-gail"])["pn-gail"].color),
}
_MOST_GROUPS = 10
_NUMBERED_GROUPS = 5  # of which the bars are wide enough for numbers


def plot_confidence(given: Any, filled: Any, truth: Any = None, *, held_out: Any = None, bins: int = 10) -> Figure:
    """Draw how given and predicted confidences are spread and, where the truth is known, how true predictions are.

    Args:
        given: Confidences as they were given, shape (n,), from 0 to 1; NaN where there was none.
        filled: Confidences without gaps, shape (n,), from 0 to 1.
        truth: True confidences, shape (n,), from 0 to 1; NaN where they are not known. Only rows without a given
            confidence are compared, if there are any.
        held_out: Predictions for rows with a given confidence, made without it, shape (n,); NaN for others. Where the
            truth is not known, the given confidences of these rows are compared with them.
        bins: Bins of the comparison; the histogram has twice as many.

    Returns:
        The figure: the histogram, each kind of rows making up 100 %, and beside it mean true against mean predicted
        confidence in each bin.

    Raises:
        ValueError: If lengths differ, a confidence is out of range, or of no predicted row the truth is known.

    Source:
        Reliability diagram of DeGroot and Fienberg (1983).
    """
    from icl25_pn_gail.confidence import calibration_report
    from icl25_pn_gail.label_checks import check_confidence

    filled = check_confidence(filled, "filled")
    given = check_confidence(given, "given", len(filled), unlabelled=True)
    predicted = np.isnan(given)
    report = None
    if truth is not None:
        compared = predicted if predicted.any() else ~predicted
        truth = check_confidence(truth, "truth", len(filled), unlabelled=True)
        report = calibration_report(truth[compared], filled[compared], bins)
    elif held_out is not None:
        held_out = check_confidence(held_out, "held_out", len(filled), unlabelled=True)
        compared = ~np.isnan(held_out)
        report = calibration_report(given[compared], held_out[compared], bins)
    wide = {} if report is None else {"ncols": 2, "width_ratios": [1.5, 1]}
    figure, grid = make_figure(5.0 if report is None else 8.6, 3.7, squeeze=False, **wide)
    axes = grid[0, 0]
    edges = np.arange(2 * bins + 1) / (2 * bins)  # so that 0.6 is no less than the bound 0.6
    for rows, kind, look in (
        (predicted, "predicted", {"fill": True, "color": COLOURS[0], "alpha": 0.6, "lw": 0}),
        (~predicted, "given", {"color": BAD, "lw": 1.8}),
    ):
        n = int(rows.sum())
        if n:
            share = np.histogram(filled[rows], edges)[0] / n
            axes.stairs(share, edges, label=f"{kind} ({n} row{'s' * (n > 1)})", **look)
    axes.set(xlabel="confidence", ylabel="share of rows of this kind", xlim=(-0.01, 1.01))
    _percent(axes)
    draw_grid(axes)
    if report is not None:
        _draw_reliability(grid[0, 1], report.reliability)
        title_axes(grid[0, 1], f"Mean error {report.mean_absolute_error:.3f}, bias {report.bias:+.3f}")
        title_axes(axes, "How confidences are spread")
    legend_above(figure, axes)
    return figure


def _draw_reliability(axes: Axes, table: pd.DataFrame) -> None:
    axes.plot([0, 1], [0, 1], color=GREY, lw=1.2, ls="--", label="perfect")
    seen = table[table["n"] > 0]
    axes.plot(seen["predicted"], seen["true"], color=COLOURS[0], lw=1.4, alpha=0.6, label="_mean")
    # The area of a dot grows with the number of rows in its bin.
    sizes = 18 + 300 * seen["n"] / seen["n"].sum()
    axes.scatter(seen["predicted"], seen["true"], s=sizes, color=COLOURS[0], lw=0, zorder=3, label="_bin")
    axes.set(xlabel="predicted confidence", ylabel="true confidence", xlim=(-0.04, 1.04), ylim=(-0.04, 1.04))
    axes.set_aspect("equal")
    draw_grid(axes, "both")
    axes.legend(frameon=False, fontsize=9)


def plot_mixture(frame: pd.DataFrame) -> Figure:
    """Draw which behaviours each method imitates at its optimum, beside what was demonstrated.

    Args:
        frame: What ``expected_mixture`` returned: a row for each group, columns ``demonstrations``, ``gail``, ``iwil``
            and ``pn_gail`` that sum to 1, and ``confidence``. Of more than ten groups those with numbers are joined
            into ranges, and of those with names the nine largest are drawn and the others together.

    Returns:
        The figure: bars in groups.

    Raises:
        ValueError: If a column is missing or there are no groups.

    Source:
        Optimal generators of PN-GAIL (ICLR 2025) and 2IWIL (Wu et al., 2019).
    """
    require_columns(frame, (*_SHARES, "confidence"), "frame")
    by_confidence = bool(
        pd.api.types.is_numeric_dtype(frame.index) and np.allclose(frame.index.to_numpy(float), frame["confidence"])
    )
    if len(frame) > _MOST_GROUPS:
        shown = _joined(frame)
    else:
        numbers = pd.api.types.is_numeric_dtype(frame.index)
        names = [f"{group:.3g}" if numbers else str(group) for group in frame.index]
        shown = frame.set_axis(pd.Index(names), axis=0)
    if not pd.api.types.is_numeric_dtype(frame.index):
        shown = shown.sort_values("confidence", kind="stable")
    figure, axes = make_figure(min(max(6.4, 0.9 * len(shown) + 1), 9.6), 3.7)
    at, width = np.arange(len(shown)), 0.84 / len(_SHARES)
    for k, (column, (label, colour)) in enumerate(_SHARES.items()):
        heights = shown[column].to_numpy(float)
        bars = axes.bar(at + (k - (len(_SHARES) - 1) / 2) * width, heights, 0.92 * width, color=colour, label=label)
        if len(shown) <= _NUMBERED_GROUPS:
            axes.bar_label(bars, [_percent_number(v) for v in heights], fontsize=8, padding=1.5, color=INK)
    ticks = list(shown.index)
    if not by_confidence:
        ticks = [f"{name}\n({r:.2g})" for name, r in zip(ticks, shown["confidence"], strict=True)]
    axes.set_xticks(at, ticks)
    axes.tick_params(axis="x", length=0)
    axes.margins(x=0.02)
    axes.set(
        xlabel="confidence of demonstrated rows" if by_confidence else "behaviour (mean confidence)",
        ylabel="share of what is imitated",
    )
    axes.set_ylim(0, min(1.1 * shown[list(_SHARES)].to_numpy(float).max(), 1.06))
    _percent(axes)
    draw_grid(axes)
    legend_above(figure, axes)
    return figure


def _joined(frame: pd.DataFrame) -> pd.DataFrame:
    """At most as many groups as fit into a picture."""
    from matplotlib.ticker import MaxNLocator

    if pd.api.types.is_numeric_dtype(frame.index):
        values = frame.index.to_numpy(float)
        edges = MaxNLocator(_MOST_GROUPS).tick_values(values.min(), values.max())
        place = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
        labels = [f"{low:g} to {high:g}" for low, high in itertools.pairwise(edges)]
    else:
        kept = np.argsort(-frame["demonstrations"].to_numpy(), kind="stable")[: _MOST_GROUPS - 1]
        place = np.full(len(frame), len(kept))
        place[kept] = np.arange(len(kept))
        labels = [*frame.index[kept].astype(str), f"{len(frame) - len(kept)} others"]
    mass = frame["confidence"] * frame["demonstrations"]
    table = frame[list(_SHARES)].assign(confidence=mass).groupby(place).sum()
    means = frame["confidence"].groupby(place).mean()  # for groups of no weight
    table["confidence"] = (table["confidence"] / table["demonstrations"]).fillna(means)
    return table.set_axis(pd.Index([labels[i] for i in table.index]), axis=0)


def _percent(axes: Axes) -> None:
    from matplotlib.ticker import PercentFormatter

    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))


def _percent_number(share: float) -> str:
    """A number without its unit, which the axis has, with a digit more where it is small; zero is no small share."""
    if share == 0:
        return "0"
    return f"{100 * share:.0f}" if share >= 0.095 else f"{100 * share:.1f}"
