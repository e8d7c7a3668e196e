"""What the pictures share, and the picture of inversions: truth, prediction and error."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from icl25_pi_dion.results import InversionResult

__all__ = ["COLOURS", "GREY", "INK", "legend_above", "make_figure", "plot_inversions", "style", "title_axes"]

# The palette of Okabe and Ito, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
GREY, INK = "#8A8A8A", "#222222"
FIELD_MAP, ERROR_MAP = "viridis", "RdBu_r"
_DPI = 130
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
    "legend.frameon": False,
}


def style() -> contextlib.AbstractContextManager[None]:
    """The shared style, which matplotlib reads when axes are made: it need not outlive this."""
    import matplotlib as mpl

    return mpl.rc_context(_STYLE)


def make_figure(width: float, height: float, **grid: Any) -> tuple[Figure, Any]:
    """Make a figure with axes in the shared style; it touches no global state.

    Args:
        width: In inches.
        height: In inches.
        **grid: Passed on to ``Figure.subplots``.

    Returns:
        The figure and its axes.
    """
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(width, height), dpi=_DPI, layout="constrained")
        return figure, figure.subplots(**grid)


def title_axes(axes: Axes, title: str) -> None:
    """Put a title above the left end of axes."""
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK)


def legend_above(figure: Figure, axes: Axes, n_columns: int = 4) -> None:
    """Put the legend of axes above all axes of the figure, where it hides no data.

    Args:
        figure: The figure.
        axes: Axes whose lines it explains.
        n_columns: Most entries side by side.
    """
    handles, labels = axes.get_legend_handles_labels()
    with style():
        figure.legend(handles, labels, loc="outside upper left", ncols=min(n_columns, len(labels)))


def plot_inversions(result: InversionResult, truth: Float[np.ndarray, "n *shape"] | None = None, n: int = 3) -> Figure:
    """Draw the first inversions beside the truth.

    In one dimension the band around s is the root mean square error that 90 % of measurements stay below; it does not
    hold point by point. In two dimensions truth and prediction share a colour scale.

    Args:
        result: The inversions.
        truth: True unknowns, shape (n, *target_shape), or flattened.
        n: How many.

    Returns:
        The figure.

    Raises:
        ValueError: If ``n`` is less than 1, the truth has another size, or s depends on more than two coordinates.
    """
    if n < 1:
        raise ValueError(f"n must be >= 1, found {n}")
    s = result.s.reshape(len(result), -1)
    s_true = None if truth is None else np.asarray(truth, float).reshape(len(truth), -1)
    if s_true is not None and (s_true.shape[1] != s.shape[1] or len(s_true) < min(n, len(s))):
        raise ValueError(f"truth must have a row for each inversion as s has, {s.shape}, found {s_true.shape}")
    letters = tuple(result.meta.get("target_coords") or [f"x{i}" for i in range(result.points_s.shape[1])])
    n = min(n, len(s))
    if len(letters) == 1:
        return _lines(result, s, s_true, n, letters[0])
    if len(letters) == 2:
        return _panels(result, s, s_true, n, letters)
    raise ValueError(f"pictures show unknowns of one or two coordinates, this one depends on {', '.join(letters)}")


def _lines(
    result: InversionResult,
    s: Float[np.ndarray, "n n_s"],
    truth: Float[np.ndarray, "n n_s"] | None,
    n: int,
    letter: str,
) -> Figure:
    # Up to three side by side: more would be too narrow to read.
    columns = min(n, 3)
    rows = -(-n // columns)
    figure, grid = make_figure(
        max(2.9 * columns, 4.0), 2.6 * rows + 0.4, nrows=rows, ncols=columns, squeeze=False, sharex=True
    )
    x = result.points_s[:, 0]
    order = np.argsort(x)
    axes = grid.ravel()
    for i, panel in enumerate(axes):
        if i >= n:
            panel.set_axis_off()
            continue
        width = result.error_estimate[i] * np.sqrt(np.mean(np.square(s[i])))
        if np.isfinite(width):
            low, high = s[i] - width, s[i] + width
            panel.fill_between(
                x[order], low[order], high[order], color=COLOURS[0], alpha=0.18, lw=0, label="error estimate"
            )
        if truth is not None:
            panel.plot(x[order], truth[i][order], color=INK, lw=2.2, label="truth")
        dashes = (0, (4, 1.5)) if truth is not None else "-"
        panel.plot(x[order], s[i][order], color=COLOURS[0], lw=1.8, ls=dashes, label="inversion")
        title_axes(panel, _title(s, truth, i))
        panel.margins(x=0.02)
    for i, panel in enumerate(axes[:n]):
        if i + columns >= n:  # nothing stands below
            panel.set_xlabel(letter)
            panel.xaxis.set_tick_params(labelbottom=True)
    for row in grid:
        row[0].set_ylabel(f"s({letter})")
    legend_above(figure, axes[0])
    return figure


def _panels(
    result: InversionResult,
    s: Float[np.ndarray, "n n_s"],
    truth: Float[np.ndarray, "n n_s"] | None,
    n: int,
    letters: Sequence[str],
) -> Figure:
    kinds = ["inversion"] if truth is None else ["truth", "inversion", "error"]
    rows, columns = (1, n) if truth is None else (n, 3)
    figure, grid = make_figure(
        2.75 * columns + 0.5, 2.45 * rows + 0.3, nrows=rows, ncols=columns, squeeze=False, sharex=True, sharey=True
    )
    for i in range(n):
        panels = [grid[0, i]] if truth is None else grid[i]
        fields = [s[i]] if truth is None else [truth[i], s[i], s[i] - truth[i]]
        low, high = min(field.min() for field in fields[:2]), max(field.max() for field in fields[:2])
        for kind, panel, field in zip(kinds, panels, fields, strict=True):
            is_error = kind == "error"
            size = max(float(np.abs(field).max()), np.finfo(float).tiny)
            limits = (-size, size) if is_error else (low, max(high, low + np.finfo(float).tiny))
            image = draw_field(panel, result.points_s, field, limits, ERROR_MAP if is_error else FIELD_MAP)
            title_axes(panel, _panel_title(s, truth, i, kind))
            if kind != "truth":
                figure.colorbar(image, ax=panel, pad=0.02)
    for panel in grid[-1]:
        panel.set_xlabel(letters[0])
    for row in grid:
        row[0].set_ylabel(letters[1])
    return figure


def draw_field(
    axes: Axes,
    points: Float[np.ndarray, "n 2"],
    values: Float[np.ndarray, " n"],
    limits: tuple[float, float],
    colour_map: str,
) -> Any:
    """Draw values in the plane: as an image where the points form a grid, else as dots.

    Args:
        axes: Where to draw.
        points: The points, shape (n, 2).
        values: Their values, shape (n,).
        limits: Values of the ends of the colour scale.
        colour_map: Its name.

    Returns:
        What a colour bar is made for.
    """
    options: Any = {"vmin": limits[0], "vmax": limits[1], "cmap": colour_map}
    sides = [np.unique(points[:, axis]) for axis in range(2)]
    if len(sides[0]) * len(sides[1]) == len(points) and min(map(len, sides)) > 1:
        image = np.empty((len(sides[1]), len(sides[0])))
        image[np.searchsorted(sides[1], points[:, 1]), np.searchsorted(sides[0], points[:, 0])] = values
        return axes.pcolormesh(sides[0], sides[1], image, shading="nearest", rasterized=True, **options)
    return axes.scatter(points[:, 0], points[:, 1], c=values, s=14, **options)


def _title(s: Float[np.ndarray, "n n_s"], truth: Float[np.ndarray, "n n_s"] | None, i: int) -> str:
    if truth is None:
        return f"sample {i}"
    size = np.linalg.norm(truth[i])
    error = np.linalg.norm(s[i] - truth[i]) / size if size > 0 else np.inf
    return f"sample {i}, error {100 * error:.1f} %"


def _panel_title(s: Float[np.ndarray, "n n_s"], truth: Float[np.ndarray, "n n_s"] | None, i: int, kind: str) -> str:
    if kind == "truth":
        return f"sample {i}: truth"
    if kind == "error":
        return "inversion - truth"
    return _title(s, truth, i) if truth is None else _title(s, truth, i).replace(f"sample {i}, ", "inversion, ")
