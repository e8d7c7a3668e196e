from __future__ import annotations

import doctest
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl25_pi_dion import autodiff
from icl25_pi_dion.autodiff import axes_of, trunk_jet

LETTERS = ("x", "y", "t")
NAMES = ["u", *("u_" + "".join(letters) for n in (1, 2) for letters in itertools.product(LETTERS, repeat=n))]


def network(d: int, p: int = 4):
    """A small smooth network in the current precision."""
    rng = np.random.default_rng(0)
    w0, b0, w1 = (jnp.asarray(rng.standard_normal(shape)) for shape in ((d, 6), (6,), (6, p)))
    return lambda y: jnp.tanh(y @ w0 + b0) @ w1


def points(d: int, n: int = 7):
    return jnp.asarray(np.random.default_rng(1).uniform(size=(n, d)))


def slope(function, axis):
    return lambda at: jax.grad(function)(at)[axis]


def nested(trunk, y, axes):
    """The derivative at each point by jax.grad of jax.grad, one output at a time."""

    def one(point, k):
        function = lambda at: trunk(at[None])[0, k]  # noqa: E731
        for axis in axes:
            function = slope(function, axis)
        return function(point)

    return np.array([[one(point, k) for k in range(trunk(y).shape[1])] for point in y])


def test_all_derivatives_up_to_the_second_equal_nested_gradients(x64):
    trunk, y = network(3, 2), points(3, 3)
    jet = trunk_jet(trunk, y, NAMES, LETTERS)
    assert set(jet) == set(NAMES)
    for name in NAMES:
        np.testing.assert_allclose(jet[name], nested(trunk, y, axes_of(name, LETTERS)), rtol=0, atol=1e-10)


def test_derivatives_equal_finite_differences(x64):
    trunk, y, h = network(3), points(3), 1e-4
    jet = trunk_jet(trunk, y, NAMES, LETTERS)
    steps = h * jnp.eye(3)
    for name in NAMES[1:]:
        axes = axes_of(name, LETTERS)
        signs = itertools.product((1, -1), repeat=len(axes))
        total = sum(
            np.prod(sign) * trunk(y + sum(s * steps[a] for s, a in zip(sign, axes, strict=True))) for sign in signs
        )
        np.testing.assert_allclose(jet[name], total / (2 * h) ** len(axes), rtol=0, atol=1e-5)


def test_third_derivative_of_a_cube(x64):
    jet = trunk_jet(lambda y: y[:, :1] ** 3 * y[:, 1:], jnp.array([[2.0, 5.0]]), ["u_xxx", "u_xxt", "u_xx"])
    assert {name: float(value[0, 0]) for name, value in jet.items()} == {"u": 40, "u_xxx": 30, "u_xxt": 12, "u_xx": 60}


def test_mixed_derivatives_do_not_depend_on_the_order_of_letters(x64):
    jet = trunk_jet(network(2), points(2), ["u_xt", "u_tx"], ("x", "t"))
    np.testing.assert_array_equal(jet["u_xt"], jet["u_tx"])


@pytest.mark.parametrize(
    ("d", "names", "columns"),
    [
        (1, ("u_x",), {"u_x": (0,)}),
        (1, ("u_t",), {"u_t": (0,)}),
        (2, ("u_x", "u_t"), {"u_x": (0,), "u_t": (1,)}),
        (2, ("u_x", "u_y"), {"u_x": (0,), "u_y": (1,)}),
        (3, ("u_yy", "u_t"), {"u_yy": (1, 1), "u_t": (2,)}),
        (3, ("u_xz",), {"u_xz": (0, 2)}),
    ],
)
def test_default_coordinates(x64, d, names, columns):
    trunk, y = network(d, 2), points(d, 2)
    jet = trunk_jet(trunk, y, names)
    for name, axes in columns.items():
        np.testing.assert_allclose(jet[name], nested(trunk, y, axes), rtol=0, atol=1e-10)


def test_the_function_itself_is_always_there():
    trunk, y = network(2), points(2)
    for names, function in ((("u_x",), "u"), (("s_xx",), "s"), (("u",), "u"), ((), "u")):
        np.testing.assert_allclose(trunk_jet(trunk, y, names)[function], trunk(y), rtol=1e-6)


def test_names_that_begin_alike_share_one_nest():
    calls = []

    def trunk(y):
        calls.append(1)
        return y**3

    trunk_jet(trunk, points(2), ["u", "u_x", "u_xx"])
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [("u_z", "by z, but the coordinates are x, t"), ("u_", "names no derivative"), ("_x", "names no derivative")],
)
def test_bad_names_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        trunk_jet(network(2), points(2), [name], ("x", "t"))


def test_columns_of_a_name_ascend():
    assert axes_of("u_txx", ("x", "t")) == (0, 0, 1)
    assert axes_of("u", ("x", "t")) == ()


def test_the_example_holds():
    found = doctest.testmod(autodiff)
    assert found.attempted >= 2
    assert found.failed == 0
