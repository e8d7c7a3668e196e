from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from icl25_lp_conv.classifier_evaluation import evaluate_classifier
from icl25_lp_conv.classifier_training import train_classifier
from icl25_lp_conv.conversion import convert
from icl25_lp_conv.datasets.images import ImageSet, ImageSplits
from icl25_lp_conv.layers import LpConv2d
from icl25_lp_conv.models import digits_resnet
from icl25_lp_conv.recipe import Recipe

RNG = np.random.default_rng(0)
NAMES = tuple("0123456789")


def patterns(n=120, n_val=60):
    """Ten random patterns, under noise."""
    rng = np.random.default_rng(3)
    shapes = rng.integers(0, 256, (10, 8, 8, 1))
    labels = np.arange(n + n_val) % 10
    noise = rng.normal(scale=60, size=(len(labels), 8, 8, 1))
    x = (shapes[labels] + noise).clip(0, 255).astype(np.uint8)
    return ImageSplits(ImageSet(x[:n], labels[:n]), ImageSet(x[n:], labels[n:]), NAMES)


DATA = patterns()
RECIPE = Recipe.small(epochs=3, batch_size=40, crop_padding=1, flip=False)


def network(seed=0, **options):
    torch.manual_seed(seed)
    return convert(digits_resnet(widths=(3, 4, 5)), **options) if options else digits_resnet(widths=(3, 4, 5))


def dropping(seed=0):
    """With all kinds of state: masks, running statistics, dropout."""
    model: Any = network(seed, p=3.0)
    model.head = nn.Sequential(nn.Dropout(0.3), model.head)
    return model


def bare(n_pixels, n_classes=10):
    """Without batch statistics."""
    torch.manual_seed(0)
    layer = LpConv2d(1, 4, 5, padding=2, p=3.0)
    return nn.Sequential(layer, nn.ReLU(), nn.Flatten(), nn.Linear(4 * n_pixels, n_classes))


def equal(a, b):
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_training_learns(tmp_path):
    data = patterns(200, 100)
    torch.manual_seed(0)
    model = digits_resnet(widths=(8, 12, 16))
    recipe = replace(RECIPE, epochs=4, lr=1e-2, batch_size=20, crop_padding=0)
    result = train_classifier(model, data, recipe, out=tmp_path / "run", seed=0)
    assert result.model is model
    assert result.ema is None
    assert not model.training
    first, *_, last = result.history
    assert last["train_loss"] < first["train_loss"] / 2
    assert last["val_top1"] > 0.7  # chance is 0.1
    assert lines(tmp_path / "run") == result.history
    assert [record["epoch"] for record in result.history] == [1, 2, 3, 4]
    assert set(last) == {"epoch", "lr", "train_loss", "val_loss", "val_top1", "val_top5"}
    scores = evaluate_classifier(model, data.val, RECIPE, batch_size=7)
    assert (scores.top1, scores.top5) == (last["val_top1"], last["val_top5"])
    assert scores.loss == pytest.approx(last["val_loss"])


def test_scores_are_those_of_their_definitions():
    class Shown(nn.Module):
        """The logits stand in the first rows of the image."""

        def forward(self, x):
            return x.flatten(1)[:, :10]

    logits = RNG.random((30, 4, 4, 1)).astype(np.float32)
    labels = RNG.integers(0, 10, 30)
    recipe = replace(RECIPE, mean=(0.0,), std=(1.0,))
    scores = evaluate_classifier(Shown(), ImageSet(logits, labels), recipe, batch_size=8)
    rows = logits.reshape(30, 16)[:, :10]
    own = rows[np.arange(30), labels]
    rank = (rows > own[:, None]).sum(axis=1)
    assert scores.top1 == pytest.approx((rank == 0).mean())
    assert scores.top5 == pytest.approx((rank < 5).mean())
    assert scores.loss == pytest.approx((np.log(np.exp(rows).sum(1)) - own).mean(), rel=1e-5)
    with pytest.raises(ValueError, match="batch_size must be >= 1, found 0"):
        evaluate_classifier(Shown(), ImageSet(logits, labels), recipe, batch_size=0)


