from __future__ import annotations

import logging
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from icl25_lp_conv.datasets.image_files import ImageFiles
from icl25_lp_conv.datasets.images import ImageSet, ImageSplits, read_image_dataset

RNG = np.random.default_rng(0)


def write_image(path, shape=(6, 6, 3), seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return pixels


def write_folders(root, counts, suffix="png", shape=(6, 6, 3)):
    return {
        f"{name}/{i}": write_image(root / name / f"{i}.{suffix}", shape, seed=100 * label + i)
        for label, (name, n) in enumerate(counts.items())
        for i in range(n)
    }


def test_train_and_val_folders(tmp_path):
    train = write_folders(tmp_path / "train", {"cat": 3, "dog": 2})
    val = write_folders(tmp_path / "val", {"dog": 2})
    write_folders(tmp_path / "test", {"dog": 3})  # val goes before it
    splits = read_image_dataset(tmp_path)
    assert splits.classes == ("cat", "dog")
    assert splits.image_shape == (6, 6, 3)
    assert splits.train.labels.tolist() == [0, 0, 0, 1, 1]
    assert splits.val.labels.tolist() == [1, 1]
    np.testing.assert_array_equal(splits.train.read(slice(None)), np.stack(list(train.values())))
    np.testing.assert_array_equal(splits.val.read(np.array([1, 0])), np.stack(list(val.values()))[::-1])


@pytest.mark.parametrize("layout", ["flat", "train alone"])
def test_folders_without_validation_are_split_by_class(tmp_path, layout):
    root = tmp_path if layout == "flat" else tmp_path / "train"
    write_folders(root, {"a": 15, "b": 5, "c": 2})
    write_image(root / ".hidden" / "0.png")
    splits = read_image_dataset(tmp_path)
    assert np.bincount(splits.train.labels).tolist() == [12, 4, 1]
    assert np.bincount(splits.val.labels).tolist() == [3, 1, 1]
    everything = {image.tobytes() for part in (splits.train, splits.val) for image in part.read(slice(None))}
    assert len(everything) == 22
    again, other = read_image_dataset(tmp_path), read_image_dataset(tmp_path, seed=1)
    assert np.array_equal(again.val.read(slice(None)), splits.val.read(slice(None)))
    assert not np.array_equal(other.val.read(slice(None)), splits.val.read(slice(None)))


def test_test_folder_counts_where_there_is_no_val(tmp_path):
    for part in ("train", "test"):
        write_folders(tmp_path / part, {"a": 1, "b": 2}, suffix="tif")
    assert len(read_image_dataset(tmp_path).val) == 3


def test_tiny_imagenet_as_it_is_distributed(tmp_path):
    for name in ("n01", "n02"):
        write_image(tmp_path / "train" / name / "images" / f"{name}_0.JPEG")
    for i in range(2):
        write_image(tmp_path / "val" / "images" / f"val_{i}.JPEG", seed=i)
    (tmp_path / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn02\t0\t0\t5\t5\nval_1.JPEG\tn01\t0\t0\t5\t5\n")
    splits = read_image_dataset(tmp_path)
    assert splits.classes == ("n01", "n02")
    assert splits.val.labels.tolist() == [1, 0]


def test_files_beyond_the_memory_limit_are_decoded_as_they_are_read(tmp_path):
    write_folders(tmp_path, {"a": 5, "b": 5})
    eager, lazy = read_image_dataset(tmp_path), read_image_dataset(tmp_path, memory_limit=100)
    assert isinstance(eager.train.images, np.ndarray)
    assert isinstance(lazy.train.images, ImageFiles)
    assert lazy.train.images.shape == eager.train.images.shape
    assert lazy.train.images.dtype == np.uint8
    rows = np.array([3, 0, 3])
    np.testing.assert_array_equal(lazy.train.read(rows), eager.train.read(rows))
    assert lazy.train.read(slice(0, 0)).shape == (0, 6, 6, 3)


def test_images_are_brought_to_a_square(tmp_path):
    ramp = np.tile(np.arange(0, 160, 10, dtype=np.uint8), (8, 1))  # 8 x 16, brighter to the right
    for name in ("a", "b"):
        for i in range(5):
            path = tmp_path / name / f"{i}.png"
            path.parent.mkdir(exist_ok=True)
            Image.fromarray(ramp if i % 2 else ramp.T).save(path)
    for limit in (2**20, 0):
        images = read_image_dataset(tmp_path, size=4, channels=1, memory_limit=limit).train.read(slice(None))
        assert images.shape[1:] == (4, 4, 1)
        middle = np.array([45, 65, 85, 105])  # of columns 4 .. 11, two pixels averaged into one
        for image in images[..., 0].astype(int):
            across = image if np.ptp(image[0]) else image.T
            assert np.abs(across - middle).max() <= 3
    with pytest.raises(ValueError, match=r"\d\.png has \d+ x \d+ pixels, .*pass a size to bring all images to"):
        read_image_dataset(tmp_path)
    with pytest.raises(ValueError, match="pass a size to bring all images to"):
        read_image_dataset(tmp_path, memory_limit=0)


def test_grey_images_become_three_channels_unless_one_is_asked_for(tmp_path):
    write_folders(tmp_path, {"a": 2, "b": 2}, shape=(5, 7))
    colour, grey = read_image_dataset(tmp_path), read_image_dataset(tmp_path, channels=1)
    assert colour.image_shape == (5, 7, 3)
    assert grey.image_shape == (5, 7, 1)
    np.testing.assert_array_equal(colour.train.read([0]), np.repeat(grey.train.read([0]), 3, axis=3))


def test_palettes_are_looked_up(tmp_path):
    expected = write_folders(tmp_path, {"a": 2, "b": 2})["a/0"] // 64 * 64
    image = Image.fromarray(expected).quantize(colors=64)
    image.save(tmp_path / "a" / "0.png")
    found = [part.read([i])[0] for part in _parts(tmp_path) for i in range(len(part)) if part.labels[i] == 0]
    assert any(np.array_equal(image.convert("RGB"), x) for x in found)


def _parts(path):
    splits = read_image_dataset(path)
    return splits.train, splits.val


def test_other_files_are_left_out_with_a_warning(tmp_path, caplog):
    write_folders(tmp_path, {"a": 2, "b": 2})
    (tmp_path / "a" / "notes.txt").write_text("x")
    (tmp_path / "a" / ".hidden.png").write_text("x")
    with caplog.at_level(logging.WARNING):
        read_image_dataset(tmp_path)
    assert "1 files are no images by their names" in caplog.text


def broken_png(root):
    whole = (root / "b" / "1.png").read_bytes()
    (root / "b" / "1.png").write_bytes(whole[: len(whole) // 2])


def sixteen_bits(root):
    Image.fromarray(np.zeros((6, 6), np.uint16)).save(root / "b" / "1.png")


def not_an_image(root):
    (root / "b" / "1.png").write_text("no pixels")


def empty_class(root):
    (root / "empty").mkdir()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (broken_png, r"b/1\.png is no readable image"),
        (not_an_image, r"b/1\.png is no readable image \(unknown format\)"),
        (sixteen_bits, r"b/1\.png has pixels of kind I;16, expected a byte for each channel"),
        (empty_class, r"empty holds no image \(\.png, "),
    ],
)
@pytest.mark.parametrize("limit", [2**20, 0])
def test_bad_files_are_named(tmp_path, change, message, limit):
    write_folders(tmp_path, {"a": 2, "b": 2})
    change(tmp_path)

    def read_all():
        splits = read_image_dataset(tmp_path, memory_limit=limit)
        splits.train.read(slice(None))
        splits.val.read(slice(None))

    with pytest.raises(ValueError, match=message):
        read_all()


def test_folders_that_make_no_sense_are_refused(tmp_path):
    with pytest.raises(ValueError, match="has 0 folders, expected one for each of 2 classes"):
        read_image_dataset(tmp_path)
    write_folders(tmp_path, {"a": 2})
    with pytest.raises(ValueError, match="has 1 folders, expected one for each of 2 classes"):
        read_image_dataset(tmp_path)
    write_folders(tmp_path, {"b": 1})
    with pytest.raises(ValueError, match="class b has a single image"):
        read_image_dataset(tmp_path)
    write_folders(tmp_path / "set" / "train", {"a": 1, "b": 1})
    write_folders(tmp_path / "set" / "val", {"a": 1, "z": 1})
    with pytest.raises(ValueError, match="val: class z does not occur in training"):
        read_image_dataset(tmp_path / "set")
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        read_image_dataset(tmp_path / "none")
    (tmp_path / "x.csv").write_text("1")
    with pytest.raises(ValueError, match=r"x\.csv: expected a folder or an NPZ file"):
        read_image_dataset(tmp_path / "x.csv")
    for options, message in (({"size": 0}, "size must be >= 1, found 0"), ({"channels": 2}, "channels must be 1 or 3")):
        with pytest.raises(ValueError, match=message):
            read_image_dataset(tmp_path, **options)


def save(tmp_path, **arrays):
    path = tmp_path / "data.npz"
    np.savez(path, **arrays)
    return path


BYTES = RNG.integers(0, 256, (10, 5, 4, 3), dtype=np.uint8)
LABELS = np.array([7, 3] * 5)


def test_npz_with_its_own_split(tmp_path):
    path = save(tmp_path, x_train=BYTES, y_train=LABELS, x_test=BYTES[:3], y_test=LABELS[:3, None])
    splits = read_image_dataset(path)
    assert splits.classes == ("3", "7")
    assert splits.train.labels.tolist() == [1, 0] * 5
    assert splits.val.labels.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(splits.train.read(slice(None)), BYTES)
    path = save(tmp_path, X_train=BYTES, Y_train=LABELS, X_val=BYTES[:2], Y_val=LABELS[:2], x_test=BYTES, y_test=LABELS)
    assert len(read_image_dataset(path).val) == 2


def test_npz_is_split_by_class(tmp_path):
    names = np.where(np.arange(10) < 5, "three", "seven")
    splits = read_image_dataset(save(tmp_path, x=BYTES, y=names))
    assert splits.classes == ("seven", "three")
    assert np.bincount(splits.val.labels).tolist() == [1, 1]
    assert len(splits.train) == 8
    for part in (splits.train, splits.val):
        for image, label in zip(part.read(slice(None)), part.labels, strict=True):
            row = next(row for row in range(10) if np.array_equal(BYTES[row], image))
            assert names[row] == splits.classes[label]


@pytest.mark.parametrize(
    ("x", "shape"),
    [(BYTES[..., 0], (5, 4, 1)), (BYTES[..., :1], (5, 4, 1)), (BYTES.transpose(0, 3, 1, 2), (5, 4, 3))],
)
def test_layouts_of_npz_images(tmp_path, x, shape):
    splits = read_image_dataset(save(tmp_path, x=x, y=LABELS))
    assert splits.image_shape == shape
    three = read_image_dataset(tmp_path / "data.npz", size=3, channels=3)
    assert three.image_shape == (3, 3, 3)


def test_floating_point_stays_as_it_is(tmp_path):
    x = RNG.random((10, 4, 4))
    splits = read_image_dataset(save(tmp_path, x=x, y=LABELS))
    assert splits.train.images.dtype == np.float32
    assert splits.train.read(slice(None)).max() == pytest.approx(x.max(), abs=0.3)
    with pytest.raises(ValueError, match="images of floating point are not resized, found 4 x 4"):
        read_image_dataset(tmp_path / "data.npz", size=3)


def with_nan():
    x = RNG.random((10, 4, 4))
    x[6, 1, 2] = np.nan
    return x


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": with_nan(), "y": LABELS}, r"image 6 of x has NaN values, expected floating point in \[0, 1\]"),
        ({"x": BYTES / 100, "y": LABELS}, r"image 0 of x has values in .* expected floating point in \[0, 1\]"),
        ({"x": BYTES / -255, "y": LABELS}, r"image 0 of x has values in .* expected floating point in \[0, 1\]"),
        ({"x": BYTES.astype(int), "y": LABELS}, "x holds int64, expected bytes"),
        ({"x": BYTES, "y": LABELS[:9]}, r"x has shape \(10, 5, 4, 3\) and y \(9,\), expected n images and n classes"),
        ({"x": BYTES[:0], "y": LABELS[:0]}, "expected n images and n classes"),
        ({"x": BYTES, "y": LABELS / 2}, "y holds float64, expected whole numbers or text"),
        ({"x": BYTES, "y": LABELS * 0}, "y holds the single class 0, expected two or more"),
        ({"x": BYTES[0, 0], "y": LABELS[:4]}, r"x has shape \(4, 3\), expected"),
        ({"x": BYTES[..., :2], "y": LABELS}, r"x has shape \(10, 5, 4, 2\), expected"),
        ({"x": BYTES}, "there is no array y; it holds x"),
        ({"z": BYTES}, "there is no array x; it holds z"),
        ({"x_train": BYTES, "y_train": LABELS}, "there is no array x_test; it holds x_train, y_train"),
        (
            {"x_train": BYTES, "y_train": LABELS, "x_test": BYTES, "y_test": LABELS + 1},
            "class [48] does not occur in training",
        ),
        (
            {"x_train": BYTES, "y_train": LABELS, "x_test": BYTES[:, :3], "y_test": LABELS},
            r"images for training have shape \(5, 4, 3\), those for validation \(3, 4, 3\)",
        ),
        ({"x": np.array([None, "a"], dtype=object), "y": LABELS[:2]}, "it holds Python objects"),
    ],
)
def test_bad_arrays_are_refused(tmp_path, arrays, message):
    with pytest.raises(ValueError, match=message):
        read_image_dataset(save(tmp_path, **arrays))


