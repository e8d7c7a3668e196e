from __future__ import annotations

import multiprocessing
import os

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import ClipAction, FlattenObservation, TimeLimit

from icl25_pn_gail.envs import GymnasiumAdapter, GymnasiumSource, make_env


class Counter(gymnasium.Env):
    """Observes the number of its steps; without a spec."""

    observation_space = spaces.Box(0, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)
    closed = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = int(self.np_random.integers(100))
        return np.array([self.count], float), {}

    def step(self, action):
        self.count += 1
        return np.array([self.count], float), float(action), self.count % 7 == 0, False, {}

    def close(self):
        self.closed += 1


class Renamed(gymnasium.ObservationWrapper):
    """A wrapper that does not record how it was made."""

    def observation(self, observation):
        return observation


def play(envs, n, seed=0):
    """Steps with random actions, and the first observation."""
    rng = np.random.default_rng(seed)
    first = envs.reset(seed)
    shape = (envs.num_envs, *envs.act_space.shape)
    discrete = isinstance(envs.act_space, spaces.Discrete)
    steps = []
    for _ in range(n):
        actions = rng.integers(2, size=shape) if discrete else rng.uniform(-1, 1, shape)
        steps.append((actions, envs.step(actions)))
    return first, steps


@pytest.mark.parametrize(("name", "n"), [("CartPole-v1", 120), ("Pendulum-v1", 205)])
def test_steps_are_those_of_single_environments(name, n):
    with GymnasiumAdapter.make(name, 3) as envs:
        assert (envs.name, envs.num_envs) == (name, 3)
        assert envs.max_episode_steps == gymnasium.spec(name).max_episode_steps
        first, steps = play(envs, n, seed=11)
    ends = 0
    for i, seed in enumerate(np.random.SeedSequence(11).generate_state(3)):
        alone = gymnasium.make(name)
        obs, _ = alone.reset(seed=int(seed))
        np.testing.assert_array_equal(first[i], obs)
        for actions, after in steps:
            action = actions[i].astype(alone.action_space.dtype)
            final, reward, terminated, truncated, _ = alone.step(action)
            obs = final
            if terminated or truncated:
                obs, _ = alone.reset()
                ends += 1
                assert not np.array_equal(after.final_obs[i], after.obs[i])
            np.testing.assert_array_equal(after.final_obs[i], final)
            np.testing.assert_array_equal(after.obs[i], obs)
            assert after.reward[i] == pytest.approx(reward, abs=1e-12)
            assert (after.terminated[i], after.truncated[i]) == (terminated, truncated)
    assert ends >= 3


