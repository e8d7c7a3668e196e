from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from icl25_pn_gail.envs import CartPoleJax, GymnasiumAdapter, TwoGoals
from icl25_pn_gail.networks import Layer, Policy
from icl25_pn_gail.rollout import (
    ActionMap,
    Batch,
    Scaler,
    collect_gymnasium,
    collect_jax,
    episode_returns,
    mean_return,
)

SCALER = Scaler(np.array([0.5, -1.0], np.float32), np.array([2.0, 0.5], np.float32))


def affine(kernel, bias, log_std=None):
    """Parameters of a policy that is an affine function of its observation."""
    layers = (Layer(np.asarray(kernel, np.float32), np.asarray(bias, np.float32)),)
    return {"layers": layers} if log_std is None else {"layers": layers, "log_std": np.asarray(log_std, np.float32)}


def test_actions_are_clipped_for_the_environment_always_and_for_the_discriminator_unless_told_otherwise():
    space = Box(np.array([-1, 0], np.float32), np.array([1, np.inf], np.float32))
    drawn = np.array([[3.0, -2.0], [0.5, 7.0]], np.float32)
    clipped = [[1, 0], [0.5, 7]]
    for clip, seen in ((True, clipped), (False, drawn)):
        actions = ActionMap.of(space, clip=clip)
        np.testing.assert_array_equal(actions.to_env(drawn), clipped)
        np.testing.assert_array_equal(actions.to_env(drawn, np), clipped)
        np.testing.assert_array_equal(actions.features(drawn), seen)
        np.testing.assert_array_equal(actions.from_env(drawn), drawn)


def test_normalised_actions_have_units_of_half_the_range():
    actions = ActionMap.of(Box(np.array([-1, 10], np.float32), np.array([3, 20], np.float32)), normalize=True)
    for drawn, taken in (([0, 0], [1, 15]), ([1, -1], [3, 10]), ([0.5, 0.2], [2, 16]), ([4, -9], [3, 10])):
        np.testing.assert_allclose(actions.to_env(np.array(drawn)), taken, rtol=1e-6)
    inside = np.random.default_rng(0).uniform(-1, 1, (20, 2))
    np.testing.assert_allclose(actions.from_env(actions.to_env(inside, np)), inside, atol=1e-6)
    np.testing.assert_allclose(actions.features(np.array([[4.0, -9.0], [0.5, 0.2]])), [[1, -1], [0.5, 0.2]], rtol=1e-6)
    with pytest.raises(ValueError, match="normalize_actions needs an action space with finite bounds"):
        ActionMap.of(Box(-np.inf, np.inf, (2,)), normalize=True)


def test_choices_go_to_the_environment_as_they_are_and_to_the_discriminator_as_indicators():
    actions = ActionMap.of(Discrete(3))
    chosen = np.array([2, 0])
    np.testing.assert_array_equal(actions.to_env(chosen), chosen)
    np.testing.assert_array_equal(actions.from_env(chosen), chosen)
    np.testing.assert_array_equal(actions.features(chosen), [[0, 0, 1], [1, 0, 0]])


@pytest.fixture(scope="module")
def rolled():
    """Steps of three environments with episodes of five steps, with and without noise."""
    env, actions = TwoGoals(max_episode_steps=5), ActionMap.of(TwoGoals().act_space)
    params = affine([[0.3, 0.0], [0.0, -0.2]], [0.9, 1.3], [-1.0, 0.3])

    @partial(jax.jit, static_argnums=1)
    def roll(key, deterministic):
        how = {"n_envs": 3, "n_steps": 12, "deterministic": deterministic}
        return collect_jax(env, Policy(2), actions, SCALER, params, key, **how)

    return params, {flag: jax.tree.map(np.asarray, roll(jax.random.key(0), flag)) for flag in (False, True)}, roll