def test_broken_npz_is_named(tmp_path):
    whole = save(tmp_path, x=BYTES, y=LABELS).read_bytes()
    for content in (whole[:200], b"", b"no archive"):
        (tmp_path / "data.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"data\.npz is no readable NPZ file"):
            read_image_dataset(tmp_path / "data.npz")
    with pytest.raises(ValueError, match="holds colour images, found channels=1"):
        read_image_dataset(save(tmp_path, x=BYTES, y=LABELS), channels=1)


PIXELS = RNG.integers(0, 256, (4, 3072), dtype=np.uint8)


def dump(path, content, protocol=4):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol))


def write_cifar100(root, changed=()):
    batch = {b"data": PIXELS, b"fine_labels": [0, 1, 2, 1], b"coarse_labels": [0, 0, 1, 0], b"filenames": [b"a"] * 4}
    dump(root / "train", {**batch, **dict(changed)})
    dump(root / "test", {**batch, b"data": PIXELS[::-1].copy()})
    dump(root / "meta", {b"fine_label_names": [b"apple", b"bee", b"cup"]})
    return root


@pytest.mark.parametrize("inside", [False, True])
def test_cifar_100(tmp_path, inside):
    write_cifar100(tmp_path / "cifar-100-python")
    splits = read_image_dataset(tmp_path if inside else tmp_path / "cifar-100-python")
    assert splits.classes == ("apple", "bee", "cup")
    assert splits.train.labels.tolist() == [0, 1, 2, 1]
    expected = PIXELS.reshape(4, 3, 32, 32)  # red, green and blue planes, row by row
    np.testing.assert_array_equal(splits.train.read([2])[0, 5, 7], expected[2, :, 5, 7])
    np.testing.assert_array_equal(splits.val.read([0])[0, 5, 7], expected[3, :, 5, 7])
    assert read_image_dataset(tmp_path, size=8).image_shape == (8, 8, 3) if inside else True


