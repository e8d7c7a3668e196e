"""Behaviour cloning: the policy under which the demonstrated actions are most likely."""

from __future__ import annotations

import time
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jaxtyping import Array, Float, Int, PRNGKeyArray

from icl25_pn_gail.checkpoints import identify
from icl25_pn_gail.config import TrainConfig
from icl25_pn_gail.learners import Learner
from icl25_pn_gail.networks import Policy
from icl25_pn_gail.preparation import fill_confidence, observation_scaler
from icl25_pn_gail.rollout import Scaler
from icl25_pn_gail.running import MOST_PROGRAMS

if TYPE_CHECKING:
    from icl25_pn_gail.classifier import ConfidenceClassifier
    from icl25_pn_gail.demonstrations import Demonstrations

__all__ = ["BC", "CloneState", "CloningData", "clone_epochs"]


class CloningData(NamedTuple):
    """What is cloned.

    Attributes:
        obs: Normalised observations, (N, d).
        actions: Actions in the policy's units, (N, a) or (N,).
        weights: Weight of each row, mean 1, (N,).
    """

    obs: Any
    actions: Any
    weights: Any


class CloneState(NamedTuple):
    """Everything that cloning goes on from.

    Attributes:
        policy: Parameters of the policy.
        opt_state: State of the optimiser.
    """

    policy: Any
    opt_state: Any


