from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from icl25_pi_dion import losses
from icl25_pi_dion.autodiff import trunk_jet
from icl25_pi_dion.network import PIDION
from icl25_pi_dion.objective import Objective, TrainingData, Weights, draw_batch
from icl25_pi_dion.problem import InverseProblem, TargetScale
from icl25_pi_dion.problems import DarcyPermeability, ReactionDiffusionSource

RNG = np.random.default_rng(0)


class Golden(InverseProblem):
    """The reaction-diffusion equation of the golden arrays, where s is a function of x and t."""

    target_coords = ("x", "t")
    derivatives = ("u", "u_t", "u_xx", "u_x")

    def __init__(self, D: float, k: float) -> None:
        self.D, self.k = D, k

    def residual(self, d, s, y):
        return d.u_t - self.D * d.u_xx - self.k * d.u**2 - s.value


class Heat(InverseProblem):
    derivatives = ("u", "u_t", "u_xx")

    def residual(self, d, s, y):
        return d.u_t - d.u_xx - s.value


class Undeclared(Heat):
    def residual(self, d, s, y):
        return d.u_xt - s.value


class UndeclaredTarget(Heat):
    def residual(self, d, s, y):
        return d.u - s.s_x


class Mean(Heat):
    def residual(self, d, s, y):
        return d.u.mean()


def dense(arrays, name, dtype):
    """The network of the golden arrays with this name."""
    n = sum(key.startswith(f"{name}/W") for key in arrays)
    layers = [
        (jnp.asarray(arrays[f"{name}/W{i}"], dtype), jnp.asarray(arrays[f"{name}/b{i}"], dtype)) for i in range(n)
    ]

    def apply(x):
        for weight, bias in layers[:-1]:
            x = jnp.tanh(x @ weight + bias)
        return x @ layers[-1][0] + layers[-1][1]

    return apply


def toy(n: int = 3, n_points: int = 10, p: int = 5):
    """A trunk with coefficients and points, in the current precision."""
    rng = np.random.default_rng(5)
    weight, bias, recon, inverse, points = (
        jnp.asarray(rng.standard_normal(shape)) for shape in ((2, p), (p,), (n, p), (n, p), (n_points, 2))
    )
    return (lambda y: jnp.tanh(y @ weight + bias)), recon, inverse, points


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 2e-5)])
def test_forward_arithmetic_equals_the_golden_arrays(golden, dtype, tolerance):
    arrays = golden("forward")
    with jax.enable_x64(dtype == "float64"):
        trunk, recon, inv = (dense(arrays, name, dtype) for name in ("trunk", "recon", "inv"))
        measured, points = (jnp.asarray(arrays[name], dtype) for name in ("measurement", "points"))
        problem = Golden(float(arrays["D"]), float(arrays["k"]))
        weights = recon(measured), inv(measured)
        d, s = losses.fields(problem, trunk, *weights, points)
        found = {
            "trunk": trunk(points),
            "recon_coef": weights[0],
            "inv_coef": weights[1],
            **{name: getattr(d, name) for name in ("u", "u_x", "u_xx", "u_t")},
            "s": s.value,
            "residual": losses.residual(problem, trunk, *weights, points),
            "physics_loss": losses.physics(problem, trunk, *weights, points),
            "data_loss": losses.data(d.u, jnp.asarray(arrays["data_target"], dtype)),
        }
        for name, value in found.items():
            assert value.dtype == dtype
            size = np.abs(arrays[name]).max()
            np.testing.assert_allclose(value, arrays[name], rtol=0, atol=tolerance * max(size, 1), err_msg=name)


def closed_form(n: int = 2):
    """u and s = sin(n pi x) of the linear reaction-diffusion equation as trunks of one function."""
    rate = 0.01 * (n * math.pi) ** 2 + 0.1
    s = lambda y: jnp.sin(n * math.pi * y[:, :1])  # noqa: E731
    return (lambda y: s(y) * (1 - jnp.exp(-rate * y[:, 1:])) / rate), s


