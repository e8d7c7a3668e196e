from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

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
    import torch

    spec = importlib.util.find_spec("torchvision")
    compiled = sorted(Path(spec.origin).parent.glob("_C.*")) if spec and spec.origin else []
    library = torch.library.Library("torchvision", "FRAGMENT")
    try:
        for path in compiled:
            torch.ops.load_library(path)
    except OSError:
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    yield
    del library
