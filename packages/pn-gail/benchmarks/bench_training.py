"""Time an iteration of PN-GAIL against a plain PyTorch loop of the same work, in turn, in one run, on one core.

The loop is written as such loops are written: one environment of Gymnasium, an action a step, double precision,
products with the Hessian of the divergence by differentiating twice, an evaluation of five episodes in every iteration.
Ours has the same networks, numbers of steps and minibatches in single precision, and evaluates every 25 iterations (10
in Gymnasium).
"""

from __future__ import annotations

import os
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.nn.functional import softplus
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from icl25_pn_gail import PNGAIL, Demonstrations, TrainConfig

STEPS, ITERATIONS = 5000, 3
SIZES = ((32, 1250), (64, 5000), (100, 5000), (100, 20_000), (200, 5000))  # hidden width, steps


def demonstrations(env_id: str, n: int = 2000) -> Demonstrations:
    """Random actions, half of them of confidence 1: their quality does not change the work."""
    env = gymnasium.make(env_id)
    env.action_space.seed(0)
    obs, acts = [env.reset(seed=0)[0]], []
    for _ in range(n):
        acts.append(env.action_space.sample())
        after, _, terminated, truncated, _ = env.step(acts[-1])
        obs.append(env.reset()[0] if terminated or truncated else after)
    env.close()
    return Demonstrations(np.array(obs[:-1]), np.array(acts), np.where(np.arange(n) % 2, 1.0, 0.1))


def perceptron(n_in: int, n_out: int) -> nn.Sequential:
    """Two hidden layers of 100, tanh."""
    layers = [nn.Linear(n_in, 100), nn.Tanh(), nn.Linear(100, 100), nn.Tanh(), nn.Linear(100, n_out)]
    return nn.Sequential(*layers).double()


