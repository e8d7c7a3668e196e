"""What the pictures share, and the picture of returns over training."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

__all__ = [
    "BAD",
    "COLOURS",
    "GOOD",
    "GREY",
    "INK",
    "Look",
    "confidence_map",
    "draw_grid",
    "legend_above",
    "line_looks",
    "make_figure",
    "method_title",
    "plot_learning_curves",
    "require_columns",
    "style",
    "title_axes",
]

# The palette of Okabe and Ito, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
GREY, INK = "#8A8A8A", "#222222"
GOOD, BAD = "#0072B2", "#D55E00"  # demonstrations of confidence 1 and 0
_DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_FAMILIES = ("pn-gail", "2iwil", "gail", "bc", "wgail", "ic-gail")
_KIN = {"gail-c": "gail", "gail-reweight": "gail", "bc-weighted": "bc"}
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


class Look(NamedTuple):
    """How a line is drawn.

    Attributes:
        color: Its colour.
        ls: Its dashes.
    """

    color: str
    ls: Any


class _End(NamedTuple):
    """The right end of a line, and its name."""

    value: float
    name: str
    look: Look


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
    if handles:
        with style():
            figure.legend(handles, labels, loc="outside upper left", ncols=min(n_columns, len(labels)))


def draw_grid(axes: Axes, axis: Literal["x", "y", "both"] = "y") -> None:
    """Draw pale lines behind the data of axes.

    Args:
        axes: The axes.
        axis: Whose ticks the lines stand at.
    """
    axes.grid(axis=axis, color="#E8E8E8", lw=0.8)
    axes.set_axisbelow(True)


def confidence_map() -> LinearSegmentedColormap:
    """Colours of confidences, from 0 to 1; none of them vanishes on white."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("confidence", [BAD, "#B59AA8", GOOD])


def method_title(name: str) -> str:
    """Write out the name of a method, such as ``pn-gail+bsc``.

    Args:
        name: A name as ``compare`` takes it; others stay as they are.

    Returns:
        The title.
    """
    from icl25_pn_gail.methods import METHODS

    method, plus, classifier = name.partition("+")
    titles = {"bc": "BC", "bc-weighted": "BC, weighted"} | {key: method.title for key, method in METHODS.items()}
    shown = classifier.upper() if classifier in ("bsc", "sc") else classifier
    return f"{titles[method]} + {shown}" if plus and method in titles else titles.get(method, name)


def line_looks(names: Iterable[str]) -> dict[str, Look]:
    """Choose colours and dashes: a colour for each method, in all pictures the same, and dashes for its variants.

    Args:
        names: Names of methods, such as ``pn-gail`` and ``pn-gail+sc``; or any names.

    Returns:
        How the line of each is drawn.
    """
    names = list(dict.fromkeys(names))
    roots = [name.partition("+")[0] for name in names]
    families = [_KIN.get(root, root) for root in roots]
    others = [family for family in dict.fromkeys(families) if family not in _FAMILIES]
    taken = {_FAMILIES.index(family) for family in families if family in _FAMILIES}
    free = [colour for i, colour in enumerate(COLOURS) if i not in taken]
    looks: dict[str, Look] = {}
    for i, (name, family) in enumerate(zip(names, families, strict=True)):
        if family in _FAMILIES:
            colour, turn = COLOURS[_FAMILIES.index(family)], 0
        else:
            place = others.index(family)
            colour, turn = free[place % len(free)], place // len(free)
        looks[name] = Look(colour, _DASHES[(families[:i].count(family) + turn) % len(_DASHES)])
    return looks


def require_columns(frame: pd.DataFrame, needed: Sequence[str], what: str) -> None:
    """See that a table has rows and columns.

    Args:
        frame: The table.
        needed: The columns.
        what: Its name in messages.

    Raises:
        ValueError: If it is empty or lacks one.
    """
    missing = [name for name in needed if name not in frame]
    if missing:
        raise ValueError(f"{what} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}")
    if frame.empty:
        raise ValueError(f"{what} has no rows, so there is nothing to draw")


