from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl25_pi_dion.problem import Derivatives
from icl25_pi_dion.problems import DarcyPermeability, HelmholtzCoefficient, ReactionDiffusionSource

PI = np.pi
RNG = np.random.default_rng(0)


def derivatives(**values):
    return Derivatives({name: jnp.asarray(value)[None] for name, value in values.items()}, "derivatives")


def error(found, expected):
    return np.linalg.norm(np.asarray(found) - expected) / np.linalg.norm(expected)


def sine_load(coefficient, slope):
    """The load for u = sin(pi x) sin(pi y): see the two tests that use it."""

    def load(y):
        u = jnp.sin(PI * y[:, 0]) * jnp.sin(PI * y[:, 1])
        return coefficient(y) * u - slope * PI * jnp.cos(PI * y[:, 0]) * jnp.sin(PI * y[:, 1])

    return load


def product(y):
    sine, cosine = np.sin(PI * y), np.cos(PI * y)
    u = sine[:, 0] * sine[:, 1]
    return {
        "u": u,
        "u_x": PI * cosine[:, 0] * sine[:, 1],
        "u_y": PI * sine[:, 0] * cosine[:, 1],
        "u_xx": -(PI**2) * u,
        "u_yy": -(PI**2) * u,
    }


def test_residual_of_the_exact_linear_reaction_diffusion_is_zero(x64):
    problem = ReactionDiffusionSource(D=0.02, kappa=0.3, T=2.0)
    y = RNG.uniform(0, [1, 2], (200, 2))
    x, t = y.T
    c, n = RNG.standard_normal(6), PI * np.arange(1, 7)
    rate, waves = 0.02 * n**2 + 0.3, np.sin(np.outer(x, n))
    growth = (1 - np.exp(-np.outer(t, rate))) / rate
    d = derivatives(
        u=(growth * waves) @ c, u_t=(np.exp(-np.outer(t, rate)) * waves) @ c, u_xx=-(growth * waves * n**2) @ c
    )
    assert np.abs(problem.residual(d, derivatives(value=waves @ c), jnp.asarray(y))).max() < 1e-10


def test_residual_of_a_made_quadratic_solution_is_zero(x64):
    problem = ReactionDiffusionSource(D=0.01, kappa=0.2, k=0.7)
    y = RNG.uniform(0, 1, (200, 2))
    x, t = y.T
    u = t**2 * np.sin(PI * x)
    d = derivatives(u=u, u_t=2 * t * np.sin(PI * x), u_xx=-(PI**2) * u)
    s = 2 * t * np.sin(PI * x) + 0.01 * PI**2 * u + 0.2 * u - 0.7 * u**2
    assert np.abs(problem.residual(d, derivatives(value=s), jnp.asarray(y))).max() < 1e-10


def test_residual_of_a_made_helmholtz_solution_is_zero(x64):
    problem = HelmholtzCoefficient(f=sine_load(lambda y: 2 * PI**2 - 5 - y[:, 0], 0))
    y = RNG.uniform(0, 1, (200, 2))
    residual = problem.residual(derivatives(**product(y)), derivatives(value=5 + y[:, 0]), jnp.asarray(y))
    assert np.abs(residual).max() < 1e-10


def test_residual_of_a_made_darcy_solution_is_zero(x64):
    problem = DarcyPermeability(f=sine_load(lambda y: (1 + y[:, 0]) * 2 * PI**2, 1))
    y = RNG.uniform(0, 1, (200, 2))
    a = derivatives(value=1 + y[:, 0], s_x=np.ones(200), s_y=np.zeros(200))
    assert np.abs(problem.residual(derivatives(**product(y)), a, jnp.asarray(y))).max() < 1e-10


@pytest.mark.parametrize("i", [0, 1])
def test_reaction_diffusion_solves_the_golden_problems(x64, golden, i):
    arrays = golden("reaction_diffusion")
    linear = ReactionDiffusionSource(measurement="full")
    u = arrays[f"linear{i}/u"].T
    np.testing.assert_allclose(linear.solve(arrays[f"linear{i}/s"]), u, atol=1e-13)
    np.testing.assert_allclose(linear.forward(arrays[f"linear{i}/s"]), u.ravel(), atol=1e-13)
    quadratic = ReactionDiffusionSource(k=0.01, kappa=0.0)
    u = arrays[f"quadratic{i}/u"].T
    assert error(quadratic.solve(arrays[f"quadratic{i}/s"])[:, -1], u[:, -1]) < 1e-4
    assert error(quadratic.forward(arrays[f"quadratic{i}/s"]), u[:, -1]) < 1e-4


