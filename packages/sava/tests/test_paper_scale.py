from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from icl25_sava.cli import Reproduce
from icl25_sava.image_splits import load_splits
from icl25_sava.recipes import CIFAR10, CLOTHING1M, EXPERIMENTS
from icl25_sava.reproduce import run_reproduce
from icl25_shared import InputError

TINY = replace(CIFAR10, batch_size=16, learning_rates=((2, 0.1),), unit="step", width=4, pad=1)
FEW = {"batch_size": 32, "n_train": 60, "n_val": 30, "n_test": 20}
SIZES = {"train": 66, "val": 30, "test": 30}


def images(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of three classes that differ in their colour."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = rng.integers(0, 60, (n, 8, 8, 3), dtype=np.uint8)
    X[np.arange(n), :, :, y] += 150
    return X, y


@pytest.fixture
def folder(tmp_path):
    for seed, (name, n) in enumerate(SIZES.items()):
        X, y = images(n, seed)
        np.savez(tmp_path / f"{name}.npz", X=X, y=y + 5)
    return tmp_path


@pytest.fixture
def tiny(monkeypatch):
    cifar, clothing = EXPERIMENTS["cifar10", "small"], EXPERIMENTS["clothing1m", "small"]
    # A full set, so that the memory map itself goes through the clothing configuration.
    whole = {**FEW, "n_train": None}
    monkeypatch.setitem(EXPERIMENTS, ("cifar10", "small"), replace(cifar, recipe=TINY, poison=(2, 1), **FEW))
    resized = replace(TINY, pad=0, resize=10, crop=8)
    monkeypatch.setitem(EXPERIMENTS, ("clothing1m", "small"), replace(clothing, recipe=resized, **whole))


def flags(config: Literal["cifar10", "clothing1m"], data: Path | None, out: Path, **changes: Any) -> Reproduce:
    two_seeds = Reproduce(config=config, data=data, out=out, embedder="pca:8", n_seeds=2, device="cpu")
    return replace(two_seeds, **changes)


def rates(recipe, n_rows: int, steps: list[int]) -> list[float]:
    return [recipe.learning_rate(step, n_rows) for step in steps]


def test_learning_rates_change_at_the_steps_of_the_paper():
    per_epoch = 391
    assert CIFAR10.steps_per_epoch(50_000) == per_epoch
    assert CIFAR10.n_steps(50_000) == 200 * per_epoch
    steps = [0, 100 * per_epoch - 1, 100 * per_epoch, 150 * per_epoch - 1, 150 * per_epoch, 200 * per_epoch - 1]
    assert rates(CIFAR10, 50_000, steps) == [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    ends = [29_999, 30_000, 59_999, 60_000, 79_999, 80_000, 89_999, 90_000, 94_999, 95_000, 99_999]
    assert rates(CLOTHING1M, 10**6, ends) == [0.1, 0.05, 0.05, 0.01, 0.01, 1e-3, 1e-3, 1e-4, 1e-4, 1e-5, 1e-5]
    with pytest.raises(ValueError, match="100000 lies outside the training of 100000 steps"):
        CLOTHING1M.learning_rate(100_000, 10**6)


@pytest.mark.parametrize(("n", "steps"), [(2, 1), (128, 1), (129, 1), (130, 2), (257, 2)])
def test_a_last_batch_of_one_row_is_left_out(n, steps):
    assert CIFAR10.steps_per_epoch(n) == steps


def test_plain_archives_are_memory_maps_and_compressed_ones_are_read(folder):
    splits = load_splits(folder)
    assert isinstance(splits.train.X, np.memmap)
    X, y = images(66)
    assert np.array_equal(splits.train.X, X)
    assert np.array_equal(splits.train.y, y)
    assert splits.classes.tolist() == [5, 6, 7]
    np.savez_compressed(folder / "train.npz", X=np.asfortranarray(X), y=y + 5)
    assert np.array_equal(load_splits(folder).train.X, X)
    np.savez(folder / "train.npz", X=np.asfortranarray(X / 255), y=y + 5)
    assert np.array_equal(load_splits(folder).train.X, X / 255)


FAULTS = {
    "there is no array y; it holds X": lambda X, y: {"X": X},
    r"X has shape \(66, 8, 8\)": lambda X, y: {"X": X[..., 0], "y": y},
    "X holds int64": lambda X, y: {"X": X.astype(np.int64), "y": y},
    r"\[0, 1\], image 3 does not": lambda X, y: {"X": np.where(np.arange(66)[:, None, None, None] == 3, np.nan, 0.5)
                                                 * np.ones((1, 8, 8, 3)), "y": y},
    r"y has shape \(65,\)": lambda X, y: {"X": X, "y": y[1:]},
    "y holds float64": lambda X, y: {"X": X, "y": y / 2},
    "y cannot be read: it holds Python objects": lambda X, y: {"X": X, "y": y.astype(object)},
    "different shapes": lambda X, y: {"X": X[:, :7], "y": y},
}  # fmt: skip


@pytest.mark.parametrize("message", FAULTS)
def test_faulty_arrays_are_named(folder, message):
    np.savez(folder / "train.npz", **FAULTS[message](*images(66)))
    with pytest.raises(InputError, match=message):
        load_splits(folder)


def test_missing_and_broken_files_are_named(folder, tmp_path):
    with pytest.raises(InputError, match="needs --data"):
        load_splits(None)
    with pytest.raises(InputError, match="there is no folder"):
        load_splits(tmp_path / "none")
    (folder / "val.npz").write_bytes(b"PK no archive")
    with pytest.raises(InputError, match=r"val\.npz: not a readable NPZ file"):
        load_splits(folder)
    (folder / "val.npz").unlink()
    with pytest.raises(InputError, match=r"there is no file .*val\.npz"):
        load_splits(folder)


@pytest.mark.extra
@pytest.mark.parametrize(("classes", "small", "count"), [(1000, False, 11_689_512), (10, True, 11_173_962)])
def test_number_of_parameters(classes, small, count):
    from icl25_sava.resnet import make_resnet18

    network = make_resnet18(classes, small_images=small)
    assert sum(parameter.numel() for parameter in network.parameters()) == count


@pytest.mark.extra
@pytest.mark.parametrize(("small", "sides"), [(True, [32, 32, 16, 8, 4]), (False, [8, 8, 4, 2, 1])])
def test_the_stages_have_the_sizes_of_the_paper(small, sides):
    import torch

    from icl25_sava.resnet import make_resnet18

    network = make_resnet18(3, small_images=small, width=4).eval()
    x = network.stem(torch.zeros(1, 3, 32, 32))
    found = [x.shape[-1]]
    for block in network.blocks:
        x = block(x)
        found.append(x.shape[-1])
    assert [found[0], *found[2::2]] == sides


@pytest.mark.extra
def test_training_fits_twenty_images():
    from icl25_sava.training import accuracy, train_classifier

    X, _ = images(20)
    y = np.random.default_rng(1).integers(0, 3, 20)
    recipe = replace(TINY, learning_rates=((60, 0.02), (80, 0.002)), batch_size=20, width=16, pad=0, momentum=0.5)
    untrained = train_classifier(X, y, recipe, n_classes=3, max_steps=0)
    trained = train_classifier(X, y, recipe, n_classes=3)
    assert accuracy(untrained, X, y, recipe) < 0.7
    assert accuracy(trained, X, y, recipe) == 1.0
    assert accuracy(trained, (X / 255).astype(np.float32), y, recipe) == 1.0


def weights(network) -> np.ndarray:
    return np.concatenate([tensor.flatten().double().numpy() for tensor in network.state_dict().values()])


@pytest.mark.extra
def test_the_seed_decides_the_weights_and_nothing_global_moves():
    import torch

    from icl25_sava.training import train_classifier

    X, y = images(40)
    recipe = replace(TINY, learning_rates=((4, 0.1),))
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first, again, other = (weights(train_classifier(X, y, recipe, n_classes=3, seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


@pytest.mark.extra
def test_a_training_that_broke_off_ends_with_the_same_weights(tmp_path):
    from icl25_sava.training import train_classifier

    X, y = images(40)
    recipe = replace(TINY, learning_rates=((3, 0.1), (6, 0.01)))
    whole = train_classifier(X, y, recipe, n_classes=3)
    path = tmp_path / "state.safetensors"
    train_classifier(X, y, recipe, n_classes=3, max_steps=2, checkpoint=path)
    resumed = train_classifier(X, y, recipe, n_classes=3, checkpoint=path)
    assert np.array_equal(weights(whole), weights(resumed))
    with pytest.raises(ValueError, match="checkpoint of another training"):
        train_classifier(X, y, recipe, n_classes=3, seed=1, checkpoint=path)
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a safetensors file"):
        train_classifier(X, y, recipe, n_classes=3, checkpoint=path)


@pytest.mark.extra
def test_training_on_some_rows_is_training_on_their_copy():
    from icl25_sava.training import train_classifier

    X, y = images(40)
    rows = np.arange(5, 30)
    recipe = replace(TINY, learning_rates=((3, 0.1),))
    chosen = train_classifier(X, y, recipe, n_classes=3, rows=rows)
    copied = train_classifier(X[rows], y[rows], recipe, n_classes=3)
    assert np.array_equal(weights(chosen), weights(copied))


@pytest.mark.extra
def test_training_refuses_what_does_not_fit():
    from icl25_sava.training import train_classifier

    X, y = images(12)
    with pytest.raises(ValueError, match="X has 12 images, y has 11 classes"):
        train_classifier(X, y[1:], TINY, n_classes=3)
    with pytest.raises(ValueError, match=r"y must hold classes 0 \.\. 1"):
        train_classifier(X, y, TINY, n_classes=2)
    with pytest.raises(ValueError, match="two rows or more"):
        train_classifier(X, y, TINY, n_classes=3, rows=np.array([3]))
    with pytest.raises(ValueError, match="crops of 9 pixels do not fit"):
        train_classifier(X, y, replace(TINY, crop=9, pad=0), n_classes=3)


@pytest.mark.extra
def test_crops_shift_and_mirror_images_and_pad_with_black():
    from icl25_sava.training import read_images

    X = np.arange(1, 17, dtype=np.uint8).reshape(1, 4, 4, 1) * np.ones((1, 1, 1, 3), np.uint8)
    recipe, rows = replace(CIFAR10, pad=1), np.zeros(200, np.int64)
    found = (read_images(X, rows, recipe, rng=np.random.default_rng(0)) * 255).round().numpy()[..., 0]
    padded = np.pad(X[0, :, :, 0], 1)
    windows = {padded[i : i + 4, j : j + 4].tobytes() for i in range(3) for j in range(3)}
    mirrored = {padded[i : i + 4, j : j + 4][:, ::-1].tobytes() for i in range(3) for j in range(3)}
    assert {image.astype(np.uint8).tobytes() for image in found} == windows | mirrored
    middle = read_images(X, rows[:1], replace(CIFAR10, crop=2)).numpy()[0, :, :, 0]
    np.testing.assert_allclose(middle * 255, X[0, 1:3, 1:3, 0], rtol=1e-6)
    assert read_images(X, rows[:2], replace(CIFAR10, resize=8, crop=6)).shape == (2, 6, 6, 3)


@pytest.mark.extra
def test_poison_collides_with_its_target_and_looks_like_its_base():
    import torch

    from icl25_sava.poisoning import feature_collision

    torch.manual_seed(0)
    linear = torch.nn.Linear(48, 4)
    network = torch.nn.Sequential(torch.nn.Flatten(), linear)
    rng = np.random.default_rng(0)
    base, target = rng.random((2, 5, 4, 4, 3), np.float32)

    def logits(images):
        with torch.no_grad():
            return network(torch.from_numpy(images).movedim(-1, 1)).numpy()

    found = feature_collision(base, target, network, learning_rate=0.5, beta=0.05, n_steps=300, batch_size=2)
    before, after = (np.linalg.norm(logits(images) - logits(target), axis=1) for images in (base, found))
    assert (after < 0.3 * before).all()
    assert np.abs(found - base).mean() < 0.5 * np.abs(target - base).mean()
    assert found.min() >= 0
    assert found.max() <= 1
    # One step by hand: the gradient of a linear map, then the step back to the base, which starts at the base.
    one = feature_collision(base[:1], target[:1], network, learning_rate=0.01, beta=2.0, n_steps=1)
    slope = 2 / 4 * (logits(base[:1]) - logits(target[:1])) @ linear.weight.detach().numpy()
    moved = base[:1] - 0.01 * np.moveaxis(slope.reshape(1, 3, 4, 4), 1, -1)
    np.testing.assert_allclose(one, np.clip((moved + 0.02 * base[:1]) / 1.02, 0, 1), atol=1e-6)
    with pytest.raises(ValueError, match="expected the same"):
        feature_collision(base, target[:1], network)


@pytest.mark.extra
def test_cifar10_ends_in_results_claims_and_pictures(folder, tiny, tmp_path):
    out = tmp_path / "run"
    output = run_reproduce(flags("cifar10", folder, out))
    assert output.ok
    result = json.loads((out / "result.json").read_text())
    assert result["n_corrupted"] == {
        "wrong labels": [18, 18],
        "noisy features": [18, 18],
        "trojan square": [6, 6],
        "poison": [6, 6],
    }
    # The colours of the classes are far apart: what is wrong there is found.
    assert min(result["auc"]["wrong labels"]["SAVA"]) > 0.8
    assert set(result["auc"]["poison"]) == {"SAVA", "batch-wise LAVA", "LAVA", "KNN-Shapley", "random"}
    assert [len(line["SAVA"]) for line in result["accuracy"]["poison"]] == [5, 5]
    claims = json.loads((out / "claims.json").read_text())["claims"]
    assert [claim["id"] for claim in claims] == [
        "as-good-as-lava",
        "poison-as-good-as-lava",
        "noisy-features-above-knn-shapley",
        "trojan-above-knn-shapley",
        *(f"pruning-{share}-above-random" for share in (10, 20, 30, 40)),
    ]
    names = {path.name for path in out.glob("*.png")}
    assert {"methods.png", "detection-poison.png", "pruning-poison.png"} <= names
    assert len(names) == 9

    # A run that broke off: finished trainings stay, the result has the same bytes.
    before = (out / "result.json").read_bytes()
    records = sorted((out / "trainings").iterdir())
    assert len(records) == 4 * 2 * 9
    stamps = [record.stat().st_mtime_ns for record in records[1:]]
    records[0].unlink()
    run_reproduce(flags("cifar10", folder, out, force=True))
    assert (out / "result.json").read_bytes() == before
    assert sorted((out / "trainings").iterdir()) == records
    assert [record.stat().st_mtime_ns for record in records[1:]] == stamps


@pytest.mark.extra
def test_clothing1m_ends_in_results_claims_and_pictures(folder, tiny, tmp_path):
    out = tmp_path / "run"
    run_reproduce(flags("clothing1m", folder, out))
    result = json.loads((out / "result.json").read_text())
    assert result["auc"] == {}
    assert set(result["accuracy"]["as given"][0]) == {"SAVA", "batch-wise LAVA", "random"}
    ids = [claim["id"] for claim in json.loads((out / "claims.json").read_text())["claims"]]
    assert ids == [*(f"pruning-{share}-above-random" for share in (10, 20, 30, 40)), "pruning-above-batchwise-lava"]
    assert {path.name for path in out.glob("*.png")} == {"pruning-as-given.png"}


@pytest.mark.extra
def test_poison_goes_through_the_network_of_the_embedder(folder, tiny, tmp_path, monkeypatch):
    (tmp_path / "sava_test_network.py").write_text(
        "import torch\ntorch.manual_seed(0)\nnet = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    only = replace(EXPERIMENTS["cifar10", "small"], corruptions={"poison": ("blend", 0.9)})
    monkeypatch.setitem(EXPERIMENTS, ("cifar10", "small"), only)
    out = tmp_path / "run"
    run_reproduce(flags("cifar10", folder, out, embedder="torch:sava_test_network.net", n_seeds=1))
    result = json.loads((out / "result.json").read_text())
    # Nine tenths of all rows are asked for; one class has about a third.
    assert 10 < result["n_corrupted"]["poison"][0] < 30


@pytest.mark.extra
def test_wrong_input_is_refused_before_any_work(folder, tiny, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="unknown embedder"):
        run_reproduce(flags("cifar10", folder, tmp_path / "a", embedder="none"))
    few = replace(EXPERIMENTS["cifar10", "small"], poison=(6, 3))
    monkeypatch.setitem(EXPERIMENTS, ("cifar10", "small"), few)
    with pytest.raises(InputError, match="poison needs class number 6, y holds 3 classes"):
        run_reproduce(flags("cifar10", folder, tmp_path / "a"))
    with pytest.raises(InputError, match="needs --data"):
        run_reproduce(flags("clothing1m", None, tmp_path / "a"))
    assert not (tmp_path / "a").exists()
