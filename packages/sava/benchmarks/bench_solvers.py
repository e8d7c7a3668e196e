"""Why the default solver does not converge: AUC of finding wrong labels, and time, for each solver.

512 x 512 rows of ten Gaussian classes, 30 % wrong labels, class counts of the two sets equal or not; three seeds. One
problem, as in LAVA; Sinkhorn is stopped after 500 iterations.
"""

from __future__ import annotations

import os
import time
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from icl25_sava import (
    annealed_potentials,
    augmented_cost,
    calibrated_gradient,
    detection_auc,
    emd_potentials,
    label_distances,
    sinkhorn_potentials,
)
from icl25_sava.costs import bounding_box, diameter


def labelled(
    n: int, counts: np.ndarray, centres: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    y = rng.choice(len(centres), n, p=counts / counts.sum())
    return centres[y] + rng.normal(size=(n, centres.shape[1])), y


def main() -> None:
    solvers = {
        "annealed, scaling 0.5 (default)": lambda C, start: annealed_potentials(C, diameter=start),
        "annealed, scaling 0.7": lambda C, start: annealed_potentials(C, diameter=start, scaling=0.7),
        "annealed, scaling 0.9": lambda C, start: annealed_potentials(C, diameter=start, scaling=0.9),
        "Sinkhorn, eps 0.1": lambda C, start: sinkhorn_potentials(C, max_iter=500),
        "exact linear programme": lambda C, start: emd_potentials(C),
    }
    warnings.simplefilter("ignore", RuntimeWarning)  # 500 iterations do not reach the tolerance
    for title, unequal in (("equal class counts", False), ("unequal class counts", True)):
        print(title)
        for name, solve in solvers.items():
            aucs, seconds = [], 0.0
            for seed in range(3):
                C, start, wrong = problem(unequal, seed)
                started = time.process_time()
                potentials = solve(C, start)
                seconds += (time.process_time() - started) / 3
                aucs.append(detection_auc(-calibrated_gradient(potentials.f), wrong))
            print(
                f"  {name:<32} AUC {np.mean(aucs):.3f} ({min(aucs):.3f}-{max(aucs):.3f}), {seconds:.2f} s", flush=True
            )


def problem(unequal: bool, seed: int) -> tuple[np.ndarray, float, np.ndarray]:
    """Cost matrix, its length scale, and which rows have a wrong label."""
    rng = np.random.default_rng(seed)
    centres = 2 * rng.normal(size=(10, 16))
    counts = np.linspace(1, 5, 10) if unequal else np.ones(10)
    X, y = labelled(512, counts, centres, rng)
    X_val, y_val = labelled(512, counts[::-1], centres, rng)
    wrong = rng.random(512) < 0.3
    y = np.where(wrong, (y + rng.integers(1, 10, 512)) % 10, y)
    C = augmented_cost(X, y, X_val, y_val, label_distances(X, y, X_val, y_val))
    return C, diameter(bounding_box(X), bounding_box(X_val)), wrong


if __name__ == "__main__":
    main()
