"""What all imitation learners have in common: a policy in an environment, its history, and the folder it is kept in."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import is_dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float

from icl25_pn_gail.checkpoints import Checkpoint
from icl25_pn_gail.config import UNKNOWN_HORIZON, TrainConfig
from icl25_pn_gail.envs import GymnasiumSource, env_name, make_env
from icl25_pn_gail.evaluation import EvalResult
from icl25_pn_gail.policies import ImitationPolicy
from icl25_pn_gail.preparation import Spaces, make_trainer
from icl25_pn_gail.running import GymnasiumRunner, JaxRunner, Keys
from icl25_shared import atomic_path, progress, read_json

__all__ = ["Learner"]

Backend = Literal["auto", "jax", "gymnasium"]


class Learner:
    """A policy that is learned in an environment; the base of all methods.

    Args:
        env: A pure-jax environment (``envs.PendulumJax()``), the id of a Gymnasium environment, a function that makes
            one, or one that can be made again.
        learner: ``trpo`` or ``ppo``.
        config: The settings.
        seed: Seed of everything: the same seed gives the same history.
        backend: ``gymnasium`` takes Gymnasium's environment also where there is one in jax.
        longest: Steps of the longest demonstrated episode, where episodes are told apart.

    Attributes:
        history: A row for each iteration: losses, returns, seconds.
        confidence: Confidence of each demonstrated row, filled in, (N,).
        policy: What was learned so far.
    """

    method: ClassVar[str]
    policy: ImitationPolicy
    confidence: Float[np.ndarray, " n"]
    _state: Any = None
    _kept_at: Path | None = None

    def __init__(
        self,
        env: Any,
        *,
        learner: Literal["trpo", "ppo"] = "trpo",
        config: TrainConfig | None = None,
        seed: int = 0,
        backend: Backend = "auto",
        longest: int | None = None,
    ) -> None:
        self.env = make_env(env, backend=backend)
        self.learner, self.seed = learner, seed
        self.config = TrainConfig() if config is None else config
        if self.env.max_episode_steps is None and self.config.max_episode_steps is None:
            self.config = replace(self.config, max_episode_steps=longest or UNKNOWN_HORIZON)
            why = "" if longest is None else ", as many as the longest demonstrated one has"
            warnings.warn(
                f"{env_name(self.env)} has no time limit that is known: its episodes are cut after "
                f"{self.config.max_episode_steps:,} steps{why}; max_episode_steps=N sets another limit",
                stacklevel=3,
            )
        self.spaces = Spaces.of(self.env)
        self.trainer = make_trainer(self.spaces, learner, self.config)
        self.history = pd.DataFrame()
        self.confidence = np.empty(0)
        self._keys = Keys.of(seed)
        runner = GymnasiumRunner if isinstance(self.env, GymnasiumSource) else JaxRunner
        self._runner: GymnasiumRunner | JaxRunner = runner(self.env, self.trainer)  # ty: ignore[invalid-argument-type]
        self._rng = np.random.default_rng(seed)

    def learn(
        self,
        total_iterations: int = 500,
        callback: Callable[[Self], bool | None] | None = None,
        progress_bar: bool = True,
        *,
        checkpoint: str | PathLike[str] | None = None,
        resume: bool = False,
    ) -> Self:
        """Train, or train on.

        Args:
            total_iterations: Iterations to have done at the end, with those of earlier calls.
            callback: Called with the learner after each evaluation; training stops where it returns False.
            progress_bar: Show progress on standard error.
            checkpoint: Folder in which to keep the state after each evaluation. One that is there already is replaced
                only by the learner that wrote it, or that went on from it.
            resume: Go on from the state in that folder, if there is one; the result is that of a run without a break.

        Returns:
            The learner.

        Raises:
            ValueError: If the number of iterations is not positive, the checkpoint is of another training, or the
                learner was loaded.
            FileExistsError: If the folder holds a checkpoint and ``resume`` is false.
        """
        if total_iterations < 1:
            raise ValueError(f"total_iterations must be >= 1, found {total_iterations}")
        if self._state is None:
            raise ValueError("a learner that was loaded cannot be trained further; train with checkpoint and resume")
        kept = None if checkpoint is None else Checkpoint(checkpoint, self._identity())
        if kept is not None and resume and (found := kept.read(self._state)) is not None:
            self._state, self.history = found
            self._freeze()
        elif kept is not None and kept.path != self._kept_at and kept.path.exists():
            raise FileExistsError(f"{kept.path} exists; go on from it with resume=True, or remove it")
        if kept is not None:
            self._kept_at = kept.path
        every = self.config.eval_every
        begins = [len(self.history), *range((len(self.history) // every + 1) * every, total_iterations, every)]
        chunks = [range(a, min((a // every + 1) * every, total_iterations)) for a in begins if a < total_iterations]
        if resume and not chunks:
            warnings.warn(
                f"{len(self.history)} of {total_iterations} iterations are done: nothing is left to do", stacklevel=2
            )
        bar = progress("iterations", sum(map(len, chunks))) if progress_bar and chunks else None
        try:
            with bar or contextlib.nullcontext():
                for iterations in chunks:
                    self._advance(iterations)
                    if kept is not None:
                        kept.write(self._state, self.history)
                    if bar is not None:
                        bar.advance(len(iterations))
                    if callback is not None and callback(self) is False:
                        break
        finally:
            self._runner.close()
        return self

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[np.ndarray, None]:
        """Choose actions, as the policies of Stable-Baselines3 do.

        Args:
            observation: One observation (d,), or several (n, d).
            state: Ignored; the policy has no memory.
            episode_start: Ignored.
            deterministic: Take the most likely action; else draw one.

        Returns:
            Actions within the bounds of the environment, (a,) or (n, a), or integers () or (n,); and None.

        Raises:
            ValueError: If an observation has the wrong shape or is not finite.
            TypeError: If ``deterministic`` is passed in the place of ``state``.
        """
        if isinstance(state, bool):
            raise TypeError(f"pass it by name: predict(observation, deterministic={state})")
        return self.policy.predict(observation, state, episode_start, deterministic, rng=self._rng)

    def evaluate(self, n_episodes: int = 20, *, deterministic: bool = True, seed: int = 0) -> EvalResult:
        """Roll out whole episodes.

        Args:
            n_episodes: Number of episodes.
            deterministic: Take the most likely action.
            seed: Another number gives other episodes.

        Returns:
            Returns and lengths.

        Raises:
            ValueError: If the number of episodes is not positive, or the seed is negative.
        """
        if n_episodes < 1:
            raise ValueError(f"n_episodes must be >= 1, found {n_episodes}")
        if seed < 0:
            raise ValueError(f"seed must be >= 0, found {seed}")
        keys = Keys.of(seed)
        try:
            return self._runner.evaluate(self.policy.params, self.policy.scaler, keys, 0, n_episodes, deterministic)
        finally:
            self._runner.close()

    def save(self, folder: str | PathLike[str], *, force: bool = False) -> None:
        """Write the policy, the settings, the history and the confidences.

        Args:
            folder: Where to; it is made. It gets ``policy.msgpack``, ``config.json``, ``history.csv`` and
                ``confidence.parquet``.
            force: Replace files that exist.

        Raises:
            FileExistsError: If it holds a policy and ``force`` is false.
        """
        about = {"method": self.method, "env": env_name(self.env), "seed": self.seed}
        self.policy.save(folder, about, force=force)
        with atomic_path(Path(folder) / "history.csv", force=True) as path:
            self.history.to_csv(path, index=False)
        with atomic_path(Path(folder) / "confidence.parquet", force=True) as path:
            self._confidence_table().to_parquet(path)

    def _confidence_table(self) -> pd.DataFrame:
        return pd.DataFrame({"confidence": self.confidence})

    @classmethod
    def load(cls, folder: str | PathLike[str], env: Any, *, backend: Backend = "auto") -> Self:
        """Read what ``save`` wrote, to act, to judge and to evaluate. Nothing in the files is executed.

        Args:
            folder: The folder.
            env: The environment, as for the class.
            backend: As for the class.

        Returns:
            The learner; it cannot be trained further (for this, see ``checkpoint`` of ``learn``).

        Raises:
            FileNotFoundError: If there is no policy in it.
            ValueError: If the files are damaged, of another method, or of an environment with other spaces.
        """
        policy = ImitationPolicy.load(folder)
        about = read_json(Path(folder) / "config.json")
        if about.get("method") != cls.method:
            raise ValueError(f"{folder} holds a policy of {about.get('method')}, and {cls.__name__} is {cls.method}")
        found = cls.__new__(cls)
        Learner.__init__(
            found,
            env,
            learner=policy.trainer.learner,
            config=policy.trainer.config,
            seed=about["seed"],
            backend=backend,
        )
        if (found.spaces.obs_dim, found.spaces.n_outputs, found.spaces.discrete) != (
            policy.spaces.obs_dim, policy.spaces.n_outputs, policy.spaces.discrete
        ):  # fmt: skip
            raise ValueError(
                f"{folder} holds a policy from {policy.spaces.obs_dim} observations to {policy.spaces.n_outputs} "
                f"outputs, the environment has {found.spaces.obs_dim} and {found.spaces.n_outputs}"
            )
        found.policy = policy
        confidence = Path(folder) / "confidence.parquet"
        if confidence.exists():
            found.confidence = pd.read_parquet(confidence)["confidence"].to_numpy(float)
        history = Path(folder) / "history.csv"
        if history.exists() and history.stat().st_size > 1:
            found.history = pd.read_csv(history)
        return found

    def _advance(self, iterations: range) -> None:
        """Do some iterations and evaluate; adds rows to the history."""
        raise NotImplementedError

    def _identity(self) -> str:
        """Say which training this is."""
        raise NotImplementedError

    def _env_identity(self) -> str:
        """Say which environment this is, with its settings where they are known."""
        return repr(self.env) if is_dataclass(self.env) else getattr(self.env, "settings", env_name(self.env))

    def _freeze(self) -> None:
        """Make the policy of the present state."""
        raise NotImplementedError

    def _frozen_policy(self, params: Any, scaler: Any, disc: Any = None) -> ImitationPolicy:
        arrays = jax.tree.map(np.asarray, (params, scaler, disc))
        return ImitationPolicy(self.spaces, self.trainer, *arrays)