def test_processes_give_the_same_steps_and_end():
    with GymnasiumAdapter.make("CartPole-v1", 2) as envs:
        first, expected = play(envs, 60)
        assert any(after.terminated.any() for _, after in expected)
    with GymnasiumAdapter.make("CartPole-v1", 2, asynchronous=True) as envs:
        processes = envs.vector.processes
        assert all(process.is_alive() for process in processes)
        also_first, found = play(envs, 60)
    assert len(processes) == 2
    assert not any(process.is_alive() for process in processes)
    np.testing.assert_array_equal(first, also_first)
    for (_, left), (_, right) in zip(expected, found, strict=True):
        for ours, theirs in zip(left, right, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_processes_that_do_not_start_are_told_of():
    def only_here():
        if multiprocessing.parent_process() is not None:
            os._exit(1)
        return gymnasium.make("CartPole-v1")

    with pytest.raises(RuntimeError, match=r"^the processes of CartPole-v1 ended at once: guard .* __name__ =="):
        GymnasiumAdapter.make(only_here, 2, asynchronous=True)
    assert not multiprocessing.active_children()


def test_seeds_can_be_repeated_and_share_nothing():
    with GymnasiumAdapter.make("Pendulum-v1", 4) as envs:
        starts = [envs.reset(seed) for seed in (0, 1, 2, 0)]
        assert starts[0].dtype == np.float32
        np.testing.assert_array_equal(starts[0], starts[3])
        assert len({tuple(row) for start in starts[:3] for row in start}) == 12
        with pytest.raises(ValueError, match="seed must not be negative, found -1"):
            envs.reset(-1)


def test_actions_of_another_shape_are_refused():
    with GymnasiumAdapter.make("Pendulum-v1", 2) as envs:
        envs.reset(0)
        with pytest.raises(ValueError, match=r"actions of Pendulum-v1 must have shape \(2, 1\), found \(2,\)"):
            envs.step([0.0, 0.0])
        assert envs.step([[0], [1]]).reward.shape == (2,)
    with GymnasiumAdapter.make("CartPole-v1", 2) as envs:
        envs.reset(0)
        with pytest.raises(ValueError, match="must be whole numbers, found float64"):
            envs.step([0.0, 1.0])


def test_an_environment_with_a_spec_is_made_anew_with_its_wrappers():
    example = ClipAction(TimeLimit(gymnasium.make("Pendulum-v1", g=5.0), 9))
    source = GymnasiumSource(example)
    assert source.max_episode_steps == 9
    with GymnasiumAdapter.make(example, 2) as envs:
        made = envs.vector.envs
        assert len({id(env.unwrapped) for env in [*made, example]}) == 3
        assert all(isinstance(env, ClipAction) and env.unwrapped.g == 5.0 for env in made)
        _, steps = play(envs, 10)
        assert [bool(after.truncated.all()) for _, after in steps] == [False] * 8 + [True, False]
    assert source.single(render_mode="rgb_array").render_mode == "rgb_array"


@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: Renamed(env)], ids=["no spec", "wrapper not recorded"])
def test_an_environment_that_cannot_be_made_anew_is_used_alone(wrap):
    example = wrap(Counter())
    with GymnasiumAdapter.make(example) as envs:
        assert (envs.num_envs, envs.name, envs.max_episode_steps) == (1, "Counter", None)
        first, steps = play(envs, 30)
        assert first.dtype == steps[0][1].obs.dtype == np.float32
        count = first[0, 0]
        for actions, after in steps:
            assert after.final_obs[0, 0] == count + 1
            assert after.terminated[0] == ((count + 1) % 7 == 0)
            assert after.reward[0] == actions[0]
            count = after.obs[0, 0]
        assert envs.vector.envs[0].unwrapped is example.unwrapped
    del envs
    assert example.unwrapped.closed == 0
    with pytest.raises(ValueError, match=r"and 2 are needed; give a function without arguments .* or set num_envs=1"):
        GymnasiumAdapter.make(example, 2)
    with pytest.raises(ValueError, match="cannot be made anew in a process of its own"):
        GymnasiumAdapter.make(example, 1, asynchronous=True)
    assert GymnasiumSource(example).single() is example
    with pytest.raises(ValueError, match="cannot be made anew with render_mode"):
        GymnasiumSource(example).single(render_mode="rgb_array")


def test_a_registered_environment_with_an_unrecorded_wrapper_is_not_remade():
    example = Renamed(gymnasium.make("Pendulum-v1"))
    with pytest.raises(ValueError, match="Pendulum-v1 is one environment that cannot be made anew"):
        GymnasiumAdapter.make(example, 2)
    assert GymnasiumSource(example).max_episode_steps == 200


def test_environments_come_from_a_factory():
    made = []

    def factory():
        made.append(TimeLimit(TimeLimit(Counter(), 5), 9))
        return made[-1]

    envs = GymnasiumAdapter.make(factory, 3)
    assert (envs.num_envs, envs.max_episode_steps, envs.name) == (3, 5, "Counter")
    assert len({id(env) for env in envs.vector.envs}) == 3
    envs.close()
    envs.close()
    assert [env.unwrapped.closed for env in made] == [1] * len(made)
    assert GymnasiumAdapter.make(Counter, 2).num_envs == 2


def test_a_vector_environment_is_taken_as_it_is():
    factories = [lambda: gymnasium.make("CartPole-v1")] * 3
    vector = SyncVectorEnv(factories, autoreset_mode=AutoresetMode.SAME_STEP)
    for envs in (GymnasiumAdapter(vector), GymnasiumAdapter.make(vector), GymnasiumAdapter.make(vector, 3)):
        assert (envs.num_envs, envs.max_episode_steps) == (3, 500)
        play(envs, 2)
        envs.close()
        assert not vector.closed
    with pytest.raises(ValueError, match="has 3 environments, and num_envs is 4"):
        GymnasiumAdapter.make(vector, 4)
    with pytest.raises(ValueError, match=r"autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP, found .*NEXT_STEP"):
        GymnasiumAdapter(SyncVectorEnv(factories))
    with pytest.raises(ValueError, match="is a vector environment"):
        GymnasiumSource(vector).single()
    with pytest.raises(TypeError, match=r"must be a gymnasium VectorEnv, found str; use GymnasiumAdapter.make"):
        GymnasiumAdapter("CartPole-v1")


