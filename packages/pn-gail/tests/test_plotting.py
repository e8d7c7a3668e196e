from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from icl25_pn_gail.confidence import calibration_report
from icl25_pn_gail.confidence_plots import plot_confidence, plot_mixture
from icl25_pn_gail.evaluation import bootstrap_interval
from icl25_pn_gail.optima import expected_mixture
from icl25_pn_gail.plotting import line_looks, method_title, plot_learning_curves


def drawn(figure, least=500):
    """The picture as pixels; drawing it finds what only fails then. No text may reach over its edges."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    pixels = np.asarray(Image.open(buffer).convert("L"))
    assert pixels.shape[1] >= least
    assert pixels.std() > 3
    for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert (edge > 250).all()
    return pixels


def lines(axes, label):
    return [line for line in axes.get_lines() if line.get_label() == label]


def line(axes, label):
    [found] = lines(axes, label)
    return found


def text(axes):
    return [note.get_text() for note in axes.texts]


def histories(methods=("pn-gail", "gail"), seeds=5, every=10):
    """Histories as learners write them, evaluated every so many iterations."""
    rng = np.random.default_rng(0)
    parts = []
    for method in methods:
        for seed in range(seeds):
            iteration = np.arange(1, 41)
            returns = np.where(iteration % every == 0, rng.normal(-50, 20, 40), np.nan)
            columns = {"method": method, "seed": seed, "iteration": iteration, "env_steps": 300 * iteration}
            parts.append(pd.DataFrame({**columns, "eval_return": returns}))
    return pd.concat(parts)


@pytest.mark.parametrize(("statistic", "how"), [("median", np.median), ("mean", np.mean)])
def test_curves_are_the_middle_of_seeds_within_its_interval(statistic, how):
    rows = histories()
    figure = plot_learning_curves(rows, {"good": -17.5}, statistic=statistic, level=0.9, n_resamples=300)
    drawn(figure, 900)
    [axes] = figure.axes
    assert axes.get_title(loc="left") == f"{statistic.capitalize()} of 5 seeds, 90 % interval"
    for k, method in enumerate(("pn-gail", "gail")):
        part = rows[(rows["method"] == method) & rows["eval_return"].notna()]
        values = part["eval_return"].to_numpy().reshape(5, 4)
        curve = line(axes, method_title(method))
        np.testing.assert_array_equal(curve.get_xdata(), [3000, 6000, 9000, 12000])
        np.testing.assert_allclose(curve.get_ydata(), how(values, axis=0))
        vertices = axes.collections[k].get_paths()[0].vertices
        for x, samples in zip(curve.get_xdata(), values.T, strict=True):
            low, high = bootstrap_interval(samples, how, level=0.9, n_resamples=300)
            edges = vertices[vertices[:, 0] == x, 1]
            assert (edges.min(), edges.max()) == pytest.approx((low, high))
        singles = lines(axes, "_seed")[5 * k : 5 * k + 5]
        np.testing.assert_allclose([single.get_ydata() for single in singles], values)
        assert {single.get_color() for single in singles} == {curve.get_color()}
    assert set(line(axes, "good").get_ydata()) == {-17.5}


def test_names_stand_beside_the_ends_of_lines_in_their_order():
    rows = histories(("pn-gail", "2iwil", "gail", "wgail"), seeds=2)
    last = {"pn-gail": -50.0, "2iwil": -50.2, "gail": -50.1, "wgail": 30.0}
    rows.loc[rows["iteration"] == 40, "eval_return"] = rows.loc[rows["iteration"] == 40, "method"].map(last)
    [axes] = plot_learning_curves(rows, {"experts": -50.05}).axes
    at = {note.get_text(): note.xy[1] for note in axes.texts}
    assert sorted(at, key=lambda name: at[name]) == ["2IWIL", "GAIL", "experts", "PN-GAIL", "WGAIL"]
    heights = np.sort([*at.values()])
    assert np.diff(heights).min() > 0.06  # of the height: lines of text do not overlap
    low, high = axes.get_ylim()
    assert at["WGAIL"] == pytest.approx((30 - low) / (high - low), abs=1e-6)
    assert np.mean(heights[:4]) == pytest.approx((-50.0875 - low) / (high - low), abs=1e-3)
    assert {note.get_text(): note.get_color() for note in axes.texts}["2IWIL"] == line(axes, "2IWIL").get_color()
    figure = plot_learning_curves(rows, {str(i): -200.0 for i in range(8)})  # many at the bottom
    drawn(figure)
    heights = np.sort([note.xy[1] for note in figure.axes[0].texts])
    assert np.diff(heights).min() > 0.06
    assert heights[0] >= 0


def test_curves_stop_where_a_seed_does_and_one_seed_has_no_interval():
    rows = histories(("pn-gail",), seeds=2)
    rows.loc[(rows["seed"] == 1) & (rows["iteration"] == 40), "eval_return"] = np.nan
    [axes] = plot_learning_curves(rows).axes
    assert list(line(axes, "PN-GAIL").get_xdata()) == [3000, 6000, 9000]
    assert [len(single.get_xdata()) for single in lines(axes, "_seed")] == [4, 3]
    [axes] = plot_learning_curves(histories(seeds=1)).axes
    assert not axes.collections
    assert not lines(axes, "_seed")


def test_cloning_is_a_level_line_among_methods_that_take_steps():
    clone = histories(("bc",), seeds=3).drop(columns="env_steps")
    rows = pd.concat([histories(), clone])
    [axes] = plot_learning_curves(rows, statistic="mean").axes
    last = clone.loc[clone["iteration"] == 40, "eval_return"].to_numpy()
    assert set(line(axes, "BC").get_ydata()) == {last.mean()}
    band = axes.patches[0].get_extents().transformed(axes.transData.inverted())
    assert (band.y0, band.y1) == pytest.approx(bootstrap_interval(last, np.mean))
    [axes] = plot_learning_curves(clone).axes
    assert list(line(axes, "BC").get_xdata()) == [10, 20, 30, 40]
    assert axes.get_xlabel() == "iteration"


def test_a_method_keeps_its_colour_and_its_variants_differ_by_dashes():
    looks = line_looks(["gail", "pn-gail+bsc", "mine", "pn-gail+sc", "gail-c", "yours"])
    assert looks["pn-gail+bsc"].color == looks["pn-gail+sc"].color == line_looks(["pn-gail"])["pn-gail"].color
    assert looks["gail"].color == looks["gail-c"].color
    assert len({look.color for look in looks.values()}) == 4
    assert len(set(looks.values())) == 6
    assert len(set(line_looks(str(i) for i in range(20)).values())) == 20
    names = ["pn-gail", "2iwil+bsc", "ic-gail+oracle", "bc-weighted", "anything + else", "gail-c"]
    expected = ["PN-GAIL", "2IWIL + BSC", "IC-GAIL + oracle", "BC, weighted", "anything + else", "GAIL, labelled rows"]
    assert [method_title(name) for name in names] == expected


def test_histograms_and_reliability_show_the_confidences():
    rng = np.random.default_rng(0)
    truth = rng.uniform(size=400)
    filled = np.clip(0.7 * truth + 0.05 * rng.normal(size=400), 0, 1)  # some bins stay empty
    given = np.where(np.arange(400) < 100, filled, np.nan)
    filled[0] = given[0] = 0.6  # a bound of the bins, which belongs to the one above
    figure = plot_confidence(given, filled, truth)
    drawn(figure, 900)
    histogram, reliability = figure.axes
    for patch, rows, label in zip(
        histogram.patches, (slice(100, None), slice(100)), ("predicted (300 rows)", "given (100 rows)"), strict=True
    ):
        assert patch.get_label() == label
        values, edges, _ = patch.get_data()
        np.testing.assert_allclose(edges, np.linspace(0, 1, 21))
        counts = np.bincount(np.minimum(np.floor(filled[rows] * 20 + 1e-9).astype(int), 19), minlength=20)
        np.testing.assert_allclose(values, counts / counts.sum())
    report = calibration_report(truth[100:], filled[100:])
    assert f"Mean error {np.mean(np.abs(truth - filled)[100:]):.3f}" in reliability.get_title(loc="left")
    assert f"bias {np.mean((filled - truth)[100:]):+.3f}" in reliability.get_title(loc="left")
    [dots] = reliability.collections
    seen = report.reliability[report.reliability["n"] > 0]
    assert len(seen) < 10
    np.testing.assert_allclose(dots.get_offsets(), seen[["predicted", "true"]])
    np.testing.assert_allclose(line(reliability, "_mean").get_xydata(), seen[["predicted", "true"]])
    sizes = dots.get_sizes()
    assert np.corrcoef(sizes, seen["n"])[0, 1] == pytest.approx(1)


def test_confidences_need_neither_truth_nor_rows_of_both_kinds():
    r = np.array([0.1, 0.1, 1.0])
    for given, label in ((r, "given (3 rows)"), (np.full(3, np.nan), "predicted (3 rows)")):
        figure = plot_confidence(given, r)
        drawn(figure)
        [axes] = figure.axes
        assert [patch.get_label() for patch in axes.patches] == [label]
    # Where every row was given, these are what is compared.
    assert "Mean error 0.300" in plot_confidence(r, r, np.array([1.0, 0.1, 1.0])).axes[1].get_title(loc="left")
    # Where the truth is not known, given confidences are held against predictions made without them.
    held = np.array([0.4, np.nan, 0.8])
    title = plot_confidence(np.array([0.1, np.nan, 1.0]), r, held_out=held).axes[1].get_title(loc="left")
    assert "Mean error 0.250" in title
    assert "bias +0.050" in title
    with pytest.raises(ValueError, match="given"):
        plot_confidence(r[:2], r)
    with pytest.raises(ValueError, match="at least one true confidence"):
        plot_confidence(np.array([np.nan, 1, 1]), r, np.array([np.nan, 1, 1]))


def bars(axes):
    return {bar.get_label(): [patch.get_height() for patch in bar] for bar in axes.containers}


def ticks(axes):
    return [label.get_text() for label in axes.get_xticklabels()]


def test_bars_are_the_shares_of_the_mixture():
    figure = plot_mixture(expected_mixture([1.0] * 5 + [0.1] * 50))
    drawn(figure, 800)
    [axes] = figure.axes
    bad = 10 / 11
    expected = {"demonstrations": bad, "GAIL": bad, "2IWIL": 0.5, "PN-GAIL": 1 - bad}
    for name, heights in bars(axes).items():
        assert heights == pytest.approx([expected[name], 1 - expected[name]])
    assert list(bars(axes)) == list(expected)
    assert ticks(axes) == ["0.1", "1"]
    assert text(axes) == ["91", "9.1", "91", "9.1", "50", "50", "9.1", "91"]
    names = ["expert"] * 5 + ["spin"] * 45 + ["crawl"] * 5
    table = expected_mixture([1.0] * 5 + [0.1] * 45 + [0.0] * 5, groups=names)
    [axes] = plot_mixture(table).axes
    assert ticks(axes) == ["crawl\n(0)", "spin\n(0.1)", "expert\n(1)"]
    np.testing.assert_allclose(bars(axes)["PN-GAIL"], table["pn_gail"][["crawl", "spin", "expert"]])
    assert text(axes)[-3] == "0"


def test_many_groups_are_joined():
    r = np.random.default_rng(0).uniform(0.001, 0.999, 300)
    table = expected_mixture(r)
    figure = plot_mixture(table)
    drawn(figure, 900)
    [axes] = figure.axes
    tenth = np.floor(table.index.to_numpy() * 10).astype(int)
    np.testing.assert_allclose(bars(axes)["PN-GAIL"], np.bincount(tenth, table["pn_gail"]))
    assert ticks(axes)[::9] == ["0 to 0.1", "0.9 to 1"]
    names = np.repeat([f"pilot {i}" for i in range(14)], np.arange(14, 0, -1))
    table = expected_mixture(np.linspace(0.1, 1, len(names)), groups=names)
    [axes] = plot_mixture(table).axes
    found = dict(zip([tick.partition("\n")[0] for tick in ticks(axes)], bars(axes)["2IWIL"], strict=True))
    others = [f"pilot {i}" for i in range(9, 14)]
    assert found.pop("5 others") == pytest.approx(table["iwil"][others].sum())
    assert found == pytest.approx(table["iwil"].drop(others).to_dict())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot_learning_curves(histories().drop(columns="seed")), "histories lacks the column seed"),
        (lambda: plot_learning_curves(histories().assign(eval_return=np.nan)), "not evaluated, has no rows"),
        (lambda: plot_learning_curves(pd.concat([histories()] * 2)), "iteration 10 of pn-gail, seed 0, more than once"),
        (lambda: plot_learning_curves(histories(), level=1.0), r"level must be in \(0, 1\)"),
        (lambda: plot_mixture(pd.DataFrame({"gail": [1.0]})), "lacks the columns demonstrations, iwil, pn_gail, conf"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_drawing_needs_no_pyplot_and_changes_no_setting():
    code = (
        "import sys, icl25_pn_gail.plotting as plots; from icl25_pn_gail.training_plots import plot_training\n"
        "assert 'matplotlib' not in sys.modules\n"
        "import matplotlib as mpl, pandas as pd; before = [mpl.rcParams[k] for k in plots._STYLE]\n"
        "plot_training(pd.DataFrame({'iteration': [1, 2], 'train_return': [0, 1], 'eval_return': [0, 1]}))\n"
        "assert 'matplotlib.pyplot' not in sys.modules and [mpl.rcParams[k] for k in plots._STYLE] == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
