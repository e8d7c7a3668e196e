from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from icl25_pn_gail.networks import Layer, Policy
from icl25_pn_gail.trpo import conjugate_gradient, fisher_vector_product, trpo_step

OBS = np.random.default_rng(0).normal(size=(24, 3))


def matrix(n=5):
    root = np.random.default_rng(1).normal(size=(n, n))
    return root @ root.T + 0.1 * np.eye(n)


def case(discrete, seed=0):
    """A policy, its parameters, observations, actions that it drew, and their advantages."""
    rng, n = np.random.default_rng(seed), 3 if discrete else 2
    layers = [(rng.normal(0, 0.5, (n_in, n_out)), rng.normal(0, 0.5, n_out)) for n_in, n_out in ((3, 4), (4, n))]
    mean = np.tanh(OBS @ layers[0][0] + layers[0][1]) @ layers[1][0] + layers[1][1]
    log_std = rng.normal(0, 0.3, n)
    params = {"layers": tuple(Layer(*layer) for layer in layers)} | ({} if discrete else {"log_std": log_std})
    actions = rng.integers(0, n, 24) if discrete else mean + np.exp(log_std) * rng.normal(size=mean.shape)
    number = jnp.result_type(float)
    params, obs, advantages = jax.tree.map(lambda x: jnp.asarray(x, number), (params, OBS, rng.normal(size=24)))
    return Policy(n, discrete), params, obs, jnp.asarray(actions, int if discrete else number), advantages


def test_conjugate_gradients_solve_in_as_many_iterations_as_there_are_unknowns(x64):
    a, b = matrix(), np.arange(1.0, 6)
    np.testing.assert_allclose(conjugate_gradient(lambda v: a @ v, jnp.array(b), 5), np.linalg.solve(a, b), rtol=1e-8)
    # The first is the step of steepest descent; with a large tolerance it is the only one.
    steepest = b * (b @ b) / (b @ a @ b)
    np.testing.assert_allclose(conjugate_gradient(lambda v: a @ v, jnp.array(b), 1), steepest)
    np.testing.assert_allclose(conjugate_gradient(lambda v: a @ v, jnp.array(b), 5, 1e9), steepest)
    small = 1e-8 * b  # whose square is below the tolerance from the start
    found = conjugate_gradient(lambda v: a @ v, jnp.array(small), 5)
    np.testing.assert_allclose(found, 1e-8 * steepest)


def test_conjugate_gradients_of_nothing_are_nothing():
    np.testing.assert_array_equal(conjugate_gradient(lambda v: 2 * v, jnp.zeros(3)), np.zeros(3))
    # Also beside a system that goes on.
    several = jax.vmap(lambda b: conjugate_gradient(lambda v: 2 * v, b))(jnp.array([[0.0, 0.0], [2.0, 4.0]]))
    np.testing.assert_allclose(several, [[0, 0], [1, 2]])


@pytest.mark.parametrize("discrete", [False, True])
def test_fisher_product_is_that_with_the_hessian_of_the_divergence(discrete, x64):
    policy, params, obs, *_ = case(discrete)
    flat, unravel = ravel_pytree(params)
    vector = np.random.default_rng(2).normal(size=flat.shape)

    @jax.jit
    def both(flat):
        before = policy(unravel(flat), obs)
        slope = jax.grad(lambda v: before.kl(policy(unravel(v), obs)))
        found = fisher_vector_product(policy, unravel(flat), obs, damping=0.3)(jnp.array(vector))
        return found, jax.jvp(slope, (flat,), (jnp.array(vector),))[1]

    found, expected = both(flat)
    np.testing.assert_allclose(found, expected + 0.3 * vector, atol=1e-10, rtol=0)


def test_a_step_is_that_of_the_reference(reference, x64):
    g = reference.arrays
    params = jax.tree.map(jnp.asarray, reference.policy)
    vector = ravel_pytree(jax.tree.map(jnp.asarray, reference.policy_of(g["fvp_v"])))[0]
    _, unravel = ravel_pytree(params)

    @jax.jit
    def both(params):
        product = fisher_vector_product(Policy(2), params, g["states"])(vector)
        return unravel(product), trpo_step(Policy(2), params, g["states"], g["actions"], g["adv"])

    product, done = both(params)
    np.testing.assert_allclose(reference.flat_policy(product), g["fvp"], atol=1e-8, rtol=0)
    np.testing.assert_allclose(reference.flat_policy(done.params), g["theta1"], atol=1e-6, rtol=0)
    found = [done.kl, done.surrogate_before, done.surrogate_after]
    expected = [g["kl_after"], g["surr_before"], g["surr_after"]]
    np.testing.assert_allclose(found, expected, atol=1e-7, rtol=0)