def test_a_step_is_that_of_adamw(tmp_path):
    recipe = replace(RECIPE, epochs=1, batch_size=120, crop_padding=0, warmup_epochs=0, label_smoothing=0.1)
    recipe = replace(recipe, mask_weight_decay=0.5)
    model, reference = bare(64), bare(64)
    result = train_classifier(model, DATA, recipe, out=tmp_path, seed=4)
    rows = np.random.default_rng((4, 0, 0)).permutation(120)
    images = (DATA.train.read(rows)[:, None, :, :, 0] / 255 - np.mean(recipe.mean)) / np.mean(recipe.std)
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)(
        reference(torch.from_numpy(images).float()), torch.from_numpy(DATA.train.labels[rows])
    )
    loss.backward()
    for name, parameter in reference.named_parameters():
        decay = 0.5 if name.endswith(".C") else 0.05 if parameter.ndim > 1 else 0.0
        torch.optim.AdamW([parameter], lr=recipe.lr, weight_decay=decay).step()
    assert result.history[0]["train_loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert result.history[0]["lr"] == recipe.lr
    for name, parameter in reference.named_parameters():
        found = dict(model.named_parameters())[name]
        assert parameter.grad is not None
        # The first step of Adam has the length of the rate even where the gradient is rounding error.
        clear = parameter.grad.abs() > 1e-2 * parameter.grad.abs().max()
        torch.testing.assert_close(found[clear], parameter[clear], rtol=0, atol=0.01 * recipe.lr)


class Stop(Exception):
    pass


def stop_after(model, n_steps):
    calls = []

    def hook(module, *_):
        if module.training:
            calls.append(None)
            if len(calls) > n_steps:
                raise Stop

    model.register_forward_pre_hook(hook)


@pytest.mark.parametrize("stop", [3, 5, 8])
def test_an_interrupted_training_goes_on_bit_for_bit(tmp_path, stop):
    recipe = replace(RECIPE, ema_decay=0.9, log2p_min=1.0, cooldown_epochs=1, epochs=2)
    whole = train_classifier(dropping(), DATA, recipe, out=tmp_path / "whole", seed=2)
    assert len(whole.history) == 3
    model = dropping()
    stop_after(model, stop)
    with pytest.raises(Stop):
        train_classifier(model, DATA, recipe, out=tmp_path / "parts", seed=2)
    assert len(lines(tmp_path / "parts")) == stop // 3
    torch.manual_seed(99)  # whatever was drawn meanwhile
    resumed = train_classifier(dropping(1), DATA, recipe, out=tmp_path / "parts", seed=2, resume=True, log_every=2)
    assert resumed.history == whole.history
    assert equal(resumed.model, whole.model)
    assert resumed.ema is not None
    assert whole.ema is not None
    assert equal(resumed.ema, whole.ema)
    for name in ("metrics.jsonl", "checkpoint.safetensors"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert len(list((tmp_path / "parts").iterdir())) == 2


def test_the_seed_decides_and_global_generators_are_left_alone(tmp_path):
    torch.manual_seed(5)
    # Not that of Python, from which the type checker of the tests draws.
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    results = []
    models = [dropping() for _ in range(3)]
    torch.set_rng_state(before[0])
    for number, (model, seed) in enumerate(zip(models, (0, 0, 1), strict=True)):
        out = tmp_path / str(number)
        results.append(train_classifier(model, DATA, replace(RECIPE, epochs=1), out=out, seed=seed))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert equal(models[0], models[1])
    assert not equal(models[0], models[2])


class Watched(nn.Module):
    """Dropout that keeps what it multiplied by."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        factors = nn.functional.dropout(torch.ones_like(x), 0.5, self.training)
        self.seen += [factors] * self.training
        return x * factors


def test_dropout_differs_between_epochs_and_seeds(tmp_path):
    dropped = []
    for seed in (0, 0, 1):
        model = dropping()
        model.head[0] = Watched()
        out = tmp_path / str(len(dropped))
        train_classifier(model, DATA, replace(RECIPE, epochs=2, batch_size=120), out=out, seed=seed)
        dropped.append(model.head[0].seen)
    assert all(torch.equal(a, b) for a, b in zip(dropped[0], dropped[1], strict=True))
    assert not torch.equal(dropped[0][0], dropped[0][1])
    assert not torch.equal(dropped[0][0], dropped[2][0])


def test_workers_change_nothing(tmp_path):
    models = []
    for workers in (0, 1):
        models.append(network())
        recipe = replace(RECIPE, epochs=2, batch_size=60)
        train_classifier(models[-1], DATA, recipe, out=tmp_path / str(workers), workers=workers)
    assert equal(*models)


def test_existing_checkpoints_are_refused_or_gone_on_from(tmp_path):
    recipe = replace(RECIPE, epochs=1)
    train_classifier(network(), DATA, recipe, out=tmp_path, resume=True)  # none yet
    with pytest.raises(FileExistsError, match=r"checkpoint\.safetensors exists already; pass --resume"):
        train_classifier(network(), DATA, recipe, out=tmp_path)
    trained = network()
    trained.load_state_dict(
        {k.removeprefix("model."): v for k, v in load_file(tmp_path / "checkpoint.safetensors").items() if k[0] == "m"}
    )
    (tmp_path / "metrics.jsonl").unlink()
    again = train_classifier(network(1), DATA, recipe, out=tmp_path, resume=True)
    assert equal(again.model, trained)
    assert lines(tmp_path) == again.history
    others: list[Any] = [
        (network(), DATA, {"recipe": replace(recipe, lr=1e-4)}),
        (network(), DATA, {"seed": 1}),
        (network(p=2.0), DATA, {}),
        (network(), patterns(119), {}),
    ]
    for model, data, changed in others:
        with pytest.raises(ValueError, match=r"checkpoint\.safetensors is the checkpoint of another training"):
            train_classifier(
                **{"model": model, "data": data, "recipe": recipe, "out": tmp_path, "resume": True, **changed}
            )
    (tmp_path / "checkpoint.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors is not a safetensors file"):
        train_classifier(network(), DATA, recipe, out=tmp_path, resume=True)


@pytest.mark.parametrize("log_every", [1, 2, 50])
def test_a_training_that_diverges_stops_and_names_the_step(tmp_path, log_every):
    model = network()

    def spoil(module, arguments):
        module.steps = getattr(module, "steps", 0) + module.training
        if module.steps == 5:
            module.head.bias.data[0] = math.nan

    model.register_forward_pre_hook(spoil)
    with pytest.raises(FloatingPointError, match="the loss is nan at step 5: choose a smaller learning rate"):
        train_classifier(model, DATA, RECIPE, out=tmp_path, log_every=log_every)
    assert len(lines(tmp_path)) == 1


@pytest.mark.parametrize("amp", ["", "bf16"])
def test_masks_are_clamped_and_averages_follow(tmp_path, amp):
    recipe = replace(RECIPE, epochs=1, log2p_min=1.5, ema_decay=0.5, amp=amp)
    model = network(p=2.0)
    result = train_classifier(model, DATA, recipe, out=tmp_path)
    exponents = torch.cat([v for k, v in model.state_dict().items() if k.endswith("log2p")])
    assert (exponents == 1.5).any()
    assert exponents.min() == 1.5
    assert result.ema is not None
    assert not equal(result.ema, model)
    assert {"ema_val_loss", "ema_val_top1", "ema_val_top5"} < set(result.history[0])
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": -1}, "seed must be >= 0, found -1"),
        ({"workers": -1}, "workers must be >= 0, found -1"),
        ({"log_every": 0}, "log_every must be >= 1, found 0"),
        ({"model": digits_resnet(num_classes=3)}, r"logits \(1, 10\), an output for each class, found \(1, 3\)"),
        ({"model": digits_resnet(in_channels=3)}, r"does not take images of shape \(1, 8, 8\)"),
        ({"recipe": replace(RECIPE, amp="fp16")}, "amp='fp16' needs CUDA, found cpu"),
        ({"data": patterns(1)}, "there are 1 images to train on, expected 2 or more"),
        ({"device": "tpu"}, "device must be auto, cpu"),
        ({"model": network().requires_grad_(False)}, "the network has no parameter that is trained"),
    ],
)
def test_bad_arguments_are_refused(tmp_path, changed, message):
    arguments: dict[str, Any] = {"model": network(), "data": DATA, "recipe": RECIPE, "out": tmp_path / "run"}
    with pytest.raises(ValueError, match=message):
        train_classifier(**{**arguments, **changed})
    assert not (tmp_path / "run").exists()


def tiny_run(out):
    """A training whose result does not depend on how the batches are shared: no batch statistics, no augmentation."""
    rng = np.random.default_rng(0)
    parts = [ImageSet(rng.integers(0, 256, (n, 6, 6, 1), dtype=np.uint8), np.arange(n) % 3) for n in (32, 7)]
    recipe = Recipe.small(epochs=2, batch_size=8, crop_padding=0, flip=False, ema_decay=0.5)
    return train_classifier(bare(36, 3), ImageSplits(*parts, ("a", "b", "c")), recipe, out=out, seed=0)


def test_two_processes_train_as_one(tmp_path, monkeypatch):
    alone = tiny_run(tmp_path / "one")
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = str(sock.getsockname()[1])
    for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    # The second process runs the function above from this very file.
    code = (
        "import importlib.util, sys\n"
        "spec = importlib.util.spec_from_file_location('tests_of_training', sys.argv[1])\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "module.tiny_run(sys.argv[2])\n"
    )
    second = subprocess.Popen(
        [sys.executable, "-c", code, __file__, tmp_path / "two"],
        env={**os.environ, "RANK": "1", "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
    )
    shared = tiny_run(tmp_path / "two")
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 0, errors.decode()
    for record, expected in zip(shared.history, alone.history, strict=True):
        assert record == pytest.approx(expected, rel=1e-4)
    one, two = (load_file(tmp_path / out / "checkpoint.safetensors") for out in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-5, msg=lambda text, name=name: name + text)
    assert len(list((tmp_path / "two").iterdir())) == 2


def colour(n=24, size=16):
    x = np.random.default_rng(1).integers(0, 256, (n, size, size, 3), dtype=np.uint8)
    part = ImageSet(x, np.arange(n) % 3)
    return ImageSplits(part, part, ("a", "b", "c"))


@pytest.mark.extra
@pytest.mark.usefixtures("vision")
@pytest.mark.parametrize("crop_padding", [4, None])
def test_the_recipe_of_the_paper_goes_on_bit_for_bit(tmp_path, crop_padding):
    recipe = Recipe.paper(batch_size=8, epochs=2, warmup_epochs=1, cooldown_epochs=0, crop_padding=crop_padding)

    def make(seed):
        torch.manual_seed(seed)
        return convert(digits_resnet(num_classes=3, widths=(3, 4, 5), in_channels=3))

    whole = train_classifier(make(0), colour(), recipe, out=tmp_path / "whole", seed=1)
    model = make(0)
    stop_after(model, 4)
    with pytest.raises(Stop):
        train_classifier(model, colour(), recipe, out=tmp_path / "parts", seed=1)
    resumed = train_classifier(make(1), colour(), recipe, out=tmp_path / "parts", seed=1, resume=True, workers=1)
    assert equal(resumed.model, whole.model)
    assert resumed.history == whole.history


@pytest.mark.extra
@pytest.mark.usefixtures("vision")
def test_blocks_of_timm_are_dropped_more_often_towards_the_end(tmp_path):
    import timm

    model = timm.create_model("test_convnext", num_classes=3)
    recipe = replace(RECIPE, epochs=1, batch_size=8, warmup_epochs=0, drop_path=0.4)
    train_classifier(model, colour(size=32), recipe, out=tmp_path)
    rates = [module.drop_prob for module in model.modules() if type(module).__name__ == "DropPath"]
    assert rates == pytest.approx(np.linspace(0, 0.4, len(rates)).tolist())
    assert len(rates) > 2
