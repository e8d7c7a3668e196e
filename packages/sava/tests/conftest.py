from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

GOLDEN = Path(__file__).parent / "golden"


class Sets(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    X_val: np.ndarray
    y_val: np.ndarray
    wrong: np.ndarray

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        return self.X, self.y, self.X_val, self.y_val


def build_sets(n: int = 240, m: int = 90, d: int = 5, classes: int = 3, noise: float = 0.2, seed: int = 0) -> Sets:
    """Gaussian classes, a share of wrong labels in the training set."""
    rng = np.random.default_rng(seed)
    centres = 3 * rng.normal(size=(classes, d))
    y, y_val = rng.permutation(n) % classes, rng.permutation(m) % classes
    X = centres[y] + rng.normal(size=(n, d))
    X_val = centres[y_val] + rng.normal(size=(m, d))
    wrong = np.zeros(n, bool)
    wrong[rng.choice(n, round(noise * n), replace=False)] = True
    y = np.where(wrong, (y + rng.integers(1, classes, n)) % classes, y)
    return Sets(X, y, X_val, y_val, wrong)


@pytest.fixture
def sets() -> Sets:
    return build_sets()


@pytest.fixture
def golden():
    def load(name: str) -> dict[str, np.ndarray]:
        with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as arrays:
            return dict(arrays)

    return load


@pytest.fixture
def make_sets():
    return build_sets


PARTS = ("values_", "batch_costs_", "outer_plan_", "batch_index_", "nearest_", "nearest_cost_", "label_distances_")


@pytest.fixture
def same():
    """Whether two fitted models agree in every byte."""

    def compare(a, b) -> bool:
        return all(np.array_equal(getattr(a, part), getattr(b, part), equal_nan=True) for part in PARTS)

    return compare
