"""Returns and advantages of rolled-out steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["Advantages", "gae", "standardize"]

ROUNDING = 10  # errors of a mean, in units of the precision


class Advantages(NamedTuple):
    """What a batch of steps is worth.

    Attributes:
        returns: Discounted sums of the rewards to the end of the episode, (T, ...).
        advantages: Generalised advantage estimates, (T, ...).
    """

    returns: Float[Array, "T *e"]
    advantages: Float[Array, "T *e"]


def gae(
    rewards: Any,
    values: Any,
    masks: Any,
    gamma: float = 0.995,
    lam: float = 0.97,
    bootstrap: Any = None,
) -> Advantages:
    """Compute discounted returns and generalised advantage estimates.

    With ``v'`` the value of the next step of the same episode, or the bootstrap value where the episode ends,
    ``delta = r + gamma v' - v``, and ``A = delta + gamma lam A'`` with ``A' = 0`` at an end.

    Args:
        rewards: Rewards, shape (T, ...), time first.
        values: Values of the states in which they were earned, shape (T, ...).
        masks: 0 where an episode ends with the step, else 1, shape (T, ...).
        gamma: Discount, in [0, 1].
        lam: Weight of later steps, in [0, 1].
        bootstrap: What comes after the end of an episode, shape (T, ...): the value of the state after the step, for
            episodes that were cut by a time limit, and 0 for those that truly ended. Default: 0. The last row counts
            as an end.

    Returns:
        Returns and advantages, the latter not standardised.

    Raises:
        ValueError: If the shapes differ, or there are no steps.

    Source:
        Schulman et al., High-dimensional continuous control using generalized advantage estimation, ICLR 2016.
    """
    number = jnp.result_type(float, *(jnp.asarray(part).dtype for part in (rewards, values)))
    rewards, values, masks = (jnp.asarray(part, number) for part in (rewards, values, masks))
    bootstrap = jnp.zeros_like(values) if bootstrap is None else jnp.asarray(bootstrap, number)
    if not rewards.shape == values.shape == masks.shape == bootstrap.shape or not rewards.size:
        shapes = f"{rewards.shape}, {values.shape}, {masks.shape} and {bootstrap.shape}"
        raise ValueError(f"rewards, values, masks and bootstrap must be of one shape and not empty, found {shapes}")
    masks = masks.at[-1].set(0)

    def back(carry: tuple, row: tuple) -> tuple:
        later_return, later_advantage, later_value = carry
        reward, value, mask, after = row
        next_return = jnp.where(mask > 0, later_return, after)
        next_value = jnp.where(mask > 0, later_value, after)
        advantage = reward + gamma * next_value - value + gamma * lam * mask * later_advantage
        found = Advantages(reward + gamma * next_return, advantage)
        return (found.returns, advantage, value), found

    zero = jnp.zeros_like(values[0])
    return jax.lax.scan(back, (zero, zero, zero), (rewards, values, masks, bootstrap), reverse=True)[1]


def standardize(advantages: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Subtract the mean and divide by the standard deviation (with n - 1); equal advantages become zero.

    Args:
        advantages: Any shape.

    Returns:
        Standardised advantages.
    """
    centred = advantages - jnp.mean(advantages)
    spread = jnp.std(advantages, ddof=1)
    # The mean of equal numbers may differ from them by rounding, which must not be blown up to 1.
    differ = spread > ROUNDING * jnp.finfo(advantages.dtype).eps * jnp.max(jnp.abs(advantages))
    return jnp.where(differ, centred / jnp.where(differ, spread, 1), 0)
