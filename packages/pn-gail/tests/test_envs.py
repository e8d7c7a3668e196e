from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from icl25_pn_gail.envs import (
    CartPoleJax,
    GymnasiumSource,
    JaxEnv,
    PendulumJax,
    TwoGoals,
    env_from_module,
    env_name,
    from_gymnax,
    make_env,
)
from icl25_pn_gail.envs.spaces import checked_spaces

KEY = jax.random.key(0)
OWN = [PendulumJax(), TwoGoals(), CartPoleJax()]


def pendulum_obs(state):
    return np.array([np.cos(state[0]), np.sin(state[0]), state[1]])


def test_pendulum_equals_that_of_gymnasium_step_by_step():
    theirs, env = gymnasium.make("Pendulum-v1"), PendulumJax()
    ours = jax.jit(env.step)
    theirs.reset(seed=1)
    theirs.unwrapped.state = np.array([2.0, 7.5])  # fast, so that the speed is clipped
    rng = np.random.default_rng(0)
    fastest = 0.0
    for i in range(200):
        before = env.state_from_obs(jnp.asarray(pendulum_obs(theirs.unwrapped.state)))._replace(steps=jnp.asarray(i))
        action = rng.uniform(-3, 3, 1)  # also outside the bounds
        expected = theirs.step(action)
        obs, state, reward, terminated, truncated = ours(KEY, before, jnp.asarray(action))
        np.testing.assert_allclose(obs, expected[0], atol=1e-5)
        assert float(reward) == pytest.approx(expected[1], abs=1e-5)
        assert (bool(terminated), bool(truncated)) == expected[2:4] == (False, i == 199)
        assert int(state.steps) == i + 1
        fastest = max(fastest, abs(float(obs[2])))
    assert fastest == 8


def test_pendulum_stays_with_that_of_gymnasium_for_an_episode(x64):
    theirs = gymnasium.make("Pendulum-v1", g=9.0)
    theirs.reset(seed=3)
    theirs.unwrapped.state = np.array([-2.0, 8.0])
    env = PendulumJax(g=9.0)
    actions = np.random.default_rng(0).uniform(-3, 3, (200, 1))
    start = env.state_from_obs(jnp.asarray(pendulum_obs(theirs.unwrapped.state)))
    obs, rewards = jax.lax.scan(
        lambda state, action: (lambda o, s, r, *_: (s, (o, r)))(*env.step(KEY, state, action)), start, actions
    )[1]
    states, expected = [], []
    for action in actions:
        expected.append(theirs.step(action)[1])
        states.append(pendulum_obs(theirs.unwrapped.state))
    np.testing.assert_allclose(obs, states, atol=1e-9)
    np.testing.assert_allclose(rewards, expected, atol=1e-9)
    assert np.ptp(np.unwrap(np.arctan2(obs[:, 1], obs[:, 0]))) > 2 * np.pi  # it went round


def test_pendulum_starts_anywhere_and_slowly():
    obs, state = jax.jit(jax.vmap(PendulumJax().reset))(jax.random.split(KEY, 4000))
    np.testing.assert_allclose(obs, np.stack([np.cos(state.angle), np.sin(state.angle), state.speed], 1), atol=1e-6)
    for values, bound in ((state.angle, np.pi), (state.speed, 1.0)):
        shares = np.histogram(values, np.linspace(-bound, bound, 5))[0] / 4000  # uniform: a quarter each
        np.testing.assert_allclose(shares, 0.25, atol=0.03)
    assert not state.steps.any()


