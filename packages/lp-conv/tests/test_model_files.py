from __future__ import annotations

import argparse
import json
from collections import OrderedDict
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from icl25_lp_conv.conversion import convert, merge
from icl25_lp_conv.layer_records import changed_layers, install_layers
from icl25_lp_conv.layers import LpConv2d
from icl25_lp_conv.lp_layer import LpLayer
from icl25_lp_conv.model_files import load_model, save_model
from icl25_lp_conv.models import ModelSource, presets
from icl25_lp_conv.models.presets import random_mask

SOURCE = ModelSource("digits-resnet(widths=(2, 3, 4))", num_classes=3)
X = torch.rand(2, 1, 12, 12, generator=torch.Generator().manual_seed(0))


def network(seed=0):
    """With running statistics that are not those of a fresh network."""
    torch.manual_seed(seed)
    model = SOURCE.build()
    model(torch.rand(8, 1, 12, 12))
    return model.eval()


def masked(**options):
    model = convert(network(), **options)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, LpLayer) and layer.C is not None:
                layer.C += 0.1 * torch.randn(layer.C.shape, generator=torch.Generator().manual_seed(1))
    return model


VARIANTS = {
    "plain": network,
    "lp2": masked,
    "large": lambda: masked(p=None),
    "shared masks": lambda: masked(p=4, mask_sharing="layer", log2p_min=0.5, learn_p=False),
    "frozen": lambda: presets["gauss-frozen"](network()),
    "one stage": lambda: masked(include="blocks.2.*", growth=3),
    "merged": lambda: merge(masked()),
    "cropped": lambda: merge(masked(), crop=0.02),
    "random masks": lambda: random_mask(masked(), seed=0),
    "half": lambda: masked().to(torch.bfloat16),
}


def lp_layers(model):
    return {name: module for name, module in model.named_modules() if isinstance(module, LpLayer)}


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_what_was_saved_is_read(tmp_path, variant, suffix):
    model = VARIANTS[variant]()
    path = tmp_path / f"model{suffix}"
    state = torch.get_rng_state()
    save_model(path, model, SOURCE)
    loaded = load_model(path)
    assert torch.equal(torch.get_rng_state(), state)
    assert loaded.source == SOURCE
    assert not any(module.training for module in loaded.model.modules())
    x = X.to(next(model.parameters()).dtype)
    assert torch.equal(loaded.model(x), model.eval()(x))
    assert repr(loaded.model) == repr(model)
    expected = model.state_dict()
    found = loaded.model.state_dict()
    assert list(found) == list(expected)
    assert all(torch.equal(found[k], expected[k]) and found[k].dtype == expected[k].dtype for k in expected)
    for name, layer in lp_layers(model).items():
        twin: Any = lp_layers(loaded.model)[name]
        for attribute in ("init_p", "init_sigma", "mask_sharing", "log2p_min"):
            assert getattr(twin, attribute) == getattr(layer, attribute)
        assert {k: v.requires_grad for k, v in twin.named_parameters()} == {
            k: v.requires_grad for k, v in layer.named_parameters()
        }
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_files_name_the_layers_that_changed_and_hold_no_objects(tmp_path):
    save_model(tmp_path / "plain.safetensors", network(), SOURCE)
    save_model(tmp_path / "one.safetensors", masked(include="blocks.1.conv2", p=4), SOURCE)
    records = {}
    for name in ("plain", "one"):
        with safe_open(tmp_path / f"{name}.safetensors", framework="pt") as file:
            records[name] = json.loads(file.metadata()["icl25-lp-conv"])
    assert records["plain"]["source"] == {"name": SOURCE.name, "num_classes": 3, "small_images": False}
    assert records["plain"]["layers"] == {}
    assert list(records["one"]["layers"]) == ["blocks.1.conv2"]
    layer = records["one"]["layers"]["blocks.1.conv2"]
    assert layer["class"] == "LpConv2d"
    assert layer["arguments"]["kernel_size"] == [7, 7]
    assert layer["arguments"]["sigma"] == [1.5, 1.5]
    save_model(tmp_path / "one.pt", masked(include="blocks.1.conv2", p=4), SOURCE)
    content = torch.load(tmp_path / "one.pt", weights_only=True)
    assert json.loads(content["icl25-lp-conv"]) == records["one"]
    assert all(isinstance(value, torch.Tensor) for value in content["state"].values())


