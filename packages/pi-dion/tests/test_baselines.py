from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl25_pi_dion import solvers
from icl25_pi_dion.baselines import GaussNewton, Tikhonov
from icl25_pi_dion.baselines.norms import GridNorm
from icl25_pi_dion.calibration import relative_errors
from icl25_pi_dion.data import sample_prior, simulate
from icl25_pi_dion.problem import InverseProblem
from icl25_pi_dion.problems import DarcyPermeability, HelmholtzCoefficient, ReactionDiffusionSource

X = np.linspace(0, 1, 51)
WAVES = np.sin(np.pi * np.outer(np.arange(1, 50), X))
RATES = 0.01 * (np.pi * np.arange(1, 50)) ** 2 + 0.1
GAINS = (1 - np.exp(-RATES)) / RATES


class PoissonSource(InverseProblem):
    """-Laplace(u) = s on the rectangle of unit height: linear, in two dimensions."""

    coords = ("x", "y")
    target_coords = ("x", "y")
    derivatives = ("u_xx", "u_yy")
    sensor_shape = (9, 9)
    target_shape = (9, 9)

    def residual(self, d, s, y):
        return -d.u_xx - d.u_yy - s.value

    def forward(self, s):
        load = s.reshape(9, 9)
        return solvers.helmholtz(jnp.zeros_like(load), load).ravel()


@pytest.fixture(scope="module")
def linear():
    """A linear problem, its sources and their measurements without and with 1 % of noise."""
    problem = ReactionDiffusionSource()
    s = sample_prior(problem, 40, seed=0)
    clean = simulate(problem, s)
    return problem, s, clean, simulate(problem, s, noise=0.01, seed=1), 0.01 * float((clean - clean.mean(0)).std())


