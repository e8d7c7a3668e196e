from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from icl25_pn_gail.demonstrations import Demonstrations


def path_of(steps, start=0.0, **more):
    return SimpleNamespace(
        obs=start + np.arange(steps + 1.0)[:, None] * [1, 10], acts=np.full((steps, 1), start), **more
    )


def test_trajectories_of_imitation():
    given = [path_of(2, rews=np.array([1.0, 2.0])), path_of(0), path_of(3, 0.5, infos=None)]
    read = Demonstrations.from_imitation(given)
    assert read.obs.tolist() == [[0, 0], [1, 10], [0.5, 0.5], [1.5, 10.5], [2.5, 20.5]]
    assert read.next_obs is not None
    assert read.next_obs.tolist() == [[1, 10], [2, 20], [1.5, 10.5], [2.5, 20.5], [3.5, 30.5]]
    assert read.acts.ravel().tolist() == [0, 0, 0.5, 0.5, 0.5]
    np.testing.assert_array_equal(read.reward, [1, 2, np.nan, np.nan, np.nan])
    assert read.episode_names == [0, 2]
    assert Demonstrations.from_imitation([path_of(2)]).reward is None
    ids = Demonstrations.from_imitation([SimpleNamespace(obs=np.zeros((3, 1)), acts=np.array([1, 0]))])
    assert ids.discrete


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([], ValueError, "no trajectories with a step"),
        (
            [path_of(2), SimpleNamespace(obs=np.zeros((2, 2)), acts=np.zeros((2, 1)))],
            ValueError,
            "trajectory 1 has 2 obs",
        ),
        ([SimpleNamespace(obs=np.zeros((3, 2)))], TypeError, "trajectory 0 has no obs and acts"),
        ([path_of(2, rews=np.ones(3))], ValueError, "trajectory 0 has 3 rewards for 2 actions"),
        (
            [path_of(2), SimpleNamespace(obs=np.zeros((3, 4)), acts=np.zeros((2, 1)))],
            ValueError,
            r"trajectory 1: obs has .*4",
        ),
        ([SimpleNamespace(obs={"a": 1}, acts=np.zeros((2, 1)))], ValueError, "flatten dictionaries"),
        ("folder/", TypeError, "expected trajectories, found a path"),
    ],
)
def test_what_is_no_trajectory_is_refused(given, error, message):
    with pytest.raises(error, match=message):
        Demonstrations.from_imitation(given)


def ring(size, written, n_envs=2, *, shared=False, space=None):
    """A replay buffer after a number of writes; entry (t, e) holds t + 100 e, and every third step of env 0 ends."""
    buffer = SimpleNamespace(
        observations=np.zeros((size, n_envs, 1)),
        actions=np.zeros((size, n_envs, 1), np.float32),
        rewards=np.zeros((size, n_envs)),
        dones=np.zeros((size, n_envs), np.float32),
        pos=written % size,
        full=written >= size,
        n_envs=n_envs,
        action_space=space or Box(-1.0, 1.0, (1,)),
    )
    if not shared:
        buffer.next_observations = np.zeros((size, n_envs, 1))
    for t in range(written):
        value = t + 100.0 * np.arange(n_envs)
        buffer.observations[t % size, :, 0] = value
        if shared:
            buffer.observations[(t + 1) % size, :, 0] = value + 1
        else:
            buffer.next_observations[t % size, :, 0] = value + 1
        buffer.actions[t % size, :, 0] = value / 1000
        buffer.rewards[t % size] = -value
        buffer.dones[t % size, 0] = t % 3 == 2
    return buffer


@pytest.mark.parametrize(
    ("written", "steps", "first_env"),
    [(4, [0, 1, 2, 3], [0, 0, 0, 1]), (7, [2, 3, 4, 5, 6], [0, 1, 1, 1, 2]), (5, [0, 1, 2, 3, 4], [0, 0, 0, 1, 1])],
)
def test_replay_buffers_in_order_of_time(written, steps, first_env):
    read = Demonstrations.from_sb3(ring(5, written))
    expected = [*steps, *(step + 100 for step in steps)]
    assert read.obs[:, 0].tolist() == expected
    assert read.next_obs is not None
    assert read.next_obs[:, 0].tolist() == [value + 1 for value in expected]
    np.testing.assert_allclose(read.acts[:, 0], np.array(expected) / 1000, rtol=1e-6)
    assert read.reward is not None
    assert read.reward.tolist() == [-value for value in expected]
    assert read.episode_codes.tolist() == [*first_env, *[first_env[-1] + 1] * len(steps)]


def test_replay_buffers_that_save_memory():
    read = Demonstrations.from_sb3(ring(5, 7, shared=True))
    assert read.next_obs is None
    assert read.obs[:, 0].tolist() == [3, 4, 5, 6, 103, 104, 105, 106]
    assert read.reward is not None
    assert read.reward.tolist() == [-3, -4, -5, -6, -103, -104, -105, -106]


def test_scaled_actions_are_scaled_back():
    space = Box(np.array([-2.0], np.float32), np.array([6.0], np.float32))
    read = Demonstrations.from_sb3(ring(5, 3, 1, space=space))
    np.testing.assert_allclose(read.acts[:, 0], 2 + 4 * np.array([0, 0.001, 0.002]), rtol=1e-6)
    raw = Demonstrations.from_sb3(ring(5, 3, 1, space=space), scaled_actions=False)
    np.testing.assert_allclose(raw.acts[:, 0], [0, 0.001, 0.002], rtol=1e-6)
    buffer = ring(5, 3, 1, space=space)
    buffer.actions[1] = 1.5
    with pytest.raises(ValueError, match=r"actions up to 1.5, which are not scaled .* scaled_actions=False"):
        Demonstrations.from_sb3(buffer)
    unbounded = ring(5, 3, 1, space=Box(-np.inf, np.inf, (1,)))
    with pytest.raises(ValueError, match="without bounds cannot be scaled back"):
        Demonstrations.from_sb3(unbounded)


def test_replay_buffers_of_choices():
    buffer = ring(5, 3, 1, space=Discrete(4))
    buffer.actions = np.array([[[1]], [[0]], [[2]], [[0]], [[0]]])
    read = Demonstrations.from_sb3(buffer)
    assert read.discrete
    assert read.acts.tolist() == [1, 0, 2]
    assert read.n_actions == 4


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (ring(5, 0), ValueError, "the replay buffer is empty"),
        (
            SimpleNamespace(observations=np.zeros((2, 1, 3))),
            TypeError,
            "found SimpleNamespace without actions, rewards",
        ),
        ("buffer.pkl", TypeError, r"buffer.pkl: .* pickles, .* model.load_replay_buffer\(path\), and pass"),
        (SimpleNamespace(**{**vars(ring(5, 3)), "observations": {"a": 1}}), ValueError, "flatten images and Dict"),
    ],
)
def test_what_is_no_replay_buffer_is_refused(given, error, message):
    with pytest.raises(error, match=message):
        Demonstrations.from_sb3(given)
