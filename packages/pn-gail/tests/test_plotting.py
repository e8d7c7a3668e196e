from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from icl25_pn_gail.confidence import calibration_report
from icl25_pn_gail.confidence_plots import plot_confidence, plot_mixture
from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.evaluation import bootstrap_interval
from icl25_pn_gail.optima import expected_mixture
from icl25_pn_gail.plotting import confidence_map, line_looks, method_title, plot_learning_curves
from icl25_pn_gail.policy_plots import TWO_GOALS, plot_discriminator, plot_rollouts
from icl25_pn_gail.training_plots import plot_training


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


def learning(n=30):
    """The history of an adversarial training, evaluated at every tenth iteration."""
    rng = np.random.default_rng(0)
    names = ("train_return", "taken_agent", "taken_good", "taken_bad", "disc_loss", "entropy", "kl", "value_loss")
    rows = pd.DataFrame({"iteration": np.arange(1, n + 1), **{name: rng.uniform(size=n) for name in names}})
    rows["eval_return"] = np.where(rows["iteration"] % 10 == 0, rng.uniform(size=n), np.nan)
    return rows


def titled(figure):
    return {axes.get_title(loc="left"): axes for axes in figure.axes if axes.axison}


def test_trainings_show_each_column():
    history = learning()
    figure = plot_training(history)
    drawn(figure, 1200)
    shown = titled(figure)
    at = {
        "in training": ("Return", "train_return"),
        "agent's rows": ("Rows that D takes for the agent's", "taken_agent"),
        "good demonstrations": ("Rows that D takes for the agent's", "taken_good"),
        "bad demonstrations": ("Rows that D takes for the agent's", "taken_bad"),
        "disc_loss": ("Loss of the discriminator", "disc_loss"),
        "entropy": ("Entropy of the policy (nats)", "entropy"),
        "kl": ("KL of each update (nats)", "kl"),
        "value_loss": ("Error of the value function", "value_loss"),
    }
    assert set(shown) == {title for title, _ in at.values()}
    for label, (title, column) in at.items():
        np.testing.assert_array_equal(line(shown[title], label).get_xydata(), history[["iteration", column]])
    evaluated = line(shown["Return"], "evaluation, mean action").get_xydata()
    np.testing.assert_array_equal(evaluated, history[["iteration", "eval_return"]].dropna())
    limits = shown["Rows that D takes for the agent's"].get_ylim()
    assert limits[0] < 0 < 1 < limits[1]


def test_long_trainings_are_smoothed_and_wide_ranges_logarithmic():
    history = learning(400)
    history["value_loss"] = np.geomspace(100, 1, 400)
    shown = titled(plot_training(history))
    smooth, single = line(shown["KL of each update (nats)"], "kl"), line(shown["KL of each update (nats)"], "_single")
    np.testing.assert_array_equal(single.get_ydata(), history["kl"])
    assert smooth.get_ydata()[200] == pytest.approx(history["kl"][196:204].mean())
    assert shown["Error of the value function"].get_yscale() == "log"
    history["value_loss"] = np.linspace(1, 2, 400)
    assert titled(plot_training(history))["Error of the value function"].get_yscale() == "linear"


def test_trainings_of_behaviour_cloning_and_without_bad_rows_have_fewer_pictures():
    clone = pd.DataFrame({"iteration": [1, 2, 3], "loss": [3.0, 2.0, 1.0], "eval_return": [np.nan, np.nan, -5.0]})
    figure = plot_training(clone)
    drawn(figure)
    shown = titled(figure)
    assert list(shown) == ["Return", "Negative log-likelihood (nats)"]
    assert list(line(shown["Negative log-likelihood (nats)"], "loss").get_ydata()) == [3, 2, 1]
    shown = titled(plot_training(learning().assign(taken_bad=np.nan, disc_loss=np.nan)))
    assert "Loss of the discriminator" not in shown
    assert not lines(shown["Rows that D takes for the agent's"], "bad demonstrations")


class Linear:
    """Rewards that are linear in observations and actions; of discrete actions, by their number."""

    def __init__(self, obs_weights, act_weights):
        self.obs_weights, self.act_weights = np.array(obs_weights), np.array(act_weights)

    def reward(self, obs, acts):
        act_part = self.act_weights[acts] if acts.ndim == 1 else acts @ self.act_weights
        return obs @ self.obs_weights + act_part


