"""The pendulum that is to be swung up and balanced, in jax."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

__all__ = ["PendulumJax", "PendulumState"]

MAX_SPEED = 8.0
MAX_TORQUE = 2.0
TIME_STEP = 0.05


class PendulumState(NamedTuple):
    """Where a pendulum is, and how long its episode has lasted.

    Attributes:
        angle: Angle from upright in [-pi, pi).
        speed: Angular velocity.
        steps: Steps taken in the episode.
    """

    angle: Float[Array, "*b"]
    speed: Float[Array, "*b"]
    steps: Int[Array, "*b"]


@dataclass(frozen=True)
class PendulumJax:
    """Gymnasium's ``Pendulum-v1`` as pure functions: equal to it step by step.

    Observations are cosine and sine of the angle from upright, and the angular velocity. The action is a torque in
    [-2, 2]. The reward is -(angle^2 + 0.1 speed^2 + 0.001 torque^2), of the state before the step.

    Attributes:
        g: Gravity, as the argument of ``gymnasium.make``.
        max_episode_steps: Steps of an episode.

    Raises:
        IndexError: If an action or observation has too few axes.

    Source:
        Gymnasium, ``Pendulum-v1``; one of the tasks of Liu et al. (ICLR 2025), experiments.
    """

    g: float = 10.0
    max_episode_steps: int = 200

    @cached_property
    def obs_space(self) -> Box:
        """Space of observations."""
        high = np.array([1.0, 1.0, MAX_SPEED], np.float32)
        return Box(-high, high)

    @cached_property
    def act_space(self) -> Box:
        """Space of torques."""
        return Box(-MAX_TORQUE, MAX_TORQUE, (1,), np.float32)

    def reset(self, key: PRNGKeyArray) -> tuple[Float[Array, "3"], PendulumState]:
        """Start at any angle, with a speed in (-1, 1).

        Args:
            key: Key of the draw, a scalar.

        Returns:
            The first observation and the state.
        """
        start = jnp.array([math.pi, 1.0])
        angle, speed = jax.random.uniform(key, (2,), minval=-start, maxval=start)
        state = PendulumState(angle, speed, jnp.zeros((), int))
        return _observed(state), state

    def step(
        self, key: PRNGKeyArray, state: PendulumState, action: Float[Array, "1"]
    ) -> tuple[Float[Array, "3"], PendulumState, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """Apply a torque for one time step.

        Args:
            key: Not used, a scalar: the pendulum draws nothing.
            state: The state.
            action: The torque, shape (1,), clipped to [-2, 2].

        Returns:
            Observation, state, reward, False (no fall ends an episode), and whether ``max_episode_steps`` are over.
        """
        torque = jnp.clip(action[0], -MAX_TORQUE, MAX_TORQUE)
        angle, speed = _wrapped(state.angle), state.speed
        reward = -(angle**2 + 0.1 * speed**2 + 0.001 * torque**2)
        speed = jnp.clip(speed + (1.5 * self.g * jnp.sin(angle) + 3.0 * torque) * TIME_STEP, -MAX_SPEED, MAX_SPEED)
        after = PendulumState(_wrapped(angle + TIME_STEP * speed), speed, state.steps + 1)
        return _observed(after), after, reward, jnp.zeros((), bool), after.steps >= self.max_episode_steps

    def state_from_obs(self, obs: Float[Array, "*b 3"]) -> PendulumState:
        """Recover states from observations.

        Args:
            obs: Observations, shape (..., 3).

        Returns:
            The states, at the start of an episode.
        """
        return PendulumState(jnp.arctan2(obs[..., 1], obs[..., 0]), obs[..., 2], jnp.zeros(obs.shape[:-1], int))


def _observed(state: PendulumState) -> Float[Array, "3"]:
    return jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.speed])


def _wrapped(angle: Float[Array, ""]) -> Float[Array, ""]:
    """The same angle in [-pi, pi), where single precision is best."""
    return jnp.mod(angle + math.pi, 2 * math.pi) - math.pi
