"""Pictures of solutions u over two coordinates: x and t, or x and y."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from icl25_pi_dion.plotting import COLOURS, ERROR_MAP, FIELD_MAP, INK, draw_field, legend_above, make_figure, title_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_fields"]


def plot_fields(
    points: Float[np.ndarray, "n_u 2"],
    u: Float[np.ndarray, "n n_u"],
    truth: Float[np.ndarray, "m n_u"] | None = None,
    coords: tuple[str, str] = ("x", "t"),
    n: int = 3,
) -> Figure:
    """Draw solutions: each sample as it was predicted, beside the truth and the difference where the truth is given.

    Where one coordinate is the same at all points, for instance the final time, they are lines over the other one.

    Args:
        points: Where u is given, one point a row.
        u: Solutions, shape (n, n_u).
        truth: True solutions, shape (n, n_u).
        coords: Names of the coordinates.
        n: How many samples.

    Returns:
        The figure.

    Raises:
        ValueError: If ``n`` is less than 1, or the truth has another shape.
    """
    if n < 1:
        raise ValueError(f"n must be >= 1, found {n}")
    if truth is not None and truth.shape != u.shape:
        raise ValueError(f"truth must have the shape of u, {u.shape}, found {truth.shape}")
    n = min(n, len(u))
    varying = [axis for axis in range(2) if np.ptp(points[:, axis]) > 0]
    if len(varying) == 1:
        return _lines(points[:, varying[0]], u, truth, coords[varying[0]], n)
    rows, columns = (1, n) if truth is None else (n, 3)
    figure, grid = make_figure(
        2.75 * columns + 0.5, 2.35 * rows + 0.3, nrows=rows, ncols=columns, squeeze=False, sharex=True, sharey=True
    )
    for i in range(n):
        fields = {f"sample {i}": u[i]}
        if truth is not None:
            fields = {f"sample {i}: u": truth[i], "network": u[i], "network - u": u[i] - truth[i]}
        values = np.concatenate(list(fields.values())[:2])
        low, high = float(values.min()), float(values.max())
        panels = [grid[0, i]] if truth is None else grid[i]
        for (title, field), panel in zip(fields.items(), panels, strict=True):
            is_error = " - " in title
            size = max(float(np.abs(field).max()), np.finfo(float).tiny)
            limits = (-size, size) if is_error else (low, max(high, low + np.finfo(float).tiny))
            image = draw_field(panel, points, field, limits, ERROR_MAP if is_error else FIELD_MAP)
            title_axes(panel, title)
            if panel is not panels[0] or truth is None:
                figure.colorbar(image, ax=panel, pad=0.02)
    for panel in grid[-1]:
        panel.set_xlabel(coords[0])
    for row in grid:
        row[0].set_ylabel(coords[1])
    return figure


def _lines(
    x: Float[np.ndarray, " n_u"],
    u: Float[np.ndarray, "n n_u"],
    truth: Float[np.ndarray, "n n_u"] | None,
    letter: str,
    n: int,
) -> Figure:
    figure, grid = make_figure(max(2.9 * n, 4.0), 2.9, ncols=n, squeeze=False, sharex=True)
    order = np.argsort(x)
    for i, panel in enumerate(grid[0]):
        if truth is not None:
            panel.plot(x[order], truth[i][order], color=INK, lw=2.2, label="u")
        dashes = (0, (4, 1.5)) if truth is not None else "-"
        panel.plot(x[order], u[i][order], color=COLOURS[0], lw=1.8, ls=dashes, label="network")
        title_axes(panel, f"sample {i}")
        panel.set_xlabel(letter)
        panel.margins(x=0.02)
    grid[0, 0].set_ylabel("u")
    legend_above(figure, grid[0, 0])
    return figure
