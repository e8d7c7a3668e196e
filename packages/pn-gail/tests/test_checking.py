from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

from icl25_pn_gail.checking import check
from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.envs import CartPoleJax, PendulumJax, TwoGoals
from icl25_pn_gail.findings import Finding, Report

T = 50
PENDULUM = PendulumJax(max_episode_steps=T)


def swing(n_episodes, *, labels=(1.0, 0.1), length=T, seed=0):
    """Episodes of the pendulum by its equations: a swing-up in turn with spinning, both with noise."""
    rng = np.random.default_rng(seed)
    obs, acts, after, rewards = [], [], [], []
    for number in range(n_episodes):
        angle, speed = rng.uniform(-np.pi, np.pi), rng.uniform(-1, 1)
        for _ in range(length):
            energy = speed**2 / 6 + 5 * (np.cos(angle) - 1)
            torque = -4 * speed * energy if number % 2 == 0 else 2 * np.sign(speed)
            torque = np.clip(torque + rng.normal(0, 0.3), -2, 2)
            obs.append([np.cos(angle), np.sin(angle), speed])
            acts.append([torque])
            rewards.append(float(number % 2 == 0))
            speed = np.clip(speed + (15 * np.sin(angle) + 3 * torque) * 0.05, -8, 8)
            angle = angle + 0.05 * speed
            after.append([np.cos(angle), np.sin(angle), speed])
    r = np.repeat(np.resize(labels, n_episodes), length)
    return Demonstrations(obs, acts, r, np.repeat(np.arange(n_episodes), length), after, rewards)


SWING = swing(6)
FOLLOWING = dataclasses.replace(SWING, next_obs=None)


def rolled(demos, rows, factor=1.0):
    """The rows moved on against the labels of their episodes, the actions multiplied."""
    obs, acts = np.roll(demos.obs, rows, axis=0), factor * np.roll(demos.acts, rows, axis=0)
    after = None if demos.next_obs is None else np.roll(demos.next_obs, rows, axis=0)
    return dataclasses.replace(demos, obs=obs, acts=acts, next_obs=after, reward=None)


def levels(report, code):
    return [finding.level for finding in report.of(code)]


def one(report, code):
    (finding,) = report.of(code)
    return finding


@pytest.mark.parametrize("demos", [SWING, FOLLOWING, FOLLOWING.select(np.arange(300).reshape(6, 50).T.ravel())])
def test_sound_demonstrations_raise_nothing(demos):
    report = check(demos, PENDULUM)
    assert {finding.level for finding in report.findings} == {"ok"}, str(report)
    scale = one(report, "action-scale")
    assert scale.numbers["best"] == 1
    assert scale.numbers["error_1"] < 1e-5 < 0.01 < min(scale.numbers["error_2"], scale.numbers["error_0.5"])
    assert "do not at the 5 cuts" in one(report, "episode-cuts").message
    codes = {"dimensions", "action-bounds", "action-range", "obs-bounds", "labels", "episode-lengths", "duplicates"}
    assert codes < {finding.code for finding in report.findings}


def test_the_faults_of_the_official_pendulum_are_both_found():
    # It stores half the torque, and the first row of each block belongs to the block before.
    official = rolled(FOLLOWING, 1, 0.5)
    report = official.check(PENDULUM)
    scale, cuts = one(report, "action-scale"), one(report, "episode-cuts")
    assert (scale.level, scale.numbers["best"]) == ("error", 2.0)
    assert scale.numbers["error_2"] < 1e-5 < 0.02 < scale.numbers["error_1"]
    assert (cuts.level, cuts.numbers["shift"], cuts.numbers["episodes"], cuts.numbers["first_row"]) == (
        "warning",
        1,
        6,
        0,
    )
    assert levels(report, "action-range") == ["warning"]
    assert not report.ok
    # What the messages advise mends it.
    assert "dataclasses.replace(demos, acts=2 * demos.acts)" in scale.message
    assert "replace(demos.select(slice(1, None)), episode=demos.episode[:-1])" in cuts.message
    mended = dataclasses.replace(official, acts=2 * official.acts)
    mended = dataclasses.replace(mended.select(slice(1, None)), episode=official.episode[:-1])
    report = mended.check(PENDULUM)
    assert levels(report, "action-scale") + levels(report, "episode-cuts") == ["ok", "ok"]


