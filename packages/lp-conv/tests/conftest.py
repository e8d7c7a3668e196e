from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import library, nn

from icl25_lp_conv.cli import main
from icl25_lp_conv.conversion import convert
from icl25_lp_conv.lp_layer import LpLayer
from icl25_lp_conv.model_files import save_model
from icl25_lp_conv.models import ModelSource, digits_resnet, sudoku_cnn

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden():
    def load(name: str) -> dict[str, np.ndarray]:
        with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as arrays:
            return dict(arrays)

    return load


@pytest.fixture(scope="session")
def vision() -> Iterator[None]:
    """Make torchvision importable where its compiled part was built for another torch than the one installed.

    Its Python part registers shape functions for two operators of that part and fails if they are unknown.
    """
    spec = importlib.util.find_spec("torchvision")
    compiled = sorted(Path(spec.origin).parent.glob("_C.*")) if spec and spec.origin else []
    operators = library.Library("torchvision", "FRAGMENT")
    try:
        for path in compiled:
            torch.ops.load_library(path)
    except OSError:
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    yield
    del operators


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
def quiet_afterwards():
    """Take the handler of messages away: it writes to the captured stream, which ends with the test."""
    yield
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if handler.get_name() == "icl25"]:
        root.removeHandler(handler)


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys, quiet_afterwards):
    """Run the command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments) -> Ran:
        status = main([*map(str, arguments), *(() if "--device" in arguments else ("--device", "cpu"))])
        return Ran(status, *capsys.readouterr())

    return run


@pytest.fixture
def refused(cli):
    """Run a command that must fail on its input in one line, and give back its message."""

    def run(*arguments) -> str:
        ran = cli(*arguments)
        messages = [line for line in ran.err.splitlines() if not line.startswith("warning: ")]
        assert (ran.status, ran.out, len(messages)) == (2, "", 1), ran
        verb = " ".join(arguments[:2]) if arguments[0] == "sudoku" else arguments[0]
        assert messages[0].startswith(f"icl25-lp-conv {verb}: error: ")
        return messages[0].partition("error: ")[2]

    return run


@pytest.fixture
def lp_layers():
    """The Lp layers of a network by name."""

    def find(model: nn.Module) -> dict[str, LpLayer]:
        return {name: module for name, module in model.named_modules() if isinstance(module, LpLayer)}

    return find


@torch.no_grad()
def shaken(model: nn.Module) -> nn.Module:
    """The network with masks that differ, as after training."""
    generator = torch.Generator().manual_seed(0)
    for layer in model.modules():
        if isinstance(layer, LpLayer):
            for parameter in (layer.get_parameter("C"), layer.get_parameter("log2p")):
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture
def masked(tmp_path) -> nn.Module:
    """A converted network, which lies in model.pt too."""
    torch.manual_seed(0)
    model = shaken(convert(digits_resnet(widths=(4, 6, 8)), p=4, transfer="none", min_kernel=2)).eval()
    save_model(tmp_path / "model.pt", model, ModelSource("digits-resnet(widths=(4, 6, 8))"))
    return model


@pytest.fixture
def two_layers(tmp_path) -> nn.Module:
    """A converted network of two masked layers, which lies in two.pt too."""
    model = shaken(convert(sudoku_cnn(2, 5, seed=0), exclude="head"))
    save_model(tmp_path / "two.pt", model, ModelSource("sudoku-cnn(depth=2, width=5)"))
    return model
