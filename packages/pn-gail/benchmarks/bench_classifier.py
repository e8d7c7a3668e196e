"""Time the confidence classifier against a plain PyTorch loop that does the same work, in one run, on one core.

1. The paper's setting: 25,000 steps of one labelled row and four unlabelled ones, 2,000 rows of 23 features, 20 % of
   them labelled. Ours is timed with compilation, then again without; both errors are printed beside.
2. Steps of eight labelled rows, on the same rows.
3. Growth with the number of rows.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

from icl25_pn_gail.classifier import ConfidenceClassifier

N_ROWS, N_FEATURES, STEPS = 2000, 23, 25_000


def mixture(n: int, share: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, their confidence, and the same with NaN where it is not known."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, N_FEATURES))
    r = 1 / (1 + np.exp(-np.where(X[:, 0] + X[:, 1] > 0.3, 3, -3) - X[:, 1]))
    labelled = rng.permutation(n) < round(share * n)
    return X, r, np.where(labelled, r, np.nan)


def timed(work: Callable[[], np.ndarray]) -> tuple[float, float, np.ndarray]:
    """Seconds by the clock and of the processor, and what came out."""
    wall, processor = time.perf_counter(), time.process_time()
    found = work()
    return time.perf_counter() - wall, time.process_time() - processor, found


def torch_loop(X: np.ndarray, r: np.ndarray, steps: int) -> np.ndarray:
    """The same risk, network, optimizer and draws of rows, written as one writes it in PyTorch."""
    import torch
    from torch import nn
    from torch.nn.functional import softplus

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    rows = torch.tensor((X - X.mean(0)) / X.std(0), dtype=torch.float32)
    labels = torch.tensor(r, dtype=torch.float32)
    labelled, unlabelled = np.flatnonzero(~np.isnan(r)), np.flatnonzero(np.isnan(r))
    n_unlabelled, beta = len(unlabelled) // len(labelled), len(unlabelled) / len(r)
    head = nn.Linear(40, 1)
    with torch.no_grad():
        head.weight.mul_(0.1)
        head.bias.zero_()
    net = nn.Sequential(
        nn.Linear(X.shape[1], 40), nn.Tanh(), nn.Dropout(), nn.Linear(40, 40), nn.Tanh(), nn.Dropout(), head
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-4, amsgrad=True)
    for _ in range(steps):
        chosen, others = rng.choice(labelled, 1), rng.choice(unlabelled, n_unlabelled)
        g, g_others = net(rows[chosen])[:, 0], net(rows[others])[:, 0]
        positive, negative = softplus(-g), softplus(g)
        supervised = (labels[chosen] * positive + (1 - labels[chosen]) * negative).mean()
        balance = beta * ((softplus(-g_others) + softplus(g_others)).mean() - (positive + negative).mean())
        loss = supervised + balance.clamp(-0.01, 0.01)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        return torch.sigmoid(net(rows))[:, 0].numpy()


def ours(X: np.ndarray, r: np.ndarray, **arguments: Any) -> Callable[[], np.ndarray]:
    return lambda: ConfidenceClassifier(**arguments).fit(X, r).predict_confidence(X)


def main() -> None:
    X, true, r = mixture(N_ROWS, 0.2)
    hidden = np.isnan(r)

    def report(name: str, wall: float, processor: float, found: np.ndarray) -> None:
        error = np.abs(found - true)[hidden].mean()
        print(f"  {name}: {wall:.2f} s, {processor:.2f} s of processor, mean absolute error {error:.3f}", flush=True)

    print(f"{STEPS:,} steps of 1 + {hidden.sum() // (~hidden).sum()} rows, {N_ROWS:,} rows x {N_FEATURES} features")
    paper = ours(X, r, batch_size=1, steps=STEPS)
    first, again, torch = timed(paper), timed(paper), timed(lambda: torch_loop(X, r, STEPS))
    report("icl25-pn-gail, with compilation", *first)
    report("icl25-pn-gail, compiled", *again)
    report("PyTorch loop", *torch)
    for clock, what in ((0, "by the clock"), (1, "of processor")):
        with_compilation, without = torch[clock] / first[clock], torch[clock] / again[clock]
        print(f"  ratio {what}: {with_compilation:.1f} with compilation, {without:.1f} without")

    print("batches of 8")
    for steps in (5000, 10_000, 25_000):
        report(f"{steps:,} steps", *timed(ours(X, r, batch_size=8, steps=steps)))

    print("5,000 steps of batches of 8, with compilation")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for n in (2000, 20_000, 200_000):
        for share in (0.2, 0.005):
            X, _, r = mixture(n, share)
            wall, _, _ = timed(ours(X, r, batch_size=8, steps=5000))
            more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
            print(f"  {n:,} rows, {share:.1%} labelled: {wall:.2f} s, peak memory grown by {more:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
