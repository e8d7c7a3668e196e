"""The picture of a spectrum: how strongly a measurement sees the unknown, and which functions it hardly sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from icl25_pi_dion.plotting import COLOURS, ERROR_MAP, GREY, INK, draw_field, make_figure, style, title_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from icl25_pi_dion.spectra import Spectrum

__all__ = ["plot_spectrum"]

_N_FUNCTIONS = 3


def plot_spectrum(spectrum: Spectrum, noise: float = 0.01) -> Figure:
    """Draw the singular values, the functions that are seen best, and what remains unseen.

    Without a prior, the last functions take the place of the unseen patterns.

    Args:
        spectrum: Singular values and functions, of an unknown with one or two coordinates.
        noise: Relative noise, > 0; without a prior, it is shown as a share of the largest singular value.

    Returns:
        The figure.

    Raises:
        ValueError: If the unknown depends on more than two coordinates, or ``noise`` is not positive.
    """
    if spectrum.points.shape[1] > 2:
        raise ValueError(f"pictures show unknowns of one or two coordinates, not of {', '.join(spectrum.coords)}")
    if not (np.isfinite(noise) and noise > 0):
        raise ValueError(f"noise must be > 0, found {noise}")
    count = min(_N_FUNCTIONS, len(spectrum.singular_values))
    best = spectrum.right[:count]
    least = spectrum.right[-count:] if spectrum.prior is None else spectrum.unseen(noise, count)
    title = "Seen least" if spectrum.prior is None else "What remains unseen"
    if spectrum.points.shape[1] == 1:
        figure, axes = make_figure(10.5, 3.4, ncols=3)
        _draw_values(axes[0], spectrum, noise)
        _draw_lines(axes[1], spectrum, best, "Seen best")
        _draw_lines(axes[2], spectrum, least, title)
        return figure
    figure, values_axes, fields = _make_panels()
    _draw_values(values_axes, spectrum, noise)
    for panels, functions, name in zip(fields, (best, least), ("Seen best", title), strict=True):
        limit = max(float(np.abs(functions).max()), np.finfo(float).tiny)
        for panel, function in zip(panels, functions, strict=False):
            image = draw_field(panel, spectrum.points, function.ravel(), (-limit, limit), ERROR_MAP)
            panel.set_aspect("equal")
            panel.set_xticks([])
            panel.set_yticks([])
            if panel is panels[0]:
                figure.colorbar(image, ax=list(panels), shrink=0.8, pad=0.02)
        for panel in panels[count:]:
            panel.set_axis_off()
        title_axes(panels[0], name)
    return figure


def _make_panels() -> tuple[Figure, Axes, Any]:
    """A figure with wide axes on the left and two rows of fields beside them."""
    figure, placeholder = make_figure(11.0, 4.4)
    placeholder.remove()
    with style():
        parts = figure.add_gridspec(2, 1 + _N_FUNCTIONS, width_ratios=[2.0, *[1.0] * _N_FUNCTIONS])
        fields = [[figure.add_subplot(parts[row, 1 + i]) for i in range(_N_FUNCTIONS)] for row in range(2)]
        return figure, figure.add_subplot(parts[:, 0]), fields


def _draw_values(axes: Axes, spectrum: Spectrum, noise: float) -> None:
    from matplotlib.ticker import MaxNLocator

    numbers = np.arange(1, len(spectrum.singular_values) + 1)
    if spectrum.prior is None:
        largest = spectrum.singular_values[0]
        heights = spectrum.singular_values / (largest if largest > 0 else 1.0)
        seen, level, label = heights > noise, noise, "share of the largest"
        title = f"{int(seen.sum())} singular values above {noise:.3g}"
    else:
        heights, label = spectrum.signal_to_noise(noise), "signal to noise"
        seen, level = spectrum.visible(noise), 1.0
        counted = f"{int(seen.sum())} of {len(numbers)} visible at {100 * noise:.3g} % noise"
        title = f"{counted}\nexpected error {100 * spectrum.expected_error(noise):.1f} %"
    shown = np.maximum(heights, 1e-16)
    axes.axhline(level, color=GREY, lw=1.0, ls="--", zorder=0)
    axes.text(0.01, level, "noise", transform=axes.get_yaxis_transform(), va="bottom", color=GREY, fontsize=9)
    for mask, colour, name in ((seen, COLOURS[0], "visible"), (~seen, COLOURS[1], "below the noise")):
        if mask.any():
            axes.plot(numbers[mask], shown[mask], "o", color=colour, ms=4.5, label=name)
    axes.set_yscale("log")
    axes.set_xlim(0, len(numbers) + 1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("singular value number")
    axes.set_ylabel(label)
    axes.legend(loc="best", fontsize=9)
    title_axes(axes, title)


def _draw_lines(axes: Axes, spectrum: Spectrum, functions: Float[np.ndarray, "c n_s"], title: str) -> None:
    for number, (colour, function) in enumerate(zip(COLOURS, functions, strict=False), start=1):
        axes.plot(spectrum.points[:, 0], function, color=colour, lw=1.6, label=f"{number}")
    axes.axhline(0, color=INK, lw=0.6, zorder=0)
    axes.set_xlabel(spectrum.coords[0])
    axes.set_ylabel(f"pattern of s({spectrum.coords[0]})")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.18 * (high - low))  # room for the legend
    axes.legend(ncols=_N_FUNCTIONS, fontsize=9, loc="upper center")
    title_axes(axes, title)
