"""Pictures of how similar the layers of networks are to areas of the brain, as figures that touch no global state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Num

from icl25_lp_conv.plotting import COLOURS, GREY, INK, make_figure
from icl25_lp_conv.rsa_tables import median_ceilings, summarize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_heatmap", "plot_layers"]

_MARKS = ("o", "s", "^", "D", "v", "P", "X")  # for print without colour
_BAND = "#DDDDDD"
_COLUMNS = 3  # panels side by side
_MOST_TICKS = 24  # names of layers below a panel
_CORRECTED, _PLAIN = "similarity / noise ceiling", "similarity (correlation of RSMs)"


def plot_layers(
    networks: pd.DataFrame | Mapping[str, pd.DataFrame],
    ceilings: Mapping[str, Num[np.ndarray, "..."]] | None = None,
    title: str = "",
) -> Figure:
    """Similarity of each layer to each area: a panel for each area, a line for each network, a band for the ceiling.

    Points are medians over sessions. Where the table has similarities corrected for the noise ceiling, these are drawn,
    with the error of the authors (half the standard deviation over sessions, divided by the ceiling); otherwise plain
    ones with half the standard deviation.

    Args:
        networks: A table of ``rsa`` or ``summarize``, or for each name of a network such a table. Layers that have the
            same name in several networks stand at the same place.
        ceilings: For each area (k,) noise ceilings, whose middle half is drawn as a band around the median. They do not
            change the points.
        title: Title of the picture.

    Returns:
        The figure.

    Raises:
        ValueError: If there is no network, a column is missing, an area has no ceilings, some tables are corrected and
            others are not, or no layer has a similarity.

    Source: the paper's figures of similarity by layer for areas of the visual cortex.
    """
    summaries = _summaries(networks)
    corrected = _is_corrected(summaries)
    areas, layers = _values(summaries, "area"), _values(summaries, "layer")
    medians = {} if ceilings is None else median_ceilings(ceilings, areas)
    n_columns = 2 if len(areas) == 4 else min(_COLUMNS, len(areas))
    n_rows = math.ceil(len(areas) / n_columns)
    longest = max(map(len, layers))
    width = 1.2 + n_columns * max(2.8, 0.22 * min(len(layers), _MOST_TICKS))
    figure, grid = make_figure(
        width,
        0.9 + 2.3 * n_rows + 0.085 * longest,
        nrows=n_rows,
        ncols=n_columns,
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    panels = grid.ravel()
    for axes, area in zip(panels, areas, strict=False):
        if ceilings is not None:
            values = np.asarray(ceilings[area]) / (medians[area] if corrected else 1)
            low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
            axes.axhspan(low, high, color=_BAND, lw=0, label="noise ceiling, middle half")
            axes.axhline(middle, color=GREY, lw=1, ls=(0, (4, 2)), label="noise ceiling, median")
        for k, (name, summary) in enumerate(summaries.items()):
            # Several networks are set apart a little, lest their error bars hide each other.
            shift = 0.12 * (k - (len(summaries) - 1) / 2)
            _draw_line(axes, summary[summary["area"] == area], layers, shift, k, name, corrected)
        axes.set_title(area, loc="left", fontsize=10.5, fontweight="bold", color=INK)
        axes.grid(axis="y", color="#EEEEEE", lw=0.8)
        axes.set_axisbelow(True)
    for axes in panels[len(areas) :]:
        # Only the names of layers remain, which belong to the panels above.
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", left=False)
    _label_layers(grid, layers)
    figure.supylabel(_CORRECTED if corrected else _PLAIN, fontsize=10, color=INK)
    handles, names = panels[0].get_legend_handles_labels()
    if len(names) > 1:
        figure.legend(handles, names, loc="outside lower center", ncols=min(len(names), n_columns + 1), frameon=False)
    _title(figure, title)
    return figure


def plot_heatmap(summary: pd.DataFrame, title: str = "") -> Figure:
    """Similarity of each layer (rows) to each area (columns), in colour and as numbers; the best of an area is framed.

    Args:
        summary: A table of ``rsa`` or ``summarize``.
        title: Title of the picture.

    Returns:
        The figure.

    Raises:
        ValueError: If a column is missing or no layer has a similarity.

    Source: ours.
    """
    from matplotlib.patches import Rectangle

    summaries = _summaries(summary)
    corrected = _is_corrected(summaries)
    [summary] = summaries.values()
    areas, layers = _values(summaries, "area"), _values(summaries, "layer")
    values = summary.set_index(["layer", "area"])["corrected" if corrected else "ssm"].unstack()
    values = values.loc[layers, areas].to_numpy(np.float64)
    height = 1.3 + 0.27 * len(layers)
    figure, axes = make_figure(1.9 + 0.075 * max(map(len, layers)) + 0.75 * len(areas), height)
    image = axes.imshow(values, cmap="cividis", aspect="auto", interpolation="nearest")
    axes.set_facecolor(_BAND)
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for (row, column), value in np.ndenumerate(values):
        text = "nan" if np.isnan(value) else f"{value:.2f}"
        dark = not np.isnan(value) and value < middle
        axes.text(column, row, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    for column in range(len(areas)):
        if not np.isnan(values[:, column]).all():
            corner = (column - 0.5, np.nanargmax(values[:, column]) - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=COLOURS[1], lw=2.5))
    axes.set_xticks(range(len(areas)), areas)
    axes.set_yticks(range(len(layers)), layers)
    axes.tick_params(length=0)
    axes.set(xlabel="area (best layer framed)", ylabel="layer")
    for spine in axes.spines.values():
        spine.set_visible(False)
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=max(12, 3 * height))
    bar.set_label(_CORRECTED if corrected else _PLAIN)
    bar.outline.set_visible(False)
    _title(figure, title)
    return figure


def _draw_line(
    axes: Axes, part: pd.DataFrame, layers: list[str], shift: float, k: int, name: str, corrected: bool
) -> None:
    """The line of one network in the panel of one area."""
    places = np.array([layers.index(layer) for layer in part["layer"]]) + shift
    values = part["corrected"] if corrected else part["ssm"]
    errors = part["error"] if corrected else part["std"] / 2
    axes.errorbar(
        places,
        values.to_numpy(),
        # A single session has no spread.
        yerr=errors.fillna(0).to_numpy(),
        color=COLOURS[k % len(COLOURS)],
        marker=_MARKS[k % len(_MARKS)],
        ms=4,
        lw=1.6,
        elinewidth=1,
        capsize=2,
        label=name,
    )


def _label_layers(grid: Any, layers: list[str]) -> None:
    """Names of layers below the lowest panels; of very many only some, evenly spaced."""
    step = math.ceil(len(layers) / _MOST_TICKS)
    places = range(0, len(layers), step)
    for axes in grid[-1]:
        axes.set_xticks(places, [layers[place] for place in places], rotation=90, fontsize=8)
        axes.set_xlim(-0.6, len(layers) - 0.4)
        axes.set_xlabel("layer" if step == 1 else f"layer (one name in {step})")


def _summaries(networks: pd.DataFrame | Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The networks by name, each aggregated over sessions."""
    tables = {"median over sessions": networks} if isinstance(networks, pd.DataFrame) else dict(networks)
    if not tables:
        raise ValueError("networks is empty, expected a table for each name")
    found = {}
    for name, table in tables.items():
        summary = summarize(table) if "session" in table else table
        missing = {"layer", "area", "ssm", "std", "corrected", "error"} - set(summary)
        if missing:
            raise ValueError(f"the table of {name!r} lacks the columns {', '.join(sorted(missing))}")
        if summary["ssm"].isna().all():
            raise ValueError(f"no layer of {name!r} has a similarity to any area")
        found[name] = summary
    return found


def _is_corrected(summaries: Mapping[str, pd.DataFrame]) -> bool:
    """Whether similarities are divided by noise ceilings, which must hold for all layers and areas or for none."""
    known = pd.concat([summary.dropna(subset=["ssm"]) for summary in summaries.values()])["corrected"].notna()
    if known.any() and not known.all():
        raise ValueError("some similarities are corrected for a noise ceiling and others are not; draw them apart")
    return bool(known.all())


def _values(summaries: Mapping[str, pd.DataFrame], column: str) -> list[str]:
    """What stands in a column of any table, in order of appearance."""
    return list(dict.fromkeys(str(value) for summary in summaries.values() for value in summary[column]))


def _title(figure: Figure, title: str) -> None:
    if title:
        figure.suptitle(title, x=0.02, ha="left", fontsize=12, fontweight="bold", color=INK)
