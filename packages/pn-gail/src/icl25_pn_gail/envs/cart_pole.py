"""The cart that is pushed left or right so that its pole stays up, in jax."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

__all__ = ["CartPoleJax", "CartPoleState"]

GRAVITY = 9.8
CART_MASS = 1.0
POLE_MASS = 0.1
HALF_LENGTH = 0.5
FORCE = 10.0
TIME_STEP = 0.02
MAX_ANGLE = math.radians(12)
MAX_POSITION = 2.4
TOTAL_MASS = CART_MASS + POLE_MASS


class CartPoleState(NamedTuple):
    """Where cart and pole are, and how long their episode has lasted.

    Attributes:
        values: Position and speed of the cart, angle and angular velocity of the pole, (..., 4).
        steps: Steps taken in the episode.
    """

    values: Float[Array, "*b 4"]
    steps: Int[Array, "*b"]


@dataclass(frozen=True)
class CartPoleJax:
    """Gymnasium's ``CartPole-v1`` as pure functions: equal to it step by step.

    Observations are position and speed of the cart, angle and angular velocity of the pole. Action 0 pushes to the
    left, 1 to the right. Every step is rewarded with 1 until the pole tilts by 12 degrees or the cart leaves.

    Attributes:
        max_episode_steps: Steps after which an episode is cut.

    Raises:
        ValueError: If a state has not four values.

    Source:
        Gymnasium, ``CartPole-v1``; no task of the paper, but the smallest with discrete actions and early ends.
    """

    max_episode_steps: int = 500

    @cached_property
    def obs_space(self) -> Box:
        """Space of observations."""
        high = np.array([2 * MAX_POSITION, np.inf, 2 * MAX_ANGLE, np.inf], np.float32)
        return Box(-high, high)

    @cached_property
    def act_space(self) -> Discrete:
        """Left and right."""
        return Discrete(2)

    def reset(self, key: PRNGKeyArray) -> tuple[Float[Array, "4"], CartPoleState]:
        """Start almost at rest: each number is drawn from (-0.05, 0.05).

        Args:
            key: Key of the draw, a scalar.

        Returns:
            The first observation and the state.
        """
        values = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
        return values, CartPoleState(values, jnp.zeros((), int))

    def step(
        self, key: PRNGKeyArray, state: CartPoleState, action: Int[Array, ""]
    ) -> tuple[Float[Array, "4"], CartPoleState, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """Push the cart for one time step.

        Args:
            key: Not used, a scalar: pushes are exact.
            state: The state.
            action: 0 or 1, shape ().

        Returns:
            Observation, state, the reward 1, whether the pole fell or the cart left, and whether
            ``max_episode_steps`` are over.
        """
        x, speed, angle, spin = state.values
        force = jnp.where(action == 1, FORCE, -FORCE)
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        push = (force + POLE_MASS * HALF_LENGTH * spin**2 * sin) / TOTAL_MASS
        spin_rate = (GRAVITY * sin - cos * push) / (HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cos**2 / TOTAL_MASS))
        speed_rate = push - POLE_MASS * HALF_LENGTH * spin_rate * cos / TOTAL_MASS
        values = state.values + TIME_STEP * jnp.stack([speed, speed_rate, spin, spin_rate])
        after = CartPoleState(values, state.steps + 1)
        terminated = (jnp.abs(values[0]) > MAX_POSITION) | (jnp.abs(values[2]) > MAX_ANGLE)
        return values, after, jnp.ones_like(x), terminated, after.steps >= self.max_episode_steps

    def state_from_obs(self, obs: Float[Array, "*b 4"]) -> CartPoleState:
        """Recover states from observations.

        Args:
            obs: Observations, shape (..., 4).

        Returns:
            The states, at the start of an episode.
        """
        return CartPoleState(obs, jnp.zeros(obs.shape[:-1], int))
