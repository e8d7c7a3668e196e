from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl25_pi_dion import solvers
from icl25_pi_dion.solvers.elliptic import poisson
from icl25_pi_dion.solvers.grids import difference_eigenvalues

GOLDEN = Path(__file__).parent / "golden"
REACTION = np.load(GOLDEN / "reaction_diffusion.npz")
ELLIPTIC = np.load(GOLDEN / "elliptic.npz")
LINEAR = {"D": 0.01, "kappa": 0.1}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def nodes(n):
    return np.linspace(0, 1, n)


def plane(n):
    return np.meshgrid(nodes(n), nodes(n), indexing="ij")


def load(n):
    x, y = plane(n)
    return 100 * x * (1 - x) * y * (1 - y)


def distance(found, expected):
    return np.linalg.norm(np.asarray(found) - expected) / np.linalg.norm(expected)


def refined(field):
    spline = solvers.spline_matrix(len(field), 2 * len(field) - 1)
    return spline @ field @ spline.T


def sources(i, n):
    x = nodes(n)
    return [10 * x * (1 - x), np.exp(np.sin(2 * np.pi * x)) + np.cos(3 * np.pi * x)][i]


@pytest.mark.parametrize("i", [0, 1])
def test_series_equals_the_golden_solutions(i):
    s = jnp.asarray(REACTION[f"linear{i}/s"])
    u = solvers.reaction_diffusion_series(s, REACTION["x"], REACTION["t"], **LINEAR)
    np.testing.assert_allclose(u.T, REACTION[f"linear{i}/u"], rtol=0, atol=1e-14)


def test_series_at_other_places_is_that_of_the_coefficients():
    coefficients, x, t = REACTION["linear1/coef"], np.array([0.123, 0.5, 0.77]), np.array([0.0, 0.31, 2.5])
    wave = np.pi * np.arange(1, len(coefficients) + 1)
    rate = 0.01 * wave**2 + 0.1
    expected = np.sin(np.outer(x, wave)) @ (coefficients[:, None] * (1 - np.exp(-np.outer(rate, t))) / rate[:, None])
    found = solvers.reaction_diffusion_series(jnp.asarray(REACTION["linear1/s"]), x, t, **LINEAR)
    np.testing.assert_allclose(found, expected, atol=1e-14)


def test_first_sine_in_closed_form():
    s = jnp.sin(jnp.pi * nodes(51))
    assert float(
        solvers.reaction_diffusion_series(s, jnp.array([0.5]), np.array([1.0]), **LINEAR)[0, 0]
    ) == pytest.approx(0.9069177124437938, abs=1e-14)


