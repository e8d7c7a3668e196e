from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from icl25_pn_gail.advantages import gae, standardize

jitted = jax.jit(gae, static_argnums=(3, 4))


def looped(rewards, values, masks, gamma, lam, bootstrap):
    """Returns and advantages of one environment, by the definition: episode by episode, as sums."""
    n = len(rewards)
    ends = [t for t in range(n) if masks[t] == 0 or t == n - 1]
    returns, advantages, start = np.zeros(n), np.zeros(n), 0
    for end in ends:
        following = [*values[start + 1 : end + 1], bootstrap[end]]
        deltas = [
            r + gamma * v - u
            for r, v, u in zip(rewards[start : end + 1], following, values[start : end + 1], strict=True)
        ]
        for t in range(start, end + 1):
            later = range(t, end + 1)
            returns[t] = sum(gamma ** (k - t) * rewards[k] for k in later) + gamma ** (end + 1 - t) * bootstrap[end]
            advantages[t] = sum((gamma * lam) ** (k - t) * deltas[k - start] for k in later)
        start = end + 1
    return returns, advantages


def test_numbers_worked_by_hand():
    found = gae(jnp.array([1.0, 0, 2]), jnp.array([0.5, 0.4, 0.3]), jnp.array([1.0, 1, 0]), 0.9, 0.8)
    np.testing.assert_allclose(found.returns, [2.62, 1.8, 2], rtol=1e-6)
    np.testing.assert_allclose(found.advantages, [1.64768, 1.094, 1.7], rtol=1e-6)


def test_those_of_the_reference(reference, x64):
    g = reference.arrays
    found = gae(g["reward"][:, 0], g["value_out"][:, 0], g["mask"], 0.995, 0.97)
    np.testing.assert_allclose(found.returns, g["returns"], atol=1e-10, rtol=0)
    np.testing.assert_allclose(found.advantages, g["adv_raw"], atol=1e-10, rtol=0)
    np.testing.assert_allclose(standardize(found.advantages), g["adv"], atol=1e-10, rtol=0)


NUMBERS = arrays(np.float64, (6, 2), elements=st.floats(-10, 10))


@settings(max_examples=60, deadline=None)
@given(
    NUMBERS,
    NUMBERS,
    arrays(np.float64, (6, 2), elements=st.sampled_from([0.0, 1.0])),
    NUMBERS,
    st.sampled_from([0.0, 0.9, 1.0]),
    st.sampled_from([0.8, 1.0]),
)
def test_episodes_and_environments_are_summed_up_apart(rewards, values, masks, bootstrap, gamma, lam):
    with jax.enable_x64(True):
        found = jitted(rewards, values, masks, gamma, lam, bootstrap)
    for e in range(2):
        columns = (part[:, e] for part in (rewards, values, masks))
        returns, advantages = looped(*columns, gamma, lam, bootstrap[:, e])
        np.testing.assert_allclose(found.returns[:, e], returns, atol=1e-9)
        np.testing.assert_allclose(found.advantages[:, e], advantages, atol=1e-9)


def test_without_bootstrap_an_end_is_worth_nothing_and_the_last_row_is_an_end():
    rewards, values = jnp.array([1.0, 2, 4]), jnp.array([0.1, 0.2, 0.4])
    for masks in (jnp.array([1.0, 0, 1]), jnp.array([1.0, 0, 0])):
        found = gae(rewards, values, masks, 0.5, 1.0)
        np.testing.assert_allclose(found.returns, [2, 2, 4])
        np.testing.assert_allclose(found.advantages, [1.9, 1.8, 3.6], rtol=1e-6)


@pytest.mark.parametrize("shape", [(1,), (4,), (4, 3), (4, 3, 2)])
def test_time_comes_first_whatever_follows(shape):
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, *shape)).astype(np.float32)
    found = gae(rewards, values, np.ones(shape, np.float32), 0.9, 0.8)
    assert found.returns.shape == found.advantages.shape == shape
    # Each column is that of the same numbers alone; the last row has nothing after it.
    np.testing.assert_allclose(found.returns[-1], rewards[-1], rtol=1e-6)
    np.testing.assert_allclose(found.advantages[-1], rewards[-1] - values[-1], rtol=1e-5)


def test_equal_advantages_become_zero_however_their_mean_is_rounded():
    values = np.array([0.0, 0.1, 0.3, 1.7, -123.456], np.float32)
    for n in (3, 5000):
        np.testing.assert_array_equal(jax.jit(jax.vmap(standardize))(np.tile(values[:, None], n)), np.zeros((5, n)))
    np.testing.assert_array_equal(standardize(jnp.ones(1)), [0])  # whose spread is not known


def test_advantages_get_mean_0_and_spread_1_also_where_they_hardly_differ():
    x = np.random.default_rng(0).normal(3, 2, (40, 5)).astype(np.float32)
    found = standardize(jnp.asarray(x))
    np.testing.assert_allclose(found, (x - x.mean()) / x.std(ddof=1), atol=1e-5)
    np.testing.assert_allclose(standardize(jnp.array([1.0, 1.0001])), [-np.sqrt(0.5), np.sqrt(0.5)], rtol=1e-2)