def clone_epochs(
    policy: Policy,
    optimizer: optax.GradientTransformation,
    batch_size: int,
    min_log_std: float,
    state: CloneState,
    data: CloningData,
    key: PRNGKeyArray,
    epochs: Int[Array, " c"],
) -> tuple[CloneState, Float[Array, " c"]]:
    """Maximise the weighted likelihood of demonstrated actions.

    Args:
        policy: The policy.
        optimizer: The optimiser.
        batch_size: Rows a step; what is left of a pass is left out of it.
        min_log_std: Least logarithm of the standard deviation.
        state: Where to go on from.
        data: The demonstrations.
        key: Key of the whole training.
        epochs: Numbers of the passes.

    Returns:
        The state after, and the mean loss of each pass, in nats.
    """
    n = len(data.obs)
    size = min(batch_size, n)

    def step(state: CloneState, rows: Int[Array, " b"]) -> tuple[CloneState, Float[Array, ""]]:
        def loss(params: Any) -> Float[Array, ""]:
            return -jnp.mean(data.weights[rows] * policy(params, data.obs[rows]).log_prob(data.actions[rows]))

        found, gradient = jax.value_and_grad(loss)(state.policy)
        updates, opt_state = optimizer.update(gradient, state.opt_state, state.policy)
        params: Any = optax.apply_updates(state.policy, updates)
        if not policy.discrete:
            params = params | {"log_std": jnp.maximum(params["log_std"], min_log_std)}
        return CloneState(params, opt_state), found

    def epoch(state: CloneState, number: Int[Array, ""]) -> tuple[CloneState, Float[Array, ""]]:
        rows = jax.random.permutation(jax.random.fold_in(key, number), n)[: n // size * size]
        state, losses = jax.lax.scan(step, state, rows.reshape(-1, size))
        return state, jnp.mean(losses)

    return jax.lax.scan(epoch, state, epochs)


@lru_cache(maxsize=MOST_PROGRAMS)
def _cloning_program(policy: Policy, lr: float, batch_size: int, min_log_std: float) -> Any:
    return jax.jit(partial(clone_epochs, policy, optax.adam(lr), batch_size, min_log_std))


class BC(Learner):
    """Behaviour cloning of demonstrations.

    Args:
        env: The environment, as for ``PNGAIL``; it gives the spaces and evaluates.
        demos: The demonstrations.
        weights: ``none`` clones all rows alike, ``confidence`` weights them by their confidence.
        classifier: What fills in missing confidences, where they are used. Default: ``bsc``.
        learner: As for the other methods; it makes no difference.
        config: The settings; those of networks, normalisation and evaluation count.
        lr: Learning rate of Adam.
        batch_size: Rows a step.
        seed: Seed of everything.
        backend: As for ``PNGAIL``.

    Raises:
        ValueError: If demonstrations and environment do not fit, or confidences are asked for and there are none.

    Example:
        >>> from icl25_pn_gail import BC
        >>> from icl25_pn_gail.recording import make_demonstrations
        >>> learner = BC("TwoGoals", make_demonstrations("TwoGoals", "to-a:5")).learn(20, progress_bar=False)
        >>> learner.predict([0.0, -1.0])[0].shape
        (2,)

    Source:
        Pomerleau, ALVINN, NeurIPS 1988; a baseline of the paper's field.
    """

    method = "bc"

    def __init__(
        self,
        env: Any,
        demos: Demonstrations,
        *,
        weights: Literal["none", "confidence"] = "none",
        classifier: str | ConfidenceClassifier | None = None,
        learner: Literal["trpo", "ppo"] = "trpo",
        config: TrainConfig | None = None,
        lr: float = 1e-3,
        batch_size: int = 256,
        seed: int = 0,
        backend: Literal["auto", "jax", "gymnasium"] = "auto",
    ) -> None:
        if weights not in ("none", "confidence"):
            raise ValueError(f"weights must be none or confidence, found {weights!r}")
        if not lr > 0 or batch_size < 1:
            raise ValueError(f"lr must be > 0 and batch_size >= 1, found {lr} and {batch_size}")
        longest = None if demos.episode is None else int(np.bincount(demos.episode_codes).max())
        super().__init__(env, learner=learner, config=config, seed=seed, backend=backend, longest=longest)
        self.spaces.check(demos)
        self.demos, self.weights = demos, weights
        self.classifier = None
        w = np.ones(len(demos.obs))
        if weights == "confidence":
            self.confidence, self.classifier = fill_confidence(demos, "pn-gail", classifier, seed)
            if self.confidence.sum() <= 0:
                raise ValueError("every confidence is 0, so there is nothing to imitate; expected some rows above 0")
            w = self.confidence / self.confidence.mean()
        self._scaler = observation_scaler(demos.obs, self.config.normalize_obs)
        actions = self.trainer.actions.from_env(demos.acts)
        number = jnp.result_type(float)
        self._data = CloningData(
            jnp.asarray(self._scaler(demos.obs), number),
            jnp.asarray(actions, jnp.int32 if demos.discrete else number),
            jnp.asarray(w, number),
        )
        optimizer = optax.adam(lr)
        policy = self.trainer.policy
        params = policy.init(self._keys.init, self.spaces.obs_dim, self.config.hidden, self.config.log_std_init)
        self._state = CloneState(params, optimizer.init(params))
        self._epochs = _cloning_program(policy, lr, batch_size, self.config.min_log_std)
        self._settings = (lr, batch_size)
        self._freeze()

    def _advance(self, iterations: range) -> None:
        started = time.perf_counter()
        numbers = jnp.arange(iterations.start, iterations.stop)
        self._state, losses = self._epochs(self._state, self._data, self._keys.train, numbers)
        if not np.isfinite(losses).all():
            raise FloatingPointError(
                f"training diverged before iteration {iterations.stop}: the loss is not finite; lower lr"
            )
        scaler = Scaler(*map(jnp.asarray, self._scaler))
        episodes = self.config.eval_episodes
        evaluated = self._runner.evaluate(self._state.policy, scaler, self._keys, iterations.stop, episodes)
        rows = pd.DataFrame({"iteration": np.asarray(numbers) + 1, "loss": np.asarray(losses, float)})
        rows[["eval_return", "eval_length"]] = np.nan
        rows.loc[rows.index[-1], ["eval_return", "eval_length"]] = [evaluated.mean, float(np.mean(evaluated.lengths))]
        rows["seconds"] = (time.perf_counter() - started) / len(rows)
        self.history = rows if self.history.empty else pd.concat([self.history, rows], ignore_index=True)
        self._freeze()

    def _identity(self) -> str:
        return identify(self.method, self.config, self.seed, self._env_identity(), self._settings, self._data)

    def _freeze(self) -> None:
        self.policy = self._frozen_policy(self._state.policy, self._scaler)
