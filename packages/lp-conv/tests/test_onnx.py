from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from icl25_lp_conv import LpConv1d, LpConv2d, LpConv3d, LpConvTranspose2d, convert, merge

pytestmark = [pytest.mark.extra, pytest.mark.filterwarnings("ignore")]


def run(path, x):
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    return y


def export(model, x, path):
    torch.onnx.export(model, (x,), path, dynamo=True, verbose=False)
    return path


def network():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 5, stride=2, padding=2, groups=4)
    )
    large = convert(model, p=4)
    with torch.no_grad():
        for layer in (large[0], large[3]):
            layer.C.add_(0.2 * torch.randn_like(layer.C))
    return large.eval(), torch.randn(2, 3, 12, 12)


@pytest.mark.parametrize("merged", [False, True])
def test_networks_run_in_onnx_as_in_torch(tmp_path, merged):
    import onnx

    model, x = network()
    expected = model(x).detach().numpy()
    path = export(merge(model) if merged else model, x, tmp_path / "model.onnx")
    assert run(path, x) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    operators = [node.op_type for node in onnx.load(path).graph.node]
    assert operators.count("Conv") == 2
    if merged:
        assert set(operators) <= {"Conv", "BatchNormalization", "Relu"}


@pytest.mark.parametrize(
    ("cls", "given"),
    [
        (LpConv1d, {"kernel_size": 5, "padding": 2}),
        (LpConv2d, {"kernel_size": 4, "padding": "same", "dilation": 2}),
        (LpConv2d, {"kernel_size": 7, "padding": 3, "padding_mode": "reflect", "mask_sharing": "layer"}),
        (LpConv3d, {"kernel_size": 3, "stride": 2, "mask_sharing": "group", "groups": 2}),
        (LpConvTranspose2d, {"kernel_size": 3, "stride": 2, "groups": 2}),
    ],
)
def test_layers_run_in_onnx_as_in_torch(tmp_path, cls, given):
    torch.manual_seed(0)
    layer = cls(2, 4, p=16, **given).eval()
    x = torch.randn(1, 2, *[9] * len(layer.kernel_size))
    expected = layer(x).detach().numpy()
    for name, model in (("plain", layer), ("merged", layer.to_conv())):
        found = run(export(model, x, tmp_path / f"{name}.onnx"), x)
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert np.abs(found).max() > 0
