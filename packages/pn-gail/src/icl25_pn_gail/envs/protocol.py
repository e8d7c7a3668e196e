"""What an environment in pure jax must offer."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from gymnasium.spaces import Box, Discrete
from jaxtyping import Array, Bool, Float, PRNGKeyArray

__all__ = ["JaxEnv"]


@runtime_checkable
class JaxEnv(Protocol):
    """An environment whose episodes compile: pure functions of keys and arrays, which ``vmap`` and ``scan`` accept.

    There is no automatic reset. Instances are arguments of compiled functions and must be hashable: a frozen dataclass
    whose fields are numbers and tuples is. An environment of your own needs these five members and no base class.

    Raises:
        TypeError: From jax, if shapes do not fit; other errors as the environment likes.

    Example:
        >>> import jax
        >>> from icl25_pn_gail.envs import PendulumJax
        >>> env = PendulumJax()
        >>> obs, state = env.reset(jax.random.key(0))
        >>> obs, state, reward, terminated, truncated = env.step(jax.random.key(1), state, jax.numpy.array([0.5]))
        >>> obs.shape, bool(truncated)
        ((3,), False)
    """

    @property
    def obs_space(self) -> Box:
        """Space of observations, one-dimensional."""

    @property
    def act_space(self) -> Box | Discrete:
        """Space of actions, one-dimensional or discrete from 0 on."""

    @property
    def max_episode_steps(self) -> int:
        """Number of steps after which an episode is cut."""

    def reset(self, key: PRNGKeyArray) -> tuple[Float[Array, " d"], Any]:
        """Start an episode.

        Args:
            key: Key of the draw of the first state, a scalar.

        Returns:
            The first observation and the state, a pytree of arrays that counts its own steps.
        """

    def step(
        self, key: PRNGKeyArray, state: Any, action: Array
    ) -> tuple[Float[Array, " d"], Any, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """Take one step.

        Args:
            key: Key of the draws of the step, a scalar.
            state: The state.
            action: The action, shape (a,) or () where actions are discrete; clipped to its bounds.

        Returns:
            The next observation, the next state, the reward, whether the episode ended for good, and whether it was
            cut by ``max_episode_steps``.
        """
