"""Pictures of a valuation, as matplotlib figures of their own that touch no global state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Num, Shaped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "plot_batches",
    "plot_detection",
    "plot_histogram",
    "plot_methods",
    "plot_pruning",
    "plot_worst",
]

# The palette of Okabe and Ito, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_GREY, _INK = "#9A9A9A", "#222222"
_DASHES = ("-", (0, (6, 2)), (0, (1, 1.2)), (0, (6, 2, 1.5, 2)))
_DPI = 150
_STYLE: Any = {
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.labelcolor": _INK,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}
_MOST_POINTS = 2000
_MOST_CLASSES = 12
_GAP = 0.06  # between two images of a pair, as a share of their width


def make_figure(width: float, height: float, **grid: Any) -> tuple[Figure, Any]:
    """A figure with axes in the shared style, which matplotlib reads when axes are made: it need not outlive this."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), dpi=_DPI, layout="constrained")
        return figure, figure.subplots(**grid)


def _title(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=_INK)


def _percent(axis: Any) -> None:
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def plot_detection(curves: Mapping[str, pd.DataFrame], title: str = "") -> Figure:
    """Share of bad rows found against share of rows inspected, between the random and the oracle line.

    Args:
        curves: For each method the table of `evaluation.detection_curve`, all on the same rows.
        title: Title of the picture.

    Returns:
        The figure.

    Raises:
        ValueError: If there is no curve.

    Source: detection figures of Kessler et al. (ICLR 2025).
    """
    if not curves:
        raise ValueError("curves is empty, expected one table per method")
    figure, axes = make_figure(6.0, 4.0)
    first = next(iter(curves.values()))
    share = first["inspected"] / first["inspected"].iloc[-1]
    axes.plot(share, first["oracle"], color=_GREY, lw=1.2, ls=(0, (4, 2)), label="oracle")
    axes.plot(share, first["random"], color=_GREY, lw=1.2, ls=(0, (1, 1.5)), label="random")
    for k, (name, curve) in enumerate(curves.items()):
        step = max(1, len(curve) // _MOST_POINTS)
        thin = curve.iloc[[*range(0, len(curve) - 1, step), len(curve) - 1]]
        axes.plot(
            thin["inspected"] / curve["inspected"].iloc[-1],
            thin["rate"],
            color=COLOURS[k % len(COLOURS)],
            ls=_DASHES[k % len(_DASHES)],
            lw=2,
            label=name,
        )
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="rows inspected, worst value first", ylabel="bad rows found")
    _title(axes, title)
    _percent(axes.xaxis)
    _percent(axes.yaxis)
    handles, names = axes.get_legend_handles_labels()
    axes.legend([*handles[2:], *handles[:2]], [*names[2:], *names[:2]], loc="lower right", frameon=False)
    return figure


def plot_histogram(values: Num[np.ndarray, " n"], flags: Shaped[np.ndarray, " m"], title: str = "") -> Figure:
    """Histogram of values for each flag or class, on common bins.

    Args:
        values: (n,) values.
        flags: (n,) booleans (bad or not) or classes; of more than 12 classes the rarest are put together.
        title: Title of the picture.

    Returns:
        The figure.

    Raises:
        ValueError: If lengths differ or a value is not finite.

    Source: ours.
    """
    values, flags = np.asarray(values, dtype=np.float64), np.asarray(flags)
    if values.shape != flags.shape or values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError(f"values and flags must be 1-D, finite and equally long: {values.shape}, {flags.shape}")
    names = np.where(flags, "bad", "good") if flags.dtype == bool else flags.astype(np.str_)
    kinds, counts = np.unique(names, return_counts=True)
    if len(kinds) > _MOST_CLASSES:
        common = kinds[np.sort(np.argsort(-counts, kind="stable")[: _MOST_CLASSES - 1])]
        names = np.where(np.isin(names, common), names, "others")
        kinds = np.append(common, "others")
    # A few extreme values must not squeeze all others into one bin, so the outermost bins collect what lies beyond.
    low, high = np.quantile(values, [0.002, 0.998])
    bins = np.linspace(low, high, 61) if high > low else np.linspace(low - 0.5, low + 0.5, 61)
    clipped = np.clip(values, bins[0], bins[-1])
    # Two outlines can share axes; more hide each other, so then each kind has a line of its own.
    apart = len(kinds) > 2
    n_lines = len(kinds) if apart else 1
    height = 1.0 + 0.42 * n_lines if apart else 3.6
    figure, grid = make_figure(6.0, height, nrows=n_lines, sharex=True, squeeze=False)
    for k, kind in enumerate(kinds):
        axes = grid[k if apart else 0, 0]
        of_kind = clipped[names == kind]
        label, colour = f"{kind} ({len(of_kind):,})", COLOURS[0 if apart else len(kinds) - 1 - k]
        axes.hist(of_kind, bins, color=colour, alpha=0.22)
        axes.hist(of_kind, bins, color=colour, histtype="step", lw=1.5, label=label)
        if apart:
            axes.set_yticks([])
            axes.spines["left"].set_visible(False)
            axes.set_ylabel(label, rotation=0, ha="right", va="center")
    top, bottom = grid[0, 0], grid[-1, 0]
    bottom.set(xlabel="value (higher is better)", xlim=(bins[0], bins[-1]))
    _title(top, title)
    if not apart:
        top.set_ylabel("rows")
        top.legend(frameon=False)
    return figure