def test_physics_loss_of_the_closed_form_is_zero(x64):
    u, s = closed_form()
    points, one = jnp.asarray(RNG.uniform(size=(50, 2))), jnp.ones((1, 1))
    problem = ReactionDiffusionSource()
    assert losses.physics(problem, u, one, one, points, s) < 1e-10
    assert losses.physics(problem, u, one, 1.1 * one, points, s) > 1e-3


def test_physics_loss_of_constant_permeability_is_zero(x64):
    def u(y):
        return jnp.prod(jnp.sin(math.pi * y), axis=-1, keepdims=True)

    problem = DarcyPermeability(f=lambda y: 4 * math.pi**2 * u(y)[:, 0], n_grid=5)
    points, one = jnp.asarray(RNG.uniform(size=(50, 2))), jnp.ones((1, 1))
    positive = (problem, u, one, jnp.zeros((1, 1)), points, lambda y: jnp.ones_like(y[:, :1]))
    assert losses.physics(*positive, reference=2.0) < 1e-10
    assert losses.physics(*positive, reference=2.5) > 1


def test_order_of_samples_and_points_does_not_matter(x64):
    trunk, recon, inverse, points = toy()
    problem = Golden(0.1, 0.2)
    rows, order = jnp.array([2, 0, 1]), jnp.asarray(RNG.permutation(len(points)))
    found = losses.physics(problem, trunk, recon[rows], inverse[rows], points[order])
    assert float(found) == pytest.approx(float(losses.physics(problem, trunk, recon, inverse, points)), rel=1e-12)
    whole = losses.residual(problem, trunk, recon, inverse, points)
    moved = losses.residual(problem, trunk, recon[rows], inverse[rows], points[order])
    np.testing.assert_allclose(moved, whole[rows][:, order], rtol=1e-12, atol=1e-12)
    measured = jnp.asarray(RNG.standard_normal((3, 10)))
    assert float(losses.data(whole[rows], measured[rows])) == pytest.approx(float(losses.data(whole, measured)))


