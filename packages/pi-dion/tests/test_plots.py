from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from icl25_pi_dion.error_plots import plot_error_curve, plot_reliability
from icl25_pi_dion.field_plots import plot_fields
from icl25_pi_dion.history_plots import plot_history
from icl25_pi_dion.plotting import plot_inversions
from icl25_pi_dion.results import InversionResult

X = np.linspace(0, 1, 21)
PLANE = np.stack(np.meshgrid(np.linspace(0, 1, 7), np.linspace(0, 1, 5), indexing="ij"), axis=-1).reshape(-1, 2)


def inversions(s, points, target=("x",), estimate=0.1):
    n = len(s)
    rest = [np.full(n, 0.1), np.full(n, 0.1), np.full(n, estimate), np.ones(n)]
    return InversionResult(s, points, None, None, *rest, meta={"target_coords": target})


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def image_of(axes):
    return axes.collections[0].get_array().reshape(5, 7)


def test_lines_show_inversion_truth_and_the_size_of_the_error(tmp_path):
    s = np.stack([np.sin(np.pi * X), 2 * X, X**2, X])
    figure = plot_inversions(inversions(s, X[:, None]), 1.1 * s, n=3)
    assert len(figure.axes) == 3
    for i, axes in enumerate(figure.axes):
        np.testing.assert_array_equal(lines(axes)["inversion"].get_ydata(), s[i])
        np.testing.assert_array_equal(lines(axes)["truth"].get_ydata(), 1.1 * s[i])
        assert axes.get_title(loc="left") == f"sample {i}, error 9.1 %"
        assert axes.get_xlabel() == "x"
        [band] = axes.collections
        half = 0.1 * np.sqrt(np.mean(s[i] ** 2))
        vertices = band.get_paths()[0].vertices
        assert vertices[:, 1].max() == pytest.approx(s[i].max() + half)
        assert vertices[:, 1].min() == pytest.approx(s[i].min() - half)
    figure.savefig(tmp_path / "lines.png")
    with Image.open(tmp_path / "lines.png") as image:
        assert 800 <= image.size[0] <= 1600


def test_points_need_not_be_sorted_and_estimates_not_be_known():
    order = np.random.default_rng(0).permutation(21)
    figure = plot_inversions(inversions(X[None, order] ** 2, X[order, None], estimate=np.nan))
    [axes] = figure.axes
    np.testing.assert_array_equal(lines(axes)["inversion"].get_xdata(), X)
    np.testing.assert_array_equal(lines(axes)["inversion"].get_ydata(), X**2)
    assert not axes.collections
    assert "truth" not in lines(axes)


def test_fields_share_the_scale_of_the_truth_and_keep_their_axes():
    truth = np.stack([PLANE[:, 0] + 10 * PLANE[:, 1]] * 2)
    s = truth + 0.5
    figure = plot_inversions(inversions(s.reshape(2, 7, 5), PLANE, ("x", "y")), truth)
    panels = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left") for axes in panels[:3]] == [
        "sample 0: truth",
        f"inversion, error {100 * np.linalg.norm(s[0] - truth[0]) / np.linalg.norm(truth[0]):.1f} %",
        "inversion - truth",
    ]
    # Rows of an image are y, columns x.
    np.testing.assert_array_equal(image_of(panels[0]), truth[0].reshape(7, 5).T)
    np.testing.assert_allclose(image_of(panels[2]), 0.5)
    limits = [axes.collections[0].get_clim() for axes in panels[:3]]
    assert limits[0] == limits[1] == (0, 11.5)
    assert limits[2] == pytest.approx((-0.5, 0.5))


def test_pictures_of_inversions_refuse_what_they_cannot_show():
    result = inversions(np.zeros((2, 21)), X[:, None])
    with pytest.raises(ValueError, match="n must be >= 1"):
        plot_inversions(result, n=0)
    with pytest.raises(ValueError, match=r"truth must have a row .* found \(2, 20\)"):
        plot_inversions(result, np.zeros((2, 20)))
    with pytest.raises(ValueError, match="one or two coordinates"):
        plot_inversions(inversions(np.zeros((1, 4)), np.zeros((4, 3)), ("x", "y", "z")))


def test_histories_show_each_term_and_the_checks():
    rows = [{"step": 50 * i, "total": 1 / i, "physics": 0.5 / i, "data": 0.1 / i} for i in range(1, 7)]
    rows[3] |= {"val_residual": 0.3, "val_misfit": 0.2}
    terms, checks = plot_history(rows).axes
    assert set(lines(terms)) == {"total, weighted", "physics", "data"}
    np.testing.assert_array_equal(lines(terms)["physics"].get_xdata(), [row["step"] for row in rows])
    np.testing.assert_array_equal(lines(terms)["physics"].get_ydata(), [row["physics"] for row in rows])
    assert terms.get_yscale() == checks.get_yscale() == "log"
    assert lines(checks)["misfit"].get_xydata().tolist() == [[200, 0.2]]
    assert len(plot_history(rows[:1]).axes) == 1
    with pytest.raises(ValueError, match="no history"):
        plot_history([])


def test_error_curves_have_intervals_and_level_lines():
    curves = {"ours": [(0, 0.03, 0.02, 0.04)], "theirs": [(10, 0.2, 0.1, 0.3), (100, 0.05, 0.04, 0.06)]}
    [axes] = plot_error_curve(curves, "labelled samples", log_x=True).axes
    assert lines(axes)["theirs"].get_xydata().tolist() == [[10, 0.2], [100, 0.05]]
    assert set(lines(axes)["ours"].get_ydata()) == {0.03}
    vertices = axes.collections[0].get_paths()[0].vertices
    assert {0.1, 0.3, 0.04, 0.06} <= set(vertices[:, 1])
    assert (axes.get_xscale(), axes.get_xlabel()) == ("log", "labelled samples")
    with pytest.raises(ValueError, match="no errors to draw"):
        plot_error_curve({"ours": []}, "noise")


def test_reliability_counts_what_lies_below_the_line():
    error = np.array([0.1, 0.1, 0.1, 0.1, 0.1])
    [axes] = plot_reliability(np.array([0.2, 0.1, 0.3, 0.05, np.nan]), error).axes
    assert "75 % of 4 below the line" in axes.texts[0].get_text()
    above = axes.collections[-1].get_offsets()
    assert above.tolist() == [[0.05, 0.1]]
    with pytest.raises(ValueError, match="no error estimate is finite"):
        plot_reliability(np.full(2, np.nan), error[:2])
    with pytest.raises(ValueError, match="2 estimates for 5 errors"):
        plot_reliability(np.ones(2), error)


def test_solutions_are_images_or_at_one_time_lines():
    u = np.stack([PLANE[:, 0] * PLANE[:, 1]] * 4)
    figure = plot_fields(PLANE, u, u + 1, n=2)
    panels = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert len(panels) == 6
    np.testing.assert_array_equal(image_of(panels[1]), u[0].reshape(7, 5).T)
    np.testing.assert_allclose(image_of(panels[2]), -1)
    assert (panels[-1].get_xlabel(), panels[0].get_ylabel()) == ("x", "t")
    [axes] = plot_fields(np.column_stack([X, np.ones(21)]), X[None] ** 2, coords=("x", "t")).axes
    np.testing.assert_array_equal(lines(axes)["network"].get_ydata(), X**2)
    with pytest.raises(ValueError, match="n must be >= 1"):
        plot_fields(PLANE, u, n=0)
    with pytest.raises(ValueError, match="the shape of u"):
        plot_fields(PLANE, u, u[:1])
