import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from icl25_pi_dion.branches import SetBranch
from icl25_pi_dion.network import PIDION, SpaceFeatures
from icl25_pi_dion.objective import unknown
from icl25_pi_dion.problem import Dirichlet, InverseProblem, TargetScale
from icl25_pi_dion.problems import DarcyPermeability, HelmholtzCoefficient, ReactionDiffusionSource

SMALL = {"p": 5, "trunk": (7,), "branch_hidden": (6,), "fourier": 2}


def solution(net, values, points):
    return net.coefficients(jnp.asarray(values, jnp.float32)).recon @ net.basis(jnp.asarray(points, jnp.float32)).T


def test_hard_conditions_hold_for_any_weights():
    rng = np.random.default_rng(0)
    t = rng.uniform(size=5)
    edge = np.concatenate([np.stack([np.full(5, x), t], 1) for x in (0.0, 1.0)] + [np.stack([t, np.zeros(5)], 1)])
    net = PIDION(ReactionDiffusionSource(), **SMALL, rngs=3)
    net.recon_bias[...] = jnp.asarray(2.0)
    values = rng.normal(size=(4, 51))
    assert not solution(net, values, edge).any()
    assert solution(net, values, np.stack([t, t], 1)).any()

    class Lifted(InverseProblem):
        domain = ((1.0, 3.0), (-1.0, 2.0))
        sensor_shape = (9,)

        def boundary(self):
            return Dirichlet(lambda y: y[:, 0] + y[:, 1] ** 2)

    edge = np.array([[1.0, 0.5], [3.0, 2.0], [2.2, -1.0]])
    found = solution(PIDION(Lifted(), **SMALL), rng.normal(size=(2, 9)), edge)
    np.testing.assert_allclose(found, np.broadcast_to(edge[:, 0] + edge[:, 1] ** 2, (2, 3)), rtol=1e-6)

    square = np.array([[0.0, 0.4], [1.0, 0.2], [0.3, 0.0], [0.6, 1.0]])
    assert not solution(PIDION(HelmholtzCoefficient(n_grid=9), **SMALL), rng.normal(size=(2, 81)), square).any()


def test_the_start_of_time_may_be_unknown():
    class Free(ReactionDiffusionSource):
        def boundary(self):
            return Dirichlet(0.0, initial=False)

    net = PIDION(Free(), **SMALL)
    assert solution(net, np.ones((1, 51)), [[0.5, 0.0]]).any()
    assert not solution(net, np.ones((1, 51)), [[0.0, 0.0]]).any()


def test_the_factor_of_hard_conditions_is_one_in_the_middle_at_the_end():
    class Shifted(InverseProblem):
        domain = ((1.0, 3.0), (-1.0, 2.0))
        sensor_shape = (9,)

    net = PIDION(Shifted(), **SMALL)
    factor = net.basis(jnp.array([[2.0, 2.0], [1.5, 2.0], [2.0, 0.5], [1.5, -0.5]]))[:, -2]
    np.testing.assert_allclose(factor, [1, 0.75, 0.5, 0.75 / 6], rtol=1e-6)


