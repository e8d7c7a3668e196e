"""Pictures of learned policies: what the discriminator pays for, and where the policies go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from icl25_pn_gail.plotting import (
    INK,
    confidence_map,
    legend_above,
    make_figure,
    method_title,
    style,
    title_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from icl25_pn_gail.demonstrations import Demonstrations

__all__ = ["TWO_GOALS", "plot_discriminator", "plot_rollouts"]

TWO_GOALS = {"A": (1.0, 0.6), "B": (-1.0, 0.6)}
_GRID = 80
_NEIGHBOURS = 20
_MOST_DOTS, _MOST_PROBES, _QUANTILES = 1500, 256, 9
_MOST_ACTIONS, _MOST_NAMED = 4, 4
_MOST_COLUMNS = 4
_UNKNOWN = "#555555"  # colour of demonstrations without confidence
_MOST_OBLONG = 3  # extent of one coordinate over the other, up to which they are drawn to the same scale
_ROOM = 0.5  # around demonstrations and goals, for traces that leave them, as a share of their extent


def plot_discriminator(
    policy: Any,
    demos: Demonstrations,
    confidence: Any = None,
    *,
    dims: tuple[int, int] | None = None,
    names: Sequence[str] | None = None,
) -> Figure:
    """Draw the rewards of the discriminator over two inputs, with demonstrations coloured by confidence.

    The reward at a place is its mean over what else the twenty nearest demonstrated rows hold. Discrete actions have a
    picture each, at most the four that were demonstrated most.

    Args:
        policy: A learned policy or a learner: what has ``reward(obs, acts)``.
        demos: The demonstrations, shape (n, ...).
        confidence: Confidence of each row, shape (n,), NaN where it is not known. Default: that of ``demos``.
        dims: Columns of ``demos.inputs()`` to draw over, only of observations where actions are discrete. Default: the
            two that the reward depends on most: whose change to quantiles of their demonstrated values, all else as in
            the rows, gives the reward the largest mean variance.
        names: Names of the observations and, unless they are discrete, of the actions.

    Returns:
        The figure.

    Raises:
        ValueError: If there are not two inputs to draw over, ``dims`` or ``names`` do not fit, or ``policy`` has no
            discriminator.
    """
    inputs = demos.obs if demos.discrete else demos.inputs()
    n_inputs = inputs.shape[1]
    if n_inputs < 2:
        raise ValueError(f"a picture needs two inputs of the discriminator to draw over, found {n_inputs}")
    if names is None:
        names = [f"observation {i}" for i in range(demos.obs_dim)]
        names += [] if demos.discrete else [f"action {i}" for i in range(demos.act_dim)]
    if len(names) != n_inputs:
        raise ValueError(f"names must be {n_inputs}, one for each input, found {len(names)}")
    confidence = demos.confidence if confidence is None else np.asarray(confidence, float)
    if confidence.shape != (len(demos),):
        raise ValueError(f"confidence must have shape ({len(demos)},), one for each row, found {confidence.shape}")
    first, second = _most_telling(policy, demos, inputs) if dims is None else dims
    if first == second or not {first, second} <= set(range(n_inputs)):
        raise ValueError(f"dims must be two different columns from 0 to {n_inputs - 1}, found {dims}")
    actions: list[int | None] = [None]
    if demos.discrete:
        counts = np.bincount(demos.acts, minlength=demos.n_actions)
        actions = sorted(np.argsort(-counts, kind="stable")[: min(_MOST_ACTIONS, int(np.sum(counts > 0)))].tolist())
    sides = [_side(inputs[:, i]) for i in (first, second)]
    fields = [_field(policy, demos, inputs, (first, second), sides, action) for action in actions]
    figure, grid = make_figure(3.3 * len(fields) + 2.0, 3.9, ncols=len(fields), squeeze=False, sharex=True, sharey=True)
    low, high = min(map(np.min, fields)), max(map(np.max, fields))
    for axes, action, field in zip(grid[0], actions, fields, strict=True):
        image = axes.pcolormesh(
            *sides, field, cmap=_pay_map(), vmin=low, vmax=max(high, low + 1e-9), shading="nearest", rasterized=True
        )
        if np.ptp(field) > 0:
            axes.contour(*sides, field, levels=np.linspace(low, high, 8)[1:-1], colors="#555555", linewidths=0.5)
        rows = np.arange(len(demos)) if action is None else np.flatnonzero(demos.acts == action)
        rows = rows[_spread(len(rows), _MOST_DOTS)]
        rows = rows[np.argsort(np.nan_to_num(confidence[rows], nan=-1), kind="stable")]  # the best on top
        _draw_dots(axes, inputs[rows][:, [first, second]], confidence[rows])
        axes.set(xlabel=names[first], xlim=sides[0][[0, -1]], ylim=sides[1][[0, -1]])
        if action is not None:
            title_axes(axes, f"action {action}")
    grid[0, 0].set_ylabel(names[second])
    with style():
        figure.colorbar(image, ax=grid[0, -1], pad=0.02, label="reward from the discriminator")
    _explain_confidence(figure, grid[0, 0], confidence, {"ls": "", "marker": "o", "ms": 5})
    return figure


def _most_telling(policy: Any, demos: Demonstrations, inputs: Float[np.ndarray, "n k"]) -> tuple[int, int]:
    """The two inputs that the reward depends on most, in order of the columns."""
    probes = _spread(len(inputs), _MOST_PROBES)
    found = np.zeros(inputs.shape[1])
    for i in range(len(found)):
        changed = np.repeat(inputs[probes][None], _QUANTILES, axis=0)
        values = np.quantile(inputs[:, i], np.linspace(0, 1, _QUANTILES))
        changed[:, :, i] = values[:, None]
        acts = np.tile(demos.acts[probes], _QUANTILES) if demos.discrete else None
        rewards = _rewards(policy, demos, changed.reshape(-1, inputs.shape[1]), acts).reshape(_QUANTILES, -1)
        found[i] = rewards.var(axis=0).mean()
    first, second = sorted(np.argsort(-found, kind="stable")[:2].tolist())
    return first, second


def _field(
    policy: Any,
    demos: Demonstrations,
    inputs: Float[np.ndarray, "n k"],
    dims: tuple[int, int],
    sides: Sequence[Float[np.ndarray, " g"]],
    action: int | None,
) -> Float[np.ndarray, "g g"]:
    """Mean reward at each place of a grid, second dimension first."""
    from sklearn.neighbors import NearestNeighbors

    columns = list(dims)
    places = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    spread = inputs[:, columns].std(axis=0)
    spread[spread == 0] = 1
    n = min(_NEIGHBOURS, len(inputs))
    nearest = NearestNeighbors(n_neighbors=n).fit(inputs[:, columns] / spread)
    rows = inputs[nearest.kneighbors(places / spread, return_distance=False).ravel()]
    rows[:, columns] = np.repeat(places, n, axis=0)
    acts = None if action is None else np.full(len(rows), action)
    return _rewards(policy, demos, rows, acts).reshape(len(sides[1]), len(sides[0]), n).mean(axis=2)


def _rewards(
    policy: Any, demos: Demonstrations, inputs: Float[np.ndarray, "n k"], acts: np.ndarray | None
) -> Float[np.ndarray, " n"]:
    if acts is not None:
        return np.asarray(policy.reward(inputs, acts), float)
    return np.asarray(policy.reward(inputs[:, : demos.obs_dim], inputs[:, demos.obs_dim :]), float)


def _side(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " g"]:
    low, high = float(values.min()), float(values.max())
    room = 0.08 * (high - low) or 0.5
    return np.linspace(low - room, high + room, _GRID)


def _spread(n: int, most: int) -> np.ndarray:
    """At most so many row numbers, evenly over all."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int))


