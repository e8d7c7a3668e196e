from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from icl25_sava.readers import read_dataset


def save(path, array, mode=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(array)
    (image.convert(mode) if mode else image).save(path, **options)


@pytest.fixture
def grey():
    return np.random.default_rng(0).integers(0, 256, size=(4, 6, 5), dtype=np.uint8)


@pytest.mark.parametrize("memory_limit_mb", [512, 0])
def test_grey_images_come_in_the_order_of_their_paths(tmp_path, grey, memory_limit_mb, caplog):
    for k, name in enumerate(["cat/1.png", "cat/2.TIFF", "dog/deep/er.tif", "dog/x.png"]):
        save(tmp_path / name, grey[k])
    (tmp_path / "dog" / "notes.txt").write_text("no image")
    (tmp_path / ".hidden").mkdir()
    data = read_dataset(tmp_path, memory_limit_mb=memory_limit_mb)
    np.testing.assert_allclose(data.X, grey.reshape(4, 30) / 255, atol=1e-7)
    assert data.X.dtype == np.float32
    assert data.image_shape == (6, 5)
    assert data.ids.tolist() == ["cat/1.png", "cat/2.TIFF", "dog/deep/er.tif", "dog/x.png"]
    assert data.y is not None
    assert data.y.tolist() == ["cat", "cat", "dog", "dog"]
    assert len(data.feature_names) == 30
    assert "1 files that are no images are left out" in caplog.text


def test_one_coloured_image_makes_all_of_them_coloured(tmp_path, grey):
    colour = np.random.default_rng(1).integers(0, 256, size=(6, 5, 3), dtype=np.uint8)
    save(tmp_path / "a/1.png", grey[0])
    save(tmp_path / "b/1.png", colour)
    save(tmp_path / "b/2.jpg", np.full((6, 5, 3), 128, np.uint8))
    save(tmp_path / "b/3.png", np.dstack([colour, np.full((6, 5), 255, np.uint8)]))
    data = read_dataset(tmp_path)
    assert data.image_shape == (6, 5, 3)
    images = data.X.reshape(4, 6, 5, 3)
    np.testing.assert_allclose(images[0], np.repeat(grey[0][..., None], 3, axis=2) / 255, atol=1e-7)
    np.testing.assert_allclose(images[1], colour / 255, atol=1e-7)
    np.testing.assert_allclose(images[2], 128 / 255, atol=0.01)
    np.testing.assert_allclose(images[3], images[1])


def test_sixteen_bits_keep_their_depth(tmp_path):
    deep = np.arange(30, dtype=np.uint16).reshape(6, 5) * 2000
    save(tmp_path / "a/1.png", deep)
    np.testing.assert_allclose(read_dataset(tmp_path).X[0], deep.reshape(-1) / 65535, rtol=1e-6)


def test_faulty_folders_name_the_image(tmp_path, grey):
    save(tmp_path / "a/1.png", grey[0])
    with pytest.raises(ValueError, match="an image folder has no columns"):
        read_dataset(tmp_path, features="x")
    (tmp_path / "b").mkdir()
    with pytest.raises(ValueError, match="no image in this class folder"):
        read_dataset(tmp_path)
    odd = tmp_path / "b" / "odd.png"
    save(odd, grey[0][:, :4])
    with pytest.raises(ValueError, match=r"odd.png: 4 x 6 pixels, but 1.png has 5 x 6"):
        read_dataset(tmp_path)
    odd.write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"odd.png: not a readable image"):
        read_dataset(tmp_path)
    save(odd, grey[0])
    odd.write_bytes(odd.read_bytes()[:60])
    with pytest.raises(ValueError, match=r"odd.png: not a readable image"):
        read_dataset(tmp_path)
    save(odd, np.dstack([grey[0]] * 4))
    with pytest.raises(ValueError, match=r"odd.png: not a readable image \(it has transparent pixels"):
        read_dataset(tmp_path)
    odd.unlink()
    save(tmp_path / "b/real.tif", grey[0].astype(np.float32))
    with pytest.raises(ValueError, match=r"real.tif: mode F is not supported"):
        read_dataset(tmp_path)
    pages = [Image.fromarray(grey[k]) for k in range(2)]
    pages[0].save(tmp_path / "b/real.tif", save_all=True, append_images=pages[1:])
    with pytest.raises(ValueError, match=r"real.tif: holds 2 pictures"):
        read_dataset(tmp_path)