def test_existing_files_and_other_suffixes_are_refused(tmp_path):
    path = tmp_path / "model.pt"
    model, state = network(), torch.get_rng_state()
    save_model(path, model, SOURCE)
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(FileExistsError, match=r"model\.pt exists already"):
        save_model(path, network(), SOURCE)
    save_model(path, network(1), SOURCE, force=True)
    assert torch.equal(load_model(path).model(X), network(1)(X))
    for name in ("model.onnx", "model"):
        with pytest.raises(ValueError, match=rf"{name}: a model file must end in \.safetensors or \.pt"):
            save_model(tmp_path / name, network(), SOURCE)


def test_a_model_of_another_source_is_not_saved(tmp_path):
    path = tmp_path / "model.pt"
    with pytest.raises(ValueError, match=r"the model is not sudoku-cnn.*could not restore it: there is no layer"):
        save_model(path, network(), ModelSource("sudoku-cnn(depth=1, width=2)"))
    with pytest.raises(ValueError, match=r"head\.weight has shape \(3, 4\), expected \(5, 4\)"):
        save_model(path, network(), ModelSource(SOURCE.name, num_classes=5))
    grown = network()
    grown.extra = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"unknown extra\.bias, extra\.weight"):
        save_model(path, grown, SOURCE)
    assert not path.exists()


