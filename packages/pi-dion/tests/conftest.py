from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from icl25_pi_dion.cli import main
from icl25_pi_dion.compile_cache import use_compile_cache
from icl25_pi_dion.data import sample_prior, simulate
from icl25_pi_dion.problems import ReactionDiffusionSource
from icl25_pi_dion.tables import write_arrays

GOLDEN = Path(__file__).parent / "golden"

USER_PROBLEM = """
from icl25_pi_dion import InverseProblem

class Decay(InverseProblem):
    coords = ("x", "t")
    target_coords = ("x",)
    derivatives = ("u", "u_t", "u_xx")

    def __init__(self, rate: float = 0.1):
        self.rate = rate

    def residual(self, d, s, y):
        return d.u_t - 0.01 * d.u_xx + self.rate * d.u - s.value
"""


@pytest.fixture
def golden():
    def load(name: str) -> dict[str, np.ndarray]:
        with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as arrays:
            return dict(arrays)

    return load


@pytest.fixture
def x64() -> Iterator[None]:
    """Double precision."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session", autouse=True)
def cache_home(tmp_path_factory) -> Iterator[Path]:
    """Keep compiled programs out of the home of whoever runs the tests, and share them among the tests."""
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    use_compile_cache()
    yield folder
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


class Ran(NamedTuple):
    """What a command left: its exit status, standard output and standard error."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON document that it must be."""
        return json.loads(self.out)


def quiet_down() -> None:
    """Take the handler of messages away: it writes to a captured stream, which ends with the test."""
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if handler.get_name() == "icl25"]:
        root.removeHandler(handler)


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """Run the command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments) -> Ran:
        status = main([*map(str, arguments), *(() if "--device" in arguments else ("--device", "cpu"))])
        return Ran(status, *capsys.readouterr())

    yield run
    quiet_down()


@pytest.fixture
def refused(cli):
    """Run a command that must fail on its input in one line, and give back its message."""

    def run(*arguments) -> str:
        ran = cli(*arguments)
        messages = [line for line in ran.err.splitlines() if not line.startswith("warning: ")]
        assert (ran.status, ran.out, len(messages)) == (2, "", 1), ran
        assert messages[0].startswith(f"icl25-pi-dion {arguments[0]}: error: ")
        return messages[0].partition("error: ")[2]

    return run


# How the operator of `rd_case` is trained; the same flags are compiled once for all tests.
TRAINED = ("--set", "n_sensors=21,n_modes=6", "--p", "16", "--points", "100", "--batch-size", "20", "--device", "cpu")


class Case(NamedTuple):
    """A problem with simulated measurements, and an operator trained on them, in files."""

    problem: Any
    s: np.ndarray
    measurements: np.ndarray
    data: Path
    run: Path
    flags: tuple[str, ...]


@pytest.fixture(scope="session")
def rd_case(tmp_path_factory) -> Case:
    """Reaction-diffusion on few sensors, with an operator that was trained for a moment."""
    folder = tmp_path_factory.mktemp("rd")
    problem = ReactionDiffusionSource(n_sensors=21, n_modes=6)
    s = sample_prior(problem, 40, seed=0)
    measurements = simulate(problem, s)
    data, run = folder / "data.npz", folder / "run"
    write_arrays(data, {"measurements": measurements, "s": s, "u": measurements, "sensors": problem.sensors()})
    flags = ("--steps", "300", *TRAINED)
    assert main(["train", "rd", str(data), "--out", str(run), "--quiet", *flags]) == 0
    quiet_down()
    return Case(problem, s, measurements, data, run, flags)


@pytest.fixture
def user_problem(tmp_path) -> Path:
    """A problem of the user's own, in my_pde.py."""
    path = tmp_path / "my_pde.py"
    path.write_text(USER_PROBLEM)
    return path