def test_cifar_10(tmp_path):
    for i in (1, 2):
        dump(tmp_path / f"data_batch_{i}", {b"data": PIXELS, b"labels": [0, 1, 0, i]})
    with pytest.raises(FileNotFoundError, match="test_batch"):
        read_image_dataset(tmp_path)
    dump(tmp_path / "test_batch", {"data": PIXELS, "labels": [3, 1, 0, 0]})
    splits = read_image_dataset(tmp_path)
    assert splits.classes == ("0", "1", "2", "3")
    assert splits.train.labels.tolist() == [0, 1, 0, 1, 0, 1, 0, 2]
    assert splits.val.labels.tolist() == [3, 1, 0, 0]


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_batches_with_other_objects_are_refused_and_nothing_runs(tmp_path):
    root = write_cifar100(tmp_path / "data")
    trap = tmp_path / "sprung"
    for protocol in (0, 2, 4, 5):
        dump(root / "train", {b"data": Trap(trap)}, protocol)
        with pytest.raises(ValueError, match=r"train is no batch of CIFAR \(it holds \S+; only arrays, lists and text"):
            read_image_dataset(root)
    assert not trap.exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({b"data": PIXELS[:, :100]}, r"data must be an array of bytes of shape \(n, 3072\)"),
        ({b"data": [1, 2]}, "data must be an array of bytes"),
        ({b"fine_labels": [0, 1]}, "train holds 4 images and 2 fine_labels"),
        ({b"fine_labels": [0, -1, 2, 1]}, "fine_labels must be whole numbers from 0"),
        ({b"fine_labels": ["a"] * 4}, "fine_labels must be whole numbers"),
        ({b"fine_labels": [0, 1, 2, 3]}, "meta: fine_label_names must name 4 classes"),
    ],
)
def test_bad_batches_are_refused(tmp_path, changed, message):
    with pytest.raises(ValueError, match=message):
        read_image_dataset(write_cifar100(tmp_path, changed))


def test_broken_batches_are_named(tmp_path):
    root = write_cifar100(tmp_path)
    whole = (root / "train").read_bytes()
    for content in (whole[:1000], b"", b"no pickle", pickle.dumps([1])):
        (root / "train").write_bytes(content)
        with pytest.raises(ValueError, match="train is no batch of CIFAR"):
            read_image_dataset(root)


def test_sets_check_what_they_are_given():
    with pytest.raises(ValueError, match=r"images of shape \(10, 5, 4, 3\) and 9 labels"):
        ImageSet(BYTES, LABELS[:9])
    part = ImageSet(BYTES, LABELS * 0)
    with pytest.raises(ValueError, match="there is the single class a, expected two or more"):
        ImageSplits(part, part, ("a",))
