import warnings

import numpy as np
import pytest

from icl25_pi_dion import InverseOperator, InverseProblem, SensorReadings, data
from icl25_pi_dion.checks import check_labels, check_measurements, problem_for
from icl25_pi_dion.network import PIDION
from icl25_pi_dion.problem import Dirichlet
from icl25_pi_dion.problems import DarcyPermeability, HelmholtzCoefficient, ReactionDiffusionSource

RD = ReactionDiffusionSource()
GOOD = data.simulate(RD, data.sample_prior(RD, 12, seed=0))
FULL = ReactionDiffusionSource(measurement="full", n_sensors=11, n_times=11, n_modes=4)


def test_good_measurements_pass_in_any_dtype_and_shape():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given in (GOOD, GOOD.astype(np.float32), GOOD.tolist()):
            found = check_measurements(given, RD)
            np.testing.assert_allclose(found.values, GOOD, rtol=1e-6)
            assert found.mask is None
            np.testing.assert_array_equal(found.locations, RD.sensors())
        square = HelmholtzCoefficient(n_grid=9)
        field = data.simulate(square, data.sample_prior(square, 3, seed=0))
        np.testing.assert_array_equal(
            check_measurements(field, square).values, check_measurements(field.reshape(3, 81), square).values
        )


def altered(index, value):
    changed = GOOD.copy()
    changed[index] = value
    return changed


@pytest.mark.parametrize(
    ("measurements", "error", "match"),
    [
        (altered((7, 3), np.nan), ValueError, r"1 values are not finite, the first \(NaN\) in sample 7, sensor 3"),
        (altered((2, 50), np.inf), ValueError, r"the first \(infinite\) in sample 2, sensor 50"),
        (GOOD[:, :50], ValueError, r"must have shape \(n, 51\), found \(12, 50\)"),
        (GOOD[0], ValueError, r"for a single sample pass measurements\[None\]"),
        (GOOD[:0], ValueError, "there are no measurements"),
        (GOOD.astype(str), TypeError, "must be real numbers"),
        (GOOD.astype(complex), TypeError, "must be real numbers"),
        ([[1.0, 2.0], [3.0]], ValueError, "rectangular"),
    ],
)
def test_bad_measurements_are_refused(measurements, error, match):
    with pytest.raises(error, match=match):
        check_measurements(measurements, RD)


def test_swapped_axes_are_noticed():
    wide = ReactionDiffusionSource(measurement="full", n_sensors=21, n_times=11)
    field = data.simulate(wide, data.sample_prior(wide, 3, seed=0))
    assert field.shape == (3, 21, 11)
    with pytest.raises(ValueError, match="these look transposed"):
        check_measurements(np.swapaxes(field, 1, 2), wide)
    square = data.simulate(FULL, data.sample_prior(FULL, 3, seed=0))
    check_measurements(square, FULL)
    with pytest.raises(ValueError, match="axes of the measurements look swapped: the first is x, the second t"):
        check_measurements(np.swapaxes(square, 1, 2), FULL)