class PlainLoop:
    """PN-GAIL in plain PyTorch."""

    def __init__(self, env_id: str, demos: Demonstrations) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.env = gymnasium.make(env_id)
        d, a = demos.obs.shape[1], demos.acts.shape[1]
        self.mean, self.value, self.disc = perceptron(d, a), perceptron(d, 1), perceptron(d + a, 1)
        self.log_std = nn.Parameter(torch.zeros(a, dtype=torch.float64))
        self.params = [self.log_std, *self.mean.parameters()]
        self.value_opt = torch.optim.Adam(self.value.parameters(), lr=3e-4)
        self.disc_opt = torch.optim.Adam(self.disc.parameters(), lr=1e-3)
        self.rows = torch.tensor(np.concatenate([demos.obs, demos.acts], axis=1), dtype=torch.float64)
        self.r = torch.tensor(demos.confidence, dtype=torch.float64)

    def episode(self, deterministic: bool) -> tuple[list, list]:
        """One episode, an action a step."""
        obs, states, actions, ended = self.env.reset()[0], [], [], False
        while not ended:
            with torch.no_grad():
                mean = self.mean(torch.as_tensor(obs, dtype=torch.float64)[None])[0]
                action = mean if deterministic else mean + self.log_std.exp() * torch.randn_like(mean)
            states.append(obs)
            actions.append(action.numpy())
            low, high = self.env.action_space.low, self.env.action_space.high
            obs, _, terminated, truncated, _ = self.env.step(np.clip(actions[-1], low, high).astype(np.float32))
            ended = terminated or truncated
        return states, actions

    def log_prob(self, states: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Of the present policy."""
        normal = torch.distributions.Normal(self.mean(states), self.log_std.exp())
        return normal.log_prob(actions).sum(-1)

    def iterate(self) -> None:
        """Roll out, fit the value, TRPO, discriminator, evaluate."""
        states, actions, masks = [], [], []
        while len(states) < STEPS:
            s, a = self.episode(deterministic=False)
            states += s
            actions += a
            masks += [1.0] * (len(s) - 1) + [0.0]
        s, a = (torch.tensor(np.array(part), dtype=torch.float64) for part in (states, actions))
        fake = torch.cat([s, a], 1)
        with torch.no_grad():
            rewards = softplus(-self.disc(fake)[:, 0])
            values = self.value(s)[:, 0]
        returns, advantages = torch.zeros_like(values), torch.zeros_like(values)
        later_return = later_value = later_advantage = torch.zeros((), dtype=torch.float64)
        for t in reversed(range(len(values))):
            returns[t] = rewards[t] + 0.995 * later_return * masks[t]
            delta = rewards[t] + 0.995 * later_value * masks[t] - values[t]
            advantages[t] = delta + 0.995 * 0.97 * later_advantage * masks[t]
            later_return, later_value, later_advantage = returns[t], values[t], advantages[t]
        advantages = (advantages - advantages.mean()) / advantages.std()
        for rows in torch.randperm(len(s)).split(-(-len(s) // 30)):
            self.value_opt.zero_grad()
            ((self.value(s[rows])[:, 0] - returns[rows]) ** 2).mean().backward()
            self.value_opt.step()
        self.trpo(s, a, advantages)
        rows = torch.randint(len(self.rows), (len(fake),))
        self.disc_opt.zero_grad()
        g, r = self.disc(self.rows[rows])[:, 0], self.r[rows]
        loss = softplus(-self.disc(fake)).mean() + (r * softplus(g) + (1 - r) * softplus(-g)).mean()
        loss.backward()
        self.disc_opt.step()
        for _ in range(5):
            self.episode(deterministic=True)

    def trpo(self, s: torch.Tensor, a: torch.Tensor, advantages: torch.Tensor) -> None:
        """Conjugate gradients on the Hessian of the divergence, and a line search."""
        fixed = self.log_prob(s, a).detach()

        def surrogate() -> torch.Tensor:
            return -(advantages * (self.log_prob(s, a) - fixed).exp()).mean()

        def flat_gradient(value: torch.Tensor, **options: Any) -> torch.Tensor:
            return parameters_to_vector(torch.autograd.grad(value, self.params, **options))

        def product(v: torch.Tensor) -> torch.Tensor:
            mean = self.mean(s)
            log_std = self.log_std
            gap = (mean.detach() - mean) ** 2 + (2 * log_std.detach()).exp()
            kl = (log_std - log_std.detach() + gap / (2 * (2 * log_std).exp()) - 0.5).sum(-1).mean()
            return flat_gradient((flat_gradient(kl, create_graph=True) * v).sum()) + 0.1 * v

        before = surrogate()
        b = -flat_gradient(before)
        x, residual = torch.zeros_like(b), b.clone()
        direction, squared = residual.clone(), residual @ residual
        for _ in range(10):
            image = product(direction)
            alpha = squared / (direction @ image)
            x += alpha * direction
            residual -= alpha * image
            new = residual @ residual
            direction = residual + new / squared * direction
            squared = new
            if squared < 1e-10:
                break
        step = x / (0.5 * (x @ product(x)) / 0.01).sqrt()
        old = parameters_to_vector(self.params).detach()
        for k in range(10):
            vector_to_parameters(old + 0.5**k * step, self.params)
            with torch.no_grad():
                gain = before.detach() - surrogate()
            if gain > 0.1 * 0.5**k * (b @ step) and gain > 0:
                return
        vector_to_parameters(old, self.params)


def per_iteration(work: Any, n: int) -> tuple[float, float]:
    """Seconds of the processor and by the clock for each of n iterations, once compiled."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return (time.process_time() - processor) / n, (time.perf_counter() - wall) / n


def against_plain(env_id: str, every: int) -> None:
    """Ours beside the plain loop."""
    demos = demonstrations(env_id)
    plain = PlainLoop(env_id, demos)
    kinds = {"Gymnasium": ("gymnasium", 1), "Gymnasium, fisher_every=4": ("gymnasium", 4)}
    if env_id == "Pendulum-v1":
        kinds = {"jax": ("jax", 1), "jax, fisher_every=4": ("jax", 4), **kinds}
    learners = {}
    for kind, (backend, fisher_every) in kinds.items():
        config = TrainConfig(steps_per_iteration=STEPS, eval_every=every, fisher_every=fisher_every)
        learners[kind] = PNGAIL(env_id, demos, config=config, backend=backend)
        learners[kind].learn(every, progress_bar=False)  # compiles
    plain.iterate()
    for turn in range(2):
        theirs = per_iteration(lambda: [plain.iterate() for _ in range(ITERATIONS)], ITERATIONS)
        print(
            f"{env_id}, turn {turn + 1}: plain loop {theirs[0]:.2f} s of the processor ({theirs[1]:.2f} s by the clock)"
        )
        for kind, learner in learners.items():
            n = every * (2 if kind.startswith("jax") else 1)
            done = len(learner.history)
            ours = per_iteration(lambda: learner.learn(done + n, progress_bar=False), n)  # noqa: B023
            ratio, clock = theirs[0] / ours[0], theirs[1] / ours[1]
            print(f"  ours, {kind}: {ours[0]:.3f} s ({ours[1]:.3f} s), ratio {ratio:.1f} ({clock:.1f} by the clock)")


def growth() -> None:
    """Seconds an iteration with the size of networks and batches."""
    demos = demonstrations("Pendulum-v1")
    print("growth, jax pendulum: hidden width, steps, seconds an iteration")
    for width, steps in SIZES:
        config = TrainConfig(hidden=(width, width), steps_per_iteration=steps, eval_every=10)
        learner = PNGAIL("Pendulum-v1", demos, config=config).learn(10, progress_bar=False)
        seconds = per_iteration(lambda: learner.learn(20, progress_bar=False), 10)[0]  # noqa: B023
        print(f"  {width:4d} {steps:6d} {seconds:.4f}")


if __name__ == "__main__":
    against_plain("Pendulum-v1", 25)
    against_plain("HalfCheetah-v5", 10)
    growth()
