from __future__ import annotations

import random
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from icl25_lp_conv.datasets.images import ImageSet
from icl25_lp_conv.image_batches import (
    EpochSampler,
    TrainingBatches,
    ValidationBatches,
    isolated_randomness,
    make_loader,
    normalised,
)
from icl25_lp_conv.recipe import Recipe

RNG = np.random.default_rng(0)
RECIPE = Recipe.small(epochs=3, batch_size=40, crop_padding=1, flip=False)


def colour(n=24, size=16):
    return ImageSet(RNG.integers(0, 256, (n, size, size, 3), dtype=np.uint8), np.arange(n) % 3)


def test_crops_and_flips_are_parts_of_the_image():
    data = ImageSet(RNG.integers(1, 256, (40, 5, 6, 3), dtype=np.uint8), np.arange(40))
    recipe = replace(RECIPE, flip=True, crop_padding=2, mean=(0.0,), std=(1 / 255,), batch_size=40)
    batch, labels = TrainingBatches(data, recipe, 40, seed=0)[0]
    assert batch.shape == (40, 3, 5, 6)
    found = set()
    for image, label in zip(batch.round().byte().permute(0, 2, 3, 1).numpy(), labels.tolist(), strict=True):
        padded = np.pad(data.images[label], ((2, 2), (2, 2), (0, 0)))
        places = [
            (mirrored, top, left)
            for mirrored in (False, True)
            for top in range(5)
            for left in range(5)
            if np.array_equal(padded[top : top + 5, left : left + 6][:, :: -1 if mirrored else 1], image)
        ]
        assert len(places) == 1
        found.update(places)
    assert len(found) > 20
    assert {place[0] for place in found} == {False, True}


def test_batches_cover_an_epoch_and_processes_share_them():
    data = ImageSet(RNG.integers(0, 256, (10, 4, 4, 1), dtype=np.uint8), np.arange(10))
    recipe = replace(RECIPE, batch_size=4)
    batches = TrainingBatches(data, recipe, 10, seed=0)
    epochs = [[batches[epoch * 2 + step][1].tolist() for step in range(2)] for epoch in range(2)]
    for first, second in epochs:
        assert len({*first, *second}) == 8
    assert epochs[0] != epochs[1]
    halves = [TrainingBatches(data, recipe, 10, seed=0, rank=rank, n_processes=2)[1][1].tolist() for rank in range(2)]
    assert [label for pair in zip(*halves, strict=True) for label in pair] == epochs[0][1]
    repeated = TrainingBatches(data, replace(recipe, repeated_augmentation=3), 10, seed=0)
    assert sorted(np.bincount(repeated.rows(0), minlength=10).tolist()) == [0] * 6 + [1, 3, 3, 3]
    with pytest.raises(ValueError, match="batch_size must be a multiple of 3, found 4"):
        TrainingBatches(data, recipe, 10, seed=0, n_processes=3)


def test_order_and_augmentation_follow_seed_epoch_and_process():
    alike = ImageSet(np.repeat(colour(1).images, 16, axis=0), np.zeros(16, int))
    recipe = replace(RECIPE, batch_size=8, crop_padding=2, flip=True)

    def batch(index, seed=0, rank=0):
        return TrainingBatches(alike, recipe, 3, seed, rank, n_processes=2)[index][0]

    first = batch(0)
    assert torch.equal(batch(0), first)
    for other in (batch(1), batch(2), batch(0, seed=1), batch(0, rank=1)):  # the third is of another epoch
        assert not torch.equal(other, first)
    orders = [TrainingBatches(alike, recipe, 3, seed).rows(epoch).tolist() for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    assert len({tuple(order) for order in orders}) == 3


def test_batches_of_few_images_are_divided_among_processes():
    batches = TrainingBatches(colour(11), RECIPE, 3, seed=0, n_processes=2)
    assert (batches.batch_size, len(batches)) == (10, 1)
    assert len(batches[0][1]) == 5


def test_validation_images_come_in_order_and_once():
    data = ImageSet(colour(11).images, np.arange(11))
    assert [ValidationBatches(data, RECIPE, 4)[i][1].tolist() for i in range(3)] == [
        *([0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10])
    ]
    halves = [ValidationBatches(data, RECIPE, 4, rank, 2) for rank in range(2)]
    assert [len(half) for half in halves] == [2, 2]
    labels = [[half[i][1].tolist() for i in range(2)] for half in halves]
    assert labels == [[[0, 2, 4, 6], [8, 10]], [[1, 3, 5, 7], [9]]]
    assert len(ValidationBatches(data, RECIPE, 11)) == 1


def test_loaders_draw_nothing_from_the_global_generator():
    batches, sampler = TrainingBatches(colour(), replace(RECIPE, batch_size=6), 3, seed=0), EpochSampler(4)
    sampler.epoch = 2
    state = torch.get_rng_state()
    found = [labels.tolist() for _, labels in make_loader(batches, workers=0, pin=False, sampler=sampler)]
    assert torch.equal(torch.get_rng_state(), state)
    assert found == [batches[i][1].tolist() for i in range(8, 12)]


def test_images_are_normalised_by_channel():
    images = RNG.integers(0, 256, (2, 3, 4, 3), dtype=np.uint8)
    recipe = Recipe.small(mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 4.0))
    found = normalised(images, recipe)
    for channel, (mean, std) in enumerate(zip(recipe.mean, recipe.std, strict=True)):
        expected = (images[..., channel] / 255 - mean) / std
        np.testing.assert_allclose(found[:, channel].numpy(), expected, rtol=1e-5, atol=1e-6)
    grey = normalised(images[..., :1] / np.float32(255), recipe)
    np.testing.assert_allclose(grey[:, 0].numpy(), (images[..., 0] / 255 - 0.2) / (7 / 3), rtol=1e-5, atol=1e-6)


