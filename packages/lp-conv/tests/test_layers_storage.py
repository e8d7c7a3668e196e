import pickle

import torch

from icl25_lp_conv import LpConv2d


def test_layers_can_be_pickled():
    layer = LpConv2d(2, 4, 3, p=3).eval()
    x = torch.randn(1, 2, 6, 6)
    with torch.no_grad():
        expected = layer(x)
    again = pickle.loads(pickle.dumps(layer))
    assert torch.equal(again(x), expected)
    assert again.mask_sharing == "channel"


def test_devices_without_memory_work():
    layer = LpConv2d(2, 4, 7, device="meta")
    assert layer(torch.empty(1, 2, 9, 9, device="meta")).shape == (1, 4, 3, 3)
    assert layer.C.device.type == "meta"
    assert layer.to_conv().weight.device.type == "meta"
    assert layer.eval()(torch.empty(1, 2, 9, 9, device="meta")).shape == (1, 4, 3, 3)
