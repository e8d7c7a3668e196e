"""Distributions of actions, with the derivatives of their divergence in closed form."""

from __future__ import annotations

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

__all__ = ["Arrays", "Categorical", "Gaussian"]

Arrays = Array | np.ndarray
LOG_TWO_PI = float(np.log(2 * np.pi))


class Gaussian(NamedTuple):
    """Independent normal distributions for the dimensions of an action; the spread is the same for all rows.

    Attributes:
        mean: Means, (..., a).
        log_std: Logarithms of the standard deviations, (a,).
    """

    mean: Float[Array, "*n a"]
    log_std: Float[Array, " a"]

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*n a"]:
        """Draw one action for each row."""
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape, self.mean.dtype)

    def mode(self) -> Float[Array, "*n a"]:
        """Return the most likely actions."""
        return self.mean

    def log_prob(self, actions: Float[Arrays, "*n a"]) -> Float[Array, "*n"]:
        """Return the logarithm of the density of actions."""
        z = (actions - self.mean) * jnp.exp(-self.log_std)
        return -jnp.sum(0.5 * z**2 + self.log_std + 0.5 * LOG_TWO_PI, axis=-1)

    def entropy(self) -> Float[Array, ""]:
        """Return the mean entropy of the rows, in nats."""
        return jnp.sum(self.log_std + 0.5 * (1 + LOG_TWO_PI))

    def kl(self, other: Self) -> Float[Array, ""]:
        """Return the mean over the rows of the Kullback-Leibler divergence KL(self || other), in nats."""
        squares = jnp.exp(2 * self.log_std) + (self.mean - other.mean) ** 2
        each = other.log_std - self.log_std + 0.5 * squares * jnp.exp(-2 * other.log_std) - 0.5
        return jnp.mean(jnp.sum(each, axis=-1))

    def fisher_product(self, tangent: Self) -> Self:
        """Multiply a tangent by the Hessian of ``kl(other)`` at ``other = self``.

        Args:
            tangent: A change of the parameters of the distributions.

        Returns:
            The product.

        Source:
            The Fisher information of a normal distribution: sigma^-2 for its mean, 2 for the logarithm of sigma.
        """
        n_rows = self.mean.size // self.mean.shape[-1]
        return type(self)(tangent.mean * jnp.exp(-2 * self.log_std) / n_rows, 2 * tangent.log_std)


class Categorical(NamedTuple):
    """One of several actions.

    Attributes:
        logits: Logarithms of the probabilities up to a constant for each row, (..., n_actions).
    """

    logits: Float[Array, "*n k"]

    def sample(self, key: PRNGKeyArray) -> Int[Array, "*n"]:
        """Draw one action for each row."""
        return jax.random.categorical(key, self.logits)

    def mode(self) -> Int[Array, "*n"]:
        """Return the most likely actions."""
        return jnp.argmax(self.logits, axis=-1)

    def log_prob(self, actions: Int[Arrays, "*n"]) -> Float[Array, "*n"]:
        """Return the logarithm of the probability of actions."""
        return jnp.take_along_axis(jax.nn.log_softmax(self.logits), actions[..., None], axis=-1)[..., 0]

    def entropy(self) -> Float[Array, ""]:
        """Return the mean entropy of the rows, in nats."""
        return -jnp.mean(jnp.sum(jax.nn.softmax(self.logits) * jax.nn.log_softmax(self.logits), axis=-1))

    def kl(self, other: Self) -> Float[Array, ""]:
        """Return the mean over the rows of the Kullback-Leibler divergence KL(self || other), in nats."""
        ratio = jax.nn.log_softmax(self.logits) - jax.nn.log_softmax(other.logits)
        return jnp.mean(jnp.sum(jax.nn.softmax(self.logits) * ratio, axis=-1))

    def fisher_product(self, tangent: Self) -> Self:
        """Multiply a tangent by the Hessian of ``kl(other)`` at ``other = self``.

        Args:
            tangent: A change of the logits.

        Returns:
            The product.

        Source:
            The Fisher information of a categorical distribution in its logits: diag(p) - p pᵀ.
        """
        p = jax.nn.softmax(self.logits)
        n_rows = self.logits.size // self.logits.shape[-1]
        return type(self)(p * (tangent.logits - jnp.sum(p * tangent.logits, axis=-1, keepdims=True)) / n_rows)