@pytest.mark.parametrize("discrete", [True, False])
def test_steps_keep_to_the_trust_region_and_improve(discrete):
    policy, *_ = case(discrete=discrete)

    @jax.jit
    def step(params, obs, actions, advantages):
        done = trpo_step(policy, params, obs, actions, advantages, max_kl=0.02)
        old, new = policy(params, obs), policy(done.params, obs)
        ratio = jnp.exp(new.log_prob(actions) - old.log_prob(actions))
        return done, old.kl(new), -jnp.mean(advantages * ratio)

    for seed in range(10):
        _, params, obs, actions, advantages = case(discrete=discrete, seed=seed)
        done, kl, after = step(params, obs, actions, advantages)
        before = -float(np.mean(advantages))
        assert done.surrogate_before == pytest.approx(before, abs=1e-5)
        assert done.surrogate_after == pytest.approx(float(after), abs=1e-5)
        assert after < before
        assert done.kl == pytest.approx(float(kl), abs=1e-6)
        assert 0 < kl <= 1.5 * 0.02
        assert 0 < done.step_size <= 1
    # Nothing to gain: nothing changes.
    done = step(params, obs, actions, jnp.zeros(24))[0]
    for new, old in zip(jax.tree.leaves(done.params), jax.tree.leaves(params), strict=True):
        np.testing.assert_array_equal(new, old)
    assert [float(part) for part in done[1:]] == [0, 0, 0, 0]
    # What is not a number leaves the policy alone.
    done = step(params, obs, actions, jnp.full(24, jnp.nan))[0]
    np.testing.assert_array_equal(ravel_pytree(done.params)[0], ravel_pytree(params)[0])


def test_the_first_size_that_improves_enough_is_taken_and_else_none(x64, unchecked):
    policy, params, obs, actions, advantages = case(discrete=False)
    start, unravel = ravel_pytree(params)
    n = len(start)

    @jax.jit
    def loss(vector):
        old, new = policy(params, obs), policy(unravel(vector), obs)
        return -jnp.mean(advantages * jnp.exp(new.log_prob(actions) - old.log_prob(actions)))

    @jax.jit
    def step(max_kl, accept_ratio=0.1, backtracks=10, kl_slack=jnp.inf):
        options = {"max_kl": max_kl, "accept_ratio": accept_ratio, "backtracks": backtracks, "kl_slack": kl_slack}
        options["cg_iterations"] = n
        return trpo_step(policy, params, obs, actions, advantages, **options)

    gradient = np.asarray(jax.grad(loss)(start))
    dense = np.asarray(jax.vmap(fisher_vector_product(policy, params, obs))(jnp.eye(n)))
    direction = -np.linalg.solve(dense, gradient)
    taken = []
    for max_kl in (0.01, 30.0, 300.0):
        done = step(max_kl)
        full = direction * np.sqrt(2 * max_kl / (direction @ dense @ direction))
        ratios = [float(loss(start) - loss(start + 0.5**k * full)) / (-(0.5**k) * gradient @ full) for k in range(10)]
        k = next(k for k in range(10) if ratios[k] > 0.1)
        assert done.step_size == 0.5**k
        move = np.asarray(ravel_pytree(done.params)[0] - start)
        np.testing.assert_allclose(move, 0.5**k * full, atol=1e-3 * np.linalg.norm(0.5**k * full))
        taken.append(k)
    assert taken[0] == 0 < taken[1] < taken[2]
    # What improves enough and leaves the region is halved until it is within.
    far, within = step(0.01), step(0.01, kl_slack=0.1)
    assert far.kl > 0.1 * 0.01 >= within.kl > 0
    assert 0 < within.step_size < far.step_size
    twice = unravel(start + 2 * (ravel_pytree(within.params)[0] - start))
    assert policy(params, obs).kl(policy(twice, obs)) > 0.1 * 0.01
    # More than the gradient promises cannot be had; and a single try, far beyond the region, fails.
    for done in (step(0.01, accept_ratio=5.0), step(300.0, backtracks=1)):
        np.testing.assert_array_equal(ravel_pytree(done.params)[0], start)
        assert (done.kl, done.step_size) == (0, 0)
        assert done.surrogate_after == done.surrogate_before == pytest.approx(-float(jnp.mean(advantages)))


def test_fewer_rows_for_the_divergence_are_every_so_many_th(x64):
    policy, params, obs, actions, advantages = case(discrete=False)

    @jax.jit
    def steps(params):
        return [
            ravel_pytree(trpo_step(policy, params, obs, actions, advantages, fisher_every=k, max_kl=1e-3).params)[0]
            for k in (1, 3)
        ]

    @jax.jit
    def products(params, moves):
        rows = (obs, obs[::3])
        return [fisher_vector_product(policy, params, o)(move) for o, move in zip(rows, moves, strict=True)]

    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    moves = [np.asarray(vector - ravel_pytree(params)[0]) for vector in steps(params)]
    # Both directions solve a system whose right-hand side is the gradient, each with its own matrix.
    gradients = [np.asarray(product) for product in products(params, moves)]
    assert cosine(*gradients) > 1 - 1e-4
    assert cosine(*moves) < 1 - 1e-3
