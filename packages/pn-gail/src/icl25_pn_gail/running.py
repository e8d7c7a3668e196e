"""Drive training through its iterations: compiled in chunks for jax environments, step by step for Gymnasium."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from gymnasium.vector import VectorEnv
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from icl25_pn_gail.config import rollout_shape
from icl25_pn_gail.envs import GymnasiumAdapter, GymnasiumSource
from icl25_pn_gail.evaluation import EvalResult
from icl25_pn_gail.rollout import Batch, Scaler, collect_gymnasium, episode_returns
from icl25_pn_gail.training import DemoSet, Metrics, Trainer, TrainState

if TYPE_CHECKING:
    from icl25_pn_gail.envs import JaxEnv

__all__ = [
    "GymnasiumRunner",
    "JaxRunner",
    "Keys",
    "computing_devices",
    "default_device",
    "history_rows",
    "short_seed",
    "stack",
]

EVALUATION = 2**31 - 1  # folded into the key of a run for evaluations
MOST_PROGRAMS = 16  # that are kept for learners of the same kind


def short_seed(seed: int) -> int:
    """Return a seed of 32 bits: the seed itself where it is one, else a hash of it."""
    return seed if seed < 2**32 else int(np.random.SeedSequence(seed).generate_state(1)[0])


class Keys(NamedTuple):
    """Sources of randomness of a run.

    Attributes:
        init: Key of the networks.
        train: Key of the iterations.
        seed: Seed of environments that are not jax.
    """

    init: Any
    train: Any
    seed: Any

    @classmethod
    def of(cls, seed: int) -> Keys:
        """Derive all keys from one seed.

        Args:
            seed: The seed, from 0 to 2^63 - 1; those from 2^32 on are hashed to 32 bits.

        Returns:
            The keys.

        Raises:
            ValueError: If the seed is out of range.
        """
        if not 0 <= seed < 2**63:
            raise ValueError(f"seed must be from 0 to 2^63 - 1, found {seed}")
        seed = short_seed(seed)
        return cls(*jax.random.split(jax.random.key(seed)), jnp.asarray(seed, jnp.uint32))


def stack(parts: list[Any]) -> Any:
    """Stack equal pytrees along a new first axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)


def default_device() -> Any:
    """Return what ``jax.default_device`` was set to in this thread; None where it was not."""
    return getattr(jax.config, "jax_default_device", None)


def computing_devices() -> list[Any]:
    """Return the devices of the kind that jax computes on by default, as ``jax.default_device`` says."""
    chosen = default_device()
    return jax.local_devices(backend=getattr(chosen, "platform", chosen))


