"""A point in the plane and two places it may go to, in jax: the smallest case of demonstrations of two kinds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

__all__ = ["TwoGoals", "TwoGoalsState"]

START = (0.0, -1.0)
START_SCALE = 0.05
STEP_LENGTH = 0.1


class TwoGoalsState(NamedTuple):
    """Where the point is, and how long its episode has lasted.

    Attributes:
        position: The point, (..., 2).
        steps: Steps taken in the episode.
    """

    position: Float[Array, "*b 2"]
    steps: Int[Array, "*b"]


@dataclass(frozen=True)
class TwoGoals:
    """A point that starts near (0, -1) and is rewarded for being near ``goal_a``; ``goal_b`` is only a distraction.

    The observation is the position s, the action a velocity in [-1, 1]^2, s' = s + 0.1 a and the reward -|s' - goal_a|.

    Attributes:
        goal_a: The place that is rewarded.
        goal_b: The place that bad demonstrations go to; the dynamics and the reward do not know it.
        max_episode_steps: Steps of an episode.

    Raises:
        TypeError: If an action has a shape that does not fit a position.

    Source:
        Made for this package, to show the optimal generator of Liu et al. (ICLR 2025) in seconds.
    """

    goal_a: tuple[float, float] = (1.0, 0.6)
    goal_b: tuple[float, float] = (-1.0, 0.6)
    max_episode_steps: int = 30

    @cached_property
    def obs_space(self) -> Box:
        """Space of positions: the plane."""
        return Box(-np.inf, np.inf, (2,), np.float32)

    @cached_property
    def act_space(self) -> Box:
        """Space of velocities."""
        return Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, key: PRNGKeyArray) -> tuple[Float[Array, "2"], TwoGoalsState]:
        """Start near (0, -1), with a standard deviation of 0.05 along each axis.

        Args:
            key: Key of the draw, a scalar.

        Returns:
            The first observation and the state.
        """
        position = jnp.array(START) + START_SCALE * jax.random.normal(key, (2,))
        return position, TwoGoalsState(position, jnp.zeros((), int))

    def step(
        self, key: PRNGKeyArray, state: TwoGoalsState, action: Float[Array, "2"]
    ) -> tuple[Float[Array, "2"], TwoGoalsState, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """Move by a tenth of the action.

        Args:
            key: Not used, a scalar: moves are exact.
            state: The state.
            action: The velocity, shape (2,), each entry clipped to [-1, 1].

        Returns:
            Observation, state, reward, False (no goal ends an episode), and whether ``max_episode_steps`` are over.
        """
        position = state.position + STEP_LENGTH * jnp.clip(action, -1.0, 1.0)
        after = TwoGoalsState(position, state.steps + 1)
        reward = -jnp.linalg.norm(position - jnp.array(self.goal_a))
        return position, after, reward, jnp.zeros((), bool), after.steps >= self.max_episode_steps

    def state_from_obs(self, obs: Float[Array, "*b 2"]) -> TwoGoalsState:
        """Recover states from observations.

        Args:
            obs: Observations, shape (..., 2).

        Returns:
            The states, at the start of an episode.
        """
        return TwoGoalsState(obs, jnp.zeros(obs.shape[:-1], int))