def test_each_step_is_that_of_the_environment_and_episodes_follow_each_other(rolled):
    batch = rolled[1][False]
    raw, after = (obs * SCALER.scale + SCALER.mean for obs in (batch.obs, batch.next_obs))
    assert batch.obs.shape == (12, 3, 2)
    np.testing.assert_allclose(after, raw + 0.1 * np.clip(batch.actions, -1, 1), atol=1e-5)
    assert (np.abs(batch.actions) > 1).any()  # which the environment clips, and the batch keeps
    np.testing.assert_allclose(batch.rewards, -np.linalg.norm(after - [1, 0.6], axis=-1), rtol=1e-5)
    ends = np.broadcast_to((np.arange(12) % 5 == 4)[:, None], (12, 3))
    np.testing.assert_array_equal(batch.ended, ends)
    assert not batch.terminated.any()
    np.testing.assert_array_equal(batch.obs[1:][~ends[:-1]], batch.next_obs[:-1][~ends[:-1]])
    starts = np.concatenate([raw[:1], raw[1:][ends[:-1]].reshape(-1, 3, 2)])
    np.testing.assert_allclose(starts, np.broadcast_to([0, -1], starts.shape), atol=0.25)
    assert len(np.unique(starts[..., 0])) == starts[..., 0].size  # all start elsewhere
    assert np.abs(after[4] - [0, -1]).max(axis=-1).min() > 0.3  # before the reset


def test_actions_are_drawn_from_the_policy_or_its_most_likely_ones(rolled):
    params, batches, roll = rolled
    for deterministic, batch in batches.items():
        mean = batch.obs @ params["layers"][0].kernel + params["layers"][0].bias
        noise = (batch.actions - mean) / np.exp(params["log_std"])
        if deterministic:
            np.testing.assert_allclose(noise, np.zeros_like(noise), atol=1e-6)
        else:
            assert len(np.unique(np.round(noise, 4))) > 0.95 * noise.size
            assert abs(noise.mean()) < 0.4
            np.testing.assert_allclose(noise.std(), 1, atol=0.3)
    again, other = roll(jax.random.key(0), False), roll(jax.random.key(1), False)
    np.testing.assert_array_equal(again.actions, batches[False].actions)
    assert not np.isclose(other.actions, again.actions).any()


def test_choices_and_episodes_that_end_early():
    env = CartPoleJax(max_episode_steps=10)
    params = affine(np.zeros((4, 2)), np.log([0.1, 0.9]))
    zero = Scaler(np.zeros(4, np.float32), np.ones(4, np.float32))

    @jax.jit
    def roll(key):
        batch = collect_jax(env, Policy(2, True), ActionMap.of(env.act_space), zero, params, key, n_envs=4, n_steps=40)
        by_hand = jax.vmap(jax.vmap(lambda obs, act: env.step(key, env.state_from_obs(obs), act)))
        return batch, by_hand(batch.obs, batch.actions)

    batch, (obs, _, reward, terminated, _) = jax.tree.map(np.asarray, roll(jax.random.key(0)))
    np.testing.assert_allclose(batch.next_obs, obs, rtol=1e-6)
    np.testing.assert_array_equal(batch.rewards, reward)
    np.testing.assert_array_equal(batch.terminated, terminated)
    assert terminated.any()
    cut = batch.ended & ~terminated
    assert cut.any()
    for e in range(4):
        ends = np.flatnonzero(batch.ended[:, e])
        lengths = np.diff(np.concatenate([[-1], ends]))
        assert lengths.max() <= 10
        np.testing.assert_array_equal(lengths[cut[ends, e]], 10)
        for end in ends[ends < 39]:
            assert np.abs(batch.obs[end + 1, e]).max() <= 0.05 < np.abs(batch.next_obs[end, e]).max()