class JaxRunner:
    """Training in a pure-jax environment; with ``n_runs`` several runs at once, spread over the devices.

    Args:
        env: The environment.
        trainer: The functions of training.
        n_runs: Number of runs that are stacked along the first axis of all arrays (see ``place``); None for one that
            is not.
    """

    def __init__(self, env: JaxEnv, trainer: Trainer, n_runs: int | None = None) -> None:
        self.env, self.trainer = env, trainer
        shape = rollout_shape(trainer.config, env.max_episode_steps)
        self.steps_per_iteration = shape.n_steps * shape.n_envs
        devices = () if n_runs is None else tuple(computing_devices()[:n_runs])
        programs = _jax_programs(env, _Recipe.of(trainer), devices)  # ty: ignore[invalid-argument-type]
        self._advance, self._evaluate, self._mesh = programs

    def place(self, parts: list[Any]) -> Any:
        """Stack what belongs to the runs, and lay it over the devices.

        Args:
            parts: A pytree for each run.

        Returns:
            One pytree; where the runs cannot be divided evenly, the last one is repeated at the end.
        """
        if self._mesh is None:
            return stack(parts)
        tree = stack(parts + parts[-1:] * (-len(parts) % self._mesh.size))
        return jax.device_put(tree, NamedSharding(self._mesh, PartitionSpec("runs")))

    def advance(self, state: TrainState, demos: DemoSet, keys: Keys, iterations: range) -> tuple[TrainState, Metrics]:
        """Do some iterations.

        Args:
            state: Where to go on from.
            demos: The demonstrations.
            keys: Keys of the run.
            iterations: Numbers of the iterations.

        Returns:
            The state after, and the metrics of each iteration.
        """
        return self._advance(state, demos, keys.train, jnp.arange(iterations.start, iterations.stop))

    def evaluate(
        self, policy: Any, scaler: Scaler, keys: Keys, iteration: int, n_episodes: int, deterministic: bool = True
    ) -> EvalResult:
        """Roll out whole episodes.

        Args:
            policy: Parameters of the policy.
            scaler: Normalisation of observations.
            keys: Keys of the run.
            iteration: Number by which evaluations differ.
            n_episodes: Number of episodes.
            deterministic: Take the most likely action.

        Returns:
            Returns and lengths; with stacked runs these have the runs as first axis.
        """
        fold = lambda key: jax.random.fold_in(jax.random.fold_in(key, EVALUATION), iteration)  # noqa: E731
        key = fold(keys.train) if keys.train.ndim == 0 else jax.vmap(fold)(keys.train)
        found = self._evaluate(policy, scaler, key, n_episodes, deterministic)
        return EvalResult(*map(np.asarray, found))

    def close(self) -> None:
        """There is nothing to close."""


