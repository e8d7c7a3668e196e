"""Several environments of Gymnasium side by side, as the trainers want them."""

from __future__ import annotations

import multiprocessing
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from jaxtyping import Bool, Float

from icl25_pn_gail.envs.gymnasium_source import GymnasiumSource, told_who_failed

__all__ = ["GymnasiumAdapter", "VectorStep"]


class VectorStep(NamedTuple):
    """One step of several environments.

    Attributes:
        obs: What the next actions are chosen from, (E, d): the first observation of a new episode where one ended.
        reward: Rewards, (E,).
        terminated: Whether the episode ended for good, (E,).
        truncated: Whether it was cut, (E,).
        final_obs: What the step led to, before any reset, (E, d); equal to ``obs`` where no episode ended.
    """

    obs: Float[np.ndarray, "E d"]
    reward: Float[np.ndarray, " E"]
    terminated: Bool[np.ndarray, " E"]
    truncated: Bool[np.ndarray, " E"]
    final_obs: Float[np.ndarray, "E d"]


class GymnasiumAdapter:
    """A vector environment of Gymnasium whose episodes restart in the step in which they end.

    Args:
        env: A ``VectorEnv`` made with ``autoreset_mode=AutoresetMode.SAME_STEP``; ``GymnasiumAdapter.make`` makes one
            from an id or a factory. It stays with its owner: ``close`` does not close it.

    Attributes:
        name: Id of the environment, or the name of its class.
        obs_space: Space of the observations of one environment.
        act_space: Space of its actions.
        max_episode_steps: Steps after which episodes are cut; None where no limit is known.
        num_envs: Number of environments, E.

    Raises:
        TypeError: If it is no vector environment.
        ValueError: If it restarts in another step, or its spaces are not vectors or choices.

    Source:
        Gymnasium's vector environments.
    """

    def __init__(self, env: Any) -> None:
        if not isinstance(env, VectorEnv):
            raise TypeError(f"env must be a gymnasium VectorEnv, found {type(env).__name__}; use GymnasiumAdapter.make")
        self._take(env, GymnasiumSource(env), owned=False)

    @classmethod
    def make(cls, env: Any, num_envs: int | None = None, asynchronous: bool = False) -> Self:
        """Make several environments.

        Args:
            env: An id, a factory, an environment or a vector environment, as ``GymnasiumSource`` takes them, or such a
                source.
            num_envs: How many; None stands for one, or for as many as a vector environment has.
            asynchronous: Give each its own process, which pays for slow simulators. The script that does so must guard
                its main part with ``if __name__ == "__main__":``, and what makes the environment must be importable or
                picklable by cloudpickle.

        Returns:
            The environments.

        Raises:
            TypeError: If ``env`` is nothing of the kind.
            ValueError: If there is no such environment, its spaces are not vectors or choices, or there cannot be
                ``num_envs`` of it.
            ImportError: If it needs a library that is not installed.
            RuntimeError: If the processes end before they begin.
        """
        source = env if isinstance(env, GymnasiumSource) else GymnasiumSource(env)
        adapter = cls.__new__(cls)
        if isinstance(source.env, VectorEnv):
            if num_envs not in (None, source.env.num_envs):
                raise ValueError(f"{source.name} has {source.env.num_envs} environments, and num_envs is {num_envs}")
            adapter._take(source.env, source, owned=False)
            return adapter
        number = 1 if num_envs is None else num_envs
        if number < 1:
            raise ValueError(f"num_envs must be at least 1, found {number}")
        factories = source.several(number)
        if not asynchronous:
            adapter._take(SyncVectorEnv(factories, autoreset_mode=AutoresetMode.SAME_STEP), source, owned=True)
            return adapter
        if source.is_example:
            raise ValueError(f"{source.name} cannot be made anew in a process of its own: give an id or a factory")
        # Forked copies of a process that runs jax may hang, so they start from a clean one.
        methods = multiprocessing.get_all_start_methods()
        context = "forkserver" if "forkserver" in methods else "spawn"
        try:
            vector = AsyncVectorEnv(factories, context=context, autoreset_mode=AutoresetMode.SAME_STEP)
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            raise RuntimeError(
                f'the processes of {source.name} ended at once: guard the script by if __name__ == "__main__":, and '
                "see that what makes the environment can be imported"
            ) from error
        adapter._take(vector, source, owned=True)
        return adapter

    def _take(self, vector: VectorEnv, source: GymnasiumSource, *, owned: bool) -> None:
        mode = vector.metadata.get("autoreset_mode")
        if mode != AutoresetMode.SAME_STEP:
            found = f"AutoresetMode.{mode.name}" if isinstance(mode, AutoresetMode) else repr(mode)
            raise ValueError(
                f"{source.name} must restart episodes in the step in which they end: make it with "
                f"autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP, found {found}"
            )
        self.vector, self._owned = vector, owned
        self.name = source.name
        self.obs_space, self.act_space = source.obs_space, source.act_space
        self.max_episode_steps = source.max_episode_steps
        self.num_envs = vector.num_envs

    def reset(self, seed: int) -> Float[np.ndarray, "E d"]:
        """Start new episodes everywhere.

        Args:
            seed: Determines the seed of each environment, so that those of neighbouring seeds have nothing in common.

        Returns:
            The first observations.

        Raises:
            ValueError: If the seed is negative, or the environment fails or gives what is not finite.
        """
        if seed < 0:
            raise ValueError(f"seed must not be negative, found {seed}")
        drawn = [int(value) for value in np.random.SeedSequence(seed).generate_state(self.num_envs)]
        # Those that are vectors by themselves take one seed.
        seeds: Any = drawn if isinstance(self.vector.unwrapped, SyncVectorEnv | AsyncVectorEnv) else drawn[0]
        with told_who_failed(self.name, "reset"):
            obs, _ = self.vector.reset(seed=seeds)
        return self._finite(np.asarray(obs, np.float32), "reset")

    def step(self, actions: Any) -> VectorStep:
        """Take one step everywhere; ended episodes are followed by new ones.

        Args:
            actions: Actions within their bounds, shape (E, a), or whole numbers (E,) where they are discrete.

        Returns:
            What the step led to.

        Raises:
            ValueError: If the actions have another shape, or are no whole numbers where they are discrete; or if the
                environment fails or gives what is not finite.
        """
        actions = self._checked(actions)
        with told_who_failed(self.name, "step"):
            obs, reward, terminated, truncated, infos = self.vector.step(actions)
        obs = np.asarray(obs, np.float32)
        final_obs = obs
        if (ended := terminated | truncated).any():
            final_obs = obs.copy()
            for i in np.flatnonzero(ended):
                final_obs[i] = infos["final_obs"][i]
        reward = np.asarray(reward, float)
        if not np.isfinite(reward).all():
            raise ValueError(f"{self.name} gave a reward of {reward[~np.isfinite(reward)][0]} in step()")
        self._finite(final_obs, "step")
        return VectorStep(self._finite(obs, "step"), reward, terminated, truncated, final_obs)

    def _finite(self, obs: Float[np.ndarray, "E d"], where: str) -> Float[np.ndarray, "E d"]:
        """Refuse observations with which nothing can go on."""
        if not np.isfinite(obs).all():
            i, column = np.argwhere(~np.isfinite(obs))[0]
            raise ValueError(f"{self.name} gave {obs[i, column]} as observation {column} in {where}()")
        return obs

    def _checked(self, actions: Any) -> np.ndarray:
        found, expected = np.asarray(actions), (self.num_envs, *(self.act_space.shape or ()))
        if found.shape != expected:
            raise ValueError(f"actions of {self.name} must have shape {expected}, found {found.shape}")
        if isinstance(self.act_space, Discrete) and not np.issubdtype(found.dtype, np.integer):
            raise ValueError(f"actions of {self.name} must be whole numbers, found {found.dtype}")
        return found.astype(self.act_space.dtype)

    def close(self) -> None:
        """Close the environments and their processes, except those that were given."""
        if self._owned and not self.vector.closed:
            self.vector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