def test_vanishing_reaction_is_the_linear_limit(x64, golden):
    s = golden("reaction_diffusion")["linear1/s"]
    exact = ReactionDiffusionSource(kappa=0.0).forward(s)
    assert error(ReactionDiffusionSource(kappa=0.0, k=1e-9).forward(s), exact) < 1e-4


@pytest.mark.parametrize("k", [0.0, 1e-9])
def test_final_time_and_diffusion_reach_the_solver(x64, k):
    problem = ReactionDiffusionSource(D=0.03, kappa=0.2, k=k, T=2.5, n_times=3)
    rate = 0.03 * (2 * PI) ** 2 + 0.2
    wave = np.sin(2 * PI * np.linspace(0, 1, 51))
    times = np.array([0, 1.25, 2.5])
    assert error(problem.solve(wave), np.outer(wave, (1 - np.exp(-rate * times)) / rate)) < 2e-4
    assert error(problem.forward(wave), wave * (1 - np.exp(-2.5 * rate)) / rate) < 2e-4


def test_elliptic_problems_solve_the_golden_problems(x64, golden):
    arrays = golden("elliptic")
    assert error(HelmholtzCoefficient().solve(arrays["helmholtz2/q"].ravel()), arrays["helmholtz2/u"]) < 5e-4
    assert error(DarcyPermeability().solve(arrays["darcy2/a"].ravel()), arrays["darcy2/u"]) < 5e-4


PROBLEMS = [
    ReactionDiffusionSource(n_sensors=21, n_modes=5),
    ReactionDiffusionSource(n_sensors=21, n_modes=5, measurement="window", window=(0.25, 0.8)),
    ReactionDiffusionSource(n_sensors=21, n_modes=5, measurement="full", n_times=4, T=2.0),
    HelmholtzCoefficient(n_grid=9),
    HelmholtzCoefficient(n_grid=9, measurement="sensors", n_sensors=7),
    DarcyPermeability(n_grid=9, measurement="part", half_width=0.3),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: f"{type(problem).__name__}-{problem.measurement}")
def test_measurements_are_the_solution_at_the_sensors(x64, problem):
    s = problem.sample_target(1, np.random.default_rng(2))[0]
    u, points, sensors = np.ravel(problem.solve(s)), problem.solution_points(), problem.sensors()
    assert len(u) == len(points)
    assert np.prod(problem.sensor_shape) == len(sensors)
    nearest = np.square(sensors[:, None] - points).sum(axis=2)
    assert nearest.min(axis=1).max() < 1e-20
    np.testing.assert_allclose(problem.forward(s), u[nearest.argmin(axis=1)], atol=1e-12)
    edge = np.any((points == 0) | (points == [high for _, high in problem.domain]), axis=1)
    edge = edge if "t" not in problem.coords else (points[:, 1] == 0) | (points[:, 0] % 1 == 0)
    assert np.abs(u[edge]).max() < 1e-14
    assert np.abs(u[~edge]).min() > 0


def test_solutions_have_the_precision_of_the_unknown():
    for problem in (PROBLEMS[0], PROBLEMS[3]):
        s = jnp.asarray(problem.sample_target(1, np.random.default_rng(2))[0], jnp.float32)
        assert problem.forward(s).dtype == jnp.float32


def test_priors_have_the_stated_ranges():
    rng = np.random.default_rng(0)
    q = HelmholtzCoefficient(n_grid=9).sample_target(2000, rng)
    assert 1 < q.min() < 1.5
    assert 8.5 < q.max() < 9
    assert q.mean() == pytest.approx(5, abs=0.1)
    a = DarcyPermeability(n_grid=9).sample_target(2000, rng)
    assert np.log(a).std() == pytest.approx(0.5, rel=0.05)
    s = ReactionDiffusionSource(prior="rbf").sample_target(2000, rng)
    assert s.std() == pytest.approx(1, rel=0.05)
    assert s[:, 0].std() == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("options", [{}, {"measurement": "part"}, {"measurement": "sensors", "n_sensors": 9}])