def _pay_map() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("pay", ["#8A8A8A", "#FAFAFA"])


def _draw_dots(axes: Axes, places: Float[np.ndarray, "n 2"], confidence: Float[np.ndarray, " n"]) -> None:
    known = ~np.isnan(confidence)
    look: dict[str, Any] = {"s": 13, "lw": 0.25, "edgecolors": "white", "alpha": 0.85}
    axes.scatter(*places[~known].T, color=_UNKNOWN, label="_unknown", **look)
    axes.scatter(*places[known].T, c=confidence[known], cmap=confidence_map(), vmin=0, vmax=1, label="_rated", **look)


def _explain_confidence(figure: Figure, axes: Axes, confidence: Float[np.ndarray, " n"], look: dict[str, Any]) -> None:
    """Draw a legend of what the axes name and of the colours of demonstrations, as samples where they are many."""
    known, words = np.unique(confidence[~np.isnan(confidence)]), "demonstrations of confidence"
    samples = known if len(known) <= _MOST_NAMED else np.array([0.0, 0.5, 1.0])
    for r in samples[::-1]:
        axes.plot([], [], color=confidence_map()(r), label=f"{words} {r:.2g}", **look)
        words = "of"
    if np.isnan(confidence).any():
        axes.plot([], [], color=_UNKNOWN, label="of unknown" if len(known) else "demonstrations", **look)
    legend_above(figure, axes, n_columns=6)