def test_the_official_pendulum_without_labels_of_episodes():
    official = dataclasses.replace(rolled(FOLLOWING, 1, 0.5), episode=None)
    report = official.check(PENDULUM)
    assert one(report, "action-scale").numbers["best"] == 2.0
    cuts = one(report, "episode-cuts")
    assert cuts.numbers["rows"] == [1, 51, 101, 151, 201, 251]
    assert (cuts.numbers["length"], cuts.numbers["offset"]) == (50, 1)
    assert "every 50 rows; blocks of 50 rows from row 0 on would be cut 1 row off" in cuts.message
    assert "300 rows, but the environment ends episodes after 50 steps" in one(report, "episode-lengths").message


@pytest.mark.parametrize("shift", [-3, -2, -1, 1, 2, 3])
@pytest.mark.parametrize(("demos", "env"), [(FOLLOWING, PENDULUM), (SWING, None), (FOLLOWING, None)])
def test_cuts_that_are_off_are_found_by_dynamics_by_next_obs_and_by_steps(demos, env, shift):
    found = one(check(rolled(demos, shift), env), "episode-cuts")
    sources = ["the sizes of steps", "next_obs", "the dynamics of the environment"]
    assert found.numbers["source"] == sources[(env is not None) * 2 or int(demos.next_obs is not None)]
    assert (found.level, found.numbers["shift"]) == ("warning", shift)
    assert found.numbers["episodes"] >= (6 if env or demos.next_obs is not None else 4)
    assert found.numbers["first_row"] % T == (0 if shift > 0 else T + shift)
    size = abs(shift)
    remedy = slice(size, None) if shift > 0 else slice(None, -size)
    labels = demos.episode[:-size] if shift > 0 else demos.episode[size:]
    mended = dataclasses.replace(rolled(demos, shift).select(remedy), episode=labels)
    assert levels(check(mended, env), "episode-cuts") == ["ok"]


@pytest.mark.parametrize("demos", [SWING, FOLLOWING])
@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_actions_of_another_scale_are_found(demos, factor):
    scaled = dataclasses.replace(demos, acts=demos.acts / factor)
    found = one(check(scaled, PENDULUM), "action-scale")
    assert (found.level, found.numbers["best"]) == ("error", factor)
    assert found.numbers[f"error_{factor:g}"] < 1e-5


def test_actions_that_are_cut_off_at_the_bounds_tell_no_scale():
    # All of them are full torque, and twice that is clipped to the same.
    spin = swing(2)
    full = dataclasses.replace(spin, acts=2 * np.sign(spin.acts), next_obs=None, episode=None)
    env = PENDULUM
    obs, rows = full.obs[0], []
    for act in full.acts:
        rows.append(obs)
        angle, speed = np.arctan2(obs[1], obs[0]), obs[2]
        speed = np.clip(speed + (15 * obs[1] + 3 * act[0]) * 0.05, -8, 8)
        obs = np.array([np.cos(angle + 0.05 * speed), np.sin(angle + 0.05 * speed), speed])
    found = one(check(dataclasses.replace(full, obs=rows), env), "action-scale")
    assert (found.level, found.numbers["best"]) == ("ok", 1.0)
    still = dataclasses.replace(full, obs=rows, acts=0.0 * full.acts)
    assert one(check(still, env), "action-scale").level == "warning"


def test_actions_of_no_effect_tell_no_scale():
    still = Demonstrations(np.tile([-1.0, 0.0, 0.0], (20, 1)), np.zeros((20, 1)), episode=[0] * 20)
    found = one(check(still, PENDULUM), "action-scale")
    assert found.level == "ok"
    assert "they tell no scale" in found.message


def test_other_dynamics_are_found_and_cuts_are_then_judged_otherwise():
    report = check(FOLLOWING, PendulumJax(g=-25.0, max_episode_steps=T))
    assert levels(report, "action-scale") == ["warning"]
    assert "does not reproduce recorded steps" in one(report, "action-scale").message
    assert one(report, "episode-cuts").numbers["source"] == "the sizes of steps"


