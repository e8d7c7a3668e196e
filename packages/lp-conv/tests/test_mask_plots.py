from __future__ import annotations

import io
import math

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.patches import Rectangle
from PIL import Image
from torch import nn

from icl25_lp_conv.layers import LpConv1d, LpConv2d, LpConv3d
from icl25_lp_conv.mask_plots import plot_mask_change, plot_masks, plot_shape_statistics
from icl25_lp_conv.score_plots import plot_bars, plot_sudoku_bars
from icl25_lp_conv.sudoku_training import SudokuScores


def drawn(figure) -> np.ndarray:
    """The picture as pixels; drawing it finds what only fails then."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    pixels = np.asarray(Image.open(buffer).convert("L"))
    assert pixels.std() > 5
    return pixels


@torch.no_grad()
def learned(n_out: int = 6, kernel: int = 7, seed: int = 0) -> LpConv2d:
    """A layer whose masks differ from each other."""
    generator = torch.Generator().manual_seed(seed)
    layer = LpConv2d(2, n_out, kernel)
    assert layer.C is not None
    assert layer.log2p is not None
    layer.C.add_(0.2 * torch.randn(layer.C.shape, generator=generator))
    layer.log2p.add_(torch.rand(layer.log2p.shape, generator=generator))
    return layer


def images_of(axes) -> np.ndarray:
    [image] = axes.images
    return np.asarray(image.get_array())


def bars_of(axes) -> list[Rectangle]:
    return [patch for patch in axes.patches if isinstance(patch, Rectangle)]


def test_each_line_shows_the_masks_of_a_layer_from_small_to_large():
    layers = {"first": learned(3), "second": learned(20, seed=1)}
    figure = plot_masks(layers, n_channels=4)
    drawn(figure)
    grid = np.array(figure.axes).reshape(2, 4)
    for axes_row, (name, layer) in zip(grid, layers.items(), strict=True):
        assert axes_row[0].get_ylabel() == f"{name}\n7x7"
        masks = layer.mask()[:, 0].detach().numpy()
        shown = [axes for axes in axes_row if axes.images]
        assert len(shown) == min(4, len(masks))
        channels = [int(axes.get_xlabel().split()[0].removeprefix("#")) for axes in shown]
        for axes, channel in zip(shown, channels, strict=True):
            np.testing.assert_allclose(images_of(axes), masks[channel], atol=1e-6)
        areas = masks.sum((1, 2))[channels]
        assert (np.diff(areas) > 0).all()
        assert {areas[0], areas[-1]} == {masks.sum((1, 2)).min(), masks.sum((1, 2)).max()}


def test_the_ellipse_is_where_C_takes_offsets_to_length_one():
    layer = learned(1)
    assert layer.C is not None
    [axes] = plot_masks({"layer": layer}).axes
    column, row = axes.lines[0].get_data()
    offsets = np.stack([row, column]) - 3  # the centre of 7 taps
    np.testing.assert_allclose(np.linalg.norm(layer.C[0].detach().double().numpy() @ offsets, axis=0), 1, rtol=1e-5)


def test_masks_of_one_axis_and_of_three_are_shown_without_ellipse():
    line, block = LpConv1d(2, 3, 9), LpConv3d(2, 3, 5)
    figure = plot_masks({"line": line, "block": block})
    drawn(figure)
    first, second = figure.axes[0], figure.axes[3]
    np.testing.assert_allclose(images_of(first), line.mask()[0].detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(images_of(second), block.mask()[0, 0, 2].detach().numpy(), atol=1e-6)
    assert not first.lines
    assert not second.lines


def test_shared_masks_are_shown_once_and_layers_without_masks_are_passed_over():
    layers = {"shared": LpConv2d(2, 6, 5, mask_sharing="layer"), "plain": LpConv2d(2, 6, 5, p=None)}
    assert len(plot_masks(layers).axes) == 1


def test_a_singular_C_is_drawn_without_ellipse():
    layer = learned(1)
    assert layer.C is not None
    nn.init.zeros_(layer.C)
    drawn(plot_masks({"open": layer}))
    drawn(plot_shape_statistics(layer))


def test_of_very_many_layers_some_are_shown():
    layers = {f"layer{k}": LpConv2d(1, 1, 3) for k in range(30)}
    figure = plot_masks(layers)
    names = [axes.get_ylabel().partition("\n")[0] for axes in figure.axes]
    assert len(names) == 24
    assert (names[0], names[-1]) == ("layer0", "layer29")


def test_change_shows_the_masks_that_changed_most_before_and_after():
    before, after = {"layer": LpConv2d(2, 4, 5)}, {"layer": LpConv2d(2, 4, 5), "new": learned()}
    C = after["layer"].C
    assert C is not None
    with torch.no_grad():
        C[2] *= 3
        C[1] *= 1.5
    figure = plot_mask_change(before, after, n_channels=2)
    drawn(figure)
    upper, lower = np.array(figure.axes).reshape(2, 2)
    assert [axes.get_xlabel().split()[0] for axes in lower] == ["#2", "#1"]
    np.testing.assert_allclose(images_of(upper[0]), before["layer"].mask()[2, 0].detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(images_of(lower[0]), after["layer"].mask()[2, 0].detach().numpy(), atol=1e-6)


def test_statistics_count_every_mask_once():
    model = nn.Sequential(learned(6), learned(10, seed=1), nn.Conv2d(2, 2, 3))
    figure = plot_shape_statistics(model, title="Network")
    drawn(figure)
    exponents, elongations, *roses = figure.axes
    for axes in (exponents, elongations):
        assert sum(bar.get_height() for bar in bars_of(axes)) == 16
    assert [axes.get_title() for axes in roses] == ["0", "1"]


def test_roses_show_the_angle_of_long_masks_and_leave_round_ones_out():
    layer = LpConv2d(1, 3, 7)
    assert layer.C is not None
    with torch.no_grad():
        layer.C[0] = torch.diag(torch.tensor([0.2, 0.8]))  # long along rows, that is vertical: 90 degrees
    rose = plot_shape_statistics(layer).axes[-1]
    assert rose.get_xlabel() == "1 of 3"
    directions = sorted(bar.get_x() + bar.get_width() / 2 for bar in bars_of(rose) if bar.get_height() > 0)
    np.testing.assert_allclose(directions, [math.pi / 2, 3 * math.pi / 2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot_masks({}), "no layer has masks"),
        (lambda: plot_masks({"a": LpConv2d(1, 1, 3, p=None)}), "no layer has masks"),
        (lambda: plot_masks({"a": LpConv2d(1, 1, 3)}, n_channels=0), "n_channels must be >= 1, found 0"),
        (lambda: plot_mask_change({"a": LpConv2d(1, 1, 3)}, {"b": LpConv2d(1, 1, 3)}), "in common"),
        (lambda: plot_mask_change({"a": LpConv2d(1, 1, 3)}, {"a": LpConv2d(1, 1, 5)}), "layer 'a' has masks"),
        (lambda: plot_shape_statistics(nn.Conv2d(1, 1, 3)), "no layer has masks"),
        (lambda: plot_bars(pd.DataFrame({"name": ["a"], "value": [1.0]})), "lacks the columns low, high"),
        (lambda: plot_bars(pd.DataFrame({"name": [], "value": [], "low": [], "high": []})), "at least one"),
        (lambda: plot_bars(bars([0.5], [0.6], [0.7])), "does not hold its value 0.5"),
        (lambda: plot_bars(bars([math.nan], [0.1], [0.2])), "finite"),
        (lambda: plot_sudoku_bars({}), "at least one network"),
        (lambda: plot_sudoku_bars({"base": []}), "at least one network"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def bars(values, low, high) -> pd.DataFrame:
    names = [f"net {number}" for number in range(len(values))]
    return pd.DataFrame({"name": names, "value": values, "low": low, "high": high})


def test_bars_have_their_heights_intervals_and_dots():
    table = bars([0.4, 0.7], [0.3, math.nan], [0.55, math.nan])
    figure = plot_bars(table, points={"net 0": [0.35, 0.45]}, chance=0.1, title="Digits")
    drawn(figure)
    [axes] = figure.axes
    assert [bar.get_height() for bar in bars_of(axes)] == [0.4, 0.7]
    [segments] = axes.containers[1][2]
    ends = np.array([segment[:, 1] for segment in segments.get_segments()])
    np.testing.assert_allclose(ends, [[0.3, 0.55], [0.7, 0.7]])
    dots = [np.asarray(line.get_ydata()).tolist() for line in axes.lines if line.get_marker() == "o"]
    assert [0.35, 0.45] in dots
    assert {"40.0%", "70.0%", "chance"} <= {text.get_text() for text in axes.texts}


def test_sudoku_bars_are_means_of_runs():
    runs = [SudokuScores(9, 0.8, math.nan, 0.2, 0.3, 0.4, 0.0), SudokuScores(9, 0.9, math.nan, 0.4, 0.3, 0.6, 0.2)]
    figure = plot_sudoku_bars({"base": runs[0], "lp2": runs})
    drawn(figure)
    [axes] = figure.axes
    base, lp2 = np.array([bar.get_height() for bar in bars_of(axes)]).reshape(2, 6)
    np.testing.assert_allclose(base, [0.8, math.nan, 0.2, 0.3, 0.4, 0.0])
    np.testing.assert_allclose(lp2, [0.85, math.nan, 0.3, 0.3, 0.5, 0.1])
    assert [text.get_text() for text in axes.get_xticklabels()][2:] == ["rows", "columns", "boxes", "boards"]