def test_randomness_of_a_block_depends_on_its_seed_alone():
    def draw():
        return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002

    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    expected = draw(), draw()
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    found = [draw()]
    inside = []
    for seed in (1, 2), (1, 2), (2, 1):
        with isolated_randomness(seed):
            inside.append(draw())
    found.append(draw())
    # From Python's own generator the type checker of the tests draws too.
    assert [numbers[1:] for numbers in found] == [numbers[1:] for numbers in expected]
    assert inside[0] == inside[1]
    assert all(a != b for a, b in zip(inside[0], inside[2], strict=True))


def test_the_generator_of_python_is_put_back():
    block = isolated_randomness((1, 2))
    state = random.getstate()
    with block:
        random.random()
        assert random.getstate() != state
    assert random.getstate() == state


def test_recipes_that_need_timm_say_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm.data", None)
    for changed, message in (
        ({"randaugment": "rand-m9"}, "RandAugment, random erasing and crops of random size need timm"),
        ({"mixup": 0.5}, r'Mixup and CutMix need timm and torchvision: pip install "icl25-lp-conv\[vision\]"'),
    ):
        with pytest.raises(ImportError, match=message):
            TrainingBatches(colour(), replace(RECIPE, **changed), 3, seed=0)
    with pytest.raises(ValueError, match="take images of bytes with 3 channels, found uint8 with 1"):
        TrainingBatches(
            ImageSet(colour().images[..., :1], np.arange(24)), replace(RECIPE, random_erasing=0.5), 10, seed=0
        )


@pytest.mark.extra
@pytest.mark.usefixtures("vision")
def test_mixing_gives_smooth_targets():
    data = colour()
    recipe = replace(RECIPE, batch_size=8, mixup=0.8, cutmix=1.0, label_smoothing=0.3)
    batch, targets = TrainingBatches(data, recipe, 3, seed=0)[0]
    assert batch.shape == (8, 3, 16, 16)
    assert targets.shape == (8, 3)
    torch.testing.assert_close(targets.sum(1), torch.ones(8))
    assert targets.min() == pytest.approx(0.1)
    with pytest.raises(ValueError, match="batch_size must be a multiple of 2, found 7"):
        TrainingBatches(data, replace(recipe, batch_size=7), 3, seed=0)


@pytest.mark.extra
@pytest.mark.usefixtures("vision")
def test_images_are_augmented_one_by_one_whatever_is_drawn():
    data = colour(n=48)
    for padding in (4, None):
        recipe = Recipe.small(
            batch_size=48, randaugment="rand-m9-mstd0.5-inc1", random_erasing=0.5, crop_padding=padding
        )
        batches = TrainingBatches(data, recipe, 3, seed=0)
        first = batches[0][0]
        torch.rand(3)
        assert torch.equal(batches[0][0], first)
        assert not torch.equal(batches[1][0], first)
        assert first.shape == (48, 3, 16, 16)
        # Strongest of all, posterising would keep no bit.
        strong = replace(recipe, randaugment="rand-m10-n4-inc1")
        assert all(TrainingBatches(data, strong, 3, seed=0)[i][0].isfinite().all() for i in range(4))


@pytest.mark.extra
@pytest.mark.usefixtures("vision")
def test_nothing_but_a_crop_leaves_pixels_as_they_are():
    data = colour()
    recipe = Recipe.small(batch_size=24, random_erasing=1e-12, crop_padding=0, flip=False)
    batch, labels = TrainingBatches(data, recipe, 3, seed=0)[0]
    rows = TrainingBatches(data, recipe, 3, seed=0).rows(0)
    assert torch.equal(labels, torch.from_numpy(data.labels[rows]))
    torch.testing.assert_close(batch, normalised(data.read(rows), recipe), rtol=1e-5, atol=1e-5)
