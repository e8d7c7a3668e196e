import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import ndimage, signal
from skimage import data

from icl25_lp_conv import rsa
from icl25_lp_conv.alignment_task import alignment_tables, identified_layers, network_scores
from icl25_lp_conv.datasets import simulated_cortex
from icl25_lp_conv.datasets.simulated_cortex import AREAS, photo_crops, simulate_cortex
from icl25_lp_conv.digits_task import DigitsSizes, train_on_digits
from icl25_lp_conv.models import digits_resnet

TINY = DigitsSizes(n_train=100, n_test=50, epochs=1, widths=(2, 3, 4))


def grating(wavelength, angle, side=32):
    rows, columns = np.mgrid[:side, :side]
    wave = np.sin(2 * np.pi / wavelength * (columns * np.cos(angle) + rows * np.sin(angle)))
    return wave[None].astype(np.float32)


def test_crops_are_standardised_and_follow_the_seed():
    crops = photo_crops(30, 16, seed=1)
    assert crops.shape == (30, 1, 16, 16)
    np.testing.assert_allclose(crops.mean((1, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(crops.std((1, 2, 3)), 1, atol=0.01)
    np.testing.assert_array_equal(crops, photo_crops(30, 16, seed=1))
    assert len({crop.tobytes() for crop in crops}) == 30
    assert not np.array_equal(crops, photo_crops(30, 16, seed=2))


def test_crops_are_windows_of_the_photographs():
    (_, crop, *_), camera = photo_crops(3, 128, seed=4)[:, 0], data.camera()
    rng = np.random.default_rng(4)
    rng.integers(0, [512 - 127] * 2)  # the place in the first photograph, which has colours
    row, column = rng.integers(0, [512 - 127] * 2)
    window = camera[row : row + 128, column : column + 128].astype(float)
    np.testing.assert_allclose(crop, (window - window.mean()) / window.std(), atol=1e-3)


@pytest.mark.parametrize(("n", "side"), [(0, 32), (5, 7), (5, 129)])
def test_crops_out_of_range(n, side):
    with pytest.raises(ValueError, match=f"found {n} and {side}"):
        photo_crops(n, side)


def test_areas_tell_orientations_apart_and_are_noisy():
    stimuli = np.stack([grating(6, angle) for angle in (0, 0, np.pi / 2, np.pi / 2)])
    brain = simulate_cortex(stimuli, n_sessions=3, noise=0.1)
    assert list(brain) == list(AREAS)
    middle = brain["middle"]
    assert middle.shape == (4, 4, 3)
    assert (middle[0, 1] > 0.5).all()
    assert (middle[0, 2] < -0.3).all()
    assert not np.array_equal(middle[..., 0], middle[..., 1])


def test_units_respond_with_the_smoothed_energy_of_gabor_pairs(monkeypatch):
    side = 8
    monkeypatch.setattr(simulated_cortex, "_N_UNITS", 6 * side**2)  # all units, in any order
    stimuli = np.random.default_rng(0).normal(size=(5, 1, side, side)).astype(np.float32)
    brain = simulate_cortex(stimuli, n_sessions=1, noise=0.0)
    assert AREAS == {"fine": 3.0, "middle": 6.0, "coarse": 12.0}
    for area, wavelength in AREAS.items():
        reach = np.arange(-math.ceil(1.5 * wavelength), math.ceil(1.5 * wavelength) + 1)
        envelope = np.exp(-2 * (reach[:, None] ** 2 + reach**2) / wavelength**2)
        units = []
        for angle in np.radians([0, 30, 60, 90, 120, 150]):
            along = reach * np.cos(angle) + reach[:, None] * np.sin(angle)
            even, odd = (envelope * wave(2 * np.pi * along / wavelength) for wave in (np.cos, np.sin))
            even = even - envelope * even.sum() / envelope.sum()
            for image in stimuli[:, 0]:
                response = signal.convolve2d(image, even, "same") + 1j * signal.convolve2d(image, odd, "same")
                units.append(ndimage.gaussian_filter(np.abs(response), wavelength / 2))
        by_stimulus = np.stack(units).reshape(6, 5, -1).transpose(1, 0, 2)
        np.testing.assert_allclose(brain[area][..., 0], rsa.rsm(by_stimulus), atol=1e-6)


def test_recordings_follow_the_seed():
    crops = photo_crops(5, 16)
    one, again, other = (simulate_cortex(crops, n_sessions=1, noise=0.0, seed=seed)["fine"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_noise_lowers_the_ceiling():
    crops = photo_crops(30)
    quiet, loud = (simulate_cortex(crops, noise=noise) for noise in (0.1, 2.0))
    for area in AREAS:
        assert rsa.noise_ceiling(quiet[area]).mean() > rsa.noise_ceiling(loud[area]).mean() + 0.2


def test_the_analysis_finds_the_recorded_layer():
    assert identified_layers([0], n_stimuli=24, n_sessions=3) == [1.0]


def test_networks_are_compared_with_every_area():
    tables = alignment_tables(["3x3", "Lp p=2"], [0], TINY, n_stimuli=12)
    assert list(tables) == ["3x3", "Lp p=2"]
    (table,) = tables["Lp p=2"]
    assert set(table["area"]) == set(AREAS)
    expected = np.mean([table[table["area"] == area]["corrected"].max() for area in AREAS])
    assert network_scores([table]) == [pytest.approx(expected)]


def test_a_table_is_that_of_its_network_and_cortex():
    (table,) = alignment_tables(["Lp p=2"], [3], TINY, n_stimuli=10)["Lp p=2"]
    stimuli = photo_crops(10, seed=3)
    brain = simulate_cortex(stimuli, seed=3)
    ceilings = {area: rsa.noise_ceiling(sessions) for area, sessions in brain.items()}
    model, _ = train_on_digits("Lp p=2", 3, TINY)
    expected = rsa.summarize(rsa.rsa(model, torch.from_numpy(stimuli), brain), ceilings)
    pd.testing.assert_frame_equal(table, expected)


def test_layers_are_found_in_noise_as_strong_as_their_features():
    shares = []
    for seed in (0, 1, 2):
        torch.manual_seed(seed)
        model, rng = digits_resnet(), np.random.default_rng(seed)
        stimuli = torch.from_numpy(photo_crops(5, seed=seed))
        features = rsa.extract_features(model, stimuli)
        recorded = {name: x + x.std() * rng.normal(size=(2, *x.shape)) for name, x in features.items()}
        brain = {name: np.stack([rsa.rsm(part) for part in parts], -1) for name, parts in recorded.items()}
        table = rsa.summarize(rsa.rsa(model, stimuli, brain))
        best = table.sort_values("ssm", ascending=False, kind="stable").groupby("area").head(1)
        shares.append(float(np.mean(best["layer"] == best["area"])))
    assert max(shares) < 1  # with so few stimuli
    assert identified_layers([0, 1, 2], n_stimuli=5, n_sessions=2) == pytest.approx(shares)
