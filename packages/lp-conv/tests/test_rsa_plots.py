from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from PIL import Image

from icl25_lp_conv.rsa import best_layers, summarize
from icl25_lp_conv.rsa_plots import plot_heatmap, plot_layers


def drawn(figure) -> np.ndarray:
    """The picture as pixels; drawing it finds what only fails then."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    pixels = np.asarray(Image.open(buffer).convert("L"))
    assert pixels.std() > 5
    return pixels


def make_table(n_layers: int = 5, areas: tuple[str, ...] = ("V1", "V2"), seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = [
        (f"block{k}.conv", area, session, rng.uniform(0.1, 0.4))
        for k in range(n_layers)
        for area in areas
        for session in range(4)
    ]
    table = pd.DataFrame(rows, columns=["layer", "area", "session", "ssm"])
    return table.assign(corrected=table["ssm"] / 0.4)


CEILINGS = {"V1": np.array([0.3, 0.45, 0.5, 0.6, 0.9]), "V2": np.array([0.5, 0.5])}


def lines_of(axes) -> dict[str, np.ndarray]:
    """Points of the networks in a panel."""
    return {container.get_label(): np.asarray(container[0].get_xydata()) for container in axes.containers}


def test_lines_are_the_medians_with_their_errors():
    table = make_table()
    summary = summarize(table)
    figure = plot_layers(table, title="Layers")
    drawn(figure)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["V1", "V2"]
    for axes, area in zip(figure.axes, ("V1", "V2"), strict=True):
        mine = summary[summary["area"] == area]
        [points] = lines_of(axes).values()
        np.testing.assert_allclose(points[:, 1], mine["corrected"])
        np.testing.assert_allclose(points[:, 0], range(5))
        [bars] = axes.containers[0][2]
        ends = np.array([segment[:, 1] for segment in bars.get_segments()])
        np.testing.assert_allclose(np.diff(ends, axis=1).ravel() / 2, mine["error"])
        assert [text.get_text() for text in axes.get_xticklabels()] == [f"block{k}.conv" for k in range(5)]
        assert axes.get_xlabel() == "layer"
    assert figure.get_supylabel() == "similarity / noise ceiling"
    assert figure.get_suptitle() == "Layers"


def test_band_is_the_middle_half_of_the_ceilings():
    figure = plot_layers(make_table(), CEILINGS)
    for axes, low, high in zip(figure.axes, (0.9, 1), (1.2, 1), strict=True):
        band = axes.patches[0].get_extents().transformed(axes.transData.inverted())
        assert (band.y0, band.y1) == pytest.approx((low, high))
    plain = plot_layers(make_table().assign(corrected=np.nan), CEILINGS)
    drawn(plain)
    band = plain.axes[0].patches[0].get_extents().transformed(plain.axes[0].transData.inverted())
    assert (band.y0, band.y1) == pytest.approx((0.45, 0.6))
    np.testing.assert_allclose(
        next(iter(lines_of(plain.axes[0]).values()))[:, 1], summarize(make_table())["ssm"].iloc[::2]
    )
    assert plain.get_supylabel() == "similarity (correlation of RSMs)"
    labels = [text.get_text() for text in plain.legends[0].get_texts()]
    assert labels == ["noise ceiling, middle half", "noise ceiling, median", "median over sessions"]


def test_networks_share_panels_and_have_colours_and_marks_of_their_own():
    figure = plot_layers({"base": make_table(), "Lp": make_table(seed=1), "large": summarize(make_table(3))})
    drawn(figure)
    lines = [container[0] for container in figure.axes[0].containers]
    assert len({to_hex(line.get_color()) for line in lines}) == len({line.get_marker() for line in lines}) == 3
    points = lines_of(figure.axes[0])
    assert list(points) == ["base", "Lp", "large"]
    assert len(points["large"]) == 3
    assert len(set(points["base"][:, 0]) & set(points["Lp"][:, 0])) == 0
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["base", "Lp", "large"]


@pytest.mark.parametrize(("n_areas", "shape"), [(1, (1, 1)), (4, (2, 2)), (5, (2, 3)), (6, (2, 3))])
def test_each_area_has_a_panel(n_areas, shape):
    areas = tuple(f"V{k}" for k in range(n_areas))
    figure = plot_layers(make_table(30, areas))
    if n_areas == 5:
        drawn(figure)
    grid = figure.axes[0].get_gridspec()
    assert grid is not None
    assert (grid.nrows, grid.ncols) == shape
    assert [bool(axes.containers) for axes in figure.axes] == [True] * n_areas + [False] * (len(figure.axes) - n_areas)
    # Of many layers every second is named, and the axis says so.
    assert figure.axes[-1].get_xlabel() == "layer (one name in 2)"
    assert len(figure.axes[-1].get_xticklabels()) == 15


def test_layers_without_a_similarity_leave_a_gap():
    table = make_table()
    table.loc[table["layer"] == "block2.conv", ["ssm", "corrected"]] = np.nan
    figure = plot_layers(table)
    drawn(figure)
    [points] = lines_of(figure.axes[0]).values()
    assert np.isnan(points[:, 1]).tolist() == [False, False, True, False, False]
    heatmap = plot_heatmap(table)
    drawn(heatmap)
    assert [text.get_text() for text in heatmap.axes[0].texts].count("nan") == 2


def test_heatmap_shows_numbers_and_frames_the_best_layer():
    table = make_table()
    summary = summarize(table)
    figure = plot_heatmap(table, "Layers and areas")
    drawn(figure)
    axes, bar = figure.axes
    image = np.asarray(axes.images[0].get_array())
    np.testing.assert_allclose(image, summary["corrected"].to_numpy().reshape(5, 2))
    assert [text.get_text() for text in axes.texts] == [f"{value:.2f}" for value in image.ravel()]
    assert [text.get_text() for text in axes.get_yticklabels()] == [f"block{k}.conv" for k in range(5)]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["V1", "V2"]
    framed = [(patch.get_x() + 0.5, patch.get_y() + 0.5) for patch in axes.patches if isinstance(patch, Rectangle)]
    best = best_layers(table)
    assert framed == [(k, int(layer[5])) for k, layer in enumerate(best["layer"])]
    assert bar.get_ylabel() == "similarity / noise ceiling"


def test_numbers_of_the_heatmap_stand_out_from_their_cells():
    figure = plot_heatmap(make_table(12))
    drawn(figure)
    image = figure.axes[0].images[0]
    for text, value in zip(figure.axes[0].texts, np.asarray(image.get_array()).ravel(), strict=True):
        cell = np.dot(image.cmap(image.norm(value))[:3], [0.2126, 0.7152, 0.0722])
        assert abs(cell - (text.get_color() == "white")) > 0.4


@pytest.mark.parametrize("plot", [plot_layers, plot_heatmap])
def test_faulty_tables_are_refused(plot):
    table = make_table()
    with pytest.raises(ValueError, match="lacks the columns area, corrected, error, ssm, std"):
        plot(table[["layer"]])
    with pytest.raises(ValueError, match="no layer of 'median over sessions' has a similarity"):
        plot(table.assign(ssm=np.nan, corrected=np.nan))
    mixed = table.assign(corrected=table["corrected"].where(table["area"] == "V1"))
    with pytest.raises(ValueError, match="some similarities are corrected"):
        plot(mixed)


def test_faulty_networks_and_ceilings_are_refused():
    with pytest.raises(ValueError, match="networks is empty"):
        plot_layers({})
    with pytest.raises(ValueError, match="area 'V2' has no noise ceilings"):
        plot_layers(make_table(), {"V1": np.ones(2)})
