from __future__ import annotations

import inspect
import math

import pytest

from icl25_lp_conv.recipe import Recipe


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epochs": 0}, "epochs must be >= 1, found 0"),
        ({"batch_size": 1}, "batch_size must be >= 2, found 1"),
        ({"lr": 0.0}, "lr must be > 0, found 0"),
        ({"lr": math.nan}, "lr must be >= 0, found nan"),
        ({"weight_decay": -1.0}, "weight_decay must be >= 0, found -1"),
        ({"label_smoothing": 1.0}, "label_smoothing must be < 1, found 1"),
        ({"ema_decay": 1.0}, "ema_decay must be < 1, found 1"),
        ({"random_erasing": 2.0}, "random_erasing must be <= 1, found 2"),
        ({"crop_padding": -1}, "crop_padding must be >= 0, found -1"),
        ({"std": (1.0, 1.0, 0.0)}, "std > 0"),
        ({"ema_decay": 0.0}, "ema_decay must be > 0, found 0"),
        ({"drop_path": 1.0}, "drop_path must be < 1, found 1"),
        ({"mixup": -0.1}, "mixup must be >= 0, found -0.1"),
        ({"drop_path": -0.1}, "drop_path must be >= 0, found -0.1"),
        ({"random_erasing": -0.1}, "random_erasing must be >= 0, found -0.1"),
        ({"mean": (0.5, 0.5)}, "one or three numbers"),
        ({"epochs": 3, "warmup_epochs": 4}, "warmup_epochs must be <= epochs, found 4 and 3"),
    ],
)
def test_recipes_out_of_range_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        Recipe.small(**changed)


def test_the_learning_rate_rises_falls_and_rests():
    recipe = Recipe.paper()
    assert recipe.total_epochs == 310
    assert recipe.learning_rate(0) == 1e-6
    assert recipe.learning_rate(2.5) == pytest.approx(0.5 * (1e-6 + 5e-4))
    assert recipe.learning_rate(150) == pytest.approx(0.5 * (1e-5 + 5e-4))
    assert recipe.learning_rate(100) == pytest.approx(1e-5 + 0.75 * (5e-4 - 1e-5))
    assert recipe.learning_rate(300) == recipe.learning_rate(309.9) == 1e-5
    assert Recipe.paper(batch_size=128).lr == pytest.approx(5e-4 / 4)
    assert Recipe.paper(batch_size=128, lr=1.0).lr == 1
    assert Recipe.small(epochs=1).warmup_epochs == 0


def test_an_unknown_precision_is_refused():
    recipe = Recipe.small()
    object.__setattr__(recipe, "amp", "fp8")  # past the run-time type checks
    with pytest.raises(ValueError, match="amp must be bf16, fp16 or empty, found 'fp8'"):
        inspect.unwrap(Recipe.__post_init__)(recipe)


def test_the_defaults_are_those_of_the_paper():
    paper = Recipe.paper()
    assert paper == Recipe()
    assert (paper.epochs, paper.warmup_epochs, paper.cooldown_epochs, paper.batch_size) == (300, 5, 10, 512)
    assert (paper.lr, paper.min_lr, paper.warmup_lr) == (5e-4, 1e-5, 1e-6)
    assert (paper.weight_decay, paper.mask_weight_decay, paper.label_smoothing) == (0.05, 0.05, 0.1)
    assert (paper.mixup, paper.cutmix, paper.random_erasing, paper.drop_path) == (0.8, 1.0, 0.25, 0.1)
    assert (paper.randaugment, paper.repeated_augmentation) == ("rand-m9-mstd0.5-inc1", 3)
    assert (paper.ema_decay, paper.amp) == (0.99996, "bf16")


def test_what_mixes_and_what_needs_transforms():
    small = Recipe.small()
    assert (small.mixes, small.needs_transforms, small.mask_weight_decay, small.ema_decay) == (False, False, 0, None)
    assert Recipe.small(mixup=0.1).mixes
    assert Recipe.small(cutmix=0.1).mixes
    changes = ({"randaugment": "rand-m9"}, {"random_erasing": 0.1}, {"crop_padding": None})
    assert all(Recipe.small(**changed).needs_transforms for changed in changes)