class GymnasiumRunner:
    """Training in environments of Gymnasium: numpy acts, compiled code learns.

    Args:
        source: Where environments come from.
        trainer: The functions of training.
    """

    def __init__(self, source: GymnasiumSource, trainer: Trainer) -> None:
        self.source, self.trainer = source, trainer
        # More environments than were given cannot be had of a vector, nor of one that cannot be made anew.
        vector = isinstance(source.env, VectorEnv)
        self._available = source.env.num_envs if vector else 1 if source.is_example else None
        self._shape = rollout_shape(trainer.config, source.max_episode_steps, self._available)
        self.steps_per_iteration = self._shape.n_steps * self._shape.n_envs
        self._update = _update_program(_Recipe.of(trainer))
        self._envs: dict[int, Any] = {}

    def advance(self, state: TrainState, demos: DemoSet, keys: Keys, iterations: range) -> tuple[TrainState, Metrics]:
        """Do some iterations; as ``JaxRunner.advance``."""
        metrics = []
        scaler = _numpy(demos.scaler)
        for iteration in iterations:
            batch = self._collect(
                state.policy, scaler, (int(keys.seed), 0, iteration), self._shape.n_envs, self._shape.n_steps
            )
            key = jax.random.split(jax.random.fold_in(keys.train, iteration))[1]
            state, found = self._update(state, demos, batch, jnp.asarray(iteration), key)
            metrics.append(found)
        return state, stack(metrics)

    def evaluate(
        self, policy: Any, scaler: Scaler, keys: Keys, iteration: int, n_episodes: int, deterministic: bool = True
    ) -> EvalResult:
        """Roll out whole episodes; as ``JaxRunner.evaluate``."""
        n_envs = self._available or min(n_episodes, self._shape.n_envs)
        returns, lengths = [], []
        for part in range(-(-n_episodes // n_envs)):
            seeds = (int(keys.seed), 1 + part, iteration)
            batch = self._collect(
                policy,
                _numpy(scaler),
                seeds,
                n_envs,
                self._shape.horizon,
                deterministic=deterministic,
                one_episode=True,
            )
            found = episode_returns(batch)
            returns.append(np.asarray(found.returns))
            lengths.append(np.asarray(found.lengths))
        return EvalResult(np.concatenate(returns)[:n_episodes], np.concatenate(lengths)[:n_episodes])

    def close(self) -> None:
        """Close the environments."""
        for envs in self._envs.values():
            envs.close()
        self._envs = {}

    def _collect(
        self, policy: Any, scaler: Scaler, seeds: tuple[int, ...], n_envs: int, n_steps: int, **how: bool
    ) -> Batch:
        if n_envs not in self._envs:
            self._envs[n_envs] = GymnasiumAdapter.make(self.source, n_envs, asynchronous=self.trainer.config.async_envs)
        seed = int(np.random.SeedSequence(seeds).generate_state(1)[0] >> 1)
        return collect_gymnasium(
            self._envs[n_envs], self.trainer.policy, self.trainer.actions, scaler, _numpy(policy), seed,
            n_steps=n_steps, **how,
        )  # fmt: skip


@dataclass(frozen=True)
class _Recipe:
    """A trainer that equals others of the same spaces and settings, so that all of them share compiled programs."""

    trainer: Trainer = field(compare=False)
    settings: str

    @classmethod
    def of(cls, trainer: Trainer) -> _Recipe:
        actions = [np.asarray(part).tolist() for part in trainer.actions]
        return cls(trainer, repr((trainer.policy, trainer.obs_dim, trainer.learner, trainer.config, actions)))


class _Programs(NamedTuple):
    """The compiled functions of a ``JaxRunner``, and over which devices they are spread."""

    advance: Any
    evaluate: Any
    mesh: Mesh | None


@lru_cache(maxsize=MOST_PROGRAMS)
def _jax_programs(env: JaxEnv, recipe: _Recipe, devices: tuple[Any, ...]) -> _Programs:
    trainer = recipe.trainer
    n_steps, n_envs, _ = rollout_shape(trainer.config, env.max_episode_steps)
    advance: Any = partial(trainer.iterate, env, n_steps=n_steps, n_envs=n_envs)
    evaluate: Any = partial(trainer.evaluate, env)
    mesh = None
    if devices:
        advance = jax.vmap(advance, in_axes=(0, 0, 0, None))
        evaluate = lambda policy, scaler, key, n, deterministic: jax.vmap(  # noqa: E731
            lambda *one: trainer.evaluate(env, *one, n, deterministic)
        )(policy, scaler, key)
        if len(devices) > 1:
            mesh = Mesh(np.array(devices), ("runs",))
            runs, everywhere = PartitionSpec("runs"), PartitionSpec()
            advance = jax.shard_map(
                advance, mesh=mesh, in_specs=(runs, runs, runs, everywhere), out_specs=runs, check_vma=False
            )
    return _Programs(jax.jit(advance), jax.jit(evaluate, static_argnums=(3, 4)), mesh)


@lru_cache(maxsize=MOST_PROGRAMS)
def _update_program(recipe: _Recipe) -> Any:
    return jax.jit(recipe.trainer.update)


def history_rows(
    metrics: Metrics, iterations: range, steps_per_iteration: int, evaluated: EvalResult | None, seconds: float
) -> pd.DataFrame:
    """Make rows of history of some iterations of one run.

    Args:
        metrics: Their metrics, each (c,).
        iterations: Their numbers, from 0.
        steps_per_iteration: Steps of the environment in each.
        evaluated: Episodes rolled out after the last of them.
        seconds: How long they took.

    Returns:
        A row for each iteration, numbered from 1; columns that are not known are NaN.
    """
    number = np.arange(iterations.start, iterations.stop) + 1
    rows = pd.DataFrame({"iteration": number, "env_steps": number * steps_per_iteration})
    for name, values in zip(Metrics._fields, metrics, strict=True):
        rows[name] = np.asarray(values, float)
    rows["eval_return"] = np.nan
    rows["eval_length"] = np.nan
    if evaluated is not None:
        last = rows.index[-1]
        rows.loc[last, "eval_return"] = evaluated.mean
        rows.loc[last, "eval_length"] = float(np.mean(evaluated.lengths))
    rows["seconds"] = seconds / len(number)
    return rows


def _numpy(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)