def test_cart_pole_equals_that_of_gymnasium_until_it_falls():
    theirs, env = gymnasium.make("CartPole-v1"), CartPoleJax(max_episode_steps=3)
    ours, rng = jax.jit(env.step), np.random.default_rng(0)
    falls, leaves = ([0.0, 0.0, 0.1, 1.0], None), ([2.2, 3.0, 0.0, 0.0], 1)
    mirrored = [([-value for value in falls[0]], None), ([-value for value in leaves[0]], 0)]
    ends = set()
    for start, action in (falls, leaves, *mirrored):
        theirs.reset(seed=0)
        theirs.unwrapped.state = np.array(start)
        state, ended = env.state_from_obs(jnp.asarray(start)), False
        while not ended:
            push = int(rng.integers(2)) if action is None else action
            expected, reward, ended, _, _ = theirs.step(push)
            obs, state, found, terminated, truncated = ours(KEY, state, jnp.asarray(push))
            np.testing.assert_allclose(obs, expected, atol=1e-5)
            assert (float(found), bool(terminated), bool(truncated)) == (reward, ended, int(state.steps) >= 3)
        side = 2 if abs(obs[2]) > 0.2095 else 0
        ends.add((side, bool(obs[side] > 0)))
    assert ends == {(2, True), (2, False), (0, True), (0, False)}


def test_cart_pole_starts_almost_at_rest():
    obs, state = jax.jit(jax.vmap(CartPoleJax().reset))(jax.random.split(KEY, 2000))
    np.testing.assert_array_equal(obs, state.values)
    assert np.abs(obs).max() <= 0.05
    np.testing.assert_allclose(obs.std(axis=0), 0.1 / np.sqrt(12), rtol=0.05)


def test_two_goals_moves_by_a_tenth_of_the_clipped_action():
    env = TwoGoals()
    _, state = env.reset(KEY)
    for i in range(30):
        before = np.asarray(state.position)
        obs, state, reward, terminated, truncated = env.step(KEY, state, jnp.array([0.5, 3.0]))
        np.testing.assert_allclose(obs - before, [0.05, 0.1], atol=1e-6)
        assert float(reward) == pytest.approx(-np.hypot(obs[0] - 1, obs[1] - 0.6), abs=1e-6)
        assert (bool(terminated), bool(truncated)) == (False, i == 29)
    np.testing.assert_array_equal(obs, state.position)


def test_two_goals_starts_near_its_place():
    obs, _ = jax.jit(jax.vmap(TwoGoals().reset))(jax.random.split(KEY, 4000))
    np.testing.assert_allclose(obs.mean(axis=0), [0, -1], atol=0.005)
    np.testing.assert_allclose(np.cov(obs.T), 0.05**2 * np.eye(2), atol=2e-4)


@pytest.mark.parametrize("env", OWN, ids=env_name)
def test_own_environments_keep_the_protocol(env):
    assert isinstance(env, JaxEnv)
    assert hash(env) == hash(type(env)())
    assert env == type(env)()
    assert env != type(env)(max_episode_steps=7)
    keys = jax.random.split(KEY, 3)
    actions = jnp.asarray(np.stack([env.act_space.sample() for _ in range(3)]))

    @jax.jit
    def start_and_step(keys, actions):
        obs, states = jax.vmap(env.reset)(keys)
        after = jax.vmap(env.step)(keys, states, actions)
        return obs, states, after, jax.vmap(env.step)(keys, env.state_from_obs(obs), actions)

    obs, states, after, again = start_and_step(keys, actions)
    assert after[0].shape == obs.shape == (3, *env.obs_space.shape)
    for before, then in zip(states, after[1], strict=True):
        assert (before.shape, before.dtype) == (then.shape, then.dtype)
    # A state recovered from the observation moves as the true one does.
    np.testing.assert_allclose(again[0], after[0], atol=1e-5)
    np.testing.assert_allclose(again[2], after[2], atol=1e-5)


@pytest.mark.parametrize("env", OWN, ids=env_name)
def test_own_environments_follow_the_precision_of_jax(env, x64):
    obs, state = jax.eval_shape(env.reset, KEY)
    shape = jax.ShapeDtypeStruct(env.act_space.shape, int if env.act_space.shape == () else float)
    after = jax.eval_shape(env.step, KEY, state, shape)
    assert obs.dtype == after[0].dtype == after[2].dtype == jnp.float64


