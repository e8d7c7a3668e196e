"""What the pictures share: colours that colour-blind readers can tell apart, fonts, and figures of their own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "GREY", "INK", "make_figure", "new_figure", "percent_axis", "style", "title_axes"]

# The palette of Okabe and Ito.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
GREY, INK = "#8A8A8A", "#222222"
_DPI = 150
_STYLE: Any = {
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.labelcolor": INK,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


def style() -> contextlib.AbstractContextManager[None]:
    """The shared style, which matplotlib reads when axes are made: it need not outlive this."""
    import matplotlib as mpl

    return mpl.rc_context(_STYLE)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches, which touches no global state."""
    from matplotlib.figure import Figure

    with style():
        return Figure(figsize=(width, height), dpi=_DPI, layout="constrained")


def make_figure(width: float, height: float, **grid: Any) -> tuple[Figure, Any]:
    """A figure of so many inches with axes in the shared style, and those axes."""
    figure = new_figure(width, height)
    with style():
        return figure, figure.subplots(**grid)


def title_axes(axes: Axes, title: str) -> None:
    """Put a title above the left end of axes."""
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK)


def percent_axis(axes: Axes, highest: float) -> None:
    """Let the vertical axis run from 0 to a little above a share, in percent, with a grid behind the bars."""
    from matplotlib.ticker import PercentFormatter

    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_ylim(0, 1.12 * highest if highest > 0 else 1)
    axes.grid(axis="y", color="#E8E8E8", lw=0.8)
    axes.set_axisbelow(True)
