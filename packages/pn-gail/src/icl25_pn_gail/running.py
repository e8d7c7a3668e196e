"""Drive training through its iterations: compiled in chunks for jax environments, step by step for Gymnasium."""

from __future__ import annotations

from functools import partial
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

__all__ = ["GymnasiumRunner", "JaxRunner", "Keys", "history_rows", "stack"]

EVALUATION = 2**31 - 1  # folded into the key of a run for evaluations


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
        """Derive all keys from one seed."""
        return cls(*jax.random.split(jax.random.key(seed)), jnp.asarray(seed))


def stack(parts: list[Any]) -> Any:
    """Stack equal pytrees along a new first axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)


class JaxRunner:
    """Training in a pure-jax environment; with ``n_runs`` several runs at once, spread over the devices.

    Args:
        env: The environment.
        trainer: The functions of training.
        n_runs: Number of runs that are stacked along the first axis of all arrays; None for one that is not.
    """

    def __init__(self, env: JaxEnv, trainer: Trainer, n_runs: int | None = None) -> None:
        self.env, self.trainer = env, trainer
        n_steps, n_envs, _ = rollout_shape(trainer.config, env.max_episode_steps)
        self.steps_per_iteration = n_steps * n_envs
        advance = partial(trainer.iterate, env, n_steps=n_steps, n_envs=n_envs)
        evaluate = partial(trainer.evaluate, env)
        self._mesh: Mesh | None = None
        if n_runs is not None:
            advance = jax.vmap(advance, in_axes=(0, 0, 0, None))
            evaluate = lambda policy, scaler, key, n, deterministic: jax.vmap(  # noqa: E731
                lambda *one: trainer.evaluate(env, *one, n, deterministic)
            )(policy, scaler, key)
            n_devices = max(d for d in range(1, len(jax.local_devices()) + 1) if n_runs % d == 0)
            if n_devices > 1:
                self._mesh = Mesh(np.array(jax.local_devices()[:n_devices]), ("runs",))
                runs, everywhere = PartitionSpec("runs"), PartitionSpec()
                advance = jax.shard_map(
                    advance, mesh=self._mesh, in_specs=(runs, runs, runs, everywhere), out_specs=runs, check_vma=False
                )
        self._advance = jax.jit(advance)
        self._evaluate = jax.jit(evaluate, static_argnums=(3, 4))

    def place(self, tree: Any) -> Any:
        """Lay stacked arrays over the devices."""
        return tree if self._mesh is None else jax.device_put(tree, NamedSharding(self._mesh, PartitionSpec("runs")))

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
        self._update = jax.jit(trainer.update)
        self._envs: dict[int, Any] = {}

    def place(self, tree: Any) -> Any:
        """There is one device."""
        return tree

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
