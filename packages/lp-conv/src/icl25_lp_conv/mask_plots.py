"""Pictures of masks and of their shapes, as matplotlib figures that touch no global state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from icl25_lp_conv.lp_layer import LpLayer
from icl25_lp_conv.plotting import INK, make_figure, new_figure, style, title_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_mask_change", "plot_masks", "plot_shape_statistics"]

_OUTLINE = "#D55E00"
_MASK_COLOURS, _DEPTH_COLOURS = "gray", "viridis"
_CELL = 0.82  # inches of a mask
_MOST_LAYERS = 24
_MOST_LETTERS = 22
_ROUND = 1.05  # below this elongation a mask has no angle to speak of
_N_ANGLES = 12


def plot_masks(layers: Mapping[str, LpLayer], n_channels: int = 8, title: str = "") -> Figure:
    """Grid of masks: a line for each layer, from its smallest mask to its largest.

    The ellipse is the level set |C s| = 1, at which a Gaussian mask (p = 2) has fallen to 1 / e. Masks of one axis are
    shown as a line, those of three axes by their middle slice; these have no ellipse.

    Args:
        layers: Lp layers by name, at least one with masks; layers without masks are passed over, and of more than 24
            some are shown, evenly spaced.
        n_channels: Most masks of a layer, >= 1.
        title: Title of the picture.

    Returns:
        The figure.

    Raises:
        ValueError: If no layer has masks, or ``n_channels`` is below 1.

    Source: the paper's pictures of learned masks; the choice of channels is ours.
    """
    chosen = _some(_with_masks(layers))
    _check_count(n_channels)
    views = {name: _view(layer) for name, layer in chosen.items()}
    picked = {
        name: _spread(view.images.mean((1, 2)).argsort(kind="stable"), n_channels) for name, view in views.items()
    }
    n_columns = max(map(len, picked.values()))
    figure, grid = _mask_grid(len(views), n_columns, max(map(len, views)))
    for axes_row, (name, view) in zip(grid, views.items(), strict=True):
        _draw_masks(axes_row, view, picked[name], with_labels=True)
        _label_row(axes_row[0], f"{_short(name)}\n{view.size}")
    _finish_masks(figure, title or "Masks of each layer, from the smallest to the largest")
    return figure


def plot_mask_change(
    before: Mapping[str, LpLayer], after: Mapping[str, LpLayer], n_channels: int = 8, title: str = ""
) -> Figure:
    """Grid of masks before and after training: two lines for each layer, with the masks that changed most.

    Args:
        before: Lp layers by name.
        after: The same layers later on; layers that are missing on either side or have no masks are passed over.
        n_channels: Most masks of a layer, >= 1.
        title: Title of the picture.

    Returns:
        The figure.

    Raises:
        ValueError: If the two have no layer with masks in common, a layer differs in its number of masks or its kernel
            size, or ``n_channels`` is below 1.

    Source: ours.
    """
    shared = {name: layer for name, layer in _with_masks(before).items() if name in _with_masks(after)}
    if not shared:
        raise ValueError("before and after have no layer with masks in common")
    _check_count(n_channels)
    pairs = {name: (_view(layer), _view(after[name])) for name, layer in _some(shared).items()}
    for name, (old, new) in pairs.items():
        if old.images.shape != new.images.shape:
            raise ValueError(
                f"layer {name!r} has masks {old.images.shape} before and {new.images.shape} after, expected one shape"
            )
    picked = {
        name: np.abs(new.images - old.images).mean((1, 2)).argsort(kind="stable")[::-1][:n_channels]
        for name, (old, new) in pairs.items()
    }
    n_columns = max(map(len, picked.values()))
    figure, grid = _mask_grid(2 * len(pairs), n_columns, max(len(name) for name in pairs))
    for number, (name, (old, new)) in enumerate(pairs.items()):
        _draw_masks(grid[2 * number], old, picked[name], with_labels=False)
        _draw_masks(grid[2 * number + 1], new, picked[name], with_labels=True)
        _label_row(grid[2 * number][0], f"{_short(name)}\nbefore")
        _label_row(grid[2 * number + 1][0], "after")
    _finish_masks(figure, title or "Masks that changed most")
    return figure


def plot_shape_statistics(model: nn.Module, title: str = "") -> Figure:
    """Shapes of all masks of a network: histograms of p and of the elongation gamma, and a rose of angles per layer.

    Angles are drawn as in an image, rows growing downward. Masks that are nearly round (gamma below 1.05) have no angle
    and are left out of the roses, as are layers whose kernels have one axis or three.

    Args:
        model: The network, with at least one Lp layer that has masks.
        title: Title of the picture.

    Returns:
        The figure.

    Raises:
        ValueError: If no layer has masks.

    Source: the paper's analysis of learned masks by singular values of C; the pictures are ours.
    """
    from matplotlib.patches import Patch

    layers = _with_masks({name or type(m).__name__: m for name, m in model.named_modules() if isinstance(m, LpLayer)})
    shapes = {name: layer.shape_summary() for name, layer in layers.items()}
    flat = {name: shape for name, shape in shapes.items() if "theta" in shape}
    roses = _some(flat)
    n_columns = min(6, max(4, len(roses)))
    n_rows = math.ceil(len(roses) / n_columns)
    figure = new_figure(1.45 * n_columns + 0.4, 3.0 + 1.75 * n_rows)
    parts: Any = figure.subfigures(2, 1, height_ratios=[3.0, max(1.75 * n_rows, 0.05)])
    top, bottom = parts
    colours = dict(zip(shapes, _depth_colours(len(shapes)), strict=True))
    with style():
        left, right = top.subplots(1, 2)
    _histogram(left, {name: shape["p"] for name, shape in shapes.items()}, colours, "exponent p", "Exponents")
    gammas = {name: shape["gamma"] for name, shape in shapes.items()}
    _histogram(right, gammas, colours, "elongation gamma", "Elongations")
    names = list(shapes)
    if len(names) > 1:
        handles = [Patch(color=colours[name], label=_short(name)) for name in _spread(names, 5)]
        top.legend(
            handles=handles, title="layer", loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8.5
        )
    for place, (name, shape) in enumerate(roses.items()):
        with style():
            axes: Any = bottom.add_subplot(n_rows, n_columns, place + 1, projection="polar")
        _rose(axes, shape, colours[name])
        axes.set_title(_short(name), fontsize=8.5, pad=9, color=INK)
    if roses:
        part = "" if len(roses) == len(flat) else f" ({len(roses)} of {len(flat)} layers)"
        bottom.suptitle(
            f"Long axes of the masks that are not round{part}",
            x=0.01,
            ha="left",
            fontsize=11,
            fontweight="bold",
            color=INK,
        )
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    return figure


class _View(NamedTuple):
    """Masks of a layer as images (masks, height, width), their outlines where there are such, and how to label them."""

    images: np.ndarray
    outlines: np.ndarray | None
    exponents: np.ndarray
    size: str


@torch.no_grad()
def _view(layer: LpLayer) -> _View:
    """The masks as images; a mask that channels share is there once."""
    assert layer.C is not None  # noqa: S101 - only layers with masks come here
    masks = layer.mask()[:: layer.out_channels // len(layer.C), 0].double().cpu().numpy()
    images = masks[:, None, :] if masks.ndim == 2 else masks if masks.ndim == 3 else masks[:, masks.shape[1] // 2]
    outlines = _level_sets(layer.C.double().cpu().numpy()) if masks.ndim == 3 else None
    exponents = layer.shape_summary()["p"]
    return _View(images, outlines, exponents, "x".join(map(str, layer.kernel_size)))


def _level_sets(C: Float[np.ndarray, "c 2 2"]) -> Float[np.ndarray, "c points 2"]:
    """Points (row, column) around the centre with |C s| = 1; a singular C, whose set is open, has none (NaN)."""
    angles = np.linspace(0, 2 * np.pi, 121)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    invertible = np.abs(np.linalg.det(C)) > 1e-12
    inverse = np.full_like(C, np.nan)
    inverse[invertible] = np.linalg.inv(C[invertible])
    return (inverse @ circle).transpose(0, 2, 1)


def _with_masks(layers: Mapping[str, LpLayer]) -> dict[str, LpLayer]:
    found = {name: layer for name, layer in layers.items() if layer.C is not None}
    if not found:
        raise ValueError("no layer has masks")
    return found


def _some(named: dict[str, Any]) -> dict[str, Any]:
    """Of very many layers some, evenly spaced, the first and the last among them."""
    return {name: named[name] for name in _spread(list(named), _MOST_LAYERS)}


def _spread(items: Any, n: int) -> Any:
    places = np.unique(np.linspace(0, len(items) - 1, min(n, len(items))).round().astype(int)) if len(items) else []
    return items[places] if isinstance(items, np.ndarray) else [items[place] for place in places]


def _short(name: str) -> str:
    """The end of a long name, which tells layers apart."""
    return name if len(name) <= _MOST_LETTERS else f"…{name[1 - _MOST_LETTERS :]}"


def _check_count(n_channels: int) -> None:
    if n_channels < 1:
        raise ValueError(f"n_channels must be >= 1, found {n_channels}")


def _mask_grid(n_rows: int, n_columns: int, longest: int) -> tuple[Figure, Any]:
    """Axes for so many masks, with room for names of so many characters on the left."""
    margin = 0.075 * min(longest, _MOST_LETTERS) + 0.3
    figure, grid = make_figure(
        max(5.2, margin + _CELL * n_columns),
        0.75 + (_CELL + 0.17) * n_rows,
        nrows=n_rows,
        ncols=n_columns,
        squeeze=False,
    )
    figure.set_layout_engine("constrained", w_pad=0.02, h_pad=0.02, wspace=0.05, hspace=0.02)
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    return figure, grid


def _draw_masks(axes_row: Any, view: _View, channels: Any, *, with_labels: bool) -> None:
    """One line of masks, all on the scale from 0 to 1; the places that are left stay empty."""
    n_rows, n_columns = view.images.shape[1:]
    for axes, channel in zip(axes_row, channels, strict=False):
        axes.imshow(view.images[channel], cmap=_MASK_COLOURS, vmin=0, vmax=1, interpolation="nearest")
        if view.outlines is not None:
            row, column = view.outlines[channel].T
            axes.plot(column + (n_columns - 1) / 2, row + (n_rows - 1) / 2, color=_OUTLINE, lw=1.3)
            axes.set(xlim=(-0.5, n_columns - 0.5), ylim=(n_rows - 0.5, -0.5))
        if with_labels:
            axes.set_xlabel(f"#{channel}  p {view.exponents[channel]:.3g}", fontsize=7, labelpad=2)


def _label_row(axes: Axes, text: str) -> None:
    axes.set_ylabel(text, rotation=0, ha="right", va="center", fontsize=8.5, labelpad=6, color=INK)


def _finish_masks(figure: Figure, title: str) -> None:
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    key = "black 0, white 1; # channel; orange: |C s| = 1"
    figure.supxlabel(key, x=0.01, ha="left", fontsize=8, color=INK)


def _depth_colours(n: int) -> list[Any]:
    """A colour for each layer, dark for the first and bright for the last."""
    import matplotlib as mpl

    return list(mpl.colormaps[_DEPTH_COLOURS](np.linspace(0, 0.92, n) if n > 1 else [0.3]))


def _histogram(
    axes: Axes, columns: Mapping[str, np.ndarray], colours: Mapping[str, Any], label: str, title: str
) -> None:
    """Stacked histogram of a positive number of all masks, on a logarithmic axis."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    known = [column[np.isfinite(column)] for column in columns.values()]
    n_open = sum(map(len, columns.values())) - sum(map(len, known))
    values = np.concatenate([*known, [] if any(map(len, known)) else [1.0]])
    # At least a factor of 4, or masks that are all alike, as before training, would fill an axis of a thousandth.
    middle, factor = np.sqrt(values.min() * values.max()), max(values.max() / values.min(), 4.0) ** 0.5
    bins = np.geomspace(middle / factor, middle * factor, 42)
    bins[[0, -1]] = min(bins[0], values.min()), max(bins[-1], values.max())
    axes.hist(known, bins.tolist(), stacked=True, color=[colours[name] for name in columns], lw=0)
    axes.set_xscale("log")
    subs = (1, 2, 3, 5, 7) if factor < 4 else (1, 2, 5) if factor < 10 else (1,)
    axes.xaxis.set_major_locator(LogLocator(subs=subs))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set(xlabel=label + (f" ({n_open} infinite)" if n_open else ""), ylabel="masks")
    title_axes(axes, title)


