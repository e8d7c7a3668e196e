from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from icl25_pn_gail.networks import Policy
from icl25_pn_gail.ppo import clipped_loss, ppo_update


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.1, 2.0, -2.2, -2.0),
        (1.5, 2.0, -2.4, 0.0),  # gains beyond the clip do not count
        (0.5, 2.0, -1.0, -2.0),  # losses do
        (0.5, -2.0, 1.6, 0.0),
        (1.5, -2.0, 3.0, 2.0),
    ],
)
def test_what_the_clip_leaves_of_a_gain(ratio, advantage, loss, slope):
    found, gradient = jax.value_and_grad(clipped_loss)(jnp.array([ratio]), jnp.array([advantage]))
    assert found == pytest.approx(loss, rel=1e-6)
    assert gradient[0] == pytest.approx(slope, abs=1e-6)
    rows = clipped_loss(jnp.array([ratio, 1.0]), jnp.array([advantage, 1.0]))
    assert rows == pytest.approx((loss - 1) / 2, rel=1e-6)


def test_one_step_on_all_rows_follows_the_gradient_of_the_reference(reference, x64):
    g = reference.arrays
    params, sgd = jax.tree.map(jnp.asarray, reference.policy), optax.sgd(0.1)
    done = ppo_update(
        Policy(2), params, sgd.init(params), sgd, jax.random.key(0),
        *(jnp.asarray(g[name]) for name in ("states", "actions", "adv")),
        epochs=1, minibatch=100,
    )  # fmt: skip
    gradient = (g["theta0"] - reference.flat_policy(done.params)) / 0.1
    np.testing.assert_allclose(gradient, g["pg"], atol=1e-9, rtol=0)
    assert done.surrogate_before == pytest.approx(-float(g["adv"].mean()), abs=1e-12)


def test_an_update_improves_the_policy_in_whole_minibatches():
    policy, adam = Policy(2, discrete=True), optax.adam(1e-2)
    rng = np.random.default_rng(0)
    obs, advantages = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((50, 3), 50))

    @jax.jit
    def start(key):
        params = policy.init(key, 3, (8,))
        return params, policy(params, obs).sample(key)

    params, actions = start(jax.random.key(0))

    @jax.jit
    def update(key, advantages):
        done = ppo_update(
            policy, params, adam.init(params), adam, key, obs, actions, advantages, epochs=4, minibatch=20
        )
        old, new = policy(params, obs), policy(done.params, obs)
        ratio = jnp.exp(new.log_prob(actions) - old.log_prob(actions))
        return done, old.kl(new), -jnp.mean(ratio * advantages)

    done, kl, surrogate = update(jax.random.key(4), advantages)
    assert done.opt_state[0].count == 4 * 2  # the last 10 rows of a pass are left out
    assert done.surrogate_after == pytest.approx(float(surrogate), abs=1e-5)
    assert done.surrogate_before == pytest.approx(-float(np.mean(advantages)), abs=1e-6)
    assert done.surrogate_after < done.surrogate_before - 0.01
    assert done.kl == pytest.approx(float(kl), abs=1e-6)
    assert done.kl > 0
    # Which rows are left out, and in which order the others come, is drawn.
    other = update(jax.random.key(5), advantages)[0]
    assert not np.allclose(ravel_pytree(other.params)[0], ravel_pytree(done.params)[0])
    same = update(jax.random.key(4), jnp.zeros(50))[0]
    np.testing.assert_array_equal(ravel_pytree(same.params)[0], ravel_pytree(params)[0])


def test_nothing_changes_where_nothing_is_to_be_learned():
    policy, adam = Policy(1), optax.adam(0.1)
    params = policy.init(jax.random.key(0), 2, (4,))
    obs, actions = jnp.ones((8, 2)), jnp.zeros((8, 1))
    update = partial(ppo_update, policy, optimizer=adam, key=jax.random.key(1), obs=obs, actions=actions, epochs=2)
    moved = update(params, adam.init(params), advantages=jnp.arange(8.0))
    still = update(moved.params, moved.opt_state, advantages=jnp.zeros(8))  # with momentum
    assert float(jnp.abs(ravel_pytree(moved.params)[0] - ravel_pytree(params)[0]).max()) > 0
    jax.tree.map(np.testing.assert_array_equal, (still.params, still.opt_state), (moved.params, moved.opt_state))
    assert still.kl == 0
