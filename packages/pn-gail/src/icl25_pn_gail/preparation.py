"""From demonstrations and an environment to the first state of a run."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete
from jaxtyping import Float

from icl25_pn_gail.config import TrainConfig
from icl25_pn_gail.methods import METHODS, demo_set
from icl25_pn_gail.networks import Policy
from icl25_pn_gail.rollout import ActionMap, Scaler
from icl25_pn_gail.running import Keys, short_seed
from icl25_pn_gail.training import DemoSet, Trainer, TrainState

if TYPE_CHECKING:
    from icl25_pn_gail.classifier import ConfidenceClassifier
    from icl25_pn_gail.demonstrations import Demonstrations

__all__ = ["CLASSIFIERS", "Prepared", "Spaces", "fill_confidence", "make_trainer", "observation_scaler", "prepare"]

CLASSIFIERS = ("bsc", "sc", "supervised")
SMALLEST_SPREAD = 1e-6  # of an observation, relative to its size; what varies less is constant
USUAL_HALF_RANGES = (0.2, 5.0)  # of actions, for a policy whose spread starts at 1


@dataclass(frozen=True)
class Spaces:
    """What an environment takes and gives.

    Attributes:
        obs_dim: Dimensions of an observation.
        act_space: Space of actions, one-dimensional or discrete.
    """

    obs_dim: int
    act_space: Box | Discrete

    @classmethod
    def of(cls, env: Any) -> Spaces:
        """Read the spaces of an environment.

        Args:
            env: A ``JaxEnv`` or a source of Gymnasium environments.

        Returns:
            The spaces.
        """
        return cls(int(env.obs_space.shape[0]), env.act_space)

    @property
    def discrete(self) -> bool:
        """Whether actions are discrete."""
        return isinstance(self.act_space, Discrete)

    @property
    def n_outputs(self) -> int:
        """Dimensions of the action, or number of discrete actions."""
        return int(self.act_space.n) if isinstance(self.act_space, Discrete) else int(self.act_space.shape[0])

    def check(self, demos: Demonstrations) -> None:
        """See that demonstrations fit the spaces.

        Args:
            demos: The demonstrations.

        Raises:
            ValueError: If they do not; the message shows both sides.
        """
        kind = {True: "discrete", False: "continuous"}
        if demos.discrete != self.discrete:
            raise ValueError(
                f"the demonstrations have {kind[demos.discrete]} actions, the environment {kind[self.discrete]} ones"
            )
        if demos.obs_dim != self.obs_dim:
            raise ValueError(
                f"the demonstrations have observations of {demos.obs_dim} dimensions, the environment of "
                f"{self.obs_dim}; versions of an environment can differ in this (Ant-v2 has 111, Ant-v5 105)"
            )
        if self.discrete:
            highest = int(demos.acts.max())
            if highest >= self.n_outputs or int(demos.acts.min()) < 0:
                raise ValueError(f"the demonstrations have action {highest}, expected 0 to {self.n_outputs - 1}")
        elif demos.act_dim != self.n_outputs:
            raise ValueError(
                f"the demonstrations have actions of {demos.act_dim} dimensions, the environment of {self.n_outputs}"
            )


class Prepared(NamedTuple):
    """A run before its first iteration.

    Attributes:
        demos: Demonstrations as the method sees them.
        state: The first state.
        keys: Sources of randomness.
        confidence: Confidence of each row, filled in, (N,).
        classifier: What filled it in; None where nothing did.
    """

    demos: DemoSet
    state: TrainState
    keys: Keys
    confidence: Float[np.ndarray, " n"]
    classifier: ConfidenceClassifier | None


def make_trainer(spaces: Spaces, learner: Literal["trpo", "ppo"], config: TrainConfig, *, warn: bool = True) -> Trainer:
    """Make the functions of training.

    Args:
        spaces: Spaces of the environment.
        learner: ``trpo`` or ``ppo``.
        config: The settings.
        warn: Whether to warn of actions in unusual units.

    Returns:
        The trainer.

    Raises:
        ValueError: If the learner is unknown.
    """
    if learner not in ("trpo", "ppo"):
        raise ValueError(f"learner must be trpo or ppo, found {learner!r}")
    actions = ActionMap.of(spaces.act_space, clip=config.clip_actions, normalize=config.normalize_actions)
    if warn and isinstance(spaces.act_space, Box) and not config.normalize_actions:
        half = (spaces.act_space.high - spaces.act_space.low) / 2
        low, high = USUAL_HALF_RANGES
        odd = np.isfinite(half) & ((half < low) | (half > high))
        if odd.any():
            warnings.warn(
                f"action {int(np.argmax(odd))} has half a range of {half[odd][0]:g}, and the policy starts with a "
                f"standard deviation of {np.exp(config.log_std_init):.3g}; consider normalize_actions=True",
                stacklevel=4,
            )
    return Trainer(Policy(spaces.n_outputs, spaces.discrete), actions, spaces.obs_dim, learner, config)


def observation_scaler(obs: Float[np.ndarray, "n d"], normalize: bool = True) -> Scaler:
    """Return the normalisation of observations by their mean and spread.

    Args:
        obs: Demonstrated observations.
        normalize: Whether to normalise at all.

    Returns:
        The scaler; dimensions that do not vary are only centred.
    """
    if not normalize:
        return Scaler(np.zeros(obs.shape[1], np.float32), np.ones(obs.shape[1], np.float32))
    mean, std = np.mean(obs, axis=0, dtype=float), np.std(obs, axis=0, dtype=float)
    constant = std <= SMALLEST_SPREAD * np.maximum(1, np.abs(mean))
    return Scaler(mean.astype(np.float32), np.where(constant, 1, std).astype(np.float32))


def fill_confidence(
    demos: Demonstrations, method: str, classifier: str | ConfidenceClassifier | None, seed: int
) -> tuple[Float[np.ndarray, " n"], ConfidenceClassifier | None]:
    """Complete the confidences of demonstrations as a method needs them.

    Args:
        demos: The demonstrations.
        method: The method.
        classifier: ``bsc``, ``sc``, ``supervised``, a classifier (a copy of it is fitted), or None for what the method
            does by default.
        seed: Seed of the classifier, where it is named.

    Returns:
        The confidences, and the fitted classifier; None where all rows had one, or where the method needs none: then
        rows without confidence have 1.

    Raises:
        ValueError: If the method needs a confidence and there is none, or the classifier is unknown.
    """
    from sklearn.base import clone

    from icl25_pn_gail.classifier import ConfidenceClassifier

    if isinstance(classifier, str) and classifier not in CLASSIFIERS:
        raise ValueError(f"classifier must be {', '.join(CLASSIFIERS)} or a classifier, found {classifier!r}")
    given = demos.confidence
    missing = np.isnan(given)
    if METHODS[method].needs_labels and missing.all():
        raise ValueError(
            f"no demonstration has a confidence, and {METHODS[method].title} needs at least one; rate some rows, "
            "or use GAIL, which needs none"
        )
    chosen = METHODS[method].classifier if classifier is None else classifier
    if chosen is None or not missing.any():
        return np.where(missing, 1.0, given), None
    if isinstance(chosen, str):
        chosen = ConfidenceClassifier(method=chosen, random_state=short_seed(seed))
    chosen = clone(chosen, safe=False).fit(demos.inputs(), given)
    return chosen.fill(demos.inputs(), given), chosen


def prepare(
    trainer: Trainer,
    demos: Demonstrations,
    method: str,
    classifier: str | ConfidenceClassifier | None = None,
    seed: int = 0,
) -> Prepared:
    """Prepare a run.

    Args:
        trainer: The functions of training.
        demos: The demonstrations.
        method: Key of the method.
        classifier: As for ``fill_confidence``.
        seed: Seed of everything.

    Returns:
        The run before its first iteration.
    """
    filled, fitted = fill_confidence(demos, method, classifier, seed)
    scaler = observation_scaler(demos.obs, trainer.config.normalize_obs)
    acts = trainer.actions.from_env(demos.acts)
    rows = demo_set(method, demos.obs, acts, demos.confidence, filled, scaler, trainer.config.icgail_min_prior)
    keys = Keys.of(seed)
    return Prepared(rows, trainer.init(keys.init, len(demos.obs)), keys, filled, fitted)