def plot_batches(batch_costs: Float[np.ndarray, "t v"], outer_plan: Float[np.ndarray, "s w"]) -> Figure:
    """Heat maps of the costs between batches and of the plan that weighs them.

    Args:
        batch_costs: (K_t, K_v) optimal-transport cost of each pair of batches.
        outer_plan: (K_t, K_v) plan; shown as multiples of the uniform weight 1 / (K_t K_v).

    Returns:
        The figure.

    Raises:
        ValueError: If the shapes differ.

    Source: overview figure of Kessler et al. (ICLR 2025).
    """
    if batch_costs.shape != outer_plan.shape or batch_costs.ndim != 2:
        raise ValueError(f"batch_costs {batch_costs.shape} and outer_plan {outer_plan.shape} must be 2-D of one shape")
    from matplotlib.ticker import MaxNLocator

    figure, (left, right) = make_figure(7.0, 3.4, ncols=2)
    figure.set_layout_engine("constrained", wspace=0.06)
    for axes, matrix, title, colours in (
        (left, batch_costs, "Cost between batches", "viridis"),
        (right, outer_plan * outer_plan.size, "Weight, 1 = uniform", "cividis"),
    ):
        shown = axes.imshow(matrix, cmap=colours, aspect="auto", interpolation="nearest")
        axes.set(xlabel="validation batch", ylabel="training batch")
        _title(axes, title)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.spines[:].set_visible(False)
        bar = figure.colorbar(shown, ax=axes, shrink=0.9)
        bar.outline.set_visible(False)
    return figure


def plot_pruning(curves: Mapping[str, pd.DataFrame] | pd.DataFrame, title: str = "") -> Figure:
    """Test accuracy against the share of rows pruned, beside random pruning.

    Args:
        curves: The table of `evaluation.pruning_curve`, or one for each method, all on the same data.
        title: Title of the picture.

    Returns:
        The figure.

    Raises:
        ValueError: If there is no curve.

    Source: pruning figures of Kessler et al. (ICLR 2025).
    """
    if isinstance(curves, pd.DataFrame):
        curves = {"by value": curves}
    if not curves:
        raise ValueError("curves is empty, expected one table per method")
    figure, axes = make_figure(6.0, 4.0)
    for k, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[k % len(COLOURS)]
        axes.plot(curve["fraction"], curve["accuracy"], "o-", color=colour, lw=2, ms=5, label=name)
    first = next(iter(curves.values()))
    axes.plot(first["fraction"], first["random"], "s", ls=(0, (4, 2)), color=_GREY, lw=1.5, ms=4, label="at random")
    axes.set(xlabel="rows pruned", ylabel="test accuracy")
    _title(axes, title)
    _percent(axes.xaxis)
    axes.grid(axis="y", color="#E5E5E5", lw=0.8)
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
    return figure


