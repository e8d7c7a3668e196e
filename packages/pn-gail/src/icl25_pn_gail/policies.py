"""Learned policies: what acts, what judges, and the files they are kept in."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
from flax import serialization
from gymnasium.spaces import Box, Discrete
from jaxtyping import Float

from icl25_pn_gail.config import TrainConfig
from icl25_pn_gail.losses import imitation_reward
from icl25_pn_gail.networks import Layer, mlp
from icl25_pn_gail.preparation import Spaces, make_trainer
from icl25_pn_gail.rollout import Scaler
from icl25_pn_gail.training import Trainer
from icl25_shared import atomic_path, read_json, write_json

__all__ = ["ImitationPolicy"]

WEIGHTS, CONFIG = "policy.msgpack", "config.json"
FORMAT = 1


@dataclass(frozen=True, eq=False)
class ImitationPolicy:
    """A learned policy, with the discriminator that taught it.

    Attributes:
        spaces: Spaces of the environment.
        trainer: Functions and settings.
        params: Parameters of the policy.
        scaler: Normalisation of observations.
        disc: Parameters of the discriminator; None where there was none.
    """

    spaces: Spaces
    trainer: Trainer
    params: Any
    scaler: Scaler
    disc: Any = None

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        *,
        rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, None]:
        """Choose actions, as the policies of Stable-Baselines3 do.

        Args:
            observation: One observation (d,), or several (n, d).
            state: Ignored; the policy has no memory.
            episode_start: Ignored.
            deterministic: Take the most likely action; else draw one.
            rng: What to draw with. Default: fresh randomness.

        Returns:
            Actions within the bounds of the environment, (a,) or (n, a), or integers () or (n,); and None.

        Raises:
            ValueError: If an observation has the wrong shape or is not finite.
        """
        obs = np.asarray(observation, np.float32)
        if obs.ndim not in (1, 2) or obs.shape[-1] != self.spaces.obs_dim:
            raise ValueError(
                f"observation must be ({self.spaces.obs_dim},) or (n, {self.spaces.obs_dim}), found {obs.shape}"
            )
        if not np.isfinite(obs).all():
            raise ValueError("observation has values that are not finite")
        output = mlp(self.params["layers"], self.scaler(obs), np)
        rng = np.random.default_rng() if rng is None and not deterministic else rng
        if self.spaces.discrete:
            if not deterministic and rng is not None:
                output = output + rng.gumbel(size=output.shape)
            return np.asarray(output.argmax(axis=-1)), None
        if not deterministic and rng is not None:
            output = output + np.exp(self.params["log_std"]) * rng.standard_normal(output.shape)
        space = self.spaces.act_space
        return self.trainer.actions.to_env(output, np).astype(space.dtype), None

    def reward(self, obs: Any, acts: Any) -> Float[np.ndarray, " n"]:
        """Compute the rewards that the discriminator gives.

        Args:
            obs: Observations of the environment, (n, d).
            acts: Actions of the environment, (n, a), or (n,) if discrete.

        Returns:
            The rewards, as ``config.reward`` says: -log D unless set otherwise.

        Raises:
            ValueError: If the shapes are wrong, or there is no discriminator.

        Source:
            PN-GAIL, algorithm 1: the policy is paid -log D.
        """
        return np.asarray(imitation_reward(self.logits(obs, acts), self.trainer.config.reward))

    def logits(self, obs: Any, acts: Any) -> Float[np.ndarray, " n"]:
        """Compute the logits of D, the probability that a row is the agent's.

        Args:
            obs: Observations of the environment, (n, d).
            acts: Actions of the environment, (n, a), or (n,) if discrete.

        Returns:
            The logits.

        Raises:
            ValueError: If the shapes are wrong, or there is no discriminator.
        """
        if self.disc is None:
            raise ValueError("behaviour cloning has no discriminator, so it gives no rewards")
        obs = np.asarray(obs, np.float32)
        acts = np.asarray(acts)
        if obs.ndim != 2 or obs.shape[1] != self.spaces.obs_dim:
            raise ValueError(f"obs must be (n, {self.spaces.obs_dim}), found {obs.shape}")
        expected = (len(obs),) if self.spaces.discrete else (len(obs), self.spaces.n_outputs)
        if acts.shape != expected:
            raise ValueError(f"acts must be {expected}, found {acts.shape}")
        inputs = self.trainer.disc_inputs(self.scaler(obs), self.trainer.actions.from_env(acts))
        return np.asarray(self.trainer.logits(self.disc, inputs))

    def save(self, folder: str | PathLike[str], about: dict[str, Any] | None = None, *, force: bool = False) -> None:
        """Write ``policy.msgpack`` and ``config.json``.

        Args:
            folder: Where to; it is made.
            about: What else to write to ``config.json``.
            force: Replace files that exist.

        Raises:
            FileExistsError: If they exist and ``force`` is false.
        """
        folder = Path(folder)
        if not force and (folder / WEIGHTS).exists():
            raise FileExistsError(f"{folder} holds a policy already; pass force=True to replace it")
        tree = {"policy": self.params, "scaler": self.scaler, "disc": self.disc or ()}
        tree = jax.tree.map(np.asarray, serialization.to_state_dict(tree))
        with atomic_path(folder / WEIGHTS, force=force) as path:
            path.write_bytes(serialization.msgpack_serialize(tree))
        space = self.spaces.act_space
        described: dict[str, Any] = {"n": int(space.n)} if isinstance(space, Discrete) else {
            "low": [_number(v) for v in space.low], "high": [_number(v) for v in space.high]
        }  # fmt: skip
        record = {
            "format": FORMAT,
            **(about or {}),
            "learner": self.trainer.learner,
            "spaces": {"obs_dim": self.spaces.obs_dim, "action": described},
            "config": asdict(self.trainer.config),
        }
        write_json(folder / CONFIG, record, force=force)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Read what ``save`` wrote. Nothing in the files is executed.

        Args:
            folder: The folder.

        Returns:
            The policy.

        Raises:
            FileNotFoundError: If there is no policy in it.
            ValueError: If the files are damaged or of another version.
        """
        folder = Path(folder)
        record = read_json(folder / CONFIG)
        try:
            if record["format"] != FORMAT:
                raise ValueError(f"format {record['format']}, expected {FORMAT}")
            described, obs_dim = record["spaces"]["action"], int(record["spaces"]["obs_dim"])
            if "n" in described:
                space: Box | Discrete = Discrete(described["n"])
            else:
                low, high = (np.array([float(v) for v in described[end]], np.float32) for end in ("low", "high"))
                space = Box(low, high, dtype=np.float32)
            spaces = Spaces(obs_dim, space)
            settings = record["config"] | {"hidden": tuple(record["config"]["hidden"])}
            trainer = make_trainer(spaces, record["learner"], TrainConfig(**settings), warn=False)
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{folder / CONFIG} is no configuration of a policy: {error}") from error
        try:
            tree = serialization.msgpack_restore((folder / WEIGHTS).read_bytes())
            hidden = trainer.config.hidden
            params = {"layers": _layers(tree["policy"]["layers"], (obs_dim, *hidden, spaces.n_outputs))}
            if not spaces.discrete:
                params["log_std"] = _shaped(tree["policy"]["log_std"], (spaces.n_outputs,))
            scaler = Scaler(*(_shaped(tree["scaler"][name], (obs_dim,)) for name in Scaler._fields))
            disc = _layers(tree["disc"], (obs_dim + spaces.n_outputs, *hidden, 1)) if tree["disc"] else None
        except FileNotFoundError:
            raise
        except Exception as error:  # msgpack raises errors of many kinds on damaged bytes
            raise ValueError(f"{folder / WEIGHTS} is damaged: {error}") from error
        return cls(spaces, trainer, params, scaler, disc)


def _number(value: Any) -> float | str:
    """JSON has no infinities."""
    return float(value) if np.isfinite(value) else str(value)


def _shaped(array: Any, shape: tuple[int, ...]) -> np.ndarray:
    if not isinstance(array, np.ndarray) or array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"expected finite numbers of shape {shape}")
    return array


def _layers(tree: dict[str, Any], sizes: tuple[int, ...]) -> tuple[Layer, ...]:
    return tuple(
        Layer(_shaped(tree[str(i)]["kernel"], shape), _shaped(tree[str(i)]["bias"], shape[1:]))
        for i, shape in enumerate(itertools.pairwise(sizes))
    )