@pytest.mark.parametrize("shape", [(7,), (5, 8)])
def test_norm_of_the_gradient_on_a_grid(shape, x64):
    class Box(InverseProblem):
        coords = target_coords = ("x", "y")[: len(shape)]
        domain = ((0.0, 2.0), (1.0, 4.0))[: len(shape)]
        target_shape = shape

    norm, points = GridNorm(Box()), Box().target_points()
    area = 2.0 if len(shape) == 1 else 6.0
    slope = np.array([3.0, -2.0])[: len(shape)]
    plane = points @ slope + 1
    assert norm.weights.sum() == pytest.approx(area, rel=1e-12)
    assert plane @ norm.stiffness @ plane == pytest.approx(area * slope @ slope, rel=1e-12)
    s = np.random.default_rng(0).standard_normal(len(points))
    np.testing.assert_allclose(norm.stiff(jnp.asarray(s)), norm.stiffness @ s, rtol=1e-10, atol=1e-10)
    solved = np.linalg.solve(norm.stiffness + 0.5 * np.diag(norm.weights), s)
    np.testing.assert_allclose(norm.inverse(jnp.asarray(s), 0.5), solved, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("method", ["tikhonov", "tsvd"])
@pytest.mark.parametrize("prior", ["h1_0", "h1", "l2"])
def test_exact_inverse_without_noise(linear, method, prior):
    problem, s, clean, _, _ = linear
    coefficients = 2 / 50 * clean @ WAVES.T / GAINS
    found = Tikhonov(problem, 0.0, method, prior).predict(clean)
    assert np.abs(2 / 50 * found[:, 1:-1] @ WAVES[:, 1:-1].T - coefficients).max() < 1e-10
    np.testing.assert_allclose(found[:, 1:-1], s[:, 1:-1], rtol=0, atol=1e-10)


def test_filters_of_sines():
    problem = ReactionDiffusionSource()
    c = np.array([1.0, -2.0, 0.5, 1.5, 1.0, -1.0])
    m = (c * GAINS[:6]) @ WAVES[:6]
    squares = GAINS**2 * 50  # the squared norm of s is its mean square, that of the measurement a sum
    np.testing.assert_allclose(Tikhonov(problem, 0.0, prior="l2").singular_values_ ** 2, squares, rtol=1e-10)
    alpha = (squares[2] + squares[3]) / 2
    cut = Tikhonov(problem, alpha, "tsvd", "l2").predict(m[None])[0]
    np.testing.assert_allclose(cut, c[:3] @ WAVES[:3], atol=1e-10)
    damped = Tikhonov(problem, alpha, prior="l2").predict(m[None])[0]
    np.testing.assert_allclose(damped, (c * squares[:6] / (squares[:6] + alpha)) @ WAVES[:6], atol=1e-10)


@pytest.mark.parametrize("prior", ["h1_0", "h1", "l2"])
def test_tikhonov_minimises_its_functional(linear, prior):
    problem, _, _, noisy, _ = linear
    inversion = Tikhonov(problem, 0.03, prior=prior)
    s, norm = inversion.predict(noisy[:1])[0], GridNorm(problem)
    square = {"l2": np.diag(norm.weights), "h1": norm.stiffness + np.diag(norm.weights), "h1_0": norm.stiffness}[prior]
    slope = inversion.matrix_.T @ (inversion.matrix_ @ s - noisy[0]) + 0.03 * square @ s
    assert np.abs(slope[1:-1]).max() < 1e-10
    assert np.abs(slope[[0, -1]] if prior != "h1_0" else s[[0, -1]]).max() < 1e-10


def test_discrepancy_principle(linear):
    problem, s, _, noisy, sigma = linear
    result = Tikhonov(problem, sigma=sigma).solve(noisy)
    np.testing.assert_allclose(result.misfit, sigma, rtol=1e-6)
    readings = np.asarray(simulate(problem, result.s))
    np.testing.assert_allclose(np.sqrt(np.mean((readings - noisy) ** 2, axis=1)), result.misfit, rtol=1e-6)
    assert relative_errors(result.s, s).mean() < 0.08  # 0.05
    cut = Tikhonov(problem, method="tsvd", sigma=sigma).solve(noisy)
    assert (cut.misfit <= sigma).all()
    finer = Tikhonov(problem, method="tsvd", prior="h1_0")
    for i in range(3):
        kept = int((finer.singular_values_**2 >= cut.alpha[i]).sum())
        coarser = finer.singular_values_[kept - 2] ** 2  # one value less leaves more than the noise
        assert Tikhonov(problem, coarser, "tsvd").solve(noisy[i : i + 1]).misfit[0] > sigma


def test_discrepancy_principle_at_its_limits(linear):
    problem, _, _, noisy, _ = linear
    for method in ("tikhonov", "tsvd"):
        all_noise = Tikhonov(problem, method=method, sigma=1e3).solve(noisy[:2])
        assert np.isinf(all_noise.alpha).all()
        assert not all_noise.s.any()
        # Readings at the ends, where u = 0, are noise that no source explains.
        unreachable = Tikhonov(problem, method=method, sigma=1e-9).solve(noisy[:2])
        np.testing.assert_allclose(unreachable.s, Tikhonov(problem, 0.0).predict(noisy[:2]), atol=1e-6)


@pytest.mark.parametrize("method", ["tikhonov", "tsvd"])
def test_cross_validation(linear, method):
    problem, s, clean, noisy, _ = linear
    inversion = Tikhonov(problem, method=method)
    errors = relative_errors(inversion.predict(noisy), s)
    assert np.median(errors) < 0.08  # 0.05
    assert np.median(errors) < 0.3 * np.median(relative_errors(Tikhonov(problem, 0.0).predict(noisy), s))
    assert relative_errors(inversion.predict(clean), s).max() < 1e-6


def test_tikhonov_in_two_dimensions():
    problem = PoissonSource()
    x, y = problem.target_points().T
    s = np.sin(np.pi * x) * np.sin(2 * np.pi * y)
    inversion = Tikhonov(problem, 0.0)
    np.testing.assert_allclose(inversion.predict(simulate(problem, s[None]))[0].ravel(), s, atol=1e-9)


@pytest.mark.parametrize(
    "problem", [ReactionDiffusionSource(k=0.01), HelmholtzCoefficient(n_grid=9), DarcyPermeability(n_grid=9)]
)
def test_tikhonov_refuses_what_is_not_linear(problem):
    with pytest.raises(ValueError, match="is not linear, or zero"):
        Tikhonov(problem)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": -1.0}, "alpha must be >= 0, found -1"),
        ({"alpha": np.inf}, "alpha must be >= 0"),
        ({"sigma": 0.0}, "sigma must be > 0"),
        ({"method": "ridge"}, "'ridge'"),
        ({"prior": "tv"}, "'tv'"),
    ],
)
def test_tikhonov_refuses_bad_arguments(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):  # where annotations are checked, choices are too
        Tikhonov(ReactionDiffusionSource(), **arguments)


def test_bad_measurements(linear):
    problem, _, clean, _, _ = linear
    inversion, spoilt = Tikhonov(problem, 0.0), clean[:2].copy()
    spoilt[1, 3] = np.nan
    with pytest.raises(ValueError, match="must have shape"):
        inversion.predict(clean[:, :-1])
    with pytest.raises(ValueError, match="sample 1, sensor 3"):
        inversion.predict(spoilt)
    with pytest.raises(ValueError, match="must have shape"):
        GaussNewton(problem).solve(clean[0, :-1])


def test_scores_and_parameters(linear):
    problem, s, clean, _, _ = linear
    inversion = Tikhonov(problem, 0.0)
    assert inversion.score(clean, s) == pytest.approx(1)
    assert inversion.get_params() == {
        "problem": problem,
        "alpha": 0.0,
        "method": "tikhonov",
        "prior": "h1_0",
        "sigma": None,
    }
    mean = Tikhonov(problem, 1e12)
    assert mean.score(clean, s) == pytest.approx(1 - np.sum(s**2) / np.sum((s - s.mean(0)) ** 2))
    assert mean.set_params(alpha=0.0).score(clean, s) == pytest.approx(1)
    with pytest.raises(ValueError, match="unknown parameters lam"):
        inversion.set_params(lam=1.0)
    with pytest.raises(ValueError, match="alpha must be"):
        inversion.set_params(alpha=-1.0)


