from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from icl25_pn_gail.distributions import Categorical, Gaussian

RNG = np.random.default_rng(0)
MEAN, OTHER_MEAN, ACTIONS = RNG.normal(size=(3, 7, 2))
LOG_STD, OTHER_LOG_STD = np.array([-0.7, 0.4]), np.array([0.2, -0.3])
LOGITS, OTHER_LOGITS = RNG.normal(0, 2, size=(2, 7, 3))
CHOICES = RNG.integers(0, 3, 7)


def softmax(logits):
    e = np.exp(logits)
    return e / e.sum(-1, keepdims=True)


def test_density_entropy_and_divergence_of_a_gaussian(x64):
    dist, other = (
        Gaussian(jnp.array(MEAN), jnp.array(LOG_STD)),
        Gaussian(jnp.array(OTHER_MEAN), jnp.array(OTHER_LOG_STD)),
    )
    covariance, other_covariance = np.diag(np.exp(2 * LOG_STD)), np.diag(np.exp(2 * OTHER_LOG_STD))
    expected = [scipy.stats.multivariate_normal(m, covariance).logpdf(a) for m, a in zip(MEAN, ACTIONS, strict=True)]
    np.testing.assert_allclose(dist.log_prob(jnp.array(ACTIONS)), expected, rtol=1e-12)
    np.testing.assert_allclose(dist.entropy(), scipy.stats.multivariate_normal(MEAN[0], covariance).entropy())
    inverse = np.linalg.inv(other_covariance)
    shift = OTHER_MEAN - MEAN
    determinants = np.log(np.linalg.det(other_covariance) / np.linalg.det(covariance))
    each = 0.5 * (np.trace(inverse @ covariance) + np.einsum("ni,ij,nj->n", shift, inverse, shift) - 2 + determinants)
    np.testing.assert_allclose(dist.kl(other), each.mean(), rtol=1e-12)
    np.testing.assert_allclose(dist.kl(dist), 0, atol=1e-15)
    np.testing.assert_array_equal(dist.mode(), MEAN)


def test_probability_entropy_and_divergence_of_a_choice(x64):
    dist, other = Categorical(jnp.array(LOGITS)), Categorical(jnp.array(OTHER_LOGITS))
    p, q = softmax(LOGITS), softmax(OTHER_LOGITS)
    np.testing.assert_allclose(dist.log_prob(jnp.array(CHOICES)), np.log(p[np.arange(7), CHOICES]), rtol=1e-12)
    np.testing.assert_allclose(dist.entropy(), np.mean(scipy.stats.entropy(p, axis=1)), rtol=1e-12)
    np.testing.assert_allclose(dist.kl(other), np.mean(scipy.stats.entropy(p, q, axis=1)), rtol=1e-12)
    np.testing.assert_allclose(dist.kl(dist), 0, atol=1e-15)
    np.testing.assert_array_equal(dist.mode(), p.argmax(1))


@pytest.mark.parametrize(
    ("dist", "tangent"),
    [
        (Gaussian(MEAN, LOG_STD), Gaussian(ACTIONS, OTHER_LOG_STD)),
        (Gaussian(MEAN[:6].reshape(3, 2, 2), LOG_STD), Gaussian(ACTIONS[:6].reshape(3, 2, 2), OTHER_LOG_STD)),
        (Categorical(LOGITS), Categorical(OTHER_LOGITS)),
    ],
)
def test_fisher_product_is_that_with_the_hessian_of_the_divergence(dist, tangent, x64):
    dist, tangent = jax.tree.map(jnp.asarray, (dist, tangent))
    expected = jax.jvp(jax.grad(dist.kl), (dist,), (tangent,))[1]
    for found, part in zip(dist.fisher_product(tangent), expected, strict=True):
        np.testing.assert_allclose(found, part, atol=1e-10, rtol=0)


def test_moments_of_samples():
    mean, log_std = jnp.array([[1.0, -2.0]]), jnp.array([-1.0, 0.5])
    drawn = np.asarray(Gaussian(jnp.tile(mean, (40_000, 1)), log_std).sample(jax.random.key(0)))
    std = np.exp(log_std)
    np.testing.assert_allclose(drawn.mean(0), mean[0], atol=5 * std.max() / 200)
    np.testing.assert_allclose(drawn.std(0), std, rtol=0.02)
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.03
    logits = jnp.log(jnp.array([0.1, 0.6, 0.3])) + 5
    chosen = np.asarray(Categorical(jnp.tile(logits, (40_000, 1))).sample(jax.random.key(0)))
    np.testing.assert_allclose(np.bincount(chosen) / 40_000, [0.1, 0.6, 0.3], atol=0.015)