def test_environments_of_gymnasium_that_the_package_has_in_jax_are_repeated():
    half = dataclasses.replace(FOLLOWING, acts=FOLLOWING.acts / 2)
    for env in ("Pendulum-v1", gymnasium.make("Pendulum-v1"), gymnasium.make("Pendulum-v1", render_mode="rgb_array")):
        assert one(check(half, env), "action-scale").numbers["best"] == 2
    assert not check(half, gymnasium.make("Pendulum-v1", g=3.0)).of("action-scale")
    ends = np.full((1,), -1, np.float32), np.full((1,), 1, np.float32)
    rescaled = gymnasium.wrappers.RescaleAction(gymnasium.make("Pendulum-v1"), *ends)
    assert not check(half, rescaled).of("action-scale")


def test_two_goals_and_choices():
    rng = np.random.default_rng(0)
    acts = rng.uniform(-1, 1, (20, 2))
    path = np.vstack([[0, -1], [0, -1] + 0.1 * np.cumsum(acts, axis=0)])
    demos = Demonstrations(path[:-1], acts / 2, next_obs=path[1:])
    assert one(check(demos, TwoGoals()), "action-scale").numbers["best"] == 2
    env = CartPoleJax()
    obs, state, ids = jnp.array([0.01, 0.02, -0.03, 0.0]), None, rng.integers(0, 2, 8)
    rows = []
    for choice in ids:
        rows.append(obs)
        state = env.state_from_obs(obs)
        obs = env.step(jnp.zeros(2, jnp.uint32), state, jnp.asarray(choice))[0]
    right = Demonstrations(np.array(rows), ids)
    found = one(check(right, env), "action-scale")
    assert (found.level, list(found.numbers)) == ("ok", ["best", "error_1"])
    assert levels(check(dataclasses.replace(right, acts=1 - ids), env), "action-scale") == ["warning"]


def test_rows_that_do_not_follow_inside_episodes():
    gap, hole = (np.delete(np.arange(300), rows) for rows in (np.arange(120, 130), 120))
    for demos, rows, env in [(FOLLOWING, gap, PENDULUM), (SWING, hole, None)]:
        demos = dataclasses.replace(demos.select(rows), meta={})
        found = one(check(demos, env), "episode-cuts")
        assert (found.level, found.numbers["rows"]) == ("warning", [120])
    # Where it is known that steps were left out, nothing is to be found.
    known = check(FOLLOWING.select(np.delete(np.arange(300), 120)), PENDULUM)
    assert levels(known, "episode-cuts") == ["ok"]
    assert "no step can be repeated" in one(known, "action-scale").message
    assert one(check(SWING.select(np.arange(0, 300, 2)), PENDULUM), "action-scale").numbers["error_1"] < 1e-5


def test_a_missing_row_is_found_beside_actions_of_another_scale():
    rows = np.delete(np.arange(300), 120)
    half = dataclasses.replace(FOLLOWING.select(rows), acts=FOLLOWING.acts[rows] / 2, meta={})
    report = check(half, PENDULUM)
    assert one(report, "action-scale").numbers["best"] == 2
    assert one(report, "episode-cuts").numbers["rows"] == [120]


