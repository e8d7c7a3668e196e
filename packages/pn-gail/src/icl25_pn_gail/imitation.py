"""Imitation learners with one face: PN-GAIL and the methods it is compared with."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from icl25_pn_gail.checkpoints import identify
from icl25_pn_gail.config import TrainConfig
from icl25_pn_gail.learners import Learner
from icl25_pn_gail.preparation import prepare
from icl25_pn_gail.running import history_rows

if TYPE_CHECKING:
    from icl25_pn_gail.classifier import ConfidenceClassifier
    from icl25_pn_gail.demonstrations import Demonstrations

__all__ = ["GAIL", "GAILC", "ICGAIL", "IWIL", "LEARNERS", "PNGAIL", "WGAIL", "AdversarialImitation", "GAILReweight"]

SATURATED, SATURATED_FOR = 0.99, 20  # accuracy of a discriminator that no longer teaches, for so many iterations


class AdversarialImitation(Learner):
    """Adversarial imitation of demonstrations; the base of ``PNGAIL`` and the methods it is compared with.

    Args:
        env: A pure-jax environment (``envs.PendulumJax()``), the id of a Gymnasium environment, a function that makes
            one, or one that can be made again.
        demos: The demonstrations.
        learner: ``trpo``, as in the paper, or ``ppo``.
        classifier: What fills in missing confidences: ``bsc``, ``sc``, ``supervised`` or a ``ConfidenceClassifier``.
            Default: what the method uses (PN-GAIL ``bsc``, 2IWIL ``sc``).
        config: The settings. Default: ``TrainConfig()``.
        seed: Seed of everything: the same seed gives the same history.
        backend: ``gymnasium`` takes Gymnasium's environment also where there is one in jax.

    Attributes:
        history: A row for each iteration: losses, accuracies, returns.
        confidence: Confidence of each demonstrated row, filled in, (N,).
        classifier: What filled it in; None where nothing did.

    Raises:
        ValueError: If demonstrations and environment do not fit, or there are no confidences where some are needed.

    Source:
        PN-GAIL, algorithm 1.
    """

    def __init__(
        self,
        env: Any,
        demos: Demonstrations,
        *,
        learner: Literal["trpo", "ppo"] = "trpo",
        classifier: str | ConfidenceClassifier | None = None,
        config: TrainConfig | None = None,
        seed: int = 0,
        backend: Literal["auto", "jax", "gymnasium"] = "auto",
    ) -> None:
        longest = None if demos.episode is None else int(np.bincount(demos.episode_codes).max())
        super().__init__(env, learner=learner, config=config, seed=seed, backend=backend, longest=longest)
        self.spaces.check(demos)
        self.demos = demos
        prepared = prepare(self.trainer, demos, self.method, classifier, seed)
        self._demos, self._state = prepared.demos, prepared.state
        self.confidence, self.classifier = prepared.confidence, prepared.classifier
        self._warned: set[str] = set()
        self._freeze()

    def reward(self, obs: Any, acts: Any) -> Float[np.ndarray, " n"]:
        """Compute the rewards that the discriminator gives.

        Args:
            obs: Observations of the environment, (n, d).
            acts: Actions of the environment, (n, a), or (n,) if discrete.

        Returns:
            The rewards, as ``config.reward`` says: -log D unless set otherwise.

        Raises:
            ValueError: If the shapes are wrong.
        """
        return self.policy.reward(obs, acts)

    def _advance(self, iterations: range) -> None:
        started = time.perf_counter()
        state, metrics = self._runner.advance(self._state, self._demos, self._keys, iterations)
        evaluated = self._runner.evaluate(
            state.policy, self._demos.scaler, self._keys, iterations.stop, self.config.eval_episodes
        )
        seconds = time.perf_counter() - started
        self._state = state
        self._freeze()
        rows = history_rows(metrics, iterations, self._runner.steps_per_iteration, evaluated, seconds)
        self.history = rows if self.history.empty else pd.concat([self.history, rows], ignore_index=True)
        if not np.isfinite(rows[["disc_loss", "value_loss", "kl"]].to_numpy()).all():
            raise FloatingPointError(
                f"training diverged before iteration {iterations.stop}: a loss is not finite; lower disc_lr or max_kl"
            )
        self._look_for_trouble()

    def _look_for_trouble(self) -> None:
        recent = self.history.tail(SATURATED_FOR)
        accuracy = (recent["taken_agent"] + 1 - recent["taken_good"].fillna(0)) / 2
        if len(recent) == SATURATED_FOR and (accuracy > SATURATED).all():
            self._warn_once(
                "saturated",
                f"the discriminator was right on more than {SATURATED:.0%} of the rows for {SATURATED_FOR} iterations, "
                "so its rewards teach little; try a smaller disc_lr or disc_grad_penalty=1, or check action units",
            )
        if self.config.reward == "nonsaturating" and (self.history["ended_early"] > 0).any():
            self._warn_once(
                "ended early",
                "episodes end early in this environment, and the reward -log D > 0 pays for staying alive whatever is "
                "done; compare with reward='airl'",
            )

    def _warn_once(self, topic: str, message: str) -> None:
        if topic not in self._warned:
            self._warned.add(topic)
            warnings.warn(message, stacklevel=5)

    def _identity(self) -> str:
        return identify(
            self.method, self.learner, self.config, self.seed, self._env_identity(), self.spaces, self._demos
        )

    def _freeze(self) -> None:
        self.policy = self._frozen_policy(self._state.policy, self._demos.scaler, self._state.disc)

    def _confidence_table(self) -> pd.DataFrame:
        if not hasattr(self, "demos"):
            return super()._confidence_table()
        table = pd.DataFrame({"given": self.demos.confidence, "confidence": self.confidence})
        if self.demos.episode is not None:
            table.insert(0, "episode", self.demos.episode)
        return table


class PNGAIL(AdversarialImitation):
    """PN-GAIL: demonstrated rows are positives by their confidence, and negatives by what is missing to 1.

    Example:
        >>> from icl25_pn_gail import PNGAIL, TrainConfig
        >>> from icl25_pn_gail.envs import TwoGoals
        >>> from icl25_pn_gail.recording import make_demonstrations
        >>> demos = make_demonstrations("TwoGoals", "to-a:2:1.0,to-b:4:0.1")
        >>> config = TrainConfig(hidden=(8,), steps_per_iteration=60, eval_every=2)
        >>> learner = PNGAIL(TwoGoals(), demos, config=config).learn(2, progress_bar=False)
        >>> learner.predict([0.0, -1.0])[0].shape
        (2,)

    Source:
        Liu et al., PN-GAIL: Leveraging non-optimal information from imperfect demonstrations, ICLR 2025, algorithm 1.
    """

    method = "pn-gail"


class IWIL(AdversarialImitation):
    """2IWIL: demonstrated rows are positives, weighted by their confidence.

    Source:
        Wu et al., Imitation learning from imperfect demonstration, ICML 2019.
    """

    method = "2iwil"


class ICGAIL(AdversarialImitation):
    """IC-GAIL: the mixture of the agent and of bad rows is to look like the demonstrations.

    Source:
        Wu et al., Imitation learning from imperfect demonstration, ICML 2019.
    """

    method = "ic-gail"


class WGAIL(AdversarialImitation):
    """WGAIL: weights of demonstrated rows from discriminator and policy, without any confidence.

    Source:
        Wang et al., Learning to weight imperfect demonstrations, ICML 2021.
    """

    method = "wgail"


class GAIL(AdversarialImitation):
    """GAIL: all demonstrated rows alike; it copies the mixture.

    Source:
        Ho, Ermon, Generative adversarial imitation learning, NeurIPS 2016.
    """

    method = "gail"


class GAILC(AdversarialImitation):
    """GAIL on the rows that have a confidence, whatever it is.

    Source:
        A baseline of Wu et al., ICML 2019.
    """

    method = "gail-c"


class GAILReweight(AdversarialImitation):
    """GAIL on the rows that have a confidence, weighted by it.

    Source:
        A baseline of Wu et al., ICML 2019.
    """

    method = "gail-reweight"


LEARNERS = {cls.method: cls for cls in (PNGAIL, IWIL, ICGAIL, WGAIL, GAIL, GAILC, GAILReweight)}
