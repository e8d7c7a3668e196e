"""Settings of adversarial imitation."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

__all__ = ["RolloutShape", "TrainConfig", "rollout_shape"]

UNKNOWN_HORIZON = 1000  # steps of a roll-out where the environment has no time limit


@dataclass(frozen=True)
class TrainConfig:
    """Settings of the learner and of the discriminator; the defaults are those of the authors' code.

    Five of them differ from that code, which does as if they were false: ``clip_actions``,
    ``bootstrap_on_truncation``, ``normalize_obs``; and ``min_log_std`` and ``kl_slack``, which are without bound there.

    Attributes:
        hidden: Widths of the hidden layers of policy, value and discriminator.
        steps_per_iteration: Steps of the environment in an iteration, rounded up to whole episodes.
        n_steps: Steps of each environment in an iteration. Default: whole episodes. Every iteration starts new ones, so
            with fewer steps their later part is never seen.
        n_envs: Environments side by side. Default: as many as make ``steps_per_iteration`` with one episode each.
        max_episode_steps: Steps after which episodes are cut in an environment without a time limit that is known.
            Default: as many as the longest demonstrated episode has, or 1,000 where none are told apart.
        gamma: Discount.
        gae_lambda: Weight of later steps in the advantages. Default: 0.97 for TRPO, 0.95 for PPO.
        max_kl: Trust region of TRPO, in nats.
        kl_slack: Most divergence of a step of TRPO, as a multiple of ``max_kl``; None for no bound.
        damping: Added to the Fisher information by TRPO.
        cg_iterations: Iterations of conjugate gradients in TRPO.
        fisher_every: TRPO uses every so-many-th row for the Fisher information.
        value_lr: Learning rate of the value function.
        value_minibatches: Minibatches into which its one pass is divided.
        disc_lr: Learning rate of the discriminator.
        disc_steps: Steps of the discriminator in an iteration.
        disc_grad_penalty: Weight of (|gradient| - 1)² between demonstrations and the agent's rows.
        reward: What the policy is paid: ``nonsaturating`` -log D >= 0, ``airl`` the negative logit, ``gail``
            log(1 - D) <= 0, with D the probability that a row is the agent's.
        log_std_init: First logarithm of the standard deviation of actions.
        min_log_std: Least one.
        clip_actions: Show the discriminator actions clipped to the bounds; else what the policy drew.
        bootstrap_on_truncation: Value the last state of an episode that was cut by a time limit; else it counts 0.
        normalize_obs: Divide observations by their spread over the demonstrations, for all networks.
        normalize_actions: Let the policy act in units of half the range of the action space.
        ppo_lr: Learning rate of PPO.
        ppo_clip: Clip of PPO.
        ppo_epochs: Passes of PPO over a batch.
        ppo_minibatch: Minibatch of PPO.
        wgail_beta: beta of WGAIL.
        wgail_every: Iterations between two computations of WGAIL's weights.
        wgail_until: Last iteration at which they are computed.
        icgail_min_prior: Least class prior of IC-GAIL.
        eval_every: Iterations between two evaluations.
        eval_episodes: Episodes of an evaluation.
        async_envs: Run each Gymnasium environment in a process of its own, which pays for slow simulators.
    """

    hidden: tuple[int, ...] = (100, 100)
    steps_per_iteration: int = 5000
    n_steps: int | None = None
    n_envs: int | None = None
    max_episode_steps: int | None = None
    gamma: float = 0.995
    gae_lambda: float | None = None
    max_kl: float = 0.01
    kl_slack: float | None = 1.5
    damping: float = 0.1
    cg_iterations: int = 10
    fisher_every: int = 1
    value_lr: float = 3e-4
    value_minibatches: int = 30
    disc_lr: float = 1e-3
    disc_steps: int = 1
    disc_grad_penalty: float = 0.0
    reward: Literal["nonsaturating", "airl", "gail"] = "nonsaturating"
    log_std_init: float = 0.0
    min_log_std: float = -3.0
    clip_actions: bool = True
    bootstrap_on_truncation: bool = True
    normalize_obs: bool = True
    normalize_actions: bool = False
    ppo_lr: float = 3e-4
    ppo_clip: float = 0.2
    ppo_epochs: int = 10
    ppo_minibatch: int = 512
    wgail_beta: float = 1.0
    wgail_every: int = 50
    wgail_until: int = 400
    icgail_min_prior: float = 0.7
    eval_every: int = 25
    eval_episodes: int = 5
    async_envs: bool = False

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        try:
            object.__setattr__(self, "hidden", tuple(self.hidden))
        except TypeError:
            raise ValueError(f"hidden must be widths of layers such as (100, 100), found {self.hidden!r}") from None
        positive = {
            "steps_per_iteration", "n_steps", "n_envs", "max_episode_steps", "max_kl", "kl_slack",
            "cg_iterations", "fisher_every", "value_lr", "value_minibatches", "disc_lr", "disc_steps", "ppo_lr",
            "ppo_clip", "ppo_epochs", "ppo_minibatch", "wgail_every", "eval_every", "eval_episodes",
        }  # fmt: skip
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{field.name} must be finite, found {value}")
            if field.name in positive and value is not None and value <= 0:
                raise ValueError(f"{field.name} must be > 0, found {value}")
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"hidden must be widths of layers >= 1, found {self.hidden}")
        for name in ("gamma", "gae_lambda", "icgail_min_prior"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{name} must be in [0, 1], found {value}")
        for name in ("damping", "disc_grad_penalty", "wgail_beta"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be >= 0, found {getattr(self, name)}")
        if self.reward not in ("nonsaturating", "airl", "gail"):
            raise ValueError(f"reward must be nonsaturating, airl or gail, found {self.reward!r}")

    @classmethod
    def official(cls, **changes: Any) -> TrainConfig:
        """Return the settings with which the authors' code computes: raw actions and observations, cuts as ends.

        Args:
            **changes: Settings to change.

        Returns:
            The settings.
        """
        same: dict[str, Any] = {
            "clip_actions": False,
            "bootstrap_on_truncation": False,
            "normalize_obs": False,
            "min_log_std": -20.0,
            "kl_slack": None,
        }
        return cls(**(same | changes))


class RolloutShape(NamedTuple):
    """How many steps an iteration takes.

    Attributes:
        n_steps: Steps of each environment.
        n_envs: Number of environments.
        horizon: Steps after which an episode is taken to be over.
    """

    n_steps: int
    n_envs: int
    horizon: int


def rollout_shape(config: TrainConfig, max_episode_steps: int | None, available: int | None = None) -> RolloutShape:
    """Divide the steps of an iteration among environments, in whole episodes.

    Args:
        config: The settings.
        max_episode_steps: The time limit of the environment; None where there is none.
        available: Number of environments, where more cannot be made.

    Returns:
        Steps and environments.
    """
    horizon = max_episode_steps or config.max_episode_steps or UNKNOWN_HORIZON
    n_envs = config.n_envs or available or math.ceil(config.steps_per_iteration / (config.n_steps or horizon))
    episodes = math.ceil(config.steps_per_iteration / (horizon * n_envs))
    return RolloutShape(config.n_steps or horizon * episodes, n_envs, horizon)
