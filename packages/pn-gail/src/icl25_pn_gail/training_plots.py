"""The picture of one training: what the policy does, and whether the discriminator still has something to teach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from icl25_pn_gail.plotting import BAD, COLOURS, GOOD, GREY, INK, draw_grid, make_figure, require_columns, title_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_training"]


class _Line(NamedTuple):
    label: str
    color: str
    lw: float = 1.6
    ls: Any = "-"


# Panels: title, whether the axis may be logarithmic, and a line for each column; thin lines lie on thick ones.
_PANELS = (
    (
        "Return",
        False,
        {"train_return": _Line("in training", GREY), "eval_return": _Line("evaluation, mean action", COLOURS[0])},
    ),
    (
        "Rows that D takes for the agent's",
        False,
        {
            "taken_agent": _Line("agent's rows", INK, 3.4),
            "taken_good": _Line("good demonstrations", GOOD, 2.0),
            "taken_bad": _Line("bad demonstrations", BAD, 1.6, (0, (4, 2))),
        },
    ),
    ("Loss of the discriminator", False, {"disc_loss": _Line("", COLOURS[0])}),
    ("Entropy of the policy (nats)", False, {"entropy": _Line("", COLOURS[0])}),
    ("KL of each update (nats)", False, {"kl": _Line("", COLOURS[0])}),
    ("Error of the value function", True, {"value_loss": _Line("", COLOURS[0])}),
    ("Negative log-likelihood (nats)", False, {"loss": _Line("", COLOURS[0])}),
)
_SMOOTH_FROM = 100  # iterations from which single ones are drawn pale below their running mean
_EVALUATED = ("eval_return",)  # columns known at some iterations


def plot_training(history: pd.DataFrame) -> Figure:
    """Draw the history of a training in small pictures.

    The discriminator has nothing to teach where it takes all of the agent's rows for the agent's and none of the good
    demonstrations; the aim of PN-GAIL is that it takes bad demonstrations for the agent's.

    Args:
        history: ``history`` of a learner: ``iteration`` and any of ``eval_return``, ``train_return``, ``taken_agent``,
            ``taken_good``, ``taken_bad``, ``disc_loss``, ``entropy``, ``kl``, ``value_loss``, and of behaviour cloning
            ``loss``. From 100 iterations on, lines are means over 2 % of them, above pale single values.

    Returns:
        The figure: a picture for each topic of which something is known.

    Raises:
        ValueError: If the history has no rows, no iterations, or none of the columns.
    """
    require_columns(history, ("iteration",), "history")
    known = {name for name in history if np.isfinite(pd.to_numeric(history[name], errors="coerce")).any()}
    panels = [panel for panel in _PANELS if known & set(panel[2])]
    if not panels:
        raise ValueError("history has no column that is drawn, such as eval_return or loss")
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure, grid = make_figure(
        max(3.3 * columns, 4.4), 2.6 * rows + 0.2, nrows=rows, ncols=columns, squeeze=False, sharex=True
    )
    for axes in grid.ravel()[len(panels) :]:
        axes.set_axis_off()
    for i, (axes, (title, may_log, lines)) in enumerate(zip(grid.ravel(), panels, strict=False)):
        for name, line in lines.items():
            if name in known:
                _draw(axes, history, name, line)
        if may_log and _spans_decades(history[list(known & set(lines))]):
            axes.set_yscale("log")
        if "taken_agent" in lines:
            axes.set_ylim(-0.04, 1.04)
            axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
        draw_grid(axes)
        title_axes(axes, title)
        if len(known & set(lines)) > 1:
            axes.legend(frameon=False, fontsize=8, loc="best", handlelength=1.4, borderaxespad=0.2)
        if i + columns >= len(panels):  # nothing stands below
            axes.set_xlabel("iteration")
            axes.xaxis.set_tick_params(labelbottom=True)
        axes.margins(x=0.02)
    return figure


def _spans_decades(values: pd.DataFrame) -> bool:
    low, high = np.nanmin(values), np.nanmax(values)
    return bool(low > 0 and high > 10 * low)


def _draw(axes: Axes, history: pd.DataFrame, name: str, line: _Line) -> None:
    part = history.loc[np.isfinite(pd.to_numeric(history[name], errors="coerce")), ["iteration", name]]
    x, y = part["iteration"].to_numpy(), part[name].astype(float)
    look: dict[str, Any] = line._asdict() | {"label": line.label or name}
    if name in _EVALUATED:
        axes.plot(x, y, marker="o" if len(x) <= 60 else "", ms=3, **look)
    elif len(x) < _SMOOTH_FROM:
        axes.plot(x, y, marker="" if len(x) > 1 else "o", **look)
    else:
        axes.plot(x, y, color=line.color, lw=0.6, alpha=0.3, label="_single")
        axes.plot(x, y.rolling(max(2, len(x) // 50), center=True, min_periods=1).mean(), **look)
