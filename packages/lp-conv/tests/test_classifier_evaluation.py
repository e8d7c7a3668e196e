from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from icl25_lp_conv.classifier_checkpoint import fingerprint
from icl25_lp_conv.classifier_evaluation import evaluate_classifier
from icl25_lp_conv.classifier_training import train_classifier
from icl25_lp_conv.datasets.images import ImageSet, ImageSplits
from icl25_lp_conv.layers import LpConv2d
from icl25_lp_conv.recipe import Recipe

RECIPE = Recipe.small(epochs=2, batch_size=16, crop_padding=0, flip=False)


def images(n, seed):
    rng = np.random.default_rng(seed)
    return ImageSet(rng.integers(0, 256, (n, 6, 6, 1), dtype=np.uint8), rng.integers(0, 3, n))


def splits(n=48, n_val=20):
    return ImageSplits(images(n, 0), images(n_val, 1), ("a", "b", "c"))


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        LpConv2d(1, 4, 5, padding=2, p=3.0, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)
    )


class Modes(nn.Module):
    """Keeps in which mode and precision it ran."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        self.seen.append((self.training, x.dtype))
        return x


def test_networks_are_scored_in_evaluation_mode_and_left_in_their_own():
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3), Modes(), nn.Dropout(0.9))
    model[3].eval()
    data = images(20, 0)
    scores = evaluate_classifier(model, data, RECIPE, batch_size=6)
    assert scores == evaluate_classifier(model, data, RECIPE, batch_size=6)
    assert [module.training for module in model.modules()] == [True, True, True, True, False]
    assert scores.top5 == 1  # of three classes
    evaluate_classifier(model, data, replace(RECIPE, amp="bf16"))
    assert {mode for mode, _ in model[2].seen} == {False}
    assert [dtype for _, dtype in model[2].seen] == [torch.float32] * 8 + [torch.bfloat16]


def test_steps_rates_and_averages_are_those_of_the_recipe(tmp_path):
    recipe = replace(
        RECIPE, warmup_epochs=1, cooldown_epochs=1, ema_decay=0.7, log2p_min=1.57, lr=0.02, label_smoothing=0.2
    )
    data = splits()
    result = train_classifier(network().eval(), data, recipe, out=tmp_path, seed=3)
    model = network()
    decays = {name: 0.05 * (value.ndim > 1 and name != "0.C") for name, value in model.named_parameters()}
    optimizer = torch.optim.AdamW(
        [{"params": [value], "weight_decay": decays[name]} for name, value in model.named_parameters()]
    )
    mean, std = (np.mean(values) for values in (recipe.mean, recipe.std))
    average: dict[str, torch.Tensor] = {}
    rates = []
    for epoch in range(3):
        order = np.random.default_rng((3, 0, epoch)).permutation(48).reshape(3, 16)
        for step, rows in enumerate(order):
            rates.append(recipe.learning_rate(epoch + step / 3))
            for group in optimizer.param_groups:
                group["lr"] = rates[-1]
            x = torch.from_numpy((data.train.read(rows).transpose(0, 3, 1, 2) / 255 - mean) / std).float()
            loss = functional.cross_entropy(model(x), torch.from_numpy(data.train.labels[rows]), label_smoothing=0.2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                model[0].log2p.clamp_(min=1.57)
                for name, value in model.state_dict().items():
                    old = average.get(name, value).clone()
                    average[name] = old + 0.3 * (value - old) if value.is_floating_point() else value.clone()
    assert [record["lr"] for record in result.history] == pytest.approx(rates[2::3])
    assert len(set(rates)) == 7  # three of the cool-down are the same
    torch.testing.assert_close(result.model.state_dict(), model.state_dict(), rtol=1e-3, atol=1e-5)
    assert result.ema is not None
    floating = {name: value for name, value in average.items() if value.is_floating_point()}
    found = {name: value for name, value in result.ema.state_dict().items() if name in floating}
    torch.testing.assert_close(found, floating, rtol=1e-3, atol=1e-5)


def test_a_training_is_known_by_its_images_labels_and_tensors():
    data, model = splits(), network()
    prints = [fingerprint(model, data, ("a", 1))]
    assert fingerprint(network(), splits(), ("a", 1)) == prints[0]
    prints.append(fingerprint(model, data, ("a", 2)))
    for part in ("train", "val"):
        own = getattr(data, part)
        relabelled = ImageSet(own.images, (own.labels + 1) % 3)
        other = ImageSet(255 - own.images, own.labels)
        prints += [fingerprint(model, replace(data, **{part: changed}), ("a", 1)) for changed in (relabelled, other)]
    model[0].C.requires_grad_(False)
    prints.append(fingerprint(model, data, ("a", 1)))
    prints += [fingerprint(changed, data, ("a", 1)) for changed in (network().double(), nn.Sequential(network()))]
    assert len(set(prints)) == len(prints)
