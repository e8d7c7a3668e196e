from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import nn

from icl25_lp_conv.conversion import convert
from icl25_lp_conv.models import ModelSource, build_model, digits_resnet


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def convolutions(model):
    return [module for module in model.modules() if isinstance(module, nn.Conv2d)]


def test_the_digits_network_has_the_shape_of_its_description():
    model = digits_resnet()
    kernels = [(c.in_channels, c.out_channels, c.kernel_size[0], c.stride[0]) for c in convolutions(model)]
    assert kernels == [
        (1, 12, 3, 1),
        *[(12, 12, 3, 1)] * 2,
        *[(12, 24, 3, 2), (24, 24, 3, 1), (12, 24, 1, 2)],
        *[(24, 24, 3, 1)] * 2,
        *[(24, 48, 3, 2), (48, 48, 3, 1), (24, 48, 1, 2)],
        *[(48, 48, 3, 1)] * 2,
    ]
    maps = model.blocks(model.stem(torch.zeros(2, 1, 20, 20)))
    assert maps.shape == (2, 48, 5, 5)
    assert model(torch.zeros(2, 1, 20, 20)).shape == (2, 10)
    assert digits_resnet(3, (2, 3, 4), in_channels=3)(torch.zeros(1, 3, 9, 7)).shape == (1, 3)


def test_blocks_add_their_input():
    block = digits_resnet().eval().blocks[0]
    with torch.no_grad():
        block.norm2.weight.zero_()
    x = torch.rand(1, 12, 5, 5)
    torch.testing.assert_close(block(x), x)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 0}, "num_classes must be >= 1, found 0"),
        ({"in_channels": 0}, "in_channels must be >= 1, found 0"),
        ({"widths": (4, 8)}, "widths must be three numbers, found 2"),
        ({"widths": (4, 0, 8)}, "widths must be >= 1, found 0"),
    ],
)
def test_the_digits_network_refuses_bad_sizes(arguments, message):
    with pytest.raises(ValueError, match=message):
        digits_resnet(**arguments)


def test_own_networks_are_built_by_name():
    assert count(build_model("digits-resnet")) == count(digits_resnet())
    assert build_model("digits-resnet", num_classes=4).head.out_features == 4
    assert ModelSource("digits-resnet", num_classes=4).build().head.out_features == 4
    wide = build_model("digits-resnet(widths=(2, 3, 4), in_channels=3)", num_classes=7)
    assert wide(torch.zeros(1, 3, 8, 8)).shape == (1, 7)
    small = ModelSource("sudoku-cnn(depth=2, width=4)").build()
    assert [conv.out_channels for conv in convolutions(small)] == [4, 4, 9]


def test_a_function_of_the_user_is_called(tmp_path, monkeypatch):
    (tmp_path / "nets_of_mine.py").write_text(
        "from torch import nn\n"
        "def net(num_classes=2): return nn.Linear(3, num_classes)\n"
        "def other(): return [1]\n"
        "number = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert build_model("nets_of_mine:net").out_features == 2
    assert build_model("nets_of_mine:net", num_classes=5).out_features == 5
    assert ModelSource("nets_of_mine:net").is_function
    assert not ModelSource("timm:resnet18").is_function
    with pytest.raises(TypeError, match=r"nets_of_mine:other returned list, expected a torch\.nn\.Module"):
        build_model("nets_of_mine:other")
    with pytest.raises(ValueError, match=r"no function nett; did you mean net\?"):
        build_model("nets_of_mine:nett")
    with pytest.raises(ValueError, match="there is no function number"):
        build_model("nets_of_mine:number")
    with pytest.raises(ValueError, match="is a function: it alone decides"):
        build_model("nets_of_mine:net", pretrained=True)
    with pytest.raises(ValueError, match="is a function: it alone decides"):
        build_model("nets_of_mine:net", small_images=True)
    with pytest.raises(ValueError, match="num_classes must be >= 1, found 0"):
        build_model("nets_of_mine:net", num_classes=0)
    with pytest.raises(ValueError, match=r"nets_of_mine:other cannot be called with \{'num_classes': 2\}"):
        build_model("nets_of_mine:other", num_classes=2)
    (tmp_path / "broken_nets.py").write_text("import no_such_package\n")
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_package'"):
        build_model("broken_nets:net")
    monkeypatch.delitem(sys.modules, "nets_of_mine")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("no_such_package.nets:net", {}, "no module no_such_package; it must be installed or on PYTHONPATH"),
        ("torchvison:resnet18", {}, r"no module torchvison; did you mean torchvision:resnet18\?"),
        (":net", {}, "is no name of a function, expected package.module:function"),
        ("digits-resnet", {"num_classes": 0}, "num_classes must be >= 1, found 0"),
        ("digits-resnet", {"pretrained": True}, "digits-resnet has no pretrained weights"),
        ("sudoku-cnn", {"num_classes": 3}, "sudoku-cnn has no classes, found num_classes=3"),
        ("sudoku-cnn(depth=0)", {}, "depth must be >= 1, found 0"),
        ("sudoku-cnn(deep=3)", {}, "has no option deep; it has depth, width and seed"),
        ("sudoku-cnn(depth='a')", {}, "an option has a wrong type"),
        ("sudoku-cnn(depth=open('x'))", {}, "cannot be read; options look like name"),
        ("sudoku-cnn(3)", {}, "cannot be read; options look like name"),
        ("sudoku-cnn(depth=3", {}, "cannot be read; options look like name"),
        ("torchvision:resnet18(width=3)", {}, "only digits-resnet and sudoku-cnn take options"),
    ],
)
def test_names_that_lead_nowhere_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        build_model(name, **options)