def test_layers_and_kernels_that_are_shared_stay_shared(tmp_path, monkeypatch):
    (tmp_path / "shared_nets.py").write_text(
        "from torch import nn\n"
        "def net():\n"
        "    conv = nn.Conv2d(2, 2, 3, padding=1)\n"
        "    model = nn.Sequential(conv, nn.ReLU(), conv, nn.Conv2d(2, 2, 3, padding=1))\n"
        "    model[3].weight = conv.weight\n"
        "    return model\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    source = ModelSource("shared_nets:net")
    model = convert(source.build()).eval()
    for suffix in ("pt", "safetensors"):
        save_model(tmp_path / f"model.{suffix}", model, source)
        with pytest.raises(ValueError, match="was built by the function shared_nets:net, which a file may not call"):
            load_model(tmp_path / f"model.{suffix}")
        loaded: Any = load_model(tmp_path / f"model.{suffix}", source).model
        assert loaded[0] is loaded[2]
        assert loaded[3].weight is loaded[0].weight
        x = torch.rand(1, 2, 5, 5)
        assert torch.equal(loaded(x), model(x))


def test_the_network_itself_may_be_the_layer(tmp_path, monkeypatch):
    (tmp_path / "lone_nets.py").write_text("from torch import nn\ndef net(): return nn.Conv1d(1, 2, 3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    source = ModelSource("lone_nets:net")
    model = convert(source.build())
    save_model(tmp_path / "model.pt", model, source)
    loaded = load_model(tmp_path / "model.pt", source).model
    assert torch.equal(loaded(torch.ones(1, 1, 9)), model.eval()(torch.ones(1, 1, 9)))
    torch.save(model.state_dict(), tmp_path / "bare.pt")
    assert type(load_model(tmp_path / "bare.pt", source).model).__name__ == "LpConv1d"


def test_masks_without_a_record_are_shared_and_shaped_as_they_show(tmp_path, monkeypatch):
    (tmp_path / "grouped_nets.py").write_text(
        "from torch import nn\ndef net(): return nn.Sequential(nn.Conv2d(4, 6, (3, 5), groups=2))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    source = ModelSource("grouped_nets:net")
    for sharing, n in (("channel", 6), ("group", 2), ("layer", 1)):
        model: Any = convert(source.build(), mask_sharing=sharing)
        state = {**model.state_dict(), "0.log2p": torch.linspace(1, 3, n) if n > 1 else torch.tensor([2.0])}
        torch.save(state, tmp_path / "bare.pt")
        layer: Any = load_model(tmp_path / "bare.pt", source).model.get_submodule("0")
        assert (layer.mask_sharing, layer.init_sigma) == (sharing, (1.5, 2.5))
        assert layer.init_p == pytest.approx(4)
    torch.save({**source.build().state_dict(), "0.weight": torch.zeros(6, 2, 1, 5)}, tmp_path / "bare.pt")
    with pytest.raises(ValueError, match=r"0 has a kernel of size \(1, 5\), too small for the padding of \(3, 5\)"):
        load_model(tmp_path / "bare.pt", source)


def test_parametrised_convolutions_stay_as_they_were_built(tmp_path, monkeypatch):
    (tmp_path / "normed_nets.py").write_text(
        "from torch import nn\n"
        "def plain(): return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3))\n"
        "def net():\n"
        "    model = plain()\n"
        "    nn.utils.parametrizations.weight_norm(model[1])\n"
        "    return model\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    source = ModelSource("normed_nets:net")
    model = convert(source.build(), include="0").eval()
    save_model(tmp_path / "model.pt", model, source)
    x = torch.rand(1, 1, 9, 9)
    assert torch.equal(load_model(tmp_path / "model.pt", source).model(x), model(x))
    with pytest.raises(ValueError, match="1 is parametrised, which a model file cannot describe"):
        save_model(tmp_path / "other.pt", model, ModelSource("normed_nets:plain"))


def test_names_of_own_files_are_kept_and_views_are_cut_out(tmp_path, monkeypatch):
    (tmp_path / "wrapped_nets.py").write_text(
        "from torch import nn\n"
        "def net():\n    model = nn.Sequential()\n    model.add_module('module', nn.Linear(3, 3))\n    return model\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    source = ModelSource("wrapped_nets:net")
    model: Any = source.build()
    model.module.weight.data = torch.rand(100_000)[:9].view(3, 3)
    for suffix in (".pt", ".safetensors"):
        save_model(tmp_path / f"model{suffix}", model, source)
        assert (tmp_path / f"model{suffix}").stat().st_size < 10_000
        loaded = load_model(tmp_path / f"model{suffix}", source).model
        assert torch.equal(loaded(torch.ones(3)), model(torch.ones(3)))


def test_layers_take_the_mode_of_those_they_replace():
    built, records = network().train(), changed_layers(masked(), network())
    built.get_submodule("blocks.1").eval()
    modes = {name: layer.training for name, layer in lp_layers(install_layers(built, records)).items()}
    assert modes == {name: not name.startswith("blocks.1.") for name in records}


def test_weights_that_are_not_finite_are_refused(tmp_path):
    state = network().state_dict()
    state["head.weight"][1, :2] = torch.tensor([float("nan"), float("inf")])
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"head\.weight has 2 values that are not finite"):
        load_model(tmp_path / "model.pt", SOURCE)


def wrap_plainly(state):
    return state


def wrap_as_a_training_script(state):
    return {
        "model": OrderedDict((f"module.{name}", tensor) for name, tensor in state.items()),
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1}]},
        "args": argparse.Namespace(lr=0.1, model="resnet18"),
        "epoch": 7,
    }


def wrap_as_state_dict(state):
    return {"state_dict": state, "best": 0.5}


def wrap_as_a_compiled_average(state):
    return {"model_ema": {f"module._orig_mod.{name}": tensor for name, tensor in state.items()}}


@pytest.mark.parametrize("variant", ["plain", "lp2", "large", "shared masks", "one stage", "merged", "cropped", "half"])
@pytest.mark.parametrize(
    "wrap", [wrap_plainly, wrap_as_a_training_script, wrap_as_state_dict, wrap_as_a_compiled_average]
)
def test_weights_alone_are_read_into_a_given_source(tmp_path, variant, wrap):
    model = VARIANTS[variant]().eval()
    path = tmp_path / "checkpoint.pth"
    torch.save(wrap(model.state_dict()), path)
    loaded = load_model(path, SOURCE).model
    x = X.to(next(model.parameters()).dtype)
    torch.testing.assert_close(loaded(x), model(x), rtol=0, atol=0)
    if wrap is wrap_plainly:
        save_model(tmp_path / "again.safetensors", loaded, SOURCE)
        assert torch.equal(load_model(tmp_path / "again.safetensors").model(x), model(x))
        save_file(model.state_dict(), tmp_path / "bare.safetensors")
        assert torch.equal(load_model(tmp_path / "bare.safetensors", SOURCE).model(x), model(x))
    with pytest.raises(ValueError, match=r"checkpoint\.pth holds weights alone: name the network"):
        load_model(path)


def test_masks_of_weights_alone_come_with_their_layer(tmp_path):
    torch.save(masked(p=4).state_dict(), tmp_path / "lp.pt")
    layers = lp_layers(load_model(tmp_path / "lp.pt", SOURCE).model)
    assert len(layers) == 13
    assert {layer.init_p for layer in layers.values()} == {4.0}
    assert all(isinstance(layer, LpConv2d) and layer.C.requires_grad for layer in layers.values())


class Other:
    pass


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_broken_files_are_named(tmp_path, suffix):
    path = tmp_path / f"model{suffix}"
    save_model(path, masked(), SOURCE)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[:200] = bytes(200)
    for content in (whole[: len(whole) // 2], whole[:-3], b"", b"no tensors at all", bytes(flipped)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"model\{suffix} (is not a|holds)") as raised:
            load_model(path, SOURCE)
        assert "\n" not in str(raised.value)


def test_other_paths_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no model file .*none\.pt"):
        load_model(tmp_path / "none.pt")
    with pytest.raises(IsADirectoryError, match="is a folder, expected a model file"):
        load_model(tmp_path)
    (tmp_path / "model.txt").write_text("x")
    with pytest.raises(ValueError, match=r"model\.txt: a model file must end in \.safetensors, \.pt"):
        load_model(tmp_path / "model.txt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model": Other()}, r"holds an object \(\S*Other\) that is not read: only tensors, strings and numbers"),
        (network(), r"holds an object \(torch\.nn\S*\) that is not read"),
        ([torch.zeros(2)], "holds no weights by name"),
        ({}, "holds no weights by name"),
        ({"epoch": 3}, "holds no weights by name: epoch is a int"),
        ({"model": {"a": torch.zeros(2)}}, "does not fit digits-resnet.*unknown a; missing blocks"),
    ],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_pickles_of_something_else_are_refused(tmp_path, content, message, zipped):
    torch.save(content, tmp_path / "model.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(ValueError, match=r"model\.pt " + message) as raised:
        load_model(tmp_path / "model.pt", SOURCE)
    assert "\n" not in str(raised.value)


def test_kernels_that_cannot_have_grown_are_refused(tmp_path):
    state = network().state_dict()
    for shape, message in (((2, 1, 4, 4), r"stem\.0 has a kernel of size \(4, 4\)"), ((3, 1, 3, 3), "has shape")):
        torch.save({**state, "stem.0.weight": torch.zeros(shape)}, tmp_path / "model.pt")
        with pytest.raises(ValueError, match=rf"model\.pt does not fit digits-resnet.*{message}"):
            load_model(tmp_path / "model.pt", SOURCE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "is of version 2, expected 1"),
        ({"source": {"name": "os:getcwd"}}, "was built by the function os:getcwd"),
        ({"source": {"nom": "x"}}, "cannot be read"),
        ({"source": {"name": 3}}, "cannot be read"),
        ({"layers": {"nowhere": {}}}, "there is no layer nowhere|cannot be read"),
        ({"layers": {"stem.0": {"class": "Linear", "arguments": {}}}}, "record of layer stem.0 cannot be read"),
        ({"layers": {"stem.0": {"class": "Conv2d", "arguments": {"width": 3}}}}, "record of layer stem.0 cannot be"),
        ({"layers": {}}, "does not fit digits-resnet"),
    ],
)
def test_records_that_make_no_sense_are_refused(tmp_path, change, message):
    path = tmp_path / "model.safetensors"
    save_model(path, masked(), SOURCE)
    with safe_open(path, framework="pt") as file:
        record = json.loads(file.metadata()["icl25-lp-conv"])
    save_file(load_file(path), path, {"icl25-lp-conv": json.dumps(record | change)})
    with pytest.raises(ValueError, match=message):
        load_model(path)
    save_file(load_file(path), path, {"icl25-lp-conv": "{"})
    with pytest.raises(ValueError, match="what it says about its network cannot be read"):
        load_model(path)


def test_source_and_file_must_agree(tmp_path):
    save_model(tmp_path / "model.pt", network(), SOURCE)
    assert load_model(tmp_path / "model.pt", SOURCE).source == SOURCE
    with pytest.raises(ValueError, match=r"model\.pt holds ModelSource.*found source=ModelSource\(name='sudoku-cnn'"):
        load_model(tmp_path / "model.pt", ModelSource("sudoku-cnn"))


@pytest.mark.extra
@pytest.mark.usefixtures("vision")
@pytest.mark.parametrize("name", ["torchvision:squeezenet1_1", "timm:test_convnext"])
def test_networks_of_libraries_are_saved_and_read(tmp_path, name):
    source = ModelSource(name, num_classes=4)
    model = convert(source.build()).eval()
    save_model(tmp_path / "model.safetensors", model, source)
    x = torch.rand(1, 3, 64, 64)
    assert torch.equal(load_model(tmp_path / "model.safetensors").model(x), model(x))
