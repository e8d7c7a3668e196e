from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from icl25_sava.cli import main

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


class Ran(NamedTuple):
    """What a command left: its exit status, standard output and standard error."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON document that it must be."""
        return json.loads(self.out)

    @property
    def messages(self) -> list[str]:
        """Lines of standard error, warnings aside."""
        return [line for line in self.err.splitlines() if not line.startswith("warning: ")]


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """Run the command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments) -> Ran:
        status = main([str(argument) for argument in arguments])
        return Ran(status, *capsys.readouterr())

    yield run
    # The handler writes to the captured stream, which ends with the test.
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if handler.get_name() == "icl25"]:
        root.removeHandler(handler)


@pytest.fixture
def refused(cli):
    """Run a command that must fail on its input, and give back its message."""

    def run(*arguments) -> str:
        ran = cli(*arguments)
        assert ran.status == 2, ran
        assert ran.out == ""
        assert len(ran.messages) == 1, ran.err
        assert ran.messages[0].startswith(f"icl25-sava {arguments[0]}: error: ")
        return ran.messages[0].partition("error: ")[2]

    return run


def frame(X: np.ndarray, y: np.ndarray, prefix: str) -> pd.DataFrame:
    names = [f"f{number}" for number in range(X.shape[1])]
    return pd.DataFrame(X, columns=names).assign(kind=y, key=[f"{prefix}{number:03d}" for number in range(len(y))])


@pytest.fixture
def tables(sets, tmp_path):
    """The sets as files: train.csv and val.csv with features f0 to f4, label kind and id key, and audit.csv."""
    train, val = frame(sets.X, sets.y, "0"), frame(sets.X_val, sets.y_val, "v")
    train.to_csv(tmp_path / "train.csv", index=False)
    val.to_csv(tmp_path / "val.csv", index=False)
    pd.DataFrame({"id": train["key"], "wrong": sets.wrong}).to_csv(tmp_path / "audit.csv", index=False)
    return train, val
