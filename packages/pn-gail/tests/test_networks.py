from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl25_pn_gail import losses
from icl25_pn_gail.distributions import Categorical, Gaussian
from icl25_pn_gail.networks import Layer, Policy, init_mlp, mlp


def test_outputs_are_those_of_the_reference(reference, x64):
    g = {name: jnp.asarray(array) for name, array in reference.arrays.items() if array.dtype == float}
    fake = jnp.concatenate([g["states"], g["actions"]], axis=1)

    @jax.jit
    def outputs():
        dist = Policy(2)(reference.policy, g["states"])
        return {
            "policy_mean": dist.mean,
            "log_prob": dist.log_prob(g["actions"])[:, None],
            "value_out": mlp(reference.value, g["states"]),
            "disc_fake": mlp(reference.disc, fake),
            "disc_real": mlp(reference.disc, g["demo"]),
            "clf_conf_pred": jax.nn.sigmoid(mlp(reference.clf, g["demo"])),
            "reward": losses.imitation_reward(mlp(reference.disc, fake)),
        }

    for name, value in outputs().items():
        np.testing.assert_allclose(value, g[name], atol=1e-10, rtol=0, err_msg=name)
    in_numpy = mlp(reference.policy["layers"], reference.arrays["states"], np)
    np.testing.assert_allclose(in_numpy, g["policy_mean"], atol=1e-10, rtol=0)


def test_gradients_of_the_losses_are_those_of_the_reference(reference, x64):
    g = reference.arrays
    fake, demo = np.concatenate([g["states"], g["actions"]], axis=1), g["demo"]
    r = g["demo_conf"][:, 0]

    def loss(disc, method):
        f, d = mlp(disc, fake)[:, 0], mlp(disc, demo)[:, 0]
        if method == "ic":
            return losses.icgail_loss(f, d[:6], d[6:], r[:6])
        if method == "gail":
            return losses.gail_loss(f, d)
        return (losses.pn_loss if method == "pn" else losses.iwil_loss)(f, d, r)

    methods = ("gail", "2iwil", "pn", "ic")
    found_ones = jax.jit(lambda disc: [jax.value_and_grad(loss)(disc, method) for method in methods])(reference.disc)
    for method, (found, gradient) in zip(methods, found_ones, strict=True):
        np.testing.assert_allclose(found, g[f"dloss_{method}"], atol=1e-9, rtol=0, err_msg=method)
        np.testing.assert_allclose(reference.flat(gradient), g[f"dgrad_{method}"], atol=1e-9, rtol=0, err_msg=method)


def test_the_layout_of_torch_and_ours_hold_the_same(reference):
    theta0 = reference.arrays["theta0"]
    np.testing.assert_array_equal(reference.flat_policy(reference.policy), theta0)
    np.testing.assert_array_equal(reference.flat_policy(reference.policy_of(theta0)), theta0)
    # So a kernel of ours times its input is what torch computes with the weights that lie there.
    np.testing.assert_array_equal(reference.policy_of(theta0)["layers"][0].kernel, reference.policy["layers"][0].kernel)


def test_one_layer_is_affine_and_several_have_tanh_between_them():
    first, last = Layer(np.array([[2.0, -1.0]]), np.array([0.5, 0.0])), Layer(np.array([[1.0], [3.0]]), np.array([0.1]))
    x = np.array([[0.3], [10.0]])
    np.testing.assert_allclose(mlp((first,), x, np), x * [2, -1] + [0.5, 0])
    expected = np.tanh(2 * x + 0.5) + 3 * np.tanh(-x) + 0.1
    np.testing.assert_allclose(mlp((first, last), x, np), expected)
    np.testing.assert_allclose(mlp((first, last), jnp.asarray(x, jnp.float32)), expected, rtol=1e-5)


def test_first_parameters_are_uniform_by_the_number_of_inputs_and_the_head_is_small():
    layers = jax.jit(lambda key: init_mlp(key, (4, 100, 100, 3)))(jax.random.key(0))
    bounds = [1 / 2, 1 / 10, 0.1 / 10]
    for layer, bound in zip(layers, bounds, strict=True):
        # Uniform within the bound: as wide, and with the spread of it.
        kernel = np.asarray(layer.kernel)
        assert 0.95 * bound < np.abs(kernel).max() <= bound
        np.testing.assert_allclose(kernel.std(), bound / np.sqrt(3), rtol=0.06)
        np.testing.assert_allclose(kernel.mean(), 0, atol=0.12 * bound)
    for layer, bound in zip(layers[:-1], bounds, strict=False):
        np.testing.assert_allclose(np.asarray(layer.bias).std(), bound / np.sqrt(3), rtol=0.2)
        assert np.abs(layer.bias).max() <= bound
    np.testing.assert_array_equal(layers[-1].bias, np.zeros(3))
    assert [layer.kernel.shape for layer in layers] == [(4, 100), (100, 100), (100, 3)]
    # Weights of layers of the same shape, and biases, are draws of their own.
    small = jax.jit(lambda key: init_mlp(key, (5, 5, 5, 5)))
    same = small(jax.random.key(0))
    assert not np.allclose(same[0].kernel, same[1].kernel)
    assert not np.allclose(same[0].kernel[0], same[0].bias)
    again, other = small(jax.random.key(0)), small(jax.random.key(1))
    np.testing.assert_array_equal(same[0].kernel, again[0].kernel)
    assert not np.allclose(same[0].kernel, other[0].kernel)


@pytest.mark.parametrize("log_std", [-1, -1.0, 0.25])
def test_the_first_spread_is_a_number_of_its_own_type(log_std):
    params = Policy(2).init(jax.random.key(0), 3, (4,), log_std)
    np.testing.assert_array_equal(params["log_std"], np.full(2, log_std, np.float32))
    assert params["log_std"].dtype == np.float32
    assert not params["log_std"].weak_type  # else a training compiles twice


def test_a_policy_is_gaussian_or_a_choice():
    obs = jnp.ones((5, 3))
    continuous, discrete = Policy(2), Policy(4, discrete=True)
    params = continuous.init(jax.random.key(0), 3, (4,), -0.5)
    dist = continuous(params, obs)
    assert isinstance(dist, Gaussian)
    np.testing.assert_allclose(dist.mean, mlp(params["layers"], obs))
    np.testing.assert_array_equal(dist.log_std, [-0.5, -0.5])
    params = discrete.init(jax.random.key(0), 3, (4,))
    assert set(params) == {"layers"}
    dist = discrete(params, obs)
    assert isinstance(dist, Categorical)
    assert dist.logits.shape == (5, 4)
    np.testing.assert_allclose(dist.logits, mlp(params["layers"], obs))
