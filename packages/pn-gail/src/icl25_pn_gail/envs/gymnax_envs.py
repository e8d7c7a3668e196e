"""Environments of gymnax as those of this package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from icl25_pn_gail.envs.spaces import checked_spaces

__all__ = ["GymnaxEnv", "from_gymnax"]


@dataclass(frozen=True, eq=False)
class GymnaxEnv:
    """An environment of gymnax; made by ``from_gymnax``.

    Attributes:
        env: The environment of gymnax.
        params: Its parameters.
        obs_space: Space of observations.
        act_space: Space of actions.
        max_episode_steps: Steps after which an episode is cut.

    Raises:
        TypeError: From jax, if shapes do not fit; other errors as the environment likes.
    """

    env: Any
    params: Any
    obs_space: Box
    act_space: Box | Discrete
    max_episode_steps: int

    @property
    def name(self) -> str:
        """Name that gymnax has for it."""
        return self.env.name

    def reset(self, key: PRNGKeyArray) -> tuple[Float[Array, " d"], Any]:
        """Start an episode.

        Args:
            key: Key of the draw, a scalar.

        Returns:
            The first observation and the state.
        """
        obs, state = self.env.reset_env(key, self.params)
        return obs.astype(float), state

    def step(
        self, key: PRNGKeyArray, state: Any, action: Array
    ) -> tuple[Float[Array, " d"], Any, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """Take one step.

        Args:
            key: Key of the draws of the step, a scalar.
            state: The state.
            action: The action, shape (a,) or () where actions are discrete; clipped to its bounds.

        Returns:
            Observation, state, reward, whether the episode ended for good, and whether it was cut.
        """
        if isinstance(self.act_space, Box):
            action = jnp.clip(action, self.act_space.low, self.act_space.high)
        obs, after, reward, terminated, _ = self.env.step_env(key, state, action, self.params)
        truncated = jnp.asarray(self.env.is_truncated(after, self.params))
        return obs.astype(float), after, jnp.asarray(reward, float), jnp.asarray(terminated), truncated


def from_gymnax(env: Any, params: Any = None) -> GymnaxEnv:
    """Turn an environment of gymnax 1.0 or later into one that compiles with the methods here.

    Args:
        env: The environment, as ``gymnax.make`` returns it.
        params: Its parameters; None stands for ``env.default_params``.

    Returns:
        The environment.

    Raises:
        TypeError: If it lacks a method of gymnax 1.0.
        ValueError: If its spaces are not vectors or choices.

    Source:
        gymnax (Lange, 2022).

    Example:
        ``PNGAIL(from_gymnax(*gymnax.make("Pendulum-v1")), demos)``
    """
    needed = ("reset_env", "step_env", "is_truncated", "observation_space", "action_space")
    if missing := [name for name in needed if not hasattr(env, name)]:
        raise TypeError(f"env must be an environment of gymnax 1.0 or later, {type(env).__name__} has no {missing[0]}")
    params = env.default_params if params is None else params
    spaces = (_space(space(params)) for space in (env.observation_space, env.action_space))
    obs_space, act_space = checked_spaces(*spaces, env.name)
    return GymnaxEnv(env, params, obs_space, act_space, int(params.max_steps_in_episode))


def _space(space: Any) -> Any:
    """A space of gymnax as one of Gymnasium; other kinds as they are, to be refused."""
    if hasattr(space, "n"):
        return Discrete(int(space.n))
    if hasattr(space, "low") and hasattr(space, "high"):
        low, high = (np.broadcast_to(np.asarray(bound), space.shape) for bound in (space.low, space.high))
        dtype = np.dtype(space.dtype).type
        return Box(low.astype(dtype), high.astype(dtype), dtype=dtype)
    return space
