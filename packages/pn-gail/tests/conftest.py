from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def golden():
    """Arrays computed with the reference implementation, by file name."""

    def load(name: str) -> dict[str, np.ndarray]:
        with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as arrays:
            return dict(arrays)

    return load


@pytest.fixture
def x64() -> Iterator[None]:
    """Double precision."""
    with jax.enable_x64(True):
        yield


class Ran(NamedTuple):
    """What a command left: its exit status, standard output and standard error."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON document that it must be."""
        return json.loads(self.out)


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """Run the command line in this process, in an empty folder."""
    from icl25_pn_gail.cli import main

    monkeypatch.chdir(tmp_path)

    def run(*arguments) -> Ran:
        status = main([*map(str, arguments)])
        return Ran(status, *capsys.readouterr())

    yield run
    root = logging.getLogger()  # its handler writes to a captured stream, which ends with the test
    for handler in [handler for handler in root.handlers if handler.get_name() == "icl25"]:
        root.removeHandler(handler)


@pytest.fixture
def refused(cli):
    """Run a command that must fail on its input in one line, and give back its message."""

    def run(*arguments) -> str:
        ran = cli(*arguments)
        messages = [line for line in ran.err.splitlines() if not line.startswith("warning: ")]
        assert (ran.status, ran.out, len(messages)) == (2, "", 1), ran
        assert messages[0].startswith(f"icl25-pn-gail {arguments[0]}: error: ")
        return messages[0].partition("error: ")[2]

    return run