@pytest.mark.parametrize("block", [1, 7, 12, 29])
def test_blocks_of_points_change_neither_value_nor_gradient(x64, monkeypatch, block):
    trunk, recon, inverse, points = toy()

    def loss(coefficients):
        return losses.physics(Golden(0.1, 0.2), trunk, *coefficients, points)

    value, gradient = jax.value_and_grad(loss)((recon, inverse))
    monkeypatch.setattr(losses, "LARGEST_BLOCK", block)
    blocked, blocked_gradient = jax.value_and_grad(loss)((recon, inverse))
    assert float(blocked) == pytest.approx(float(value), rel=1e-12)
    for found, expected in zip(blocked_gradient, gradient, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", ["linear", "positive"])
def test_gradient_of_the_total_loss_equals_finite_differences(x64, kind):
    if kind == "linear":
        problem, target = ReactionDiffusionSource(n_sensors=7, n_modes=3), TargetScale(0.3, 1.5, 0.8)
    else:
        problem, target = DarcyPermeability(n_grid=5), TargetScale(1.2, 1.0, 1.0)
    net = PIDION(problem, p=4, trunk=(5,), branch_hidden=(3,), fourier=1, rngs=0, dtype=jnp.float64)
    values = jnp.asarray(RNG.standard_normal((4, len(problem.sensors()))))
    net.standardise(np.asarray(values.mean(axis=0)), 0.7, target)
    labels = jnp.asarray(1 + RNG.uniform(size=(2, len(problem.target_points()))))
    data = TrainingData(values, jnp.asarray(problem.sensors()), None, jnp.arange(2), labels)
    h1 = {"h1_shape": problem.sensor_shape, "h1_spacing": (0.25,) * len(problem.sensor_shape)}
    objective = Objective(problem, Weights(1.0, 3.0, 0.2, 0.5), target.residual, 1.3, **h1)
    batch = draw_batch(jax.random.key(0), data, problem, batch_size=4, n_points=6)
    graph, params, rest = nnx.split(net, nnx.Param, ...)
    flat, unravel = jax.flatten_util.ravel_pytree(params)
    loss = jax.jit(lambda flat: objective(nnx.merge(graph, unravel(flat), rest), batch)[0])
    _, terms = objective(net, batch)
    assert sorted(terms) == ["data", "h1", "label", "physics"]
    assert all(float(term) > 0 for term in terms.values())
    gradient = jax.jit(jax.grad(loss))(flat)
    for seed in range(4):
        direction = jnp.asarray(np.random.default_rng(seed).standard_normal(len(flat)))
        slope = (loss(flat + 1e-5 * direction) - loss(flat - 1e-5 * direction)) / 2e-5
        assert float(gradient @ direction) == pytest.approx(float(slope), rel=1e-6)


def test_positive_transform_has_the_derivatives_of_the_exponential(x64):
    trunk, _, inverse, points = toy()
    coords = ("x", "y")
    names = ("s", "s_x", "s_y", "s_xx", "s_xy", "s_yy")
    raw = {name: inverse @ value.T for name, value in trunk_jet(trunk, points, names, coords).items()}
    found = losses.exponential(raw, 1.7, coords)
    exact = trunk_jet(lambda y: 1.7 * jnp.exp(trunk(y) @ inverse.T), points, names, coords)
    for name in names:
        np.testing.assert_allclose(found[name], exact[name].T, rtol=1e-10, atol=1e-10, err_msg=name)


def test_second_derivatives_of_a_positive_unknown_bring_the_first_along(x64):
    class Second(Heat):
        coords, target_coords, target_derivatives = ("x", "y"), ("x", "y"), ("s_xy",)
        derivatives = ("u",)

        def residual(self, d, s, y):
            return s.s_xy

    trunk, recon, inverse, points = toy()
    found = losses.residual(Second(), trunk, recon, inverse, points, reference=1.7)
    exact = trunk_jet(lambda y: 1.7 * jnp.exp(trunk(y) @ inverse.T), points, ("s_xy",), ("x", "y"))["s_xy"].T
    np.testing.assert_allclose(found, exact, rtol=1e-10, atol=1e-10)


def test_third_derivatives_of_a_positive_unknown_are_refused():
    raw = {"s": jnp.zeros((1, 1)), "s_x": jnp.zeros((1, 1)), "s_xxx": jnp.zeros((1, 1))}
    with pytest.raises(ValueError, match=r"'s_xxx': .* up to the second"):
        losses.exponential(raw, 1.0, ("x",))


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (Undeclared(), "'u_xt' is not among the declared derivatives u, u_t, u_xx; add it to Undeclared.derivatives"),
        (UndeclaredTarget(), "'s_x' is not among .* value, s; add it to UndeclaredTarget.target_derivatives"),
    ],
)
def test_undeclared_derivatives_name_those_available(problem, message):
    with pytest.raises(AttributeError, match=message):
        losses.residual(problem, *toy())


def test_residual_of_a_wrong_shape_is_refused():
    with pytest.raises(ValueError, match=r"Mean.residual must return .* 3 samples and 10 points, found shape \(\)"):
        losses.residual(Mean(), *toy())


def test_data_loss_is_in_units_of_the_scale_and_counts_only_what_was_read():
    u_hat, measured = jnp.array([[3.0, 0.0], [1.0, 5.0]]), jnp.array([[1.0, jnp.nan], [1.0, 1.0]])
    mask = jnp.array([[True, False], [True, True]])
    assert float(losses.data(u_hat, measured, 2.0, mask)) == pytest.approx((1 + 0 + 4) / 3)
    assert float(losses.data(u_hat, jnp.zeros((2, 2)), 2.0)) == pytest.approx((9 + 0 + 1 + 25) / 16)


def test_h1_is_the_mean_square_slope_of_the_misfit():
    x, y = np.meshgrid(np.arange(4), np.arange(3), indexing="ij")
    misfit = jnp.asarray((2.0 * x + 5.0 * y).reshape(1, -1))
    found = losses.h1(misfit + 7, jnp.full_like(misfit, 3.0), (4, 3), (0.5, 0.25), 2.0)
    assert float(found) == pytest.approx((2 / 2 / 0.5) ** 2 + (5 / 2 / 0.25) ** 2)


def test_label_loss_is_the_mean_square_error_in_its_unit():
    assert float(losses.label(jnp.array([[1.0, 4.0]]), jnp.array([[3.0, 4.0]]), 4.0)) == pytest.approx(0.125)
