from __future__ import annotations

import random

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icl25_pn_gail.controllers import TowardsGoal, UniformChoice, find_controller
from icl25_pn_gail.envs import CartPoleJax, GymnasiumSource, TwoGoals, make_env
from icl25_pn_gail.levels import Level, checked_levels, parse_levels
from icl25_pn_gail.recording import as_demonstrations, make_demonstrations, record, record_gymnasium

PLANE = TwoGoals()


def straight_up(key, obs):
    return jnp.array([0.0, 5.0])  # beyond the bounds


def check_order(found, lengths):
    """The rows of an episode follow each other, and only its last may end it."""
    assert np.bincount(found.episode).tolist() == list(lengths)
    assert (np.diff(found.episode) >= 0).all()
    inner = np.diff(found.episode) == 0
    np.testing.assert_array_equal(found.next_obs[:-1][inner], found.obs[1:][inner])
    assert not found.terminated[:-1][inner].any()


def test_episodes_are_recorded_in_order():
    found = record(PLANE, find_controller(PLANE, "random"), 7, seed=1)
    check_order(found, [30] * 7)
    assert found.obs.dtype == np.float32
    np.testing.assert_allclose(found.next_obs, found.obs + 0.1 * found.acts, atol=1e-6)
    np.testing.assert_allclose(found.reward, -np.hypot(*(found.next_obs - [1, 0.6]).T), rtol=1e-5)
    np.testing.assert_allclose(found.returns(), found.reward.reshape(7, 30).sum(axis=1), rtol=1e-5)
    starts = found.obs[::30]
    assert len(np.unique(starts, axis=0)) == 7
    assert len(np.unique(found.acts.reshape(7, 60), axis=0)) == 7
    again, other = (record(PLANE, find_controller(PLANE, "random"), 7, seed=seed) for seed in (1, 2))
    np.testing.assert_array_equal(found.acts, again.acts)
    assert not np.isin(other.obs[::30, 0], starts[:, 0]).any()


@pytest.mark.parametrize("backend", ["jax", "gymnasium"])
def test_episodes_end_where_they_end(backend):
    env = make_env("CartPole-v1", backend)
    found = record(env, UniformChoice(2), 11, seed=0)
    theirs = gymnasium.make("CartPole-v1")
    lengths = []
    for number in range(11):
        rows = found.episode == number
        theirs.reset(seed=0)
        theirs.unwrapped.state = found.obs[rows][0].astype(float)
        assert np.abs(theirs.unwrapped.state).max() <= 0.05
        for length, action in enumerate(found.acts[rows], start=1):
            obs, _, ended, _, _ = theirs.step(int(action))
            np.testing.assert_allclose(found.next_obs[rows][length - 1], obs, atol=1e-5)
            assert ended == found.terminated[rows][length - 1] == (length == rows.sum())
        lengths.append(length)
    check_order(found, lengths)
    assert len(set(lengths)) > 3
    assert found.acts.shape == (sum(lengths),)
    np.testing.assert_array_equal(found.returns(), lengths)


def test_actions_are_recorded_as_they_were_taken():
    assert (record(PLANE, straight_up, 1).acts == [0, 1]).all()
    source = GymnasiumSource("MountainCarContinuous-v0")
    found = record_gymnasium(source, lambda obs: np.full((len(obs), 1), -9.0), 1)
    assert (found.acts == -1).all()
    check_order(found, [999])


