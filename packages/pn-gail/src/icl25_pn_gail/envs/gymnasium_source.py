"""Environments of Gymnasium by id, by factory or by example: what they are, and how more of them are made."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import DependencyNotInstalled
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import TimeLimit

from icl25_pn_gail.envs.spaces import checked_spaces

__all__ = ["GymnasiumSource", "horizon_of", "told_in_one_line", "told_who_failed"]


class GymnasiumSource:
    """Where environments of Gymnasium come from.

    One environment is made on construction, to see what it is, and closed again.

    Args:
        env: An id such as ``"Swimmer-v5"`` or ``"module:Env-v0"``, an ``EnvSpec``, a function without arguments that
            makes an environment, an environment or a vector environment. An environment with a spec is made anew from
            it, with those wrappers that the spec records; changes to its attributes are not seen. One without a spec,
            or with a wrapper that cannot be made anew, is used itself, alone.

    Attributes:
        env: What was given.
        name: Id of the environment, or the name of its class.
        obs_space: Space of the observations of one environment.
        act_space: Space of its actions.
        max_episode_steps: Steps after which episodes are cut; None where no limit is known.
        settings: Its specification with all arguments, as JSON where there is one; else its name.

    Raises:
        TypeError: If ``env`` is nothing of the kind.
        ValueError: If there is no such environment, or its spaces are not vectors or choices.
        ImportError: If the environment needs a library that is not installed.

    Source:
        Gymnasium; Liu et al. (ICLR 2025), experiments, for the tasks.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self._example: gymnasium.Env | None = None
        self._factory: Callable[..., gymnasium.Env] | None = None
        if isinstance(env, VectorEnv):
            spec, spaces = env.spec, (env.single_observation_space, env.single_action_space)
            self.name = spec.id if spec else type(env.unwrapped).__name__
            self.max_episode_steps = _vector_horizon(env)
        else:
            seen = self._seen(env)
            self.name = seen.spec.id if seen.spec else type(seen.unwrapped).__name__
            self.max_episode_steps = horizon_of(seen)
            spaces = seen.observation_space, seen.action_space
            if seen is not self._example:
                seen.close()
            spec = seen.spec
        self.settings = _spec_text(spec) or self.name
        self.obs_space, self.act_space = checked_spaces(*spaces, self.name)

    def single(self, **options: Any) -> gymnasium.Env:
        """Make one environment.

        Args:
            **options: Arguments of ``gymnasium.make`` or of the factory, such as ``render_mode="rgb_array"``.

        Returns:
            The environment; the one that was given where it cannot be made anew.

        Raises:
            ValueError: If the environment that was given cannot be made anew with options, or is a vector.
        """
        if self._factory is not None:
            with told_in_one_line(self.name):
                return self._factory(**options)
        if self._example is None:
            raise ValueError(f"{self.name} is a vector environment; give its id or a factory to make one alone")
        if options:
            raise ValueError(f"{self.name} cannot be made anew with {', '.join(options)}: give an id or a factory")
        return self._example

    def several(self, n: int) -> list[Callable[[], gymnasium.Env]]:
        """Return functions that make one environment each.

        Args:
            n: How many are needed.

        Returns:
            The functions.

        Raises:
            ValueError: If several are needed of an environment that cannot be made anew, or of a vector.
        """
        if self._factory is not None:
            return [self._factory] * n
        if self._example is None:
            raise ValueError(f"{self.name} is a vector environment already")
        if n > 1:
            raise ValueError(
                f"{self.name} is one environment that cannot be made anew from a spec, and {n} are needed; "
                "give a function without arguments that makes one, or set num_envs=1"
            )
        example = self._example
        return [lambda: _Lent(example)]

    @property
    def is_example(self) -> bool:
        """Whether the environment is the one that was given, which stays with its owner."""
        return self._factory is None

    def _seen(self, env: Any) -> gymnasium.Env:
        """Set up how environments are made, and return one."""
        if isinstance(env, str):
            with told_in_one_line(env, known_by_name=True):
                seen = gymnasium.make(env)
            # Of the spec: a process of its own has not registered what this one has.
            self._factory = partial(gymnasium.make, seen.spec or env)
            return seen
        if isinstance(env, gymnasium.Env):
            wrappers = env.spec.additional_wrappers if env.spec else ()
            if env.spec is None or any(wrapper.kwargs is None for wrapper in wrappers):
                self._example = env
                return env
            env = env.spec
        if isinstance(env, EnvSpec):
            name, self._factory = env.id, partial(gymnasium.make, env)
        elif callable(env):
            name, self._factory = getattr(env, "__name__", "the factory"), env
        else:
            raise TypeError(
                "env must be an id, a function that makes a gymnasium.Env, a gymnasium.Env or VectorEnv, "
                f"found {type(env).__name__}"
            )
        with told_in_one_line(name, made_by_function=not isinstance(env, EnvSpec)):
            seen = self._factory()
        if not isinstance(seen, gymnasium.Env):
            raise ValueError(f"{name} must make a gymnasium.Env, found {type(seen).__name__}")
        return seen


