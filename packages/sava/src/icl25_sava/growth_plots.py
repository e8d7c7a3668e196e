"""Pictures of how things grow: time and memory with the number of rows, accuracy with the rows that arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from icl25_sava.plots import COLOURS, make_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_incremental", "plot_scaling"]


def plot_scaling(table: pd.DataFrame) -> Figure:
    """Processor time and peak memory against the number of training rows, a line per method, on log axes.

    Args:
        table: columns ``method``, ``n``, ``seconds``, ``peak_mb``.

    Returns:
        The figure.

    Raises:
        ValueError: If a column is missing.

    Source: scaling figure of Kessler et al. (ICLR 2025).
    """
    missing = {"method", "n", "seconds", "peak_mb"} - set(table)
    if missing:
        raise ValueError(f"table lacks the columns {', '.join(sorted(missing))}")
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator

    figure, grid = make_figure(8.0, 3.6, ncols=2)
    for axes, column, label in zip(
        grid, ("peak_mb", "seconds"), ("peak memory beyond the input (MB)", "processor time (s)"), strict=True
    ):
        for k, (name, part) in enumerate(table.groupby("method", sort=False)):
            colour = COLOURS[k % len(COLOURS)]
            axes.plot(part["n"], part[column], "o-", color=colour, lw=2, ms=4, label=str(name))
        axes.set(xscale="log", yscale="log", xlabel="training rows", ylabel=label)
        axes.xaxis.set_major_locator(FixedLocator(sorted(set(table["n"]))))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n / 1000:g} k"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.minorticks_off()
        axes.grid(color="#E5E5E5", lw=0.8)
        axes.set_axisbelow(True)
    grid[0].legend(frameon=False)
    return figure


def plot_incremental(table: pd.DataFrame) -> Figure:
    """Test accuracy as rows arrive in steps: after pruning by value, at random, and not at all.

    Args:
        table: columns ``n``, ``accuracy``, ``random``, ``everything``.

    Returns:
        The figure.

    Raises:
        ValueError: If a column is missing.

    Source: incremental experiment of Kessler et al. (ICLR 2025).
    """
    missing = {"n", "accuracy", "random", "everything"} - set(table)
    if missing:
        raise ValueError(f"table lacks the columns {', '.join(sorted(missing))}")
    figure, axes = make_figure(6.0, 4.0)
    lines = (
        ("accuracy", "30 % pruned by value"),
        ("everything", "nothing pruned"),
        ("random", "30 % pruned at random"),
    )
    for k, (column, label) in enumerate(lines):
        axes.plot(table["n"], table[column], "o-", color=COLOURS[k], lw=2, ms=5, label=label)
    axes.set(xlabel="rows arrived", ylabel="test accuracy")
    axes.grid(axis="y", color="#E5E5E5", lw=0.8)
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
    return figure
