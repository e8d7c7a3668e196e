"""Pictures of how well networks do, as bars with intervals or single runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from icl25_lp_conv.plotting import COLOURS, GREY, INK, make_figure, percent_axis, title_axes
from icl25_lp_conv.sudoku_training import SudokuScores

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_bars", "plot_sudoku_bars"]

_SUDOKU = {
    "number": "cells",
    "blank": "blank\ncells",
    "row": "rows",
    "col": "columns",
    "box": "boxes",
    "solved": "boards",
}


def plot_bars(
    table: pd.DataFrame,
    points: Mapping[str, Sequence[float]] | None = None,
    label: str = "accuracy, 95 % interval",
    chance: float | None = None,
    title: str = "",
) -> Figure:
    """Bars with intervals, one for each network.

    Args:
        table: Columns ``name``, ``value``, ``low`` and ``high``: shares in [0, 1] and the ends of their intervals (NaN
            where there is none).
        points: For each name single results, for instance of seeds, drawn as dots.
        label: What the values are, and which intervals.
        chance: Where chance lies, drawn as a line.
        title: Title of the picture.

    Returns:
        The figure.

    Raises:
        ValueError: If the table is empty, lacks a column or holds a value that is not finite, or an interval does not
            hold its value.

    Source: ours.
    """
    missing = [column for column in ("name", "value", "low", "high") if column not in table]
    if missing:
        raise ValueError(f"table lacks the columns {', '.join(missing)}")
    values, low, high = (table[column].to_numpy(np.float64) for column in ("value", "low", "high"))
    if not len(values) or not np.isfinite(values).all():
        raise ValueError(f"table must hold finite values, at least one, found {values}")
    if (low > values).any() or (high < values).any():
        row = int(np.argmax((low > values) | (high < values)))
        raise ValueError(f"the interval {low[row]} to {high[row]} of the table does not hold its value {values[row]}")
    names = [str(name) for name in table["name"]]
    places = np.arange(len(names))
    figure, axes = make_figure(max(4.2, 1.5 + 0.9 * len(names)), 3.8)
    axes.bar(places, values, 0.66, color=[COLOURS[place % len(COLOURS)] for place in places], alpha=0.85)
    spread = np.nan_to_num(np.stack([values - low, high - values]))
    axes.errorbar(places, values, yerr=spread, fmt="none", ecolor=INK, elinewidth=1.5, capsize=5, capthick=1.5)
    tops = []
    for place, name in enumerate(names):
        single = np.asarray([] if points is None else points.get(name, ()), dtype=np.float64)
        # Beside the interval, lest they hide it.
        axes.plot(np.full(len(single), place + 0.2), single, "o", ms=4.5, mfc="white", mec=INK, mew=0.9)
        tops.append(max([float(values[place] + spread[1, place]), *single.tolist()]))
        _write_above(axes, place, tops[-1], f"{values[place]:.1%}", 9)
    if chance is not None:
        axes.axhline(chance, color=INK, lw=1, ls=(0, (4, 2)))
        corner = ("axes fraction", "data")
        axes.annotate("chance", (1, chance), (3, 0), corner, "offset points", va="center", fontsize=8.5, color=GREY)
    axes.set_xticks(places, names)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel(label)
    percent_axis(axes, max(tops))
    title_axes(axes, title)
    return figure


def plot_sudoku_bars(scores: Mapping[str, SudokuScores | Sequence[SudokuScores]], title: str = "") -> Figure:
    """Scores of networks on Sudokus: cells, blank cells, rows, columns, boxes and whole boards.

    Args:
        scores: For each network its scores, or those of several runs: the bar is their mean, the dots are the runs.
        title: Title of the picture.

    Returns:
        The figure.

    Raises:
        ValueError: If there is no network or one has no scores.

    Source: the paper's comparison of networks on Sudoku.
    """
    runs = {name: [found] if isinstance(found, SudokuScores) else list(found) for name, found in scores.items()}
    if not runs or not all(runs.values()):
        raise ValueError("scores must hold at least one network, each with at least one result")
    width = 0.82 / len(runs)
    figure, axes = make_figure(max(6.0, 1.5 + len(_SUDOKU) * (0.25 + 0.26 * len(runs))), 3.8)
    for k, (name, found) in enumerate(runs.items()):
        values = np.array([[getattr(run, kind) for kind in _SUDOKU] for run in found])
        means = values.mean(axis=0)
        places = np.arange(len(_SUDOKU)) + (k - (len(runs) - 1) / 2) * width
        axes.bar(places, means, 0.92 * width, color=COLOURS[k % len(COLOURS)], alpha=0.85, label=name)
        if len(found) > 1:
            axes.plot(np.tile(places, (len(found), 1)), values, "o", ms=3.2, mfc="white", mec=INK, mew=0.8)
        for place, mean, top in zip(places, means, values.max(axis=0), strict=True):
            if not np.isnan(mean):  # the share of blank cells, where there are none
                _write_above(axes, place, top, f"{100 * mean:.0f}", 8)
    axes.set_xticks(range(len(_SUDOKU)), list(_SUDOKU.values()))
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("share that is right")
    percent_axis(axes, 1.0)
    if len(runs) > 1:
        figure.legend(loc="outside lower center", ncols=min(len(runs), 6), frameon=False)
    title_axes(axes, title)
    return figure


def _write_above(axes: Axes, x: float, y: float, text: str, size: float) -> None:
    axes.annotate(text, (x, y), (0, 4), textcoords="offset points", ha="center", fontsize=size, color=INK)