def plot_worst(
    X: Num[np.ndarray, "n d"],
    y: Shaped[np.ndarray, " n"],
    values: Num[np.ndarray, " n"],
    nearest_index: Int[np.ndarray, " n"],
    X_val: Num[np.ndarray, "m d"],
    y_val: Shaped[np.ndarray, " m"],
    image_shape: tuple[int, ...],
    k: int = 32,
    title: str = "",
) -> Figure:
    """Grid of the k worst training images, each beside its nearest validation image, with both labels.

    Args:
        X: (n, d) training rows.
        y: (n,) their labels.
        values: (n,) their values.
        nearest_index: (n,) the validation row nearest to each.
        X_val: (m, d) validation rows.
        y_val: (m,) their labels.
        image_shape: (height, width) or (height, width, channels) of a row.
        k: Images to show, worst first, row by row.
        title: Title of the picture.

    Returns:
        The figure.

    Raises:
        ValueError: If lengths or the image shape do not fit, or k < 1.

    Source: ours.
    """
    if not len(X) == len(y) == len(values) == len(nearest_index):
        raise ValueError("X, y, values and nearest_index must have the same number of rows")
    if len(image_shape) not in (2, 3) or int(np.prod(image_shape)) != X.shape[1]:
        raise ValueError(f"image_shape is {image_shape}, which does not describe rows of {X.shape[1]} features")
    if k < 1:
        raise ValueError(f"k is {k}, expected 1 or more")
    worst = np.argsort(values, kind="stable")[:k]
    n_columns = min(8, len(worst))
    n_lines = -(-len(worst) // n_columns)
    cell_width = 0.8
    cell_height = 0.84 * cell_width * image_shape[0] / image_shape[1] / (2 + _GAP) + 0.24
    figure, grid = make_figure(
        max(cell_width * n_columns, 5.4),
        cell_height * n_lines + 0.3,
        nrows=n_lines,
        ncols=n_columns,
        squeeze=False,
        subplot_kw={"anchor": "N"},
    )
    figure.set_layout_engine("constrained", w_pad=0.02, h_pad=0.02, wspace=0.12, hspace=0.0)
    heading = "Worst training rows (left) beside their nearest validation rows (right)"
    figure.suptitle(title or heading, fontsize=9.5, fontweight="bold", color=_INK, x=0.01, ha="left")
    for axes in grid.flat:
        axes.set_axis_off()
    shown = np.concatenate([X[worst], X_val[nearest_index[worst]]])
    low, high = float(shown.min()), float(shown.max())
    for axes, row in zip(grid.flat, worst, strict=False):
        near = int(nearest_index[row])
        _draw_pair(axes, X[row].reshape(image_shape), X_val[near].reshape(image_shape), low, high)
        disagree = y[row] != y_val[near]
        axes.set_title(
            f"{_short(y[row])} | {_short(y_val[near])}",
            fontsize=8,
            loc="center",
            pad=2,
            color=COLOURS[1] if disagree else _INK,
            fontweight="bold" if disagree else "normal",
        )
    return figure


def _draw_pair(axes: Axes, image: np.ndarray, near: np.ndarray, low: float, high: float) -> None:
    """Two images side by side with a white gap."""
    gap_shape = (image.shape[0], max(1, round(_GAP * image.shape[1])), *image.shape[2:])
    scale = high - low if high > low else 1.0
    pair = np.concatenate([(image - low) / scale, np.ones(gap_shape), (near - low) / scale], axis=1)
    if pair.ndim == 3 and pair.shape[2] == 1:
        pair = pair[..., 0]
    axes.imshow(pair, cmap="gray", vmin=0, vmax=1, interpolation="nearest")


def _short(label: Any) -> str:
    text = str(label)
    return text if len(text) <= 9 else f"{text[:8]}…"


def plot_methods(table: pd.DataFrame, title: str = "", label: str = "detection AUC") -> Figure:
    """Bars that compare methods: a group of bars per row of the table, a colour per column.

    Args:
        table: Scores in [0, 1]; the index names what is compared on, the columns name the methods.
        title: Title of the picture.
        label: What the scores are.

    Returns:
        The figure.

    Raises:
        ValueError: If the table is empty or holds something else than finite numbers.

    Source: ours.
    """
    scores = table.to_numpy(dtype=np.float64)
    if scores.size == 0 or not np.isfinite(scores).all():
        raise ValueError("table must hold finite scores, at least one")
    n_groups, n_methods = scores.shape
    thickness = 0.8 / n_methods
    figure, axes = make_figure(6.0, 0.9 + n_groups * (0.3 + 0.2 * n_methods))
    for k, name in enumerate(table.columns):
        places = np.arange(n_groups) + (k - (n_methods - 1) / 2) * thickness
        colour = COLOURS[k % len(COLOURS)]
        bars = axes.barh(places, scores[:, k], 0.86 * thickness, color=colour, label=str(name))
        axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8.5, color=_INK)
    axes.axvline(0.5, color=_GREY, lw=1, ls=(0, (4, 2)), zorder=0)
    axes.set(yticks=np.arange(n_groups), yticklabels=table.index.astype(str), xlim=(0, 1.09), xlabel=label)
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    _title(axes, title)
    n_columns = -(-n_methods // -(-n_methods // 4))
    figure.legend(loc="outside lower center", ncols=n_columns, frameon=False)
    return figure
