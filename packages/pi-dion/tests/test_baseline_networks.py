from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from icl25_pi_dion.baselines import PINN, DeepONet, FNO2d
from icl25_pi_dion.baselines.fno import FourierLayer
from icl25_pi_dion.calibration import relative_errors
from icl25_pi_dion.data import sample_prior, simulate
from icl25_pi_dion.network import PIDION
from icl25_pi_dion.problem import InverseProblem
from icl25_pi_dion.problems import DarcyPermeability, HelmholtzCoefficient, ReactionDiffusionSource
from icl25_pi_dion.training import Diverged


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """Networks this small are compiled for longer than they are trained."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="module")
def sources():
    problem = ReactionDiffusionSource()
    s = sample_prior(problem, 1050, seed=0)
    return problem, s, simulate(problem, s)


@pytest.fixture(scope="module")
def coefficients():
    problem = HelmholtzCoefficient(n_grid=9)
    s = sample_prior(problem, 80, seed=0)
    return problem, s, simulate(problem, s)


class Snapshot(InverseProblem):
    """A field of space, read at one time on a coarser grid than that of the unknown."""

    coords = ("x", "y", "t")
    domain = ((0.0, 1.0), (0.0, 2.0), (0.0, 1.0))
    target_coords = ("x", "y")
    sensor_shape = (5, 7)
    target_shape = (9, 13)

    def boundary(self):
        return None


def test_deeponet_learns_from_labels_alone(sources):
    problem, s, m = sources
    labels = -s  # which contradict the equation
    net = DeepONet(problem, None, "adam", 200, learning_rate=1e-2).fit(m[:1000], labels[:1000])
    found = net.predict(m[1000:])
    assert found.shape == (50, 51)
    assert relative_errors(found, labels[1000:]).mean() < 0.25  # 0.11; the mean of the labels is at 1
    assert net.score(m[1000:], labels[1000:]) > 0.95
    assert len(net.history_) == 4
    assert net.history_[-1] < 0.2 * net.history_[0]


def test_deeponet_with_convolutions(coefficients):
    problem, s, m = coefficients
    net = DeepONet(problem, PIDION(problem, p=8, branch="cnn"), "adam", steps=2)
    found = net.fit(m, s).predict(m)
    assert found.shape == s.shape
    assert (found > 0).all()


def test_deeponet_refuses_bad_input(sources):
    problem, s, m = sources
    with pytest.raises(RuntimeError, match="not fitted"):
        DeepONet(problem).predict(m)
    with pytest.raises(ValueError, match="S is None"):
        DeepONet(problem).fit(m, None)
    with pytest.raises(ValueError, match="labels must have 10 rows"):
        DeepONet(problem).fit(m[:10], s[:9])
    with pytest.raises(ValueError, match="steps must be >= 1"):
        DeepONet(problem, steps=0).fit(m[:10], s[:10])


@pytest.mark.parametrize("shape", [(8, 8), (7, 10), (5, 4)])
def test_fourier_layer_is_its_sum_of_waves(shape):
    modes, width = 3, 2
    layer = FourierLayer(width, modes, rngs=nnx.Rngs(0))
    x = np.random.default_rng(0).standard_normal((2, *shape, width))
    rows, columns = np.meshgrid(*(np.arange(n) / n for n in shape), indexing="ij")
    expected = np.zeros_like(x)
    weights = np.asarray(layer.real[...], float) + 1j * np.asarray(layer.imaginary[...], float)
    for k_x in range(1 - modes, modes):
        for k_y in range(modes):
            if 2 * abs(k_x) < shape[0] and 2 * k_y < shape[1]:
                wave = np.exp(2j * np.pi * (k_x * rows + k_y * columns))
                coefficient = np.mean(x * np.conj(wave)[..., None], axis=(1, 2))
                term = wave[..., None] * (coefficient @ weights[k_x + modes - 1, k_y])[:, None, None]
                expected += term.real * (1 if k_y == 0 else 2)
    np.testing.assert_allclose(layer(jnp.asarray(x, jnp.float32)), expected, atol=1e-5)


def test_fourier_layer_does_not_depend_on_the_resolution():
    layer = FourierLayer(1, 4, rngs=nnx.Rngs(1))

    def sampled(n):
        x, y = np.meshgrid(*[np.arange(n) / n] * 2, indexing="ij")
        wave = np.sin(2 * np.pi * (x + 2 * y)) + np.cos(2 * np.pi * (3 * x - y)) + 0.5
        return np.asarray(layer(jnp.asarray(wave[None, ..., None], jnp.float32)))[0, ..., 0]

    np.testing.assert_allclose(sampled(24)[::3, ::3], sampled(8), atol=1e-5)
    np.testing.assert_allclose(sampled(45)[::5, ::5], sampled(9), atol=1e-5)


def test_fno_learns_a_map_that_is_not_local(coefficients):
    problem, _, _ = coefficients
    x, y = problem.target_points().T.reshape(2, 9, 9)
    a, b, c = np.random.default_rng(0).standard_normal((3, 120, 1, 1))
    m = (a + b * np.sin(np.pi * x) + c * np.cos(np.pi * y)) * (x * (1 - x) * y * (1 - y) > 0)
    s = np.exp(0.3 * (m - m.mean((1, 2), keepdims=True)))
    net = FNO2d(problem, 3, 8, 2, steps=200).fit(m[:100], s[:100])
    found = net.predict(m[100:])
    mean = relative_errors(np.broadcast_to(s[:100].mean(0), found.shape), s[100:]).mean()
    assert relative_errors(found, s[100:]).mean() < 0.3 * mean
    assert (found > 0).all()
    assert net.history_[-1] < 0.1 * net.history_[0]


def test_fno_resamples_to_the_target_grid_and_is_reproducible():
    problem = Snapshot()
    points = problem.sensors()
    m = (1 + 2 * points[:, 0] + 3 * points[:, 1] + points[:, 0] * points[:, 1]).reshape(1, 5, 7)
    x, y = problem.target_points().T
    nets = [FNO2d(problem, 8, 4, 1, steps=1, seed=3) for _ in range(2)]  # more frequencies than the grid has
    np.testing.assert_allclose(nets[0]._on_target_grid(m)[0].ravel(), 1 + 2 * x + 3 * y + x * y, atol=1e-12)
    s = np.stack([x, y]).reshape(2, 9, 13)
    found = [net.fit(np.concatenate([m, 2 * m]), s).predict(m) for net in nets]
    assert found[0].shape == (1, 9, 13)
    assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.parametrize(
    "problem",
    [
        HelmholtzCoefficient(measurement="part"),
        DarcyPermeability(measurement="sensors"),
        ReactionDiffusionSource(measurement="full"),
    ],
)
def test_fno_refuses_sensors_that_are_no_full_grid(problem):
    with pytest.raises(ValueError, match="FNO2d needs"):
        FNO2d(problem)


def test_fno_refuses_bad_input(coefficients):
    problem, s, m = coefficients
    for name in ("modes", "width", "n_layers", "steps", "batch_size"):
        with pytest.raises(ValueError, match=f"{name} must be >= 1, found 0"):
            FNO2d(problem).set_params(**{name: 0})
    with pytest.raises(ValueError, match="seed must be"):
        FNO2d(problem, seed=-1)
    with pytest.raises(RuntimeError, match="not fitted"):
        FNO2d(problem).predict(m)
    with pytest.raises(ValueError, match="S is None"):
        FNO2d(problem).fit(m, None)
    with pytest.raises(ValueError, match="must be positive"):
        FNO2d(problem).fit(m, -s)
    with pytest.raises(Diverged, match="training the FNO: the loss is not finite"):
        FNO2d(problem, 2, 4, 1, optax.sgd(1e30), steps=3).fit(m, s)


def test_pinn_inverts_one_measurement(sources):
    problem, s, m = sources
    pinn = PINN(problem, steps=300)
    result = pinn.solve(m[0])
    assert relative_errors(result.s[None], s[:1])[0] < 0.08  # 0.02
    assert result.misfit_rms < 0.01
    assert result.residual_rms < 0.1
    assert result.history[-1] < 0.01 * result.history[0]
    assert (result.u[[0, -1]] == 0).all()
    both = pinn.predict(m[:2])
    assert both[0].tobytes() == result.s.tobytes()  # compiled once, and nothing is kept from one to the next
    assert relative_errors(both, s[:2])[1] < 0.08


def test_pinn_needs_the_equation(sources):
    problem, s, m = sources
    blind = PINN(problem, 200, "adam", weights={"physics": 0.0}, trunk=(16, 16), learning_rate=2e-2).solve(m[0])
    assert blind.misfit_rms < 0.2
    assert relative_errors(blind.s[None], s[:1])[0] > 0.5


def test_pinn_of_a_positive_unknown(coefficients):
    problem, _, m = coefficients
    result = PINN(problem, 2, "adam", 20, (8, 8), noise_std=0.01).solve(m[0])
    assert result.s.shape == (9, 9)
    assert (result.s > 0).all()


def test_pinn_refuses_bad_input(sources):
    problem, _, m = sources
    with pytest.raises(ValueError, match="steps must be >= 1"):
        PINN(problem, steps=0)
    with pytest.raises(ValueError, match="noise_std must be >= 0"):
        PINN(problem, noise_std=-1.0)
    with pytest.raises(ValueError, match="weight data is 0"):
        PINN(problem, weights={"data": 0.0})
    with pytest.raises(ValueError, match="seed must be"):
        PINN(problem, seed=True)
    with pytest.raises(ValueError, match="the measurement is zero"):
        PINN(problem).solve(np.zeros(51))
    with pytest.raises(ValueError, match="must have shape"):
        PINN(problem).predict(m[:, 1:])