def test_gauss_newton_of_a_linear_problem_is_tikhonov(linear):
    problem, _, _, noisy, sigma = linear
    lam = 0.5
    found = GaussNewton(problem, lam, sigma, tolerance=1e-12).solve(noisy[0])
    assert found.converged
    assert found.n_iterations <= 6  # 4; a linear problem needs one for each power of the tolerance of its solver
    same = Tikhonov(problem, lam * sigma**2 * 51).solve(noisy[:1])
    np.testing.assert_allclose(found.s, same.s[0], atol=1e-5 * np.abs(found.s).max())
    assert found.misfit * sigma == pytest.approx(same.misfit[0], rel=1e-6)


def test_gauss_newton_recovers_a_source():
    problem = ReactionDiffusionSource(n_sensors=31, k=0.2)
    x = np.linspace(0, 1, 31)
    s = 10 * x * (1 - x) + np.sin(2 * np.pi * x)
    result = GaussNewton(problem).solve(simulate(problem, s[None])[0])
    assert result.converged
    assert result.misfit <= 1
    assert result.history[-1] == result.misfit < result.history[0]
    assert len(result.history) == result.n_iterations + 1
    assert relative_errors(result.s[None], s[None])[0] < 0.02


def test_gauss_newton_recovers_a_constant_coefficient():
    problem = HelmholtzCoefficient(n_grid=17)
    inversion = GaussNewton(problem, start=np.full((17, 17), 2.0))
    m = simulate(problem, np.full((1, 17, 17), 5.0))[0]
    result = inversion.solve(m)
    assert result.converged
    np.testing.assert_allclose(result.s[2:-2, 2:-2], 5, rtol=0.03)
    # Beyond the eigenvalue u changes its sign, as it does nowhere below: the iteration stops before it.
    with pytest.warns(UserWarning, match="did not converge: misfit"):
        refused = inversion.solve(-m)
    assert refused.s.min() > 0
    assert refused.s.max() < 19.7


def test_gauss_newton_ends_where_the_objective_is_stationary(x64):
    problem = DarcyPermeability(n_grid=9)
    a = sample_prior(problem, 1, seed=0)
    m = simulate(problem, a)[0]
    lam, sigma = 10.0, 1e-3
    found = GaussNewton(problem, lam, sigma, tolerance=1e-12).solve(m)
    assert found.converged
    norm = GridNorm(problem)

    @jax.jit
    def objective(theta):
        misfit = problem.forward(jnp.exp(theta)) - m.ravel()
        return jnp.mean(misfit**2) / sigma**2 + lam * theta @ norm.stiffness @ theta

    theta = np.log(found.s.ravel())
    flat = np.full_like(theta, theta.mean())
    for direction in np.random.default_rng(0).standard_normal((5, len(theta))):
        steps = [(objective(t + 1e-4 * direction) - objective(t - 1e-4 * direction)) / 2e-4 for t in (theta, flat)]
        assert abs(steps[0]) < 1e-3 * abs(steps[1])


def test_gauss_newton_says_where_it_did_not_converge(linear):
    problem, _, clean, _, _ = linear
    inversion = GaussNewton(problem, n_iterations=1)
    with pytest.warns(
        UserWarning, match=r"2 of 2 inversions did not converge, the first of sample 0: misfit .* 1 steps"
    ):
        inversion.predict(clean[:2])
    with pytest.warns(UserWarning, match="after 1 steps"):
        assert not inversion.solve(clean[0]).converged


def test_gauss_newton_predicts_a_batch(linear):
    problem, s, clean, _, _ = linear
    inversion = GaussNewton(problem)
    found = inversion.predict(clean[:5])
    assert found.shape == (5, 51)
    assert inversion.score(clean[:5], s[:5]) > 0.999
    assert found.tobytes() == inversion.predict(clean[:5]).tobytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lam": 0.0}, "lam must be > 0"),
        ({"sigma": -1.0}, "sigma must be > 0"),
        ({"tolerance": 0.0}, "tolerance must be > 0"),
        ({"n_iterations": 0}, "n_iterations must be >= 1"),
        ({"start": np.ones(5)}, r"start must be finite, of shape \(9, 9\)"),
        ({"start": -np.ones((9, 9))}, "start must be > 0"),
        ({"prior": "h1_0"}, "prior must be h1, or h1_0"),
    ],
)
def test_gauss_newton_refuses_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        GaussNewton(HelmholtzCoefficient(n_grid=9), **arguments)


def test_gauss_newton_refuses_a_zero_measurement():
    with pytest.raises(ValueError, match="the measurement is zero: pass sigma"):
        GaussNewton(ReactionDiffusionSource()).solve(np.zeros(51))
