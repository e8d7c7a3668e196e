"""Pictures of errors: against the number of labels or the noise, and against their own estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from icl25_pi_dion.plotting import COLOURS, GREY, INK, legend_above, make_figure, title_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

__all__ = ["plot_error_curve", "plot_reliability"]


def plot_error_curve(
    curves: Mapping[str, Sequence[tuple[float, float, float, float]]],
    x_label: str,
    *,
    log_x: bool = False,
    title: str = "",
) -> Figure:
    """Draw the error of methods against the number of labels, the noise, or the like.

    Args:
        curves: For each method rows (x, error, low, high): relative errors, and the ends of their intervals. A method
            with a single row is drawn as a level line, for instance one that uses no labels.
        x_label: What x is.
        log_x: Draw x on a logarithmic scale, which must then be > 0.
        title: Title of the picture.

    Returns:
        The figure.

    Raises:
        ValueError: If there are no curves, or one is empty.
    """
    from matplotlib.ticker import FuncFormatter, NullLocator

    if not curves or not all(curves.values()):
        raise ValueError("there are no errors to draw")
    figure, axes = make_figure(6.2, 4.0)
    for (name, rows), colour in zip(curves.items(), COLOURS * len(curves), strict=False):
        x, error, low, high = np.array(rows, float).T
        if len(rows) == 1:
            axes.axhspan(low[0], high[0], color=colour, alpha=0.15, lw=0)
            axes.axhline(error[0], color=colour, lw=2, label=name)
        else:
            axes.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)
            axes.plot(x, error, color=colour, lw=2, marker="o", ms=5, label=name)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(_percent))
    largest = max(row[1] for rows in curves.values() for row in rows)
    smallest = min(row[1] for rows in curves.values() for row in rows)
    axes.yaxis.set_minor_formatter(_between(smallest, largest))
    axes.yaxis.set_tick_params(which="minor", labelsize=8)
    if log_x:
        axes.set_xscale("log")
        measured = sorted({row[0] for rows in curves.values() if len(rows) > 1 for row in rows})
        if measured:
            axes.set_xticks(measured, [f"{x:g}" for x in measured])
            axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel=x_label, ylabel="relative error of s")
    axes.grid(axis="y", which="both", color="#EEEEEE", lw=0.7)
    axes.set_axisbelow(True)
    if title:
        title_axes(axes, title)
    legend_above(figure, axes, n_columns=3)
    return figure


def plot_reliability(estimate: Float[np.ndarray, " n"], error: Float[np.ndarray, " m"]) -> Figure:
    """Draw true errors against their estimates, which should stay above them for nine samples of ten.

    Args:
        estimate: Error estimates of the samples.
        error: True relative errors.

    Returns:
        The figure.

    Raises:
        ValueError: If the lengths differ, or no estimate is finite.
    """
    from matplotlib.ticker import FuncFormatter

    if estimate.shape != error.shape:
        raise ValueError(f"there are {len(estimate)} estimates for {len(error)} errors")
    shown = np.isfinite(estimate) & np.isfinite(error) & (estimate > 0) & (error > 0)
    if not shown.any():
        raise ValueError("no error estimate is finite, so there is nothing to draw")
    estimate, error = estimate[shown], error[shown]
    figure, axes = make_figure(5.4, 4.6)
    low, high = 0.8 * min(estimate.min(), error.min()), 1.25 * max(estimate.max(), error.max())
    axes.fill_between([low, high], [low, low], [low, high], color="#F1F1F1", lw=0)
    axes.plot([low, high], [low, high], color=GREY, lw=1.2, ls="--", label="error = estimate")
    below = error <= estimate
    dots = {"s": 16, "lw": 0, "alpha": 0.7}
    axes.scatter(estimate[below], error[below], color=COLOURS[0], label="at most the estimate", **dots)
    axes.scatter(estimate[~below], error[~below], color=COLOURS[5], label="above it", **dots)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    axes.set(xlabel="error estimate", ylabel="true relative error of s")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(_percent))
        axis.set_minor_formatter(_between(low, high))
        axis.set_tick_params(which="minor", labelsize=8)
    axes.text(
        0.98,
        0.03,
        f"{100 * below.mean():.0f} % of {len(error)} below the line\n(90 % expected)",
        transform=axes.transAxes,
        ha="right",
        va="bottom",
        color=INK,
    )
    legend_above(figure, axes, n_columns=3)
    return figure


def _percent(value: float, _: int | None = None) -> str:
    return f"{100 * value:.3g} %"


def _between(low: float, high: float) -> FuncFormatter:
    """Labels of the ticks between powers of ten: all within a factor of four, else those at 2 and 5."""
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(_percent if high < 4 * low else _sparse_percent)


def _sparse_percent(value: float, _: int | None = None) -> str:
    """Label 2 and 5 of each decade alone."""
    leading = f"{value:.0e}"[0]
    return _percent(value) if leading in "25" else ""