def test_steps_of_gymnasium_are_those_of_its_environments(make_line):
    actions, scaler = ActionMap.of(Box(-1, 1, (1,))), Scaler(np.float32([0.2]), np.float32([0.5]))
    params = affine([[0.4]], [0.3], [0.2])
    envs = GymnasiumAdapter.make(make_line(), 2)
    roll = partial(collect_gymnasium, envs, Policy(1), actions, scaler, params)
    batch = roll(3, n_steps=25)
    raw, after = (obs * scaler.scale + scaler.mean for obs in (batch.obs, batch.next_obs))
    assert batch.obs.shape == (25, 2, 1)
    np.testing.assert_allclose(after, raw + 0.1 * np.clip(batch.actions, -1, 1), atol=1e-6)
    np.testing.assert_allclose(batch.rewards, -np.abs(after[..., 0] - 1), atol=1e-6)
    np.testing.assert_array_equal(batch.ended, np.broadcast_to((np.arange(25) % 10 == 9)[:, None], (25, 2)))
    assert not batch.terminated.any()
    assert np.abs(raw[[0, 10, 20]]).max() < 0.25
    noise = (batch.actions - (batch.obs * 0.4 + 0.3)) / np.exp(0.2)
    np.testing.assert_allclose([noise.mean(), noise.std()], [0, 1], atol=0.4)
    assert len(np.unique(noise)) == noise.size
    np.testing.assert_array_equal(roll(3, n_steps=25).next_obs, batch.next_obs)
    assert not np.isclose(roll(4, n_steps=25).actions, batch.actions).any()
    quiet = roll(3, n_steps=25, deterministic=True, one_episode=True)
    assert len(quiet.obs) == 10
    np.testing.assert_allclose(quiet.actions, quiet.obs * 0.4 + 0.3, rtol=1e-6)


def test_ends_and_cuts_of_gymnasium_are_told_apart(make_line):
    envs = GymnasiumAdapter.make(make_line(steps=10, wall=0.4), 3)
    params = affine([[0.0]], [-0.45], [-0.5])
    nothing = Scaler(np.zeros(1, np.float32), np.ones(1, np.float32))
    roll = partial(collect_gymnasium, envs, Policy(1), ActionMap.of(Box(-1, 1, (1,))), nothing, params, 0)
    batch = roll(n_steps=60)
    np.testing.assert_array_equal(batch.terminated, batch.next_obs[..., 0] < -0.4)
    assert batch.terminated.any()
    assert (batch.ended & ~batch.terminated).any()
    first = roll(n_steps=60, one_episode=True)
    found = episode_returns(first)
    assert len(first.ended) == found.lengths.max()  # stops with the last that ends
    assert len(set(np.asarray(found.lengths))) > 1
    for e in range(3):
        end = np.flatnonzero(first.ended[:, e])[0]
        assert found.lengths[e] == end + 1
        np.testing.assert_allclose(found.returns[e], first.rewards[: end + 1, e].sum(), rtol=1e-6)


def test_choices_of_gymnasium_are_drawn_by_their_probability():
    params = affine(np.zeros((4, 2)), np.log([0.8, 0.2]))
    nothing = Scaler(np.zeros(4, np.float32), np.ones(4, np.float32))
    with GymnasiumAdapter.make("CartPole-v1", 2) as envs:
        roll = partial(collect_gymnasium, envs, Policy(2, True), ActionMap.of(envs.act_space), nothing, params, 0)
        drawn, best = roll(n_steps=400), roll(n_steps=5, deterministic=True)
    assert np.mean(drawn.actions == 0) == pytest.approx(0.8, abs=0.05)
    np.testing.assert_array_equal(best.actions, np.zeros((5, 2)))


def batch_of(rewards, ended):
    return Batch(None, None, None, np.array(rewards, np.float32), None, np.array(ended, bool))


def test_the_first_episode_of_each_environment_is_summed_up():
    rewards = [[1, 10, 100], [2, 20, 200], [4, 40, 400], [8, 80, 800]]
    found = episode_returns(batch_of(rewards, [[0, 0, 1], [1, 0, 0], [0, 0, 1], [1, 0, 1]]))
    np.testing.assert_array_equal(found.returns, [3, 150, 100])  # the second did not end
    np.testing.assert_array_equal(found.lengths, [2, 4, 1])


def test_the_mean_return_is_that_of_the_episodes_that_ended():
    rewards = jnp.array([[1.0, 10], [2, 20], [4, 40], [8, 80]])
    ended = jnp.array([[False, False], [True, False], [False, True], [False, False]])
    assert mean_return(rewards, ended) == pytest.approx((3 + 70) / 2)
    assert mean_return(rewards, ended.at[2, 0].set(True)) == pytest.approx((3 + 4 + 70) / 3)
    assert np.isnan(mean_return(rewards, jnp.zeros((4, 2), bool)))