def test_boundary_values_are_compared():
    with pytest.warns(UserWarning, match="differ from the boundary condition by .* Dirichlet"):
        check_measurements(GOOD + 0.3, RD)
    noise = 0.05 * GOOD.std() * np.random.default_rng(0).normal(size=GOOD.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_measurements(GOOD + noise, RD)

        class Warm(ReactionDiffusionSource):
            def boundary(self):
                return Dirichlet(0.3)

        check_measurements(GOOD + 0.3, Warm())


def fit(measurements, labels=None, problem=RD, net=None, **options):
    options = {"steps": 1, "calibration": 0, "check_identifiable": False} | options
    return InverseOperator(problem, net, **options).fit(measurements, labels)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"measurements": 0 * GOOD}, "all measurements are zero"),
        ({"weights": {"data": 0.0}}, "u = 0, s = 0 would solve the problem"),
        ({"weights": {"dada": 1.0}}, "unknown weights dada; there are physics"),
        ({"weights": {"physics": -1.0}}, "weight physics must be >= 0"),
        ({"optimizer": "sgd"}, "optimizer must be muon, adam, lbfgs"),
        ({"learning_rate": 0.0}, "learning_rate must be > 0"),
        ({"steps": 0}, "steps must be >= 1"),
        ({"noise_std": -0.1}, "noise_std must be >= 0"),
        ({"sensor_dropout": 1.0}, "sensor_dropout must be in"),
        ({"seed": -1}, "seed must be a whole number >= 0"),
        ({"n_devices": 99}, "n_devices must be from 1 to"),
        ({"missing": "mask"}, 'missing="mask" needs a network that takes sets'),
        ({"net": PIDION(HelmholtzCoefficient(n_grid=5))}, "net was made for another problem"),
        ({"labels": np.zeros((12, 50))}, r"labels must have 12 rows of 51 values, found shape \(12, 50\)"),
        ({"labels": ([0, 12], np.zeros((2, 51)))}, "labelled samples must be from 0 to 11"),
        ({"labels": ([3, 3], np.zeros((2, 51)))}, "a sample is labelled twice"),
        ({"labels": ([0.5], np.zeros((1, 51)))}, "list of whole numbers"),
        ({"labels": ([0], np.full((1, 51), np.nan))}, "not finite"),
    ],
)
def test_bad_arguments_are_refused(options, match):
    with pytest.raises((ValueError, TypeError), match=match):
        fit(**{"measurements": GOOD, **options})


def test_equal_measurements_are_warned_of():
    with pytest.warns(UserWarning, match="all measurements are equal"):
        fit(GOOD[:1])


@pytest.mark.parametrize(
    ("problem", "value", "match"),
    [
        (HelmholtzCoefficient(n_grid=9), 19.7, "sample 1.*19.7"),
        (HelmholtzCoefficient(n_grid=9), -1.0, "label of sample 1 must be positive, found -1 at value 40"),
        (DarcyPermeability(n_grid=9), 0.0, "sample 1"),
    ],
)
def test_labels_that_are_no_outputs_are_refused(problem, value, match):
    labels = np.ones((2, 9, 9))
    check_labels(labels, 2, problem)
    labels[1, 4, 4] = value
    with pytest.raises(ValueError, match=match):
        check_labels(labels, 2, problem)


def test_readings_that_are_missing_are_masked_for_sets():
    gaps = altered((3, slice(0, 20)), np.nan)
    found = check_measurements(gaps, RD, takes_sets=True, missing="mask")
    assert (~found.mask).sum() == 20
    assert np.isfinite(found.values).all()
    gaps[5] = np.nan
    with pytest.raises(ValueError, match="sample 5 has no reading at all"):
        check_measurements(gaps, RD, takes_sets=True, missing="mask")


def test_sets_of_readings_are_checked():
    pairs = [(np.array([[0.2, 1.0], [0.5, 1.0]]), np.array([1.0, 2.0])), (np.array([[0.9, 1.0]]), np.array([3.0]))]
    found = check_measurements(pairs, RD, takes_sets=True)
    np.testing.assert_array_equal(found.mask, [[True, True], [True, False]])
    np.testing.assert_array_equal(found.values, [[1, 2], [3, 0]])
    with pytest.raises(ValueError, match="need a network of sets"):
        check_measurements(pairs, RD)
    outside = [(np.array([[0.2, 1.5]]), np.array([1.0]))]
    with pytest.raises(ValueError, match=r"sample 0, reading 0: t = 1.5 is outside \[0, 1\]"):
        check_measurements(outside, RD, takes_sets=True)
    for bad in ([], [(np.zeros((2, 2)), np.zeros(3))], [(np.zeros((0, 2)), np.zeros(0))]):
        with pytest.raises(ValueError, match=r"no samples|must have locations"):
            SensorReadings.from_list(bad)


def test_a_problem_takes_its_sensors_from_the_measurements():
    class Own(InverseProblem):
        pass

    problem = problem_for(Own(), np.zeros((4, 21)))
    np.testing.assert_array_equal(problem.sensors()[:, 0], np.linspace(0, 1, 21))
    assert (problem.sensors()[:, 1] == 1).all()
    assert problem_for(Own(), np.zeros((4, 6, 3))).sensors().shape == (18, 2)
    with pytest.raises(ValueError, match="form no grid over the coordinates"):
        problem_for(Own(), np.zeros((4, 2, 3, 3)))