@pytest.mark.parametrize(("longest", "level"), [(2.9, "ok"), (3.1, "warning")])
def test_sizes_of_steps_tell_only_where_one_is_much_longer_than_around(longest, level):
    sizes = np.ones(60)
    sizes[np.arange(10, 60, 10)] = longest  # from the first row of an episode to its second
    demos = Demonstrations(np.cumsum(sizes)[:, None], np.zeros(60), episode=(np.arange(60) + 1) // 10)
    assert levels(check(demos), "episode-cuts") == [level]


def test_cuts_through_episodes_that_run_on():
    halves = dataclasses.replace(FOLLOWING, episode=np.arange(300) // 25)
    found = one(check(halves, PENDULUM), "episode-cuts")
    assert (found.level, found.numbers["running"], found.numbers["of"]) == ("warning", 6, 11)
    assert found.numbers["first_row"] == 25
    after = SWING.next_obs.copy()
    after[49] = SWING.obs[50]  # the observation after the reset
    found = one(check(dataclasses.replace(SWING, next_obs=after), None), "episode-cuts")
    assert (found.level, found.numbers["running"], found.numbers["first_row"]) == ("warning", 1, 50)
    assert "after the reset" in found.message


def test_last_rows_whose_next_observation_is_unknown():
    after = SWING.next_obs.copy()
    after[T - 1 :: T] = np.nan
    report = check(dataclasses.replace(SWING, next_obs=after), PENDULUM)
    assert levels(report, "action-scale") + levels(report, "episode-cuts") == ["ok", "ok"]
    after[20, 1] = np.nan
    assert levels(check(dataclasses.replace(SWING, next_obs=after)), "episode-cuts") == ["ok"]


def test_actions_and_observations_out_of_bounds():
    demos = dataclasses.replace(SWING, acts=SWING.acts.copy(), obs=SWING.obs.copy(), next_obs=None)
    acts, obs = demos.acts.copy(), demos.obs.copy()
    acts[[7, 9], 0], obs[3, 2] = [2.5, -3], 9.0
    report = check(dataclasses.replace(demos, acts=acts, obs=obs), PENDULUM)
    bounds = one(report, "action-bounds")
    assert (bounds.level, bounds.numbers) == ("warning", {"rows": 2, "first_row": 7, "column": 0})
    assert "0.7% of the rows" in bounds.message
    seen = one(report, "obs-bounds")
    assert (seen.level, seen.numbers) == ("warning", {"rows": 1, "first_row": 3, "column": 2})


def test_confidences_against_returns():
    assert one(check(SWING), "returns").level == "ok"
    turned = SWING.with_confidence(1.1 - SWING.confidence)
    found = one(check(turned), "returns")
    assert found.level == "warning"
    # Spearman's coefficient of (1, 2, 3, 4) and (2, 1, 4, 3) is 1 - 6 * 4 / (4 * 15).
    rows: dict[str, Any] = {"episode": [0, 1, 2, 3], "reward": [1.0, 2.0, 3.0, 4.0], "confidence": [0.2, 0.1, 0.4, 0.3]}
    few = Demonstrations(np.arange(4.0)[:, None], np.zeros(4), **rows)
    np.testing.assert_allclose(one(check(few), "returns").numbers["rank_correlation"], 0.6)
    assert not check(few.select([0, 1])).of("returns")


def test_lengths_of_episodes():
    ragged = SWING.select(np.r_[0:50, 50:80, 100:150])
    found = one(check(ragged, PENDULUM), "episode-lengths")
    assert (found.level, found.numbers["shortest"], found.numbers["longest"]) == ("warning", 30, 50)
    assert "survival bias" in found.message
    found = one(check(SWING, PendulumJax(max_episode_steps=49)), "episode-lengths")
    assert "an episode has 50 rows, but the environment ends episodes after 49 steps: cuts are missing" in found.message
    assert one(check(SWING, PENDULUM), "episode-lengths").level == "ok"
    assert "not known" in one(check(SWING.subsample(100), PENDULUM), "episode-lengths").message


def test_few_rows_and_what_is_no_environment():
    assert check(SWING.select([0]), PENDULUM).of("labels")
    assert check(SWING.select([0, 1]), PENDULUM).ok
    with pytest.raises(ValueError, match="NoSuch-v0"):
        check(SWING, "NoSuch-v0")
    with pytest.raises(TypeError, match="env must be"):
        check(SWING, SimpleNamespace())


def test_a_report_can_be_read_and_filtered():
    report = Report((Finding("error", "a", "bad", {"x": 1}), Finding("ok", "long-code", "good")))
    assert str(report) == "error    a          bad\nok       long-code  good"
    assert not report.ok
    assert (len(report.errors), len(report.warnings), len(report.of("a"))) == (1, 0, 1)
    frame = report.to_frame()
    assert frame["level"].tolist() == ["error", "ok"]
    assert frame["numbers"].tolist() == [{"x": 1}, {}]
    order = [finding.level for finding in check(rolled(FOLLOWING, 1, 0.5), PENDULUM).findings]
    assert order == sorted(order, key=["error", "warning", "ok"].index)
    assert Report(()).to_frame().columns.tolist() == ["level", "code", "message", "numbers"]
