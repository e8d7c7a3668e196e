"""Environments by name, in pure jax where the package has them so."""

from __future__ import annotations

import difflib
import importlib
import sys
from pathlib import Path
from typing import Any

from icl25_pn_gail.envs.cart_pole import CartPoleJax
from icl25_pn_gail.envs.gymnasium_adapter import GymnasiumAdapter
from icl25_pn_gail.envs.gymnasium_source import GymnasiumSource, told_in_one_line
from icl25_pn_gail.envs.pendulum import PendulumJax
from icl25_pn_gail.envs.protocol import JaxEnv
from icl25_pn_gail.envs.spaces import checked_spaces
from icl25_pn_gail.envs.two_goals import TwoGoals

__all__ = ["env_from_module", "env_name", "make_env"]

OWN = {"TwoGoals": TwoGoals, "PendulumJax": PendulumJax, "CartPoleJax": CartPoleJax}
SAME_AS = {"Pendulum-v1": PendulumJax, "CartPole-v1": CartPoleJax}
BACKENDS = ("auto", "jax", "gymnasium")


def make_env(env: Any, backend: str = "auto") -> JaxEnv | GymnasiumSource:
    """Find the environment that a name or an object stands for.

    Args:
        env: ``"TwoGoals"``, ``"PendulumJax"``, ``"CartPoleJax"`` or an id of Gymnasium; a ``JaxEnv``; or what
            ``GymnasiumSource`` takes. A function without arguments may make either kind.
        backend: ``"auto"``: pure jax where the package has an environment that equals Gymnasium's; ``"jax"``: that or
            an error; ``"gymnasium"``: Gymnasium's own.

    Returns:
        An environment in jax, or a source of environments of Gymnasium.

    Raises:
        TypeError: If ``env`` is nothing of the kind, or an environment in jax that is not hashable.
        ValueError: If there is no such environment or backend, its spaces are not vectors or choices, or it is not to
            be had with that backend.
        ImportError: If it needs a library that is not installed.

    Source:
        Liu et al. (ICLR 2025), experiments, for the tasks.

    Example:
        >>> make_env("Pendulum-v1")
        PendulumJax(g=10.0, max_episode_steps=200)
        >>> make_env("Pendulum-v1", backend="gymnasium").name
        'Pendulum-v1'
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, found {backend!r}")
    found = _made(env, backend)
    kind = "gymnasium" if isinstance(found, GymnasiumSource) else "jax"
    if backend not in ("auto", kind):
        hint = f"; those in jax are {', '.join([*OWN, *SAME_AS])}" if backend == "jax" else ""
        raise ValueError(f"{env_name(found)} is not to be had with backend={backend!r}{hint}")
    return found


def env_from_module(name: str) -> Any:
    """Import what ``module:attribute`` names, from the current folder too, which stays on the path of imports.

    Args:
        name: For instance ``"my_env:make"``, a function in ``my_env.py`` that makes an environment.

    Returns:
        The function, class or object, as ``make_env`` takes it.

    Raises:
        ValueError: If the name has another form, or there is no such module or attribute.

    Source:
        The form is that of Python's entry points.
    """
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"expected module:attribute, such as my_env:make, found {name!r}")
    # It stays: processes of the environments look for the module on the same path.
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise ValueError(f"{name}: module {module} needs {error.name}, which is not installed") from error
        raise ValueError(f"{name}: there is no module {module}, here or installed") from error
    except Exception as error:
        raise ValueError(f"{name}: module {module} fails with {type(error).__name__}: {error}") from error
    if not hasattr(found, attribute):
        public = [key for key in vars(found) if not key.startswith("_")]
        raise ValueError(f"{name}: module {module} has no {attribute}; it has {', '.join(public) or 'nothing'}")
    return getattr(found, attribute)


def env_name(env: Any) -> str:
    """Say what an environment is called.

    Args:
        env: An environment in jax, or a source of Gymnasium's.

    Returns:
        Its ``name``, or the name of its class.

    Source:
        For tables and files; not part of the paper (Liu et al., 2025).
    """
    return getattr(env, "name", type(env).__name__)


def _made(env: Any, backend: str) -> JaxEnv | GymnasiumSource:
    if isinstance(env, GymnasiumSource):
        return env
    if isinstance(env, GymnasiumAdapter):
        return GymnasiumSource(env.vector)
    if isinstance(env, str) and env in OWN:
        return OWN[env]()
    if isinstance(env, str) and env in SAME_AS and backend != "gymnasium":
        return SAME_AS[env]()
    if _is_jax(env):
        return _checked(env)
    if callable(env):
        with told_in_one_line(getattr(env, "__name__", "the factory"), made_by_function=True):
            made = env()
        if _is_jax(made):
            return _checked(made)
        if hasattr(made, "close"):
            made.close()
    try:
        return GymnasiumSource(env)
    except ValueError as error:
        if isinstance(env, str) and (close := difflib.get_close_matches(env, OWN, n=1)):
            raise ValueError(f"{error} Or {close[0]}, of this package?") from error
        raise


def _is_jax(env: Any) -> bool:
    return isinstance(env, JaxEnv) and not isinstance(env, type | GymnasiumAdapter)


def _checked(env: JaxEnv) -> JaxEnv:
    name = env_name(env)
    checked_spaces(env.obs_space, env.act_space, name)
    if env.max_episode_steps < 1:
        raise ValueError(f"{name}: max_episode_steps must be at least 1, found {env.max_episode_steps}")
    try:
        hash(env)
    except TypeError as error:
        raise TypeError(
            f"{name} must be hashable, since compiled functions take it as a static argument: make it a frozen "
            "dataclass whose fields are numbers and tuples"
        ) from error
    return env
