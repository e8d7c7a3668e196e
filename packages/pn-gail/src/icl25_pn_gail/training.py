"""One iteration of adversarial imitation: roll out, fit the value, improve the policy, improve the discriminator.

All methods of the family are weights on demonstrated rows (see ``losses.weighted_loss``), so one compiled program
serves them all, and can be mapped over methods and seeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from icl25_pn_gail.advantages import gae, standardize
from icl25_pn_gail.config import TrainConfig
from icl25_pn_gail.losses import imitation_reward, weighted_loss, wgail_weights
from icl25_pn_gail.networks import Policy, init_mlp, mlp
from icl25_pn_gail.ppo import ppo_update
from icl25_pn_gail.rollout import ActionMap, Batch, Scaler, collect_jax, episode_returns, mean_return
from icl25_pn_gail.trpo import trpo_step

if TYPE_CHECKING:
    from icl25_pn_gail.envs import JaxEnv

__all__ = ["DemoSet", "Metrics", "Stream", "TrainState", "Trainer"]


class Stream(NamedTuple):
    """Where one half of each batch of demonstrations comes from, and how it counts.

    Attributes:
        rows: Indices of rows; those from ``count`` on are not used, (N,).
        count: Number of rows to draw from.
        positive: Weight with which each row looks demonstrated, (N,).
        negative: Weight with which it looks like the agent's, (N,).
    """

    rows: Any
    count: Any
    positive: Any
    negative: Any


class DemoSet(NamedTuple):
    """Demonstrations as a method sees them.

    Attributes:
        obs: Normalised observations, (N, d).
        actions: Actions in the policy's units, (N, a) or (N,).
        confidence: Confidence, filled in, (N,); decides only what is reported.
        first: The first half of a batch.
        second: The second half.
        fake_weight: Weight of the agent's rows.
        reweight: Whether WGAIL computes ``positive`` anew.
        scaler: Normalisation of observations.
    """

    obs: Any
    actions: Any
    confidence: Any
    first: Stream
    second: Stream
    fake_weight: Any
    reweight: Any
    scaler: Scaler


class TrainState(NamedTuple):
    """Everything that training goes on from.

    Attributes:
        policy: Parameters of the policy.
        value: Parameters of the value function.
        disc: Parameters of the discriminator.
        policy_opt: State of PPO's optimiser; empty for TRPO.
        value_opt: State of the value function's optimiser.
        disc_opt: State of the discriminator's optimiser.
        weights: Weights of WGAIL, (N,).
    """

    policy: Any
    value: Any
    disc: Any
    policy_opt: Any
    value_opt: Any
    disc_opt: Any
    weights: Any


class Metrics(NamedTuple):
    """What one iteration did; each a number.

    Attributes:
        train_return: Mean true return of the episodes rolled out.
        reward: Mean reward from the discriminator.
        disc_loss: Loss of the discriminator.
        taken_agent: Share of the agent's rows that the discriminator takes for the agent's.
        taken_good: The same of demonstrated rows of confidence >= 0.5.
        taken_bad: The same of the others.
        value_loss: Mean squared error of the value function.
        entropy: Mean entropy of the policy, in nats.
        kl: Divergence of the new policy from the old one, in nats.
        surrogate_gain: How much the surrogate loss fell.
        step_size: Step size of TRPO's line search, 0 where it failed; 1 for PPO.
        ended_early: Share of episodes that ended before their time limit.
    """

    train_return: Any
    reward: Any
    disc_loss: Any
    taken_agent: Any
    taken_good: Any
    taken_bad: Any
    value_loss: Any
    entropy: Any
    kl: Any
    surrogate_gain: Any
    step_size: Any
    ended_early: Any


@dataclass(frozen=True)
class Trainer:
    """The pure functions of training for given spaces and settings.

    Attributes:
        policy: The policy.
        actions: From its actions to the environment's.
        obs_dim: Dimensions of an observation.
        learner: ``trpo`` or ``ppo``.
        config: The settings.
    """

    policy: Policy
    actions: ActionMap
    obs_dim: int
    learner: Literal["trpo", "ppo"]
    config: TrainConfig

    def init(self, key: PRNGKeyArray, n_demos: int) -> TrainState:
        """Draw the networks.

        Args:
            key: Key of the draw.
            n_demos: Number of demonstrated rows.

        Returns:
            The state before the first iteration.
        """
        hidden = self.config.hidden
        policy_key, value_key, disc_key = jax.random.split(key, 3)
        policy = self.policy.init(policy_key, self.obs_dim, hidden, self.config.log_std_init)
        value = init_mlp(value_key, (self.obs_dim, *hidden, 1))
        disc = init_mlp(disc_key, (self.obs_dim + self.policy.n_outputs, *hidden, 1))
        policy_opt = self._policy_optimizer.init(policy) if self.learner == "ppo" else ()
        value_opt, disc_opt = self._value_optimizer.init(value), self._disc_optimizer.init(disc)
        return TrainState(policy, value, disc, policy_opt, value_opt, disc_opt, jnp.ones(n_demos))

    @property
    def _policy_optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.config.ppo_lr)

    @property
    def _value_optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.config.value_lr)

    @property
    def _disc_optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.config.disc_lr)

    def disc_inputs(self, obs: Float[Array | np.ndarray, "*n d"], actions: Any) -> Float[Array, "*n k"]:
        """Join normalised observations and actions of the policy to inputs of the discriminator."""
        return jnp.concatenate([obs, self.actions.features(actions)], axis=-1)

    def logits(self, disc: Any, inputs: Float[Array, "*n k"]) -> Float[Array, "*n"]:
        """Return the logits of D, the probability that a row is the agent's."""
        return mlp(disc, inputs)[..., 0]

    def update(
        self, state: TrainState, demos: DemoSet, batch: Batch, iteration: Int[Array, ""], key: PRNGKeyArray
    ) -> tuple[TrainState, Metrics]:
        """Learn from a batch of steps.

        Args:
            state: Where to go on from.
            demos: The demonstrations.
            batch: The steps.
            iteration: Number of the iteration, from 0.
            key: Key of all draws.

        Returns:
            The state after, and what happened.

        Source:
            The iteration of the PN-GAIL authors' code.
        """
        config = self.config
        value_key, policy_key, disc_key = jax.random.split(key, 3)
        fake = self.disc_inputs(batch.obs, batch.actions)
        rewards = imitation_reward(self.logits(state.disc, fake), config.reward)
        values = mlp(state.value, batch.obs)[..., 0]
        bootstrap = None
        if config.bootstrap_on_truncation:
            bootstrap = jnp.where(batch.terminated, 0, mlp(state.value, batch.next_obs)[..., 0])
        lam = config.gae_lambda if config.gae_lambda is not None else {"trpo": 0.97, "ppo": 0.95}[self.learner]
        going_on = 1 - batch.ended.astype(rewards.dtype)
        worth = gae(rewards, values, going_on, config.gamma, lam, bootstrap)
        obs, actions, fake = (part.reshape(-1, *part.shape[2:]) for part in (batch.obs, batch.actions, fake))
        value, value_opt, value_loss = self._fit_value(state, obs, worth.returns.reshape(-1), value_key)
        advantages = standardize(worth.advantages.reshape(-1))
        policy, policy_opt, learned = self._improve(state, policy_key, obs, actions, advantages)
        state = state._replace(policy=policy, policy_opt=policy_opt, value=value, value_opt=value_opt)
        state = self._reweight(state, demos, iteration)
        disc, disc_opt, judged = self._fit_disc(state, demos, fake, disc_key)
        n_ends = jnp.maximum(jnp.sum(batch.ended), 1)
        metrics = Metrics(
            train_return=mean_return(batch.rewards, batch.ended),
            reward=jnp.mean(rewards),
            value_loss=value_loss,
            ended_early=jnp.sum(batch.terminated) / n_ends,
            **learned,
            **judged,
        )
        return state._replace(disc=disc, disc_opt=disc_opt), metrics

    def _fit_value(
        self, state: TrainState, obs: Float[Array, "n d"], targets: Float[Array, " n"], key: PRNGKeyArray
    ) -> tuple[Any, Any, Float[Array, ""]]:
        """One pass of minibatches over a batch; the last minibatch may be smaller."""
        n = obs.shape[0]
        size = -(-n // self.config.value_minibatches)
        n_batches = -(-n // size)  # of which none is empty: Adam moves without a gradient, too
        rows = jnp.pad(jax.random.permutation(key, n), (0, n_batches * size - n)).reshape(n_batches, size)
        counts = (jnp.arange(n_batches * size) < n).reshape(n_batches, size)

        def step(carry: tuple[Any, Any], minibatch: tuple) -> tuple[tuple[Any, Any], Any]:
            value, opt_state = carry
            rows, count = minibatch

            def loss(value: Any) -> Float[Array, ""]:
                errors = mlp(value, obs[rows])[..., 0] - targets[rows]
                return jnp.sum(count * errors**2) / jnp.sum(count)

            found, gradient = jax.value_and_grad(loss)(value)
            updates, opt_state = self._value_optimizer.update(gradient, opt_state, value)
            return (optax.apply_updates(value, updates), opt_state), found

        (value, opt_state), losses = jax.lax.scan(step, (state.value, state.value_opt), (rows, counts))
        return value, opt_state, jnp.mean(losses)

    def _improve(
        self, state: TrainState, key: PRNGKeyArray, obs: Float[Array, "n d"], actions: Any, advantages: Array
    ) -> tuple[Any, Any, dict[str, Array]]:
        config = self.config
        if self.learner == "ppo":
            done = ppo_update(
                self.policy, state.policy, state.policy_opt, self._policy_optimizer, key, obs, actions, advantages,
                clip=config.ppo_clip, epochs=config.ppo_epochs, minibatch=config.ppo_minibatch,
            )  # fmt: skip
            policy, opt_state, step_size = done.params, done.opt_state, jnp.ones(())
        else:
            done = trpo_step(
                self.policy, state.policy, obs, actions, advantages, max_kl=config.max_kl, damping=config.damping,
                cg_iterations=config.cg_iterations, fisher_every=config.fisher_every,
                kl_slack=jnp.inf if config.kl_slack is None else config.kl_slack,
            )  # fmt: skip
            policy, opt_state, step_size = done.params, (), done.step_size
        if not self.policy.discrete:
            policy = policy | {"log_std": jnp.maximum(policy["log_std"], config.min_log_std)}
        # The spread of a Gaussian is the same for all rows; that of discrete actions is not.
        entropy = self.policy(policy, obs if self.policy.discrete else obs[:1]).entropy()
        gain = done.surrogate_before - done.surrogate_after
        return policy, opt_state, {"entropy": entropy, "kl": done.kl, "surrogate_gain": gain, "step_size": step_size}

    def _reweight(self, state: TrainState, demos: DemoSet, iteration: Int[Array, ""]) -> TrainState:
        """Compute WGAIL's weights anew where it is time to."""
        config = self.config
        due = ((iteration + 1) % config.wgail_every == 0) & (iteration <= config.wgail_until)

        def compute(_: None) -> Float[Array, " n"]:
            logits = self.logits(state.disc, self.disc_inputs(demos.obs, demos.actions))
            log_prob = self.policy(state.policy, demos.obs).log_prob(demos.actions)
            return wgail_weights(logits, log_prob, config.wgail_beta)

        weights = jax.lax.cond(due, compute, lambda _: state.weights, None)
        return state._replace(weights=jnp.where(demos.reweight, weights, state.weights))

    def _fit_disc(
        self, state: TrainState, demos: DemoSet, fake: Float[Array, "n k"], key: PRNGKeyArray
    ) -> tuple[Any, Any, dict[str, Array]]:
        """Adam on the agent's rows and as many demonstrated ones, drawn with replacement."""
        sizes = (fake.shape[0] - fake.shape[0] // 2, fake.shape[0] // 2)

        def step(carry: tuple[Any, Any], key: PRNGKeyArray) -> tuple[tuple[Any, Any], Any]:
            disc, opt_state = carry
            *keys, penalty_key = jax.random.split(key, 3)
            streams = (demos.first, demos.second)
            drawn = [
                stream.rows[jax.random.randint(k, (size,), 0, stream.count)]
                for k, size, stream in zip(keys, sizes, streams, strict=True)
            ]
            rows = jnp.concatenate(drawn)
            positive, negative = (
                jnp.concatenate([getattr(s, name)[part] for s, part in zip(streams, drawn, strict=True)])
                for name in ("positive", "negative")
            )
            positive = positive * state.weights[rows]
            real = self.disc_inputs(demos.obs[rows], demos.actions[rows])

            def loss(disc: Any) -> tuple[Float[Array, ""], Any]:
                logits = self.logits(disc, jnp.concatenate([fake, real]))
                fake_logits, real_logits = jnp.split(logits, [len(fake)])
                total = weighted_loss(fake_logits, real_logits, positive, negative, demos.fake_weight)
                if self.config.disc_grad_penalty > 0:
                    total += self.config.disc_grad_penalty * self._penalty(disc, fake, real, penalty_key)
                return total, (fake_logits, real_logits)

            (total, (fake_logits, real_logits)), gradient = jax.value_and_grad(loss, has_aux=True)(disc)
            updates, opt_state = self._disc_optimizer.update(gradient, opt_state, disc)
            good = demos.confidence[rows] >= 0.5
            judged = {
                "disc_loss": total,
                "taken_agent": jnp.mean(fake_logits > 0),
                "taken_good": _share(real_logits > 0, good),
                "taken_bad": _share(real_logits > 0, ~good),
            }
            return (optax.apply_updates(disc, updates), opt_state), judged

        keys = jax.random.split(key, self.config.disc_steps)
        (disc, opt_state), judged = jax.lax.scan(step, (state.disc, state.disc_opt), keys)
        return disc, opt_state, {name: found[-1] for name, found in judged.items()}

    def _penalty(self, disc: Any, fake: Array, real: Array, key: PRNGKeyArray) -> Float[Array, ""]:
        """Mean (|gradient| - 1)² at random points between the agent's and demonstrated rows."""
        t = jax.random.uniform(key, (len(fake), 1))
        gradients = jax.vmap(jax.grad(partial(self.logits, disc)))(t * fake + (1 - t) * real)
        return jnp.mean((jnp.sqrt(jnp.sum(gradients**2, axis=-1) + 1e-12) - 1) ** 2)

    def iterate(
        self, env: JaxEnv, state: TrainState, demos: DemoSet, key: PRNGKeyArray, iterations: Int[Array, " c"],
        n_steps: int, n_envs: int,
    ) -> tuple[TrainState, Metrics]:  # fmt: skip
        """Do several iterations in a pure-jax environment.

        Args:
            env: The environment.
            state: Where to go on from.
            demos: The demonstrations.
            key: Key of the whole training; that of an iteration is derived from it and from its number.
            iterations: Numbers of the iterations.
            n_steps: Steps of each environment.
            n_envs: Environments side by side.

        Returns:
            The state after, and the metrics of each iteration.
        """

        def one(state: TrainState, iteration: Int[Array, ""]) -> tuple[TrainState, Metrics]:
            collect_key, update_key = jax.random.split(jax.random.fold_in(key, iteration))
            batch = collect_jax(
                env, self.policy, self.actions, demos.scaler, state.policy, collect_key, n_envs=n_envs, n_steps=n_steps
            )
            return self.update(state, demos, batch, iteration, update_key)

        return jax.lax.scan(one, state, iterations)

    def evaluate(
        self, env: JaxEnv, policy: Any, scaler: Scaler, key: PRNGKeyArray, n_episodes: int, deterministic: bool = True
    ) -> tuple[Array, Array]:
        """Roll out whole episodes in a pure-jax environment.

        Args:
            env: The environment.
            policy: Parameters of the policy.
            scaler: Normalisation of observations.
            key: Key of all draws.
            n_episodes: Number of episodes.
            deterministic: Take the most likely action.

        Returns:
            Returns and lengths of the episodes.
        """
        batch = collect_jax(
            env, self.policy, self.actions, scaler, policy, key,
            n_envs=n_episodes, n_steps=env.max_episode_steps, deterministic=deterministic,
        )  # fmt: skip
        return tuple(episode_returns(batch))


def _share(hits: Array, among: Array) -> Float[Array, ""]:
    """The share of rows that hit; NaN where there are none."""
    count = jnp.sum(among)
    return jnp.where(count > 0, jnp.sum(hits & among) / jnp.maximum(count, 1), jnp.nan)