def test_spaces_equal_those_of_gymnasium():
    for name, env in (("Pendulum-v1", PendulumJax()), ("CartPole-v1", CartPoleJax())):
        theirs = gymnasium.make(name)
        assert (env.obs_space, env.act_space) == (theirs.observation_space, theirs.action_space)
        assert env.max_episode_steps == theirs.spec.max_episode_steps


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(2)}), "found Dict of a, b; .*FlattenObservation"),
        (spaces.Box(0, 255, (8, 8, 3), np.uint8), r"found Box of shape \(8, 8, 3\) and type uint8; .*FlattenObs"),
        (spaces.Discrete(4), r"found Discrete\(4\); .*FlattenObservation"),
        (spaces.Tuple([spaces.Discrete(2)]), "found Tuple of 1 spaces"),
        (spaces.Box(0, 1, (0,)), "observations have no entries"),
    ],
)
def test_observations_that_are_no_vectors_are_refused(space, message):
    with pytest.raises(ValueError, match=f"^mine: .*{message}"):
        checked_spaces(space, spaces.Discrete(2), "mine")


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.MultiDiscrete([2, 3]), r"found MultiDiscrete\(\[2 3\]\); .*TransformAction"),
        (spaces.Box(-1, 1, (2, 2)), r"found Box of shape \(2, 2\) and type float32; .*TransformAction"),
        (spaces.Box(0, 9, (1,), np.int64), "found Box of shape .* and type int64"),
        (spaces.Discrete(3, start=1), "count from 0, found Discrete with start=1; .*TransformAction"),
        (spaces.Box(0, 1, (0,)), "actions have no entries"),
    ],
)
def test_actions_that_are_neither_vectors_nor_choices_are_refused(space, message):
    with pytest.raises(ValueError, match=f"^mine: .*{message}"):
        checked_spaces(spaces.Box(0, 1, (2,)), space, "mine")


@pytest.mark.parametrize(
    ("env", "backend", "expected"),
    [
        ("TwoGoals", "auto", TwoGoals()),
        ("PendulumJax", "jax", PendulumJax()),
        ("Pendulum-v1", "auto", PendulumJax()),
        ("CartPole-v1", "jax", CartPoleJax()),
        (TwoGoals(max_episode_steps=5), "auto", TwoGoals(max_episode_steps=5)),
        (PendulumJax, "auto", PendulumJax()),
        (lambda: TwoGoals(max_episode_steps=9), "jax", TwoGoals(max_episode_steps=9)),
    ],
)
def test_environments_in_jax_are_found(env, backend, expected):
    assert make_env(env, backend) == expected


def test_environments_of_gymnasium_are_found():
    for env in ("Pendulum-v1", gymnasium.make("Pendulum-v1"), lambda: gymnasium.make("Pendulum-v1")):
        source = make_env(env, "gymnasium")
        assert isinstance(source, GymnasiumSource)
        assert (source.name, source.max_episode_steps, source.act_space.shape) == ("Pendulum-v1", 200, (1,))
        assert make_env(source) is source
    assert isinstance(make_env("MountainCarContinuous-v0"), GymnasiumSource)


class Unhashable(PendulumJax):
    __hash__ = None