def _rose(axes: Any, shape: Mapping[str, np.ndarray], colour: Any) -> None:
    """How the long axes of a layer's masks are directed; an axis points both ways."""
    long = shape["gamma"] >= _ROUND
    width = np.pi / _N_ANGLES
    # Bins are centred on the horizontal, the vertical and the diagonals.
    sectors = np.floor(shape["theta"][long] / width + 0.5).astype(int) % _N_ANGLES
    counts = np.bincount(sectors, minlength=_N_ANGLES)
    places = np.arange(2 * _N_ANGLES) * width
    # An area that shows the number takes its root as radius.
    axes.bar(places, np.sqrt(np.tile(counts, 2)), width, color=colour, edgecolor="white", lw=0.5)
    axes.set_theta_direction(-1)
    axes.set_xticks(np.arange(4) * np.pi / 2, ["0°", "90°", "180°", "270°"], fontsize=6.5)
    axes.tick_params(axis="x", pad=-3)
    axes.set_ylim(0, max(1.0, float(np.sqrt(counts.max()))))
    axes.set_yticks([])
    axes.grid(color="#DDDDDD", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines["polar"].set_color("#BBBBBB")
    axes.set_xlabel(f"{int(long.sum())} of {len(long)}" if long.any() else "all round", fontsize=7.5, labelpad=1)
