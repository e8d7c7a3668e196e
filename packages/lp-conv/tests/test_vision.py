from __future__ import annotations

import pytest
import torch
from torch import nn

from icl25_lp_conv import LpLayer, convert, merge

pytestmark = [pytest.mark.extra, pytest.mark.usefixtures("vision")]


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def torchvision_model(name, small=False, **given):
    """A network of torchvision, with the stem that the authors give it for images of 32 x 32 pixels."""
    from torchvision import models

    model = getattr(models, name)(**given)
    if small and name == "alexnet":
        model.features[0] = nn.Conv2d(3, 64, 3, padding=1)
    elif small:
        model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    return model


@pytest.mark.parametrize(
    ("name", "small", "before", "after", "n_layers", "n_mask"),
    [
        ("alexnet", True, 57_392_036, 68_087_844, 5, 5_760),
        ("vgg16", False, 134_670_244, 200_071_204, 13, 21_120),
        ("resnet18", True, 11_220_132, 61_452_388, 20, 24_000),
        ("resnet34", True, 21_328_292, 116_471_268, 36, 42_560),
        ("convnext_tiny", False, 27_897_028, 33_761_860, 22, 40_320),
    ],
)
def test_parameters_are_as_many_as_in_the_code_of_the_authors(name, small, before, after, n_layers, n_mask):
    with torch.device("meta"):
        model = torchvision_model(name, small, num_classes=100)
    assert count(model) == before
    large = convert(model)
    assert count(large) == after
    assert len(large.conversion_report.layers) == n_layers
    assert sum(x.numel() for key, x in large.named_parameters() if key.endswith((".C", ".log2p"))) == n_mask
    assert large(torch.empty(2, 3, 64, 64, device="meta")).shape == (2, 100)
    merged = merge(large)
    assert count(merged) == after - n_mask


@pytest.mark.parametrize(
    "name",
    [
        "alexnet",
        "vgg11_bn",
        "resnet50",
        "resnext50_32x4d",
        "densenet121",
        "squeezenet1_1",
        "mobilenet_v2",
        "mobilenet_v3_small",
        "shufflenet_v2_x0_5",
        "mnasnet0_5",
        "efficientnet_b0",
        "googlenet",
        "convnext_tiny",
        "inception_v3",
    ],
)
@pytest.mark.filterwarnings("ignore:The default weight initialization")
def test_every_map_keeps_its_size(name):
    """Each convolution of the network, not only the last, gives maps of the old size."""
    with torch.device("meta"):
        model = torchvision_model(name).eval()
    x = torch.empty(1, 3, 128, 128, device="meta")

    def sizes(model):
        found = {}
        for key, module in model.named_modules():
            if isinstance(module, nn.Conv2d):
                module.register_forward_hook(lambda _m, _i, output, key=key: found.update({key: output.shape}))
        return model(x).shape, found

    large = convert(model)
    plain_output, plain_maps = sizes(model)
    output, maps = sizes(large)
    assert output == plain_output == (1, 1000)
    assert maps == plain_maps
    n_convolutions = sum(isinstance(module, nn.Conv2d) for module in model.modules())
    assert len(maps) >= n_convolutions - 4  # auxiliary classifiers do not run in evaluation
    assert sum(isinstance(module, LpLayer) for module in large.modules()) == n_convolutions


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_exact_transfer_keeps_the_logits(name):
    torch.manual_seed(0)
    model = torchvision_model(name, num_classes=10)
    x = torch.randn(4, 3, 64, 64)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # one batch sets the statistics, which keep maps and logits of order one
    model(x)
    model.eval()
    with torch.no_grad():
        expected = model(x)
        large = convert(model, transfer="exact")
        assert (large(x) - expected).abs().max() < 1e-4
        assert (convert(model)(x) - expected).abs().max() > 1e-3
        merged = merge(large)
        assert (merged(x) - expected).abs().max() < 1e-4
    assert expected.std() > 3e-3


def test_models_of_timm_are_converted():
    import timm

    torch.manual_seed(0)
    model = timm.create_model("resnet10t", num_classes=7).eval()
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        large = convert(model, transfer="exact", exclude=lambda name, module: module.kernel_size == (1, 1))
        assert (large(x) - model(x)).abs().max() < 1e-4
    assert sum(isinstance(module, LpLayer) for module in large.modules()) == 11
    assert large.conv1[0].kernel_size == (7, 7)
    large.train()(x).square().sum().backward()
    assert large.conv1[0].C.grad.abs().max() > 0


@pytest.mark.filterwarnings("ignore:.*was left as it is")
def test_convolutions_of_timm_that_pad_by_themselves_are_left():
    import timm

    with torch.device("meta"):
        model = timm.create_model("tf_efficientnet_b0")
    with pytest.warns(UserWarning, match="its class Conv2dSame computes something other than Conv2d"):
        large = convert(model)
    kinds = {type(module).__name__ for module in large.modules() if isinstance(module, nn.Conv2d)}
    assert kinds == {"Conv2dSame", "LpConv2d"}