def plot_learning_curves(
    histories: pd.DataFrame,
    levels: Mapping[str, float] | None = None,
    *,
    statistic: Literal["median", "mean"] = "median",
    level: float = 0.95,
    n_resamples: int = 2000,
) -> Figure:
    """Draw returns over training: for each method the middle of its seeds with a bootstrap interval, and each seed.

    The middle is drawn where all seeds of the method were evaluated. A method that takes no steps in the environment
    among others that do, such as behaviour cloning, is a level line at its last evaluation.

    Args:
        histories: Histories of runs, one below the other: columns ``method``, ``seed``, ``iteration``,
            ``eval_return`` (NaN where there was no evaluation), and ``env_steps`` for the horizontal axis, else that
            is the iteration.
        levels: Returns to compare with, by name, such as the mean returns of demonstrations.
        statistic: ``median`` or ``mean`` of the seeds.
        level: Coverage of the intervals, in (0, 1).
        n_resamples: Resamples of the bootstrap.

    Returns:
        The figure.

    Raises:
        ValueError: If a column is missing, nothing was evaluated, or an option is out of range.
    """
    require_columns(histories, ("method", "seed", "iteration", "eval_return"), "histories")
    if statistic not in ("median", "mean"):
        raise ValueError(f"statistic must be median or mean, found {statistic!r}")
    if not 0 < level < 1 or n_resamples < 1:
        raise ValueError(f"level must be in (0, 1) and n_resamples >= 1, found {level} and {n_resamples}")
    rows = histories[np.isfinite(histories["eval_return"].to_numpy(float))].reset_index(drop=True)
    twice = rows.duplicated(["method", "seed", "iteration"])
    if twice.any():
        method, seed, iteration = rows.loc[twice.idxmax(), ["method", "seed", "iteration"]]
        raise ValueError(f"histories has iteration {iteration} of {method}, seed {seed}, more than once")
    require_columns(rows, (), "histories, without the iterations that were not evaluated,")
    stepped = "env_steps" in rows and bool(rows["env_steps"].notna().any())
    x = "env_steps" if stepped else "iteration"
    figure, axes = make_figure(7.4, 4.0)
    looks = line_looks(rows["method"].astype(str))
    ends: list[_End] = []
    for name, part in rows.groupby("method", sort=False):
        look, title = looks[str(name)], method_title(str(name))
        level_line = bool(part[x].isna().all())
        if level_line:
            part = part.loc[part.groupby("seed")["iteration"].idxmax()].assign(**{x: 0})
        table = part.pivot(index=x, columns="seed", values="eval_return").sort_index()
        whole = table.dropna()
        middle = whole.median(axis=1) if statistic == "median" else whole.mean(axis=1)
        low, high = _bootstrap_band(whole.to_numpy(float), statistic, level, n_resamples)
        if level_line:
            axes.axhspan(low[0], high[0], color=look.color, alpha=0.13, lw=0)
            axes.axhline(middle.iloc[0], color=look.color, ls=look.ls, lw=1.6, label=title)
        else:
            if table.shape[1] > 1:
                for seed in table:
                    single = table[seed].dropna()
                    axes.plot(single.index, single, color=look.color, lw=0.7, alpha=0.45, label="_seed")
                axes.fill_between(whole.index, low, high, color=look.color, alpha=0.18, lw=0)
            marker = "o" if len(whole) < 4 else ""
            if len(whole) == 1 and table.shape[1] > 1:  # an interval at one point has no area
                axes.vlines(whole.index, low, high, color=look.color, alpha=0.4, lw=5)
            axes.plot(whole.index, middle, color=look.color, ls=look.ls, lw=2.2, marker=marker, ms=4, label=title)
        if len(middle):
            ends.append(_End(float(middle.iloc[-1]), title, look))
    for name, value in (levels or {}).items():
        ends.append(_End(float(value), name, Look(GREY, (0, (2, 2)))))
        axes.axhline(value, **ends[-1].look._asdict(), lw=1.2, zorder=1, label=name)
    axes.set(xlabel="steps in the environment" if stepped else "iteration", ylabel="return of an evaluation")
    axes.margins(x=0.01)
    if rows[x].nunique() == 1:
        axes.set_xlim(0, 1.1 * rows[x].max())
    draw_grid(axes)
    _count_steps(axes)
    n_seeds = rows.groupby("method", sort=False)["seed"].nunique()
    if n_seeds.max() > 1:
        least, most = n_seeds.min(), n_seeds.max()
        count = most if least == most else f"{least} to {most}"
        title_axes(axes, f"{statistic.capitalize()} of {count} seeds, {100 * level:g} % interval")
    _label_ends(axes, ends)
    return figure


def _bootstrap_band(
    values: Float[np.ndarray, "points seeds"], statistic: str, level: float, n_resamples: int
) -> Float[np.ndarray, "2 points"]:
    """Percentile intervals of every point, from the same resamples of the seeds."""
    points, seeds = values.shape
    if not seeds:
        return np.empty((2, 0))
    drawn = np.random.default_rng(0).choice(seeds, (n_resamples, seeds))
    how = np.median if statistic == "median" else np.mean
    tails = [(1 - level) / 2, (1 + level) / 2]
    found = [np.quantile(how(row[drawn], axis=1), tails) for row in values]
    return np.array(found).reshape(points, 2).T


def _count_steps(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    def short(value: float, _: int) -> str:
        for size, unit in ((1e6, " M"), (1e3, " k")):
            if abs(value) >= size:
                return f"{value / size:g}{unit}"
        return f"{value:g}"

    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(short))


def _label_ends(axes: Axes, ends: Sequence[_End], gap: float = 0.062) -> None:
    """Write names beside the right ends of lines, apart from each other and in the order of the lines."""
    from matplotlib.lines import Line2D
    from sklearn.isotonic import isotonic_regression

    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    ordered = sorted(ends, key=lambda end: end.value)
    steps = gap * np.arange(len(ordered))
    heights = np.array([(end.value - low) / (high - low) for end in ordered])
    heights = np.clip(isotonic_regression(heights - steps), 0, max(0, 1 - steps[-1])) + steps
    for height, end in zip(map(float, heights), ordered, strict=True):
        grey = end.look.color == GREY
        key = Line2D(
            [1.015, 1.05], [height, height], color=end.look.color, ls=end.look.ls, lw=1.2 if grey else 2.2,
            transform=axes.transAxes, clip_on=False, label="_key",
        )  # fmt: skip
        axes.add_artist(key)
        axes.annotate(
            end.name, (1.06, height), xycoords="axes fraction", va="center", ha="left", fontsize=9.5,
            color="#555555" if grey else end.look.color, fontweight="normal" if grey else "bold", annotation_clip=False,
        )  # fmt: skip