@pytest.mark.parametrize(("n", "steps", "bar"), [(51, 100, 1e-3), (201, 400, 1e-4)])
@pytest.mark.parametrize("i", [0, 1])
def test_differences_reach_the_golden_quadratic_solutions(n, steps, bar, i):
    u = solvers.reaction_diffusion(jnp.asarray(sources(i, n)), D=0.01, k=0.01, n_times=11, n_steps=steps)
    expected = REACTION[f"quadratic{i}/u"]
    assert distance(u[:: (n - 1) // 50, -1], expected[-1]) < bar
    assert distance(u[:: (n - 1) // 50, 5], expected[5]) < 3 * bar
    assert not np.any(u[:, 0])


@pytest.mark.parametrize("i", [0, 1])
def test_source_from_a_spline_is_as_good(i):
    s = solvers.spline_matrix(51, 201) @ REACTION[f"quadratic{i}/s"]
    u = solvers.reaction_diffusion(jnp.asarray(s), D=0.01, k=0.01)
    assert distance(u[::4, -1], REACTION[f"quadratic{i}/u"][-1]) < 1e-4
    assert float(u[100, -1]) == pytest.approx([2.419011713480115, 1.134861477607752][i], rel=1e-4)


@pytest.mark.parametrize("i", [0, 1])
def test_differences_without_reaction_approach_the_series(i):
    s = jnp.asarray(solvers.spline_matrix(51, 201) @ REACTION[f"linear{i}/s"])
    u = solvers.reaction_diffusion(s, **LINEAR, n_times=11)
    assert distance(u[::4, -1], REACTION[f"linear{i}/u"][-1]) < 1e-4


def test_second_order_in_the_time_step():
    s = jnp.asarray(sources(0, 21))
    strong = {"D": 0.05, "kappa": 0.3, "k": 0.3, "n_times": 2}
    exact = solvers.reaction_diffusion(s, **strong, n_steps=6400)[:, -1]
    errors = [distance(solvers.reaction_diffusion(s, **strong, n_steps=n)[:, -1], exact) for n in (50, 100, 200)]
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert np.all((orders > 1.9) & (orders < 2.1)), orders


def test_second_order_in_the_mesh_width():
    strong = {"D": 0.05, "kappa": 0.3, "k": 0.3, "n_times": 2, "n_steps": 100}
    u = {n: solvers.reaction_diffusion(jnp.asarray(sources(0, n)), **strong)[:, -1] for n in (11, 21, 41, 321)}
    errors = [distance(u[n], u[321][:: 320 // (n - 1)]) for n in (11, 21, 41)]
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert np.all((orders > 1.9) & (orders < 2.1)), orders


def test_saved_times_lie_evenly_from_0_to_the_end():
    s = jnp.asarray(sources(1, 51))
    every = solvers.reaction_diffusion(s, k=0.5, T=2.0, n_times=9, n_steps=80)
    third = solvers.reaction_diffusion(s, k=0.5, T=2.0, n_times=5, n_steps=80)
    np.testing.assert_allclose(every[:, ::2], third, atol=1e-14)


def test_symmetric_sources_give_symmetric_solutions_and_the_linear_map_is_linear():
    s = jnp.asarray(sources(0, 41))
    u = solvers.reaction_diffusion(s, k=0.7, n_steps=50)
    np.testing.assert_allclose(u, u[::-1], atol=1e-14)
    other = jnp.asarray(sources(1, 41))

    def linear(s):
        return solvers.reaction_diffusion(s, **LINEAR, n_steps=50)

    np.testing.assert_allclose(linear(2 * s - 3 * other), 2 * linear(s) - 3 * linear(other), atol=1e-13)
    assert distance(solvers.reaction_diffusion(2 * s, k=0.7, n_steps=50), 2 * u) > 0.05


@pytest.mark.parametrize("i", range(3))
def test_elliptic_solvers_reach_the_golden_solutions(i):
    f = jnp.asarray(load(65))
    u = solvers.helmholtz(jnp.asarray(refined(ELLIPTIC[f"helmholtz{i}/q"])), f)[::2, ::2]
    assert distance(u, ELLIPTIC[f"helmholtz{i}/u"]) < 5e-4
    u = solvers.darcy(jnp.asarray(np.exp(refined(np.log(ELLIPTIC[f"darcy{i}/a"])))), f)[::2, ::2]
    assert distance(u, ELLIPTIC[f"darcy{i}/u"]) < 5e-4


@pytest.mark.parametrize(
    ("q", "centre"), [(0.0, 0.3326482647881985), (5.0, 0.4467960163517125), (10.0, 0.6783830787592257)]
)
def test_constant_coefficients(q, centre):
    values = [float(solvers.helmholtz(jnp.full((n, n), q), jnp.asarray(load(n)))[n // 2, n // 2]) for n in (33, 65)]
    assert values[1] == pytest.approx(centre, rel=1e-3)
    # What remains is the error of second order, which extrapolation removes.
    assert (4 * values[1] - values[0]) / 3 == pytest.approx(centre, rel=1e-6)


@pytest.mark.parametrize(("a", "centre"), [(2.0, 0.1663241323940993), (0.5, 0.665296529576397)])
def test_constant_permeabilities(a, centre):
    values = [float(solvers.darcy(jnp.full((n, n), a), jnp.asarray(load(n)))[n // 2, n // 2]) for n in (33, 65)]
    assert (4 * values[1] - values[0]) / 3 == pytest.approx(centre, rel=1e-6)


def manufactured(kind, n):
    """A coefficient, the load that makes u = sin(pi x) sin(pi y) the solution, and u."""
    x, y = plane(n)
    u = np.sin(np.pi * x) * np.sin(np.pi * y)
    if kind == "helmholtz":
        q = 5 + x - 2 * y
        return solvers.helmholtz, q, (2 * np.pi**2 - q) * u, u
    f = (1 + x) * 2 * np.pi**2 * u - np.pi * np.cos(np.pi * x) * np.sin(np.pi * y)
    return solvers.darcy, 1 + x, f, u


@pytest.mark.parametrize("kind", ["helmholtz", "darcy"])
def test_elliptic_solvers_are_of_second_order(kind):
    errors = []
    for n in (9, 17, 33):
        solve, coefficient, f, u = manufactured(kind, n)
        errors.append(distance(solve(jnp.asarray(coefficient), jnp.asarray(f)), u))
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert np.all((orders > 1.9) & (orders < 2.1)), orders


@pytest.mark.parametrize("kind", ["helmholtz", "darcy"])
def test_difference_equations_hold_to_rounding(kind):
    rng = np.random.default_rng(0)
    n = 9
    coefficient = np.exp(rng.standard_normal((n, n)))
    f = rng.standard_normal((n, n))
    solve = {"helmholtz": solvers.helmholtz, "darcy": solvers.darcy}[kind]
    u = np.asarray(solve(jnp.asarray(coefficient), jnp.asarray(f)))
    assert not u[[0, -1]].any()
    assert not u[:, [0, -1]].any()
    a = coefficient if kind == "darcy" else np.ones((n, n))
    found = np.zeros((n - 2, n - 2))
    for step in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        beside = np.roll(u, step, (0, 1))[1:-1, 1:-1]
        face = (a[1:-1, 1:-1] + np.roll(a, step, (0, 1))[1:-1, 1:-1]) / 2
        found += face * (u[1:-1, 1:-1] - beside) * (n - 1) ** 2
    if kind == "helmholtz":
        found -= coefficient[1:-1, 1:-1] * u[1:-1, 1:-1]
    np.testing.assert_allclose(found, f[1:-1, 1:-1], atol=1e-9)


def test_scaling_of_the_permeability_and_linearity_in_the_load():
    a, f = jnp.asarray(ELLIPTIC["darcy1/a"]), jnp.asarray(load(33))
    u = solvers.darcy(a, f)
    np.testing.assert_allclose(solvers.darcy(7 * a, f), u / 7, atol=1e-11)
    np.testing.assert_allclose(solvers.darcy(a, -2 * f), -2 * u, atol=1e-11)
    np.testing.assert_allclose(solvers.darcy(a.T, f), u.T, atol=1e-11)
    np.testing.assert_allclose(solvers.darcy(jnp.ones_like(a), f), poisson(load(33)), atol=1e-12)


CASES = {
    "reaction": (lambda s: solvers.reaction_diffusion(s, k=1.0, n_steps=20), sources(0, 13)),
    "series": (
        lambda s: solvers.reaction_diffusion_series(s, np.array([0.2, 0.7]), np.array([0.5]), **LINEAR),
        sources(1, 13),
    ),
    "helmholtz": (lambda q: solvers.helmholtz(q, jnp.asarray(load(9))), manufactured("helmholtz", 9)[1]),
    "darcy": (lambda a: solvers.darcy(a, jnp.asarray(load(9))), np.exp(manufactured("helmholtz", 9)[1] / 5)),
}


@pytest.mark.parametrize("name", CASES)
def test_derivatives_equal_finite_differences(name):
    solve, at = CASES[name]
    rng = np.random.default_rng(1)
    direction = rng.standard_normal(at.shape)
    _, slope = jax.jvp(solve, (jnp.asarray(at),), (jnp.asarray(direction),))
    step = 1e-4
    expected = (solve(jnp.asarray(at + step * direction)) - solve(jnp.asarray(at - step * direction))) / (2 * step)
    np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-7 * float(jnp.abs(expected).max()))
    value, pull = jax.vjp(solve, jnp.asarray(at))
    weights = jnp.asarray(rng.standard_normal(value.shape))
    assert float(jnp.sum(pull(weights)[0] * direction)) == pytest.approx(float(jnp.sum(weights * slope)), rel=1e-8)


@pytest.mark.parametrize("name", CASES)
def test_single_precision_and_batches(name):
    solve, at = CASES[name]
    exact = np.asarray(solve(jnp.asarray(at)))
    single = jax.vmap(solve)(jnp.asarray(np.stack([at, 1.1 * at]), jnp.float32))
    assert single.dtype == jnp.float32
    assert distance(single[0], exact) < 1e-5
    assert distance(single[1], exact) > 1e-3


def test_what_does_not_converge_is_nan_not_wrong():
    a = jnp.asarray(np.exp(np.random.default_rng(0).standard_normal((9, 9))))
    f = jnp.asarray(load(9))
    assert np.isnan(solvers.darcy(a, f, max_iterations=3)).any()
    assert np.isfinite(solvers.darcy(a, f)).all()


def test_wrong_shapes_are_refused():
    f = jnp.asarray(load(9))
    for solve in (solvers.helmholtz, solvers.darcy):
        with pytest.raises(ValueError, match="one square grid"):
            solve(jnp.ones((8, 8)), f)
    with pytest.raises(ValueError, match=">= 3 nodes, >= 2 times and >= 1 step, found 2, 2 and 400"):
        solvers.reaction_diffusion(jnp.ones(2))
    with pytest.raises(ValueError, match=">= 3 nodes, found 2"):
        solvers.reaction_diffusion_series(jnp.ones(2), np.array([0.5]), np.array([1.0]))


def test_grids():
    modes = solvers.sine_matrix(9)
    np.testing.assert_allclose(modes @ modes, np.eye(7), atol=1e-14)
    second = (2 * np.eye(7) - np.eye(7, k=1) - np.eye(7, k=-1)) * 64
    np.testing.assert_allclose(modes * difference_eigenvalues(9) @ modes, second, atol=1e-11)
    x, fine = nodes(9), nodes(17)
    np.testing.assert_allclose(solvers.spline_matrix(9, 17) @ (x**3 - x), fine**3 - fine, atol=1e-14)
    np.testing.assert_array_equal(solvers.spline_matrix(9, 17)[::2] @ x, x)
