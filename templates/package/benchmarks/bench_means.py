"""Time `running_mean` against what a person would use instead, at growing sizes."""

import time

import numpy as np
from __module__ import running_mean


def plain_loop(x):
    """The same with a Python loop."""
    total, means = 0.0, []
    for position, value in enumerate(x, start=1):
        total += value
        means.append(total / position)
    return means


def seconds(function, x):
    """Best of five."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        function(x)
        times.append(time.perf_counter() - start)
    return min(times)


for n in (1_000, 10_000, 100_000):
    x = np.random.default_rng(0).standard_normal(n)
    ours, theirs = seconds(running_mean, x), seconds(plain_loop, x)
    print(f"n = {n:>7}: {ours * 1e3:8.3f} ms, loop {theirs * 1e3:8.3f} ms, ratio {theirs / ours:.1f}")
