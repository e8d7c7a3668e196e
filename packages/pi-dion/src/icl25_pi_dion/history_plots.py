"""The picture of a training: each term of the loss, and what independent points and samples say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from icl25_pi_dion.plotting import COLOURS, INK, legend_above, make_figure, style, title_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_history"]

_TERMS = {
    "total": ("total, weighted", INK),
    "physics": ("physics", COLOURS[0]),
    "data": ("data", COLOURS[1]),
    "h1": ("differences (h1)", COLOURS[2]),
    "label": ("labels", COLOURS[3]),
    "boundary": ("boundary", COLOURS[4]),
}
_CHECKS = {"val_residual": ("residual", COLOURS[0]), "val_misfit": ("misfit", COLOURS[1])}


def plot_history(rows: Sequence[Mapping[str, float]]) -> Figure:
    """Draw a history of training.

    Args:
        rows: Rows of ``InverseOperator.history_``: step, total, the terms before weighting, and at some steps
            val_residual and val_misfit.

    Returns:
        The figure: terms of the loss, and beside them residual and misfit of validation where they were checked.

    Raises:
        ValueError: If there are no rows.
    """
    if not rows:
        raise ValueError("there is no history to draw")
    checks = {name: shown for name, shown in _CHECKS.items() if any(name in row for row in rows)}
    figure, grid = make_figure(8.0, 3.5, ncols=2 if checks else 1, squeeze=False)
    left, right = grid[0, 0], grid[0, -1]
    for name, (label, colour) in _TERMS.items():
        if any(name in row for row in rows):
            _draw(left, rows, name, label, colour, 2.0 if name == "total" else 1.4)
    for name, (label, colour) in checks.items():
        _draw(right, rows, name, label, colour, 1.6, marker="o")
    if checks:
        title_axes(right, "validation: root mean squares")
        right.set_ylabel("over the typical size")
    title_axes(left, "training: mean squares")
    left.set_ylabel("term of the loss")
    for axes in grid[0]:
        axes.set_xlabel("step")
        axes.set_yscale("log")
        axes.grid(axis="y", color="#E8E8E8", lw=0.8)
        axes.set_axisbelow(True)
    legend_above(figure, left, n_columns=6)
    if checks:
        with style():
            # Losses fall, so that this corner is free.
            right.legend(loc="upper right")
    return figure


def _draw(
    axes: Axes, rows: Sequence[Mapping[str, float]], name: str, label: str, colour: str, width: float, marker: str = ""
) -> None:
    found = [(row["step"], row[name]) for row in rows if name in row and math.isfinite(row[name]) and row[name] > 0]
    steps, values = zip(*found, strict=True) if found else ((), ())
    # A line of few points would not show.
    marker = "o" if len(found) < 4 else marker
    axes.plot(steps, values, color=colour, lw=width, label=label, marker=marker, ms=3)
