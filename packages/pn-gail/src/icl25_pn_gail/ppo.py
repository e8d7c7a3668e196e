"""Proximal policy optimisation: many small steps on a clipped objective."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from icl25_pn_gail.distributions import Arrays
from icl25_pn_gail.trpo import Apply

__all__ = ["PPOUpdate", "clipped_loss", "ppo_update"]


class PPOUpdate(NamedTuple):
    """The result of an update.

    Attributes:
        params: Parameters of the policy after it.
        opt_state: State of the optimiser.
        kl: Mean divergence of the policy after from that before, in nats.
        surrogate_before: Surrogate loss before.
        surrogate_after: Surrogate loss after, not clipped.
    """

    params: Any
    opt_state: Any
    kl: Float[Array, ""]
    surrogate_before: Float[Array, ""]
    surrogate_after: Float[Array, ""]


def clipped_loss(ratio: Float[Array, " n"], advantages: Float[Arrays, " n"], clip: float = 0.2) -> Float[Array, ""]:
    """Compute the clipped surrogate loss.

    Args:
        ratio: Probability of the action under the new policy over that under the old one.
        advantages: Standardised advantages.
        clip: How far from 1 the ratio may be before its gain no longer counts.

    Returns:
        Minus the mean of min(ratio A, clip(ratio) A).

    Source:
        Schulman et al., Proximal policy optimization algorithms, 2017, equation 7.
    """
    return -jnp.mean(jnp.minimum(ratio * advantages, jnp.clip(ratio, 1 - clip, 1 + clip) * advantages))


def ppo_update(
    apply: Apply,
    params: Any,
    opt_state: Any,
    optimizer: optax.GradientTransformation,
    key: PRNGKeyArray,
    obs: Float[Arrays, "n d"],
    actions: Any,
    advantages: Float[Arrays, " n"],
    *,
    clip: float = 0.2,
    epochs: int = 10,
    minibatch: int = 512,
) -> PPOUpdate:
    """Improve a policy on a batch.

    Args:
        apply: The policy: parameters and observations to distributions.
        params: Parameters of the policy that took the actions.
        opt_state: State of the optimiser.
        optimizer: The optimiser.
        key: Key of the shuffles.
        obs: Observations.
        actions: Actions taken, (n, a) or (n,).
        advantages: Their advantages, standardised; where all are 0 everything stays.
        clip: Half-width of the ratios that are not clipped.
        epochs: Passes over the batch.
        minibatch: Rows a step; the last, incomplete minibatch of a pass is left out.

    Returns:
        The parameters, and what the update did.
    """
    n = obs.shape[0]
    size = min(minibatch, n)
    n_batches = n // size
    before = apply(params, obs)
    log_prob = before.log_prob(actions)

    def step(carry: tuple[Any, Any], rows: Any) -> tuple[tuple[Any, Any], None]:
        params, opt_state = carry

        def loss(params: Any) -> Float[Array, ""]:
            ratio = jnp.exp(apply(params, obs[rows]).log_prob(actions[rows]) - log_prob[rows])
            return clipped_loss(ratio, advantages[rows], clip)

        updates, opt_state = optimizer.update(jax.grad(loss)(params), opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), None

    shuffles = jax.vmap(lambda k: jax.random.permutation(k, n))(jax.random.split(key, epochs))
    batches = shuffles[:, : n_batches * size].reshape(epochs * n_batches, size)
    found = jax.lax.scan(step, (params, opt_state), batches)[0]
    # Adam moves without a gradient, too: where there is nothing to learn, all stays.
    kept = (params, opt_state)
    params, opt_state = jax.tree.map(partial(jnp.where, jnp.any(advantages != 0)), found, kept)
    after = apply(params, obs)
    surrogate = -jnp.mean(advantages * jnp.exp(after.log_prob(actions) - log_prob))
    return PPOUpdate(params, opt_state, before.kl(after), -jnp.mean(advantages), surrogate)  # ty: ignore[invalid-argument-type]