def test_spaces_that_are_no_vectors_are_refused_and_flattened():
    nested = spaces.Dict({"place": spaces.Box(-1, 1, (2, 2)), "speed": spaces.Box(-1, 1, (1,))})

    class Nested(Counter):
        observation_space = nested

        def reset(self, *, seed=None, options=None):
            return {"place": np.ones((2, 2), np.float32), "speed": np.zeros(1, np.float32)}, {}

    with pytest.raises(ValueError, match=r"^Nested: .*FlattenObservation"):
        GymnasiumAdapter.make(Nested)
    with GymnasiumAdapter.make(lambda: FlattenObservation(Nested()), 2) as envs:
        np.testing.assert_array_equal(envs.reset(0), [[1, 1, 1, 1, 0]] * 2)


def test_there_is_at_least_one_environment():
    with pytest.raises(ValueError, match="num_envs must be at least 1, found 0"):
        GymnasiumAdapter.make("CartPole-v1", 0)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            'MuJoCo is not installed, run `pip install "gymnasium[mujoco]"`',
            r'needs MuJoCo: pip install "icl25-pn-gail\[mujoco\]"$',
        ),
        ("Box2D is not installed,\nrun `pip install swig`", "Box2D is not installed, run `pip install swig`$"),
    ],
)
def test_a_missing_library_is_named_in_one_line(monkeypatch, said, message):
    def entry_point():
        raise gymnasium.error.DependencyNotInstalled(said)

    monkeypatch.setattr(gymnasium.envs.registration, "registry", {})
    gymnasium.register("NeedsMore-v0", entry_point)
    with pytest.raises(ImportError, match=f"^NeedsMore-v0[^\n]*{message}"):
        GymnasiumAdapter.make("NeedsMore-v0")


@pytest.mark.extra
def test_an_environment_of_mujoco_is_taken():
    with GymnasiumAdapter.make("Swimmer-v5", 2) as envs:
        first, steps = play(envs, 3)
        assert (envs.max_episode_steps, first.dtype) == (1000, np.float32)
    alone = gymnasium.make("Swimmer-v5")
    obs, _ = alone.reset(seed=int(np.random.SeedSequence(0).generate_state(2)[1]))
    np.testing.assert_allclose(first[1], obs, rtol=1e-6)
    np.testing.assert_allclose(steps[0][1].obs[1], alone.step(np.float32(steps[0][0][1]))[0], rtol=1e-5)


class Broken(Counter):
    """Fails as it is told to."""

    def __init__(self, how):
        self.how = how

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        if self.how == "reset":
            raise RuntimeError("no power")
        return np.array([np.nan]) if self.how == "nan-reset" else obs, info

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        if self.how == "step":
            raise RuntimeError("motor fault")
        if self.how == "old":
            return obs, reward, terminated, info
        obs = np.array([np.inf]) if self.how == "inf" else obs
        return obs, np.nan if self.how == "reward" else reward, terminated, truncated, info


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("reset", r"Broken failed in reset\(\): RuntimeError: no power"),
        ("nan-reset", r"Broken gave nan as observation 0 in reset\(\)"),
        ("step", r"Broken failed in step\(\): RuntimeError: motor fault"),
        ("old", r"Broken failed in step\(\): ValueError: not enough values"),
        ("inf", r"Broken gave inf as observation 0 in step\(\)"),
        ("reward", r"Broken gave a reward of nan in step\(\)"),
    ],
)
def test_an_environment_that_fails_is_named(how, message):
    with GymnasiumAdapter.make(lambda: Broken(how), 2) as envs, pytest.raises(ValueError, match=message):
        play(envs, 3)


def test_a_function_that_makes_no_environment_is_named():
    def robot():
        raise OSError("no robot connected")

    for make in (GymnasiumSource, make_env):
        with pytest.raises(ValueError, match=r"robot\(\) failed to make an environment: OSError: no robot connected"):
            make(robot)