def test_environments_of_gymnasium_get_other_starts_and_draws():
    source = make_env("CartPole-v1", "gymnasium")
    found, again, other = (record(source, UniformChoice(2), 10, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(found.obs, again.obs)
    np.testing.assert_array_equal(found.acts, again.acts)
    firsts = [part.obs[np.unique(part.episode, return_index=True)[1], 0] for part in (found, other)]
    assert len(np.unique(np.concatenate(firsts))) == 20
    assert 0.3 < found.acts.mean() < 0.7
    example = GymnasiumSource(EndlessWalk())
    check_order(record(example, UniformChoice(2), 3), [4, 4, 4])


class EndlessWalk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.full(1, self.steps, np.float32), 1.0, False, self.steps == 4, {}


def test_demonstrations_hold_their_levels_and_derived_confidences():
    demos = make_demonstrations("TwoGoals", "to-b:2,to-a:1,random:7", seed=5)
    assert demos.meta["env"] == "TwoGoals"
    assert demos.meta["levels"] == ["to-b"] * 2 + ["to-a"] + ["random"] * 7
    np.testing.assert_array_equal(demos.episode, np.repeat(np.arange(10), 30))
    returns = demos.summary()["return"].to_numpy()
    means = dict(zip(("to-b", "to-a", "random"), (returns[:2].mean(), returns[2], returns[3:].mean()), strict=True))
    assert demos.meta["level_returns"] == pytest.approx(means, rel=1e-5)
    low, high = min(means.values()), max(means.values())
    expected = [(means[level] - low) / (high - low) for level in demos.meta["levels"]]
    np.testing.assert_allclose(demos.confidence, np.repeat(expected, 30), atol=1e-5)
    assert demos.confidence[60] == 1
    # Each level went where it should.
    assert (demos.next_obs[29, 0], demos.next_obs[89, 0]) == (pytest.approx(-1, abs=0.2), pytest.approx(1, abs=0.2))
    np.testing.assert_allclose(demos.next_obs, demos.obs + 0.1 * demos.acts, atol=1e-6)


def test_confidences_may_be_given():
    texts = make_demonstrations("TwoGoals", "expert:1:0.9,to-b:2:0.1")
    mapped = make_demonstrations(PLANE, {"expert": 1, "to-b": 2}, confidence={"to-b": 0.1, "expert": 0.9})
    for demos in (texts, mapped):
        np.testing.assert_allclose(demos.confidence, np.repeat([0.9, 0.1], [30, 60]))
    np.testing.assert_array_equal(texts.obs, mapped.obs)
    assert not np.array_equal(texts.obs, make_demonstrations("TwoGoals", "expert:1:0.9,to-b:2:0.1", seed=1).obs)
    alone = make_demonstrations(PLANE, {"up": 1}, controllers={"up": straight_up})
    assert (alone.acts == [0, 1]).all()
    assert (alone.confidence == 1).all()


def test_discrete_actions_keep_their_number():
    rows = record(CartPoleJax(max_episode_steps=3), lambda key, obs: jnp.asarray(0), 2)
    demos = as_demonstrations([Level("left", 2)], [rows], CartPoleJax())
    assert (demos.n_actions, demos.acts.tolist()) == (2, [0] * 6)


@given(st.lists(st.tuples(st.from_regex(r"[a-z][a-z0-9.-]*", fullmatch=True), st.integers(1, 99), st.floats(0, 1))))
def test_levels_are_read_as_they_are_written(levels):
    short = [(name, count, None) for name, count, _ in levels]
    for asked in (levels, short):
        text = ", ".join(":".join(str(part) for part in level if part is not None) for level in asked)
        assert parse_levels(text or "a:1") == ([Level(*level) for level in asked] or [Level("a", 1)])


@pytest.mark.parametrize(
    ("levels", "confidence", "message"),
    [
        ("expert", None, "levels must read like expert:5,spin:50 .* found 'expert'"),
        ("", None, "levels must read like"),
        ("expert:1,", None, "levels must read like .* found ''"),
        ("expert:1:1:1", None, "levels must read like"),
        ("expert:two", None, "level expert: expected a whole number of episodes, found 'two'"),
        ("expert:1.5", None, "level expert: expected a whole number of episodes, found '1.5'"),
        ("expert:0", None, "level expert: expected at least 1 episode, found 0"),
        ("expert:-3", None, "level expert: expected at least 1 episode, found -3"),
        ("expert:1:high", None, r"level expert: expected a confidence in \[0, 1\], found 'high'"),
        ("expert:1:1.1", None, r"level expert: expected a confidence in \[0, 1\], found 1.1"),
        ("expert:1:nan", None, r"expected a confidence in \[0, 1\], found nan"),
        ("expert:1,expert:2", None, "level expert is given twice"),
        ("expert:1:1,to-b:2", None, "level to-b has no confidence, but others have"),
        ("expert:1,to-b:2", {"expert": 1.0}, "level to-b has no confidence, but others have"),
        ("expert:1", {"spin": 1.0}, "confidence has 'spin', which is not among the levels expert"),
        ("expert:1:1", {"expert": 1.0}, "given twice, by levels and by confidence"),
        ({}, None, "levels is empty"),
    ],
)
def test_bad_levels_are_refused(levels, confidence, message):
    with pytest.raises(ValueError, match=message):
        checked_levels(levels, confidence)


def test_bad_requests_are_refused():
    with pytest.raises(ValueError, match=r"TwoGoals has no level 'spin'; it has expert, to-a, to-b, random, eps0.3"):
        make_demonstrations("TwoGoals", "expert:1,spin:2")
    with pytest.raises(ValueError, match="episodes must be at least 1, found 0"):
        record(PLANE, TowardsGoal((1.0, 0.6)), 0)
    with pytest.raises(ValueError, match="episodes must be at least 1, found 0"):
        record_gymnasium(GymnasiumSource("CartPole-v1"), lambda obs: obs, 0)


class Echo(gymnasium.Env):
    """Rewards the action that says whether the observation is positive, over ten steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def draw(self):
        self.value = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.value

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.draw(), {}

    def step(self, action):
        self.steps += 1
        reward = float(action == (self.value[0] > 0))
        return self.draw(), reward, False, self.steps == 10, {}


@pytest.mark.extra
def test_a_learner_is_recorded_at_several_stages():
    from icl25_pn_gail.sb3_recording import train_and_record

    def run(seed):
        looks = []
        demos = train_and_record(
            Echo, "ppo", 1024, 3, [2, 1, 4], seed, evaluations=4, eval_episodes=9,
            options={"n_steps": 64, "learning_rate": 0.01}, callback=lambda *look: looks.append(look),
        )  # fmt: skip
        return demos, looks

    # From seeds whose first policies do the opposite of what is rewarded: there is something to learn.
    (demos, looks), (again, also), (other, _) = run(3), run(3), run(5)
    assert looks == also
    np.testing.assert_array_equal(demos.obs, again.obs)
    assert not np.isin(demos.obs, other.obs).any()
    assert [steps for steps, _ in looks] == [0, 256, 512, 768, 1024]
    assert looks[0][1] < 1 < 8 < max(value for _, value in looks)
    assert demos.meta["levels"] == ["ppo-100"] * 2 + ["ppo-67"] + ["ppo-33"] * 4
    assert (demos.n_rows, demos.discrete, demos.n_actions) == (70, True, 2)
    np.testing.assert_array_equal(demos.reward, demos.acts == (demos.obs[:, 0] > 0))
    # Each level is the look whose return is nearest to its share of the way from worst to best.
    left = dict(looks)
    worst, best = min(left.values()), max(left.values())
    for share, steps in zip((1, 2 / 3, 1 / 3), demos.meta["level_steps"].values(), strict=True):
        wanted = worst + share * (best - worst)
        assert abs(left[steps] - wanted) == min(abs(value - wanted) for value in left.values())
        del left[steps]
    # The recorded policies are those of the levels, not the last one.
    assert demos.meta["level_returns"]["ppo-100"] > demos.meta["level_returns"]["ppo-33"] + 3


@pytest.mark.extra
def test_a_learner_that_does_not_learn_is_told_of():
    from icl25_pn_gail.sb3_recording import train_and_record

    with pytest.warns(UserWarning, match="training did not improve the policy, whose mean return was"):
        demos = train_and_record(
            Echo, "ppo", 64, 2, 1, evaluations=1, confidence=[0.9, 0.3], options={"n_steps": 64, "learning_rate": 0.0}
        )
    np.testing.assert_allclose(demos.confidence, np.repeat([0.9, 0.3], 10))
    assert list(demos.meta["level_steps"].values()) == [0, 64]  # no policy stands for two levels


@pytest.mark.extra
def test_global_random_states_are_kept():
    import torch

    from icl25_pn_gail.sb3_recording import _global_random_states_kept

    def drawn():
        return random.random(), np.random.rand(), float(torch.rand(()))  # noqa: NPY002

    random.seed(5), np.random.seed(5), torch.manual_seed(5)  # noqa: NPY002
    expected = drawn()
    random.seed(5), np.random.seed(5), torch.manual_seed(5)  # noqa: NPY002
    with _global_random_states_kept():
        random.seed(6), np.random.seed(6), torch.manual_seed(6)  # noqa: NPY002
    assert drawn() == expected


@pytest.mark.extra
def test_bad_requests_for_learners_are_refused(monkeypatch):
    from icl25_pn_gail.sb3_recording import train_and_record

    for options, message in (
        ({"algorithm": "dqn"}, "algorithm must be one of sac, ppo, td3, found 'dqn'"),
        ({"algorithm": "sac"}, r"sac needs continuous actions, and CartPole-v1 has Discrete\(2\); use ppo"),
        ({"checkpoints": 0}, "checkpoints must be at least 1, found 0"),
        ({"episodes_per_level": 0}, "at least 1 episode, found 0"),
        ({"episodes_per_level": [1, 2]}, "episodes_per_level must have 4 numbers, one for each level, found 2"),
        ({"confidence": [1, 0]}, "confidence must have 4 numbers, one for each level, found 2"),
        ({"confidence": [2, 1, 1, 1]}, r"level ppo-100: expected a confidence in \[0, 1\], found 2"),
        ({"evaluations": 2}, "evaluations must be at least 3, found 2"),
        ({"total_steps": 3}, "total_steps must be at least 20, found 3"),
    ):
        with pytest.raises(ValueError, match=message):
            train_and_record("CartPole-v1", **{"algorithm": "ppo", **options})
    monkeypatch.setitem(__import__("sys").modules, "stable_baselines3", None)
    with pytest.raises(ImportError, match=r'pip install "icl25-pn-gail\[sb3\]"'):
        train_and_record("CartPole-v1", "ppo")