class _Lent(gymnasium.Wrapper):
    """An environment that somebody else closes."""

    def close(self) -> None:
        """Leave it open."""


def horizon_of(env: gymnasium.Env) -> int | None:
    """Find after how many steps episodes are cut.

    Args:
        env: The environment, with its wrappers.

    Returns:
        The shortest limit; None where there is none.

    Source:
        Gymnasium's ``TimeLimit``.
    """
    limits, spec, wrapped = [], env.spec, env
    while isinstance(wrapped, gymnasium.Wrapper):
        if isinstance(wrapped, TimeLimit):
            limits.append(wrapped._max_episode_steps)
        wrapped = wrapped.env
    return min(limits, default=spec.max_episode_steps if spec else None)


def _vector_horizon(vector: VectorEnv) -> int | None:
    if vector.spec:
        return vector.spec.max_episode_steps
    if envs := getattr(vector.unwrapped, "envs", None):
        return horizon_of(envs[0])
    return None


@contextmanager
def told_in_one_line(name: str, *, known_by_name: bool = False, made_by_function: bool = False) -> Generator[None]:
    """Turn what goes wrong while an environment is made into one line that says what to do.

    Args:
        name: Name of the environment, for the line.
        known_by_name: Whether it is made from its id alone, so that nothing else than the id can be at fault.
        made_by_function: Whether a function makes it, which is named where it fails.

    Raises:
        ValueError: If there is no such environment, or the function fails.
        ImportError: If it needs a library that is not installed.

    Source:
        Errors of Gymnasium.
    """
    try:
        yield
    except DependencyNotInstalled as error:
        if "mujoco" in str(error).lower():
            raise ImportError(f'{name} needs MuJoCo: pip install "icl25-pn-gail[mujoco]"') from error
        raise ImportError(f"{name}: {_line(error)}") from error
    except gymnasium.error.Error as error:
        raise ValueError(f"{name}: {_line(error)}") from error
    except ImportError as error:
        if not known_by_name:
            raise
        hint = f"; try {name.partition('-v')[0]}-v5" if "mujoco v2 and v3" in str(error) else ""
        raise ValueError(f"{name}: {_line(error).rstrip('.')}{hint}") from error
    except Exception as error:
        if not made_by_function:
            raise
        raise ValueError(f"{name}() failed to make an environment: {type(error).__name__}: {_line(error)}") from error


@contextmanager
def told_who_failed(name: str, what: str) -> Generator[None]:
    """Name the environment, and what of it was called, where it fails.

    Args:
        name: Name of the environment.
        what: What is called, such as ``step``.

    Raises:
        ValueError: If it raises anything.

    Source:
        This package's.
    """
    try:
        yield
    except Exception as error:
        raise ValueError(f"{name} failed in {what}(): {type(error).__name__}: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _spec_text(spec: Any) -> str | None:
    """A specification in words that are the same in every process; None where it has none."""
    try:
        return None if spec is None else spec.to_json()
    except (TypeError, ValueError):  # made of functions or objects
        return None