def test_measurements_are_standardised():
    net = PIDION(ReactionDiffusionSource(), **SMALL)
    z = jnp.asarray(np.random.default_rng(0).normal(size=(3, 51)), jnp.float32)
    before = net.coefficients(z)
    mean = np.linspace(-1, 2, 51)
    net.standardise(mean, 0.5, TargetScale(offset=0.7, scale=3.0))
    after = net.coefficients(jnp.asarray(mean, jnp.float32) + 0.5 * z)
    np.testing.assert_allclose(after.recon[:, :-1], 0.5 * before.recon[:, :-1], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(after.inverse[:, :-1], 3 * before.inverse[:, :-1], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(after.inverse[:, -1], 0.7)


def test_positive_unknowns_are_positive_and_scaled():
    net = PIDION(DarcyPermeability(n_grid=9), **SMALL)
    net.standardise(np.zeros(()), 1.0, TargetScale(offset=2.5))
    values = 100 * np.random.default_rng(0).normal(size=(6, 81))
    points = jnp.asarray(np.random.default_rng(1).uniform(size=(20, 2)), jnp.float32)
    inverse = net.coefficients(jnp.asarray(values, jnp.float32)).inverse
    assert (unknown(net, inverse, points) > 0).all()
    np.testing.assert_allclose(unknown(net, 0 * inverse, points), 2.5)
    plain = PIDION(ReactionDiffusionSource(), **SMALL)
    plain.standardise(np.zeros(()), 1.0, TargetScale(offset=-1.5, scale=4.0))
    found = plain.coefficients(jnp.zeros((1, 51)))
    assert found.inverse[0, -1] == pytest.approx(-1.5)
    assert PIDION(ReactionDiffusionSource(), positive=True, **SMALL).positive


def test_features_are_waves_of_scaled_coordinates():
    features = SpaceFeatures([(0.0, 2.0), (1.0, 5.0)], (2, 0))
    found = features(jnp.asarray([[0.5, 2.0]]))[0]
    z = -0.5
    expected = [z, -0.5, np.sin(np.pi * z / 2), np.sin(np.pi * z), np.cos(np.pi * z / 2), np.cos(np.pi * z)]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert features.n_features == 6


def test_trunks_are_shared_where_that_makes_sense():
    class Field(InverseProblem):
        coords, target_coords, sensor_shape = ("x", "y"), ("x", "y"), (5, 5)

    assert PIDION(Field(), **SMALL).target_trunk is None
    assert PIDION(Field(), **SMALL, target_trunk="own").target_trunk is not None
    assert PIDION(ReactionDiffusionSource(), **SMALL).target_trunk is not None
    shared = PIDION(Field(), **SMALL)
    y = jnp.asarray([[0.3, 0.6]])
    np.testing.assert_array_equal(shared.target_basis(y)[:, :-1], shared.trunk(shared.features(y)))
    with pytest.raises(ValueError, match="a shared trunk needs s on the coordinates of u"):
        PIDION(ReactionDiffusionSource(), target_trunk="shared")


@pytest.mark.parametrize("branch", ["mlp", "cnn", "set", "module"])
def test_branches_give_coefficients(branch):
    problem = HelmholtzCoefficient(n_grid=9)
    made = nnx.Linear(81, 5, rngs=nnx.Rngs(0)) if branch == "module" else branch
    net = PIDION(problem, **SMALL | {"branch": made})
    found = net.coefficients(jnp.ones((3, 81)))
    assert found.recon.shape == (3, 7)
    assert found.inverse.shape == (3, 6)
    assert net.takes_sets == (branch == "set")
    assert (found.recon[:, -1] == 1).all()
    other = net.coefficients(jnp.ones((3, 81)).at[1, 40].set(9.0))
    assert (other.recon[1] != found.recon[1]).any()
    np.testing.assert_allclose(other.recon[0], found.recon[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("attention", [False, True])
def test_sets_have_no_order_and_no_padding(attention):
    features = SpaceFeatures([(0.0, 1.0)], (3,))
    branch = SetBranch(features, features.n_features, 4, (8, 8), 8, attention=attention, rngs=nnx.Rngs(0))
    rng = np.random.default_rng(0)
    z, where = jnp.asarray(rng.normal(size=(2, 6)), jnp.float32), jnp.asarray(rng.uniform(size=(2, 6, 1)), jnp.float32)
    everything = jnp.ones((2, 6), bool)
    found = branch(z, where, everything)
    order = rng.permutation(6)
    close = {"rtol": 1e-5, "atol": 1e-6}
    np.testing.assert_allclose(branch(z[:, order], where[:, order], everything), found, **close)
    twice = [jnp.concatenate([part, part], axis=1) for part in (z, where, everything)]
    np.testing.assert_allclose(branch(*twice), found, **close)
    padded = [jnp.concatenate([part, part + (9 if part.dtype != bool else 0)], axis=1) for part in (z, where)]
    mask = jnp.concatenate([everything, ~everything], axis=1)
    np.testing.assert_allclose(branch(*padded, mask), found, **close)
    assert np.abs(branch(z.at[0, 0].add(1.0), where, everything) - found)[0].max() > 1e-3
    assert np.abs(branch(z, where.at[0, 0].set(0.9), everything) - found)[0].max() > 1e-4


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"p": 0}, "p and widths must be >= 1"),
        ({"fourier": -1}, "fourier >= 0"),
    ],
)
def test_bad_architectures_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        PIDION(ReactionDiffusionSource(), **options)


@pytest.mark.parametrize(
    ("attributes", "match"),
    [
        ({"coords": ("x", "x")}, "different single letters"),
        ({"coords": ("x", "time")}, "different single letters"),
        ({"domain": ((0, 1),)}, "1 intervals for 2 coordinates"),
        ({"domain": ((0, 1), (1, 1))}, "must be an interval"),
        ({"target_coords": ("z",)}, "target_coords must be some of"),
        ({"derivatives": ("u_q",)}, "by q, but the coordinates are x, t"),
        ({"derivatives": ("v_x",)}, "'v_x' where derivatives of u are expected"),
        ({"target_derivatives": ("s_t",)}, "by t, but the coordinates are x"),
    ],
)
def test_bad_problems_are_refused(attributes, match):
    problem = type("Bad", (InverseProblem,), {"sensor_shape": (9,), **attributes})()
    with pytest.raises(ValueError, match=match):
        PIDION(problem)
