from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.plotting import confidence_map
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
