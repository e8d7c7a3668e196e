import numpy as np
import pytest

from icl25_lp_conv import rsa
from icl25_lp_conv.alignment_task import alignment_tables, identified_layers, network_scores
from icl25_lp_conv.datasets.simulated_cortex import AREAS, photo_crops, simulate_cortex
from icl25_lp_conv.digits_task import DigitsSizes

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