@pytest.mark.parametrize(
    ("env", "backend", "error", "message"),
    [
        ("TwoGoals", "gymnasium", ValueError, "TwoGoals is not to be had with backend='gymnasium'"),
        ("Acrobot-v1", "jax", ValueError, "Acrobot-v1 .* backend='jax'; those in jax are TwoGoals, .*Pendulum-v1"),
        ("Pendulum-v1", "torch", ValueError, "backend must be one of auto, jax, gymnasium, found 'torch'"),
        ("TwoGoal", "auto", ValueError, "TwoGoal.* doesn't exist.* Or TwoGoals, of this package"),
        ("Pendulum-v9", "auto", ValueError, "Pendulum-v9: .*v9.*v1"),
        ("no such env!", "auto", ValueError, "no such env!: Malformed"),
        ("nowhere_at_all:Env-v0", "auto", ValueError, "No module named 'nowhere_at_all'"),
        ("Hopper-v2", "auto", ValueError, "Hopper-v2: .*moved.*; try Hopper-v5"),
        (7, "auto", TypeError, "env must be an id, .* found int"),
        (lambda: 7, "auto", ValueError, "must make a gymnasium.Env, found int"),
        (Unhashable(), "auto", TypeError, "Unhashable must be hashable.*frozen dataclass"),
        (TwoGoals(max_episode_steps=0), "auto", ValueError, "max_episode_steps must be at least 1, found 0"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
def test_what_is_no_environment_is_refused(env, backend, error, message):
    with pytest.raises(error, match=message):
        make_env(env, backend)


def test_environments_come_from_modules_in_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "yard_of_mine.py").write_text(
        "from icl25_pn_gail.envs import TwoGoals\n\ndef make():\n    return TwoGoals(max_episode_steps=4)\n"
    )
    (tmp_path / "yard_in_ruins.py").write_text("1 / 0\n")
    (tmp_path / "yard_that_needs.py").write_text("import something_not_installed\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere"])
    assert make_env(env_from_module("yard_of_mine:make")) == TwoGoals(max_episode_steps=4)
    for name, message in (
        ("yard_of_mine", "expected module:attribute, such as my_env:make, found 'yard_of_mine'"),
        ("yard_of_mine:mad", "module yard_of_mine has no mad; it has TwoGoals, make"),
        ("yard_of_yours:make", "there is no module yard_of_yours"),
        ("yard_in_ruins:make", "module yard_in_ruins fails with ZeroDivisionError: division by zero"),
        ("yard_that_needs:make", "module yard_that_needs needs something_not_installed, which is not installed"),
    ):
        with pytest.raises(ValueError, match=message):
            env_from_module(name)


class SwayState(NamedTuple):
    place: Any
    time: Any


@dataclass
class SwayParams:
    pull: float = 0.5
    max_steps_in_episode: int = 4


class SwaySpace:
    def __init__(self, low, high, shape):
        self.low, self.high, self.shape, self.dtype = low, high, shape, jnp.float32


class Sway:
    """In the calling convention of gymnax 1.0."""

    name, default_params = "Sway", SwayParams()

    def reset_env(self, key, params):
        place = jax.random.uniform(key)
        return jnp.stack([place, params.pull]), SwayState(place, 0)

    def step_env(self, key, state, action, params):
        place = state.place + params.pull * action[0]
        after = SwayState(place, state.time + 1)
        return jnp.stack([place, params.pull]), after, -place, place > 2, {"discount": 1.0}

    def is_truncated(self, state, params):
        return state.time >= params.max_steps_in_episode

    def observation_space(self, params):
        return SwaySpace(-3.0, jnp.array([3.0, 1.0]), (2,))

    def action_space(self, params):
        return SwaySpace(-1, 1, (1,))


def test_environments_of_gymnax_are_taken():
    env = make_env(from_gymnax(Sway(), SwayParams(pull=0.25)))
    assert env.obs_space == spaces.Box(np.float32([-3, -3]), np.float32([3, 1]))
    assert (env.act_space, env.max_episode_steps, env_name(env)) == (spaces.Box(-1, 1, (1,)), 4, "Sway")
    obs, state = env.reset(KEY)
    for i in range(4):
        after, state, reward, terminated, truncated = env.step(KEY, state, jnp.array([9.0]))  # clipped to 1
        np.testing.assert_allclose(after, [obs[0] + 0.25, 0.25], rtol=1e-6)
        assert (float(reward), bool(terminated), bool(truncated)) == (-float(after[0]), False, i == 3)
        obs = after
    assert env.step(KEY, state._replace(place=1.9), jnp.array([1.0]))[3]
    assert from_gymnax(Sway()).params.pull == 0.5
    with pytest.raises(TypeError, match="PendulumJax has no reset_env"):
        from_gymnax(PendulumJax())