def test_darcy_starts_from_the_permeability_of_the_measurements(x64, options):
    problem = DarcyPermeability(n_grid=9, **options)
    measured = np.tile(problem.forward(np.full(81, 3.0)), (4, 1))
    assert problem.target_scale(measured).offset == pytest.approx(3, rel=1e-9)
    measured[0, :3] = np.nan
    assert problem.target_scale(measured).offset == pytest.approx(3, rel=1e-9)
    with pytest.raises(ValueError, match="opposite sign"):
        problem.target_scale(-measured)


def test_sensors_of_their_own_start_from_the_mean(x64):
    problem = DarcyPermeability(n_grid=9)
    inner = np.asarray(problem.forward(np.full(81, 3.0))).reshape(9, 9)[1:-1].reshape(1, -1)
    assert problem.target_scale(inner).offset == pytest.approx(3 * 7 / 9, rel=1e-9)


def test_scales_follow_the_data(x64):
    problem = ReactionDiffusionSource()
    s = 4 * np.sin(PI * np.linspace(0, 1, 51))
    scale = problem.target_scale(np.asarray(problem.forward(s))[None])
    assert scale.scale == pytest.approx(np.sqrt(np.mean(s**2)), rel=1e-9)
    louder = HelmholtzCoefficient(f=lambda y: 300 * jnp.prod(y * (1 - y), axis=-1))
    assert louder.target_scale(np.ones((1, 1089))).residual == pytest.approx(3)
    assert HelmholtzCoefficient().target_scale(np.ones((1, 1089))).residual == 1


def test_resonance_is_refused():
    q = np.full((3, 1089), 5.0)
    q[2, 40] = 19.8
    with pytest.raises(ValueError, match=r"sample 2: q reaches 19.8, expected below 19.7.*2 pi\^2 = 19.74"):
        HelmholtzCoefficient().check_target(q)
    HelmholtzCoefficient().check_target(np.zeros((1, 1089)))


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_permeabilities_that_are_not_positive_are_refused(value):
    a = np.ones((2, 1089))
    a[1, 3] = value
    with pytest.raises(ValueError, match="sample 1, value 3: the unknown must lie between 0 and inf, found"):
        DarcyPermeability().check_target(a)


def test_sources_that_conflict_with_the_ends_are_warned_of():
    problem = ReactionDiffusionSource()
    s = np.sin(PI * np.linspace(0, 1, 51)) + np.array([[0.0], [0.02], [-0.2]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        problem.check_target(s[:2])
    with pytest.warns(UserWarning, match="1 of 3 sources, first sample 2, do not vanish"):
        problem.check_target(s)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (ReactionDiffusionSource, {"D": 0.0}, "D must be > 0, found 0"),
        (ReactionDiffusionSource, {"T": np.inf}, "T must be > 0, found inf"),
        (ReactionDiffusionSource, {"kappa": -1.0}, "kappa must be >= 0"),
        (ReactionDiffusionSource, {"n_sensors": 3}, "n_sensors must be >= 5"),
        (ReactionDiffusionSource, {"n_modes": 50}, "n_modes must be from 1 to n_sensors - 2 = 49, found 50"),
        (ReactionDiffusionSource, {"measurement": "window", "window": (0.501, 0.51)}, "holds 0 of the 51 places"),
        (HelmholtzCoefficient, {"n_grid": 4}, "n_grid must be >= 5, found 4"),
        (DarcyPermeability, {"measurement": "sensors", "n_sensors": 962}, "n_sensors must be from 1 to 961"),
        (DarcyPermeability, {"measurement": "part", "half_width": 0.01}, "half_width 0.01 holds 1 nodes a side"),
        (HelmholtzCoefficient, {"f": lambda y: jnp.zeros(len(y))}, "not all zero"),
        (HelmholtzCoefficient, {"f": lambda y: jnp.ones(3)}, "finite values"),
    ],
)
def test_bad_arguments_are_refused(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options)


def test_forward_can_be_differentiated_compiled_and_batched(x64):
    problem = PROBLEMS[4]
    s = jnp.asarray(problem.sample_target(2, np.random.default_rng(2)))
    loss = jax.jit(jax.vmap(jax.grad(lambda s: jnp.sum(problem.forward(s) ** 2))))
    direction = np.random.default_rng(3).standard_normal(81)
    rise = np.sum(np.square(problem.forward(s[0] + 1e-4 * direction)))
    fall = np.sum(np.square(problem.forward(s[0] - 1e-4 * direction)))
    assert float(loss(s)[0] @ direction) == pytest.approx((rise - fall) / 2e-4, rel=1e-5)