def rows_in_the_plane(n=60, d=3, a=1):
    rng = np.random.default_rng(0)
    confidence = np.where(np.arange(n) < n // 3, 1.0, 0.1)
    confidence[-5:] = np.nan
    return Demonstrations(rng.normal(size=(n, d)), rng.normal(size=(n, a)), confidence)


def field(axes):
    """Places and values of the drawn field, (rows, columns, ...)."""
    corners, values = axes.collections[0].get_coordinates(), np.asarray(axes.collections[0].get_array())
    return (corners[:-1, :-1] + corners[1:, 1:]) / 2, values


def dots(axes, label):
    [found] = [one for one in axes.collections if one.get_label() == label]
    return found


def test_rewards_are_drawn_over_the_inputs_that_matter():
    demos = rows_in_the_plane()
    pay = Linear([0.1, 3.0, 0.0], [2.0])  # observation 1 and the action
    figure = plot_discriminator(pay, demos)
    drawn(figure, 600)
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("observation 1", "action 0")
    # The rest of the inputs are those of the twenty nearest rows.
    inputs, (places, values) = demos.inputs(), field(axes)
    spread = inputs[:, [1, 3]].std(axis=0)
    for i, j in [(0, 0), (40, 13), (79, 79), (5, 60)]:
        x, y = places[i, j]
        near = np.argsort(np.hypot(*((inputs[:, [1, 3]] - (x, y)) / spread).T))[:20]
        assert values[i, j] == pytest.approx(3 * x + 2 * y + 0.1 * inputs[near, 0].mean(), abs=1e-6)
    rated, unknown = dots(axes, "_rated"), dots(axes, "_unknown")
    order = np.argsort(demos.confidence[:55], kind="stable")  # the best on top
    np.testing.assert_allclose(rated.get_offsets(), inputs[:55][order][:, [1, 3]])
    np.testing.assert_allclose(rated.get_array(), demos.confidence[:55][order])
    np.testing.assert_allclose(unknown.get_offsets(), inputs[55:][:, [1, 3]])
    [legend] = figure.legends
    assert [one.get_text() for one in legend.get_texts()] == [
        "demonstrations of confidence 1", "of 0.1", "of unknown"
    ]  # fmt: skip
    assert to_hex(legend.legend_handles[1].get_color()) == to_hex(confidence_map()(0.1))


@pytest.mark.parametrize(
    ("obs_weights", "act_weights", "telling"),
    [([0, 0, 1], [2], (2, 3)), ([3, 0.1, -2], [0.5], (0, 2)), ([3, -4, 1], [0], (0, 1))],
)
def test_the_most_telling_inputs_are_those_that_move_the_reward(obs_weights, act_weights, telling):
    names = [*"abc", "u"]
    axes = plot_discriminator(Linear(obs_weights, act_weights), rows_in_the_plane(), names=names).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == tuple(names[i] for i in telling)


def test_inputs_and_their_names_can_be_chosen():
    demos = rows_in_the_plane()
    confidence = np.linspace(0, 1, 60)
    figure = plot_discriminator(Linear([1, 0, 0], [0]), demos, confidence, dims=(2, 0), names=["a", "b", "c", "u"])
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("c", "a")
    np.testing.assert_allclose(dots(axes, "_rated").get_offsets(), demos.obs[:, [2, 0]])
    assert [one.get_text() for one in figure.legends[0].get_texts()][-1] == "of 0"


def test_discrete_actions_have_pictures_of_their_own():
    rng = np.random.default_rng(0)
    acts = np.repeat([0, 2, 3, 4, 5], [4, 20, 9, 30, 7])
    demos = Demonstrations(rng.normal(size=(70, 2)), acts, np.full(70, 0.3), meta={"n_actions": 7})
    pay = Linear([1.0, 0.0], 100.0 * np.arange(7))
    figure = plot_discriminator(pay, demos)
    drawn(figure, 1500)
    shown = titled(figure)
    assert [title for title in shown if title] == ["action 2", "action 3", "action 4", "action 5"]
    axes = shown["action 3"]
    places, values = field(axes)
    np.testing.assert_allclose(values, 300 + places[..., 0])
    np.testing.assert_allclose(dots(axes, "_rated").get_offsets(), demos.obs[acts == 3])
    assert len({axes.collections[0].get_clim() for title, axes in shown.items() if title}) == 1


def test_rollouts_show_traces_demonstrations_and_goals():
    rng = np.random.default_rng(0)
    traces = {name: rng.uniform(-1, 1, (3, 7, 2)) for name in ("pn-gail", "2iwil", "gail", "bc", "mine")}
    traces["gail"][1, 4:] = np.nan  # an episode that ended early
    demos = [rng.uniform(-1, 1, (n, 2)) for n in (5, 8, 3)]
    figure = plot_rollouts(traces, demos, [0.1, 1.0, np.nan], goals=TWO_GOALS, names=("east", "north"))
    drawn(figure, 800)
    shown = titled(figure)
    assert list(shown) == ["PN-GAIL", "2IWIL", "GAIL", "BC", "mine"]
    for axes, trace in zip(shown.values(), traces.values(), strict=True):
        found = [one.get_xydata() for one in lines(axes, "_trace")]
        assert len(found) == 3
        for one, expected, end in zip(found, trace, lines(axes, "_end"), strict=True):
            expected = expected[np.isfinite(expected[:, 0])]
            np.testing.assert_array_equal(one, expected)
            np.testing.assert_array_equal(end.get_xydata(), expected[-1:])
        behind = lines(axes, "_demonstration")
        for one, k in zip(behind, [2, 0, 1], strict=True):  # the best on top
            np.testing.assert_array_equal(one.get_xydata(), demos[k])
        assert [to_hex(one.get_color()) for one in behind[1:]] == [to_hex(confidence_map()(r)) for r in (0.1, 1.0)]
        assert {tuple(one.get_xydata()[0]) for one in lines(axes, "_goal")} == {(1.0, 0.6), (-1.0, 0.6)}
        assert text(axes) == ["A", "B"]
    assert [axes.get_xlabel() for axes in shown.values()] == ["", "", "east", "east", "east"]
    assert [axes.get_ylabel() for axes in shown.values()] == ["north", "", "", "north", ""]


def test_limits_follow_demonstrations_and_goals_rather_than_stray_traces():
    stray = np.zeros((1, 2, 2))
    stray[0, 1] = [100, 0.2]
    axes = plot_rollouts({"gail": stray}, goals={"A": (0, 0), "B": (2, 1)}).axes[0]
    assert axes.get_xlim()[1] == pytest.approx(3 + 0.08 * 3)
    assert axes.get_ylim() == pytest.approx((-0.08, 1.16))
    assert axes.get_aspect() == 1
    axes = plot_rollouts({"gail": stray}).axes[0]
    assert axes.get_xlim() == pytest.approx((-8, 108))
    assert axes.get_aspect() == "auto"  # to scale it would be a line


ROWS = rows_in_the_plane()
PLANE = np.zeros((1, 2, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot_learning_curves(histories().drop(columns="seed")), "histories lacks the column seed"),
        (lambda: plot_learning_curves(histories().assign(eval_return=np.nan)), "not evaluated, has no rows"),
        (lambda: plot_learning_curves(pd.concat([histories()] * 2)), "iteration 10 of pn-gail, seed 0, more than once"),
        (lambda: plot_learning_curves(histories(), level=1.0), r"level must be in \(0, 1\)"),
        (lambda: plot_mixture(pd.DataFrame({"gail": [1.0]})), "lacks the columns demonstrations, iwil, pn_gail, conf"),
        (lambda: plot_training(pd.DataFrame({"iteration": [1], "seconds": [1.0]})), "no column that is drawn"),
        (lambda: plot_training(learning()[:0]), "history has no rows"),
        (lambda: plot_rollouts({}), "no traces"),
        (lambda: plot_rollouts({"gail": PLANE}, [PLANE[0]], [0.1, 0.2]), "confidence must have 1 values"),
        (lambda: plot_discriminator(Linear([1, 1, 1], [1]), ROWS, dims=(0, 4)), "columns from 0 to 3"),
        (lambda: plot_discriminator(Linear([1, 1, 1], [1]), ROWS, dims=(1, 1)), "two different columns"),
        (lambda: plot_discriminator(Linear([1, 1, 1], [1]), ROWS, names=["a"]), "names must be 4"),
        (lambda: plot_discriminator(Linear([1, 1, 1], [1]), ROWS, np.ones(3)), r"confidence must have shape \(60,\)"),
        (
            lambda: plot_discriminator(Linear([1], [1, 1]), Demonstrations(np.zeros((2, 1)), np.array([0, 1]))),
            "needs two inputs",
        ),
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