def test_missing_libraries_are_named(monkeypatch):
    for library in ("torchvision", "timm"):
        monkeypatch.setitem(sys.modules, library, None)
    for name in ("torchvision:resnet18", "timm:resnet18", "resnet18"):
        with pytest.raises(ImportError, match=r'pip install "icl25-lp-conv\[vision\]"'):
            build_model(name)
    with pytest.raises(ValueError, match=r"there is no network digits-resnt; did you mean digits-resnet\?"):
        build_model("digits-resnt")


def test_a_torchvision_of_another_torch_is_named(tmp_path, monkeypatch):
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    with pytest.raises(ImportError, match=r"nms does not exist.*install torch and torchvision from the same index"):
        build_model("torchvision:resnet18")


# Parameters of the paper's networks with 100 classes, before and after conversion.
PAPER: list[Any] = [
    ("torchvision:alexnet", True, 57_392_036, 68_087_844, 5),
    ("torchvision:resnet18", True, 11_220_132, 61_452_388, 20),
    ("torchvision:resnet34", True, 21_328_292, 116_471_268, 36),
    ("torchvision:vgg16", True, 134_670_244, 200_071_204, 13),
    ("torchvision:convnext_tiny", True, 27_897_028, 33_761_860, 22),
    ("timm:resnet18", True, 11_220_132, 61_452_388, 20),
    ("timm:convnext_tiny", False, 27_897_028, 33_761_860, 22),
]


@pytest.mark.extra
@pytest.mark.usefixtures("vision")
@pytest.mark.parametrize(("name", "small", "before", "after", "n_layers"), PAPER)
def test_networks_of_the_paper_have_its_number_of_parameters(name, small, before, after, n_layers, monkeypatch):
    # Layers without storage: nothing is drawn, and conversion copies nothing.
    with torch.device("meta"):
        model = build_model(name, num_classes=100, small_images=small)
    assert count(model) == before
    assert len(convolutions(model)) == n_layers
    monkeypatch.setattr(torch.nn.Module, "to_empty", lambda self, **_: self)
    assert count(convert(model, p=2.0)) == after


@pytest.mark.extra
@pytest.mark.usefixtures("vision")
def test_small_variants_read_small_images():
    model = build_model("resnet18", num_classes=5, small_images=True).eval()
    assert type(model).__module__ == "torchvision.models.resnet"
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 5)
    assert model.conv1(torch.zeros(1, 3, 32, 32)).shape == (1, 64, 32, 32)
    with torch.device("meta"):
        assert build_model("resnet18").conv1.kernel_size == (7, 7)
        assert type(build_model("convnext_atto")).__module__ == "timm.models.convnext"
        with pytest.raises(ValueError, match="squeezenet1_0 has no variant for small images"):
            build_model("squeezenet1_0", small_images=True)


@pytest.mark.extra
@pytest.mark.usefixtures("vision")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torchvision:resnet19", "no network torchvision:resnet19; did you mean torchvision:resnet1"),
        ("timm:convnext_tinny", "no network timm:convnext_tinny; did you mean timm:convnext_tiny"),
        ("resnett18", "there is no network resnett18; did you mean resnet18"),
        ("timm:hf-hub:someone/net", "lies outside of timm and is fetched only with pretrained weights"),
        ("torchvision:", "there is no network torchvision:$"),
    ],
)
def test_unknown_names_of_libraries_come_with_close_ones(name, message):
    with pytest.raises(ValueError, match=message):
        build_model(name)


@pytest.mark.extra
@pytest.mark.usefixtures("vision")
def test_nothing_is_fetched_unless_asked_for(monkeypatch):
    fetched = []

    def fetch(url, *_, **__):
        fetched.append(url)
        return build_model("torchvision:squeezenet1_1").state_dict()

    monkeypatch.setattr("torch.hub.load_state_dict_from_url", fetch)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fetch)
    with torch.device("meta"):
        build_model("torchvision:fcn_resnet50")
        build_model("torchvision:squeezenet1_1")
    assert fetched == []
    model = build_model("torchvision:squeezenet1_1", num_classes=3, pretrained=True)
    assert len(fetched) == 1
    assert model.classifier[1].out_channels == 3


def test_two_numbers_of_classes_are_a_contradiction():
    with pytest.raises(ValueError, match="digits-resnet is asked for 4 classes and for 7"):
        build_model("digits-resnet(num_classes=4)", num_classes=7)
    assert build_model("digits-resnet(num_classes=4)", num_classes=4)[-1].out_features == 4