def plot_rollouts(
    traces: Mapping[str, Float[np.ndarray, "episodes steps 2"]],
    demos: Sequence[Float[np.ndarray, "_ 2"]] = (),
    confidence: Sequence[float] | None = None,
    *,
    goals: Mapping[str, tuple[float, float]] | None = None,
    names: tuple[str, str] = ("x", "y"),
) -> Figure:
    """Draw where policies go in the plane, each in a picture of its own, with demonstrations behind.

    Args:
        traces: For each method the places of its episodes, shape (episodes, steps, 2); NaN after the end of an
            episode. Any two observations will do for places.
        demos: Places of each demonstrated episode, shape (steps, 2).
        confidence: Confidence of each demonstrated episode, from 0 to 1, NaN where it is not known. Default: unknown.
        goals: Places to mark, by name; ``TWO_GOALS`` are those of ``envs.TwoGoals``.
        names: Names of the two coordinates.

    Returns:
        The figure. Traces may leave demonstrations and goals by half of their extent; what goes further is cut. Both
        coordinates have the same scale unless one extends more than three times as far.

    Raises:
        ValueError: If there are no traces, or lengths do not fit.
    """
    if not traces:
        raise ValueError("there are no traces to draw")
    for name, trace in traces.items():
        if np.ndim(trace) != 3 or np.shape(trace)[2] != 2:
            raise ValueError(f"traces of {name} must have shape (episodes, steps, 2), found {np.shape(trace)}")
    rated = np.full(len(demos), np.nan) if confidence is None else np.asarray(confidence, float)
    if rated.shape != (len(demos),):
        raise ValueError(f"confidence must have {len(demos)} values, one for each of demos, found {rated.shape}")
    rows = -(-len(traces) // _MOST_COLUMNS)
    columns = -(-len(traces) // rows)
    (left, right), (bottom, top) = _limits(traces, demos, goals or {})
    shape = (top - bottom) / (right - left)
    same_units = 1 / _MOST_OBLONG <= shape <= _MOST_OBLONG
    side = 2.7 if columns > 2 else 3.4
    figure, grid = make_figure(
        side * columns + 0.5, side * (min(max(shape, 0.5), 1.5) if same_units else 0.8) * rows + 0.9,
        nrows=rows, ncols=columns, squeeze=False, sharex=True, sharey=True,
    )  # fmt: skip
    figure.set_layout_engine("compressed", h_pad=0.07)  # panels of a fixed aspect, without gaps
    colours = confidence_map()
    for axes in grid.ravel()[len(traces) :]:
        axes.set_axis_off()
    for i, (axes, (name, trace)) in enumerate(zip(grid.ravel(), traces.items(), strict=False)):
        for k in np.argsort(np.nan_to_num(rated, nan=-1), kind="stable"):
            colour = _UNKNOWN if np.isnan(rated[k]) else colours(rated[k])
            axes.plot(*np.asarray(demos[k]).T, color=colour, lw=0.8, alpha=0.3, label="_demonstration")
        for episode in np.asarray(trace, float):
            episode = episode[np.isfinite(episode).all(axis=1)]
            axes.plot(*episode.T, color=INK, lw=1.2, alpha=0.75, label="_trace")
            axes.plot(*episode[-1:].T, "o", color=INK, ms=3.5, mew=0, label="_end")
        for goal, place in (goals or {}).items():
            axes.plot(*place, "*", ms=13, mfc="white", mec=INK, zorder=5, label="_goal")
            axes.annotate(
                goal, place, (0, 9), textcoords="offset points", ha="center", fontweight="bold", color=INK, zorder=6
            )
        axes.set(aspect="equal" if same_units else "auto", xlim=(left, right), ylim=(bottom, top))
        title_axes(axes, method_title(name))
        if i + columns >= len(traces):  # nothing stands below
            axes.set_xlabel(names[0])
            axes.xaxis.set_tick_params(labelbottom=True)
    for line in grid:
        line[0].set_ylabel(names[1])
    grid[0, 0].plot([], [], color=INK, lw=1.2, marker="o", ms=3.5, label="policy, to the end of an episode")
    _explain_confidence(figure, grid[0, 0], rated, {"lw": 1.4})
    return figure


def _limits(
    traces: Mapping[str, Float[np.ndarray, "episodes steps 2"]],
    demos: Sequence[Float[np.ndarray, "_ 2"]],
    goals: Mapping[str, tuple[float, float]],
) -> Float[np.ndarray, "2 2"]:
    """Ends of both axes."""
    found = np.concatenate([np.reshape(trace, (-1, 2)) for trace in traces.values()])
    low, high = np.nanmin(found, axis=0), np.nanmax(found, axis=0)
    known = [*map(np.asarray, demos), *(np.array([place], float) for place in goals.values())]
    if known:
        fixed = np.concatenate(known)
        inner_low, inner_high = fixed.min(axis=0), fixed.max(axis=0)
        room = _ROOM * (inner_high - inner_low)
        low = np.minimum(inner_low, np.maximum(low, inner_low - room))
        high = np.maximum(inner_high, np.minimum(high, inner_high + room))
    room = 0.08 * (high - low)
    room[room == 0] = 0.5
    above = room * (1, 2 if goals else 1)  # names stand above goals
    return np.stack([low - room, high + above], axis=1)
