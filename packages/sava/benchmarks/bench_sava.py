"""Time and memory of icl25-sava against what a person would use instead, on the same work, in one run.

`python bench_sava.py` takes a minute on one core; `python bench_sava.py million` values a million rows on two.

1. One soft-minimum of 1 024 x 1 024 in single precision: this package (half a sweep, which yields two), torch, SciPy.
2. One pair of batches (1 024 x 1 024): annealed potentials, and those of geomloss (under the authors' code).
3. The job of 4 096 x 2 048 rows, 75 features, 10 classes, B = 1 024: SAVA, exact LAVA, KNN-Shapley. The authors' code
   took 10.9 s of processor time for it on one thread of a comparable machine.
4. Growth: 4 000 to 40 000 rows against 4 096, memory beside it; batch sizes at 40 000.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import threading
import time
import tracemalloc
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import psutil
from scipy.special import logsumexp

from icl25_sava import LAVA, SAVA, KNNShapley, augmented_cost, detection_auc, label_distances
from icl25_sava.costs import bounding_box, diameter
from icl25_sava.datasets import make_gaussians
from icl25_sava.potentials import _NumpySweep, annealed_potentials, annealing_schedule


def processor_seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Smallest processor time of several runs."""
    work()
    times = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def noisy(n: int, m: int, d: int, share: float = 0.3) -> tuple[np.ndarray, ...]:
    data = make_gaussians(n, m, n_classes=10, n_features=d, seed=0)
    rng = np.random.default_rng(1)
    mask = rng.random(n) < share
    y = np.where(mask, (data.train.y + rng.integers(1, 10, n)) % 10, data.train.y)
    return data.train.X, y, data.val.X, data.val.y, mask


class PeakMemory:
    """Largest resident memory of this process and its workers beyond what it was at the start, in MB, sampled."""

    def __enter__(self) -> PeakMemory:
        self._process = psutil.Process()
        self._before = self.peak = self._now()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def beyond_mb(self) -> float:
        return (self.peak - self._before) / 1e6

    def _now(self) -> int:
        total = 0
        for process in (self._process, *self._process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total

    def _sample(self) -> None:
        while not self._stop.wait(0.1):
            self.peak = max(self.peak, self._now())


def soft_minimum() -> None:
    rng = np.random.default_rng(0)
    C = (10 * rng.random((1024, 1024))).astype(np.float32)
    h = rng.normal(size=1024).astype(np.float32)
    uniform = np.full(1024, -np.log(1024), np.float32)
    sweep = _NumpySweep(C, uniform, uniform)
    ours = processor_seconds(lambda: sweep(0.5, h, h)) / 2
    others = {"scipy.special.logsumexp": lambda: -0.5 * logsumexp(h - C / np.float32(0.5), axis=1)}
    try:
        import torch

        torch.set_num_threads(1)
        tensor, vector = torch.from_numpy(C), torch.from_numpy(h)
        others["torch.logsumexp"] = lambda: -0.5 * torch.logsumexp(vector - tensor / 0.5, dim=1)
    except ModuleNotFoundError:
        print("  torch is not installed")
    print(f"  icl25-sava {1e3 * ours:.2f} ms")
    for name, work in others.items():
        theirs = processor_seconds(work)
        print(f"  {name} {1e3 * theirs:.2f} ms: {theirs / ours:.1f} times ours")


def one_pair() -> None:
    X, y, X_val, y_val, _ = noisy(1024, 1024, 16)
    C = augmented_cost(X, y, X_val, y_val, label_distances(X, y, X_val, y_val))
    start = diameter(bounding_box(X), bounding_box(X_val))
    ours = processor_seconds(lambda: annealed_potentials(C, diameter=start))
    print(f"  icl25-sava {1e3 * ours:.1f} ms ({len(annealing_schedule(start)) + 2} sweeps)")
    try:
        import torch
        from geomloss import SamplesLoss
    except ModuleNotFoundError:
        print("  geomloss is not installed")
        return
    torch.set_num_threads(1)
    # geomloss takes points, not a matrix: one coordinate that holds the row number, and a cost that looks it up.
    matrix = torch.from_numpy(C)
    loss = SamplesLoss(
        "sinkhorn",
        p=2,
        blur=0.1**0.5,
        scaling=0.5,
        debias=False,
        potentials=True,
        diameter=start,
        backend="tensorized",
        cost=lambda a, b: matrix[None] if a.shape[1] == 1024 and float(a[0, 1, 0]) == 1 else matrix.T[None],
    )
    rows, columns = torch.arange(1024.0)[:, None], -torch.arange(1024.0)[:, None]
    f, _ = loss(rows, columns)
    difference = np.abs(f.numpy().ravel() - annealed_potentials(C, diameter=start).f).max()
    print(f"  largest difference of the potentials {difference:.1e}")
    theirs = processor_seconds(lambda: loss(rows, columns))
    print(f"  geomloss {1e3 * theirs:.1f} ms: {theirs / ours:.1f} times ours")


def whole_job() -> None:
    X, y, X_val, y_val, mask = noisy(4096, 2048, 75)
    for name, model in (
        ("SAVA", SAVA(1024, random_state=0)),
        ("LAVA", LAVA(random_state=0)),
        ("KNN-Shapley", KNNShapley()),
    ):
        seconds = processor_seconds(lambda model=model: model.fit(X, y, X_val, y_val), repeats=3)
        print(f"  {name} {seconds:.2f} s, AUC {detection_auc(model.values_, mask):.4f}")
        if name == "SAVA":
            print(f"    the authors' code, 10.9 s: {10.9 / seconds:.1f} times as long")


def growth() -> None:
    SAVA(64, random_state=0).fit(*noisy(256, 128, 16)[:4])  # what is imported late counts for no row below
    for n in (4000, 12000, 40000):
        X, y, X_val, y_val, mask = noisy(n, 4096, 16)
        sizes = (512, 1024, 2048) if n == 40000 else (1024,)
        for batch_size in sizes:
            model = SAVA(batch_size, random_state=0)
            tracemalloc.start()
            started = time.process_time()
            model.fit(X, y, X_val, y_val)
            seconds = time.process_time() - started
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            auc = detection_auc(model.values_, mask)
            print(
                f"  {n:>6,} x 4,096, B = {batch_size}: {seconds:.1f} s of processor time, AUC {auc:.4f}, "
                f"peak memory beyond the input {peak / 1e6:.0f} MB"
            )


def million() -> None:
    X, y, X_val, y_val, mask = noisy(1_000_000, 4096, 16)
    started = time.perf_counter()
    with PeakMemory() as memory:
        model = SAVA(1024, random_state=0, n_jobs=2).fit(X, y, X_val, y_val)
    seconds = time.perf_counter() - started
    print(
        f"  1,000,000 x 4,096 on two workers: {seconds:.0f} s, AUC {detection_auc(model.values_, mask):.4f}, "
        f"peak memory +{memory.beyond_mb:.0f} MB beyond the input, both workers included"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {
        "kernel": ("one soft-minimum, 1 024 x 1 024, single precision", soft_minimum),
        "pair": ("potentials of one pair of batches", one_pair),
        "job": ("4 096 x 2 048 rows, 75 features, one thread", whole_job),
        "growth": ("growth with the number of rows", growth),
        "million": ("one million rows", million),
    }
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: all but million")
    for name in parser.parse_args().parts or list(parts)[:-1]:
        title, part = parts[name]
        print(title, flush=True)
        part()
