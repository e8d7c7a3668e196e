from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib.patches import Rectangle
from PIL import Image

from icl25_sava.evaluation import detection_curve
from icl25_sava.plots import plot_batches, plot_detection, plot_histogram, plot_methods, plot_pruning, plot_worst


def drawn(figure) -> np.ndarray:
    """The picture as pixels; drawing it finds what only fails then."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    pixels = np.asarray(Image.open(buffer).convert("L"))
    assert pixels.std() > 5
    assert pixels.shape[1] >= 800
    return pixels


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    mask = np.arange(300) < 90
    return rng.normal(size=300) - mask, mask


def test_detection_draws_the_curves_between_random_and_oracle(rows):
    values, mask = rows
    figure = plot_detection({"ours": detection_curve(values, mask), "other": detection_curve(-values, mask)}, "Found")
    drawn(figure)
    axes = figure.axes[0]
    lines = {line.get_label(): np.asarray(line.get_xydata()) for line in axes.lines}
    assert set(lines) == {"ours", "other", "random", "oracle"}
    np.testing.assert_allclose(lines["random"][:, 0], lines["random"][:, 1])
    assert lines["oracle"][90].tolist() == [0.3, 1.0]
    assert lines["ours"][-1].tolist() == [1.0, 1.0]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["ours", "other", "oracle", "random"]


def test_long_curves_are_thinned_and_keep_their_ends():
    values, mask = np.arange(50_000.0), np.arange(50_000) < 100
    line = np.asarray(plot_detection({"ours": detection_curve(values, mask)}).axes[0].lines[-1].get_xydata())
    assert len(line) < 2100
    assert line[-1].tolist() == [1, 1]


def test_histogram_counts_every_row_by_flag_and_by_class(rows):
    values, mask = rows
    figure = plot_histogram(values, mask)
    drawn(figure)
    assert sum(patch.get_height() for patch in figure.axes[0].patches if isinstance(patch, Rectangle)) == 300
    classes = plot_histogram(values, np.arange(300) % 40)
    drawn(classes)
    assert len(classes.axes) == 12
    assert classes.axes[-1].get_ylabel() == "others (212)"
    drawn(plot_histogram(np.zeros(5), np.array([True, False, True, False, False])))


def test_batches_show_costs_and_weights_relative_to_uniform():
    costs = np.arange(12.0).reshape(4, 3)
    figure = plot_batches(costs, np.full((4, 3), 1 / 12))
    drawn(figure)
    shown = [np.asarray(axes.images[0].get_array()) for axes in figure.axes[:2]]
    assert np.array_equal(shown[0], costs)
    np.testing.assert_allclose(shown[1], 1)


def test_pruning_takes_one_table_or_several():
    table = pd.DataFrame({"fraction": [0, 0.2], "n_kept": [10, 8], "accuracy": [0.8, 0.9], "random": [0.8, 0.79]})
    for curves, names in ((table, ["by value"]), ({"a": table, "b": table}, ["a", "b"])):
        figure = plot_pruning(curves)
        drawn(figure)
        assert [line.get_label() for line in figure.axes[0].lines] == [*names, "at random"]


@pytest.mark.parametrize("shape", [(8, 6), (5, 5, 1), (4, 6, 3)])
def test_worst_rows_stand_beside_their_nearest_and_disagreement_shows(shape):
    rng = np.random.default_rng(0)
    d = int(np.prod(shape))
    X, X_val = rng.uniform(size=(20, d)), rng.uniform(size=(9, d))
    values, nearest = rng.normal(size=20), rng.integers(9, size=20)
    y, y_val = np.array(["a"] * 20), np.array(["a"] * 8 + ["a very long name"])
    figure = plot_worst(X, y, values, nearest, X_val, y_val, shape, k=11)
    drawn(figure)
    pairs = [axes for axes in figure.axes if axes.images]
    assert len(pairs) == 11
    first = np.argmin(values)
    image = np.asarray(pairs[0].images[0].get_array())
    rescaled = image[:, : shape[1]].reshape(-1)
    assert np.corrcoef(rescaled, X[first])[0, 1] == pytest.approx(1)
    assert np.corrcoef(image[:, -shape[1] :].reshape(-1), X_val[nearest[first]])[0, 1] == pytest.approx(1)
    titles = [axes.get_title() for axes in pairs]
    expected = ["a | a" if nearest[row] < 8 else "a | a very l…" for row in np.argsort(values)[:11]]
    assert titles == expected


def test_methods_draws_a_bar_per_score():
    table = pd.DataFrame([[0.9, 0.7], [0.5, 0.6]], index=["labels", "noise"], columns=["SAVA", "LAVA"])
    figure = plot_methods(table, "Who finds more")
    drawn(figure)
    bars = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    assert [bar.get_width() for bar in bars] == [0.9, 0.5, 0.7, 0.6]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["SAVA", "LAVA"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot_detection({}), "curves is empty"),
        (lambda: plot_pruning({}), "curves is empty"),
        (lambda: plot_histogram(np.zeros(3), np.zeros(2)), "equally long"),
        (lambda: plot_histogram(np.array([np.nan]), np.zeros(1)), "finite"),
        (lambda: plot_batches(np.zeros((2, 2)), np.zeros((2, 3))), "of one shape"),
        (lambda: plot_methods(pd.DataFrame()), "at least one"),
        (lambda: plot_methods(pd.DataFrame({"a": [np.nan]})), "finite"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_an_image_shape_that_does_not_fit_is_refused():
    rows, labels = np.zeros((2, 6)), np.zeros(2)
    with pytest.raises(ValueError, match="does not describe rows of 6 features"):
        plot_worst(rows, labels, labels, np.zeros(2, int), rows, labels, (2, 2))


def test_drawing_needs_no_pyplot_and_changes_no_setting():
    code = (
        "import sys, icl25_sava.plots as plots; assert 'matplotlib' not in sys.modules\n"
        "import matplotlib as mpl, numpy as np; before = [mpl.rcParams[k] for k in plots._STYLE]\n"
        "plots.plot_histogram(np.arange(9.0), np.arange(9) > 4)\n"
        "assert 'matplotlib.pyplot' not in sys.modules and [mpl.rcParams[k] for k in plots._STYLE] == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
