from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icl25_sava import (
    annealed_potentials,
    annealing_schedule,
    calibrated_gradient,
    emd_potentials,
    entropic_gap,
    sinkhorn_potentials,
)


def reference(C, eps, scaling, diameter, a=None, b=None):
    """The annealed loop, once more, from its definition: two plain log-sum-exps, in double precision."""
    C = np.asarray(C, np.float64)
    n, m = C.shape
    log_a = np.full(n, -math.log(n)) if a is None else np.log(a)
    log_b = np.full(m, -math.log(m)) if b is None else np.log(b)

    def softmin(e, h, C):
        x = h - C / e
        top = x.max(axis=1)
        return -e * (np.log(np.exp(x - top[:, None]).sum(axis=1)) + top)

    e = diameter**2
    temperatures = [e]
    power = 2 * math.log(diameter)
    while power > 2 * math.log(math.sqrt(eps)) + 1e-12:
        temperatures.append(math.exp(power))
        power += 2 * math.log(scaling)
    temperatures.append(eps)
    f, g = softmin(e, log_b, C), softmin(e, log_a, C.T)
    for e in temperatures:
        f_new, g_new = softmin(e, log_b + g / e, C), softmin(e, log_a + f / e, C.T)
        f, g = (f + f_new) / 2, (g + g_new) / 2
    return softmin(e, log_b + g / e, C), softmin(e, log_a + f / e, C.T)


def test_schedule_of_the_paper():
    assert annealing_schedule(10, 0.1, 0.5) == pytest.approx([100, 100, 25, 6.25, 1.5625, 0.390625, 0.1])


def test_schedule_starts_and_ends_when_the_diameter_is_below_eps():
    assert annealing_schedule(0.1, 0.1, 0.5) == pytest.approx([0.01, 0.1])
    assert annealing_schedule(0.0, 0.1, 0.5) == pytest.approx([0.1, 0.1])


@pytest.mark.parametrize("k", range(4))
def test_potentials_of_the_authors_code(golden, k):
    arrays = golden("potentials")
    C = arrays[f"C{k}"]
    f, g = annealed_potentials(
        C, eps=float(arrays[f"eps{k}"]), scaling=float(arrays[f"scaling{k}"]), diameter=float(arrays[f"diameter{k}"])
    )
    assert f.dtype == np.float32
    assert np.abs(f - arrays[f"f{k}"]).max() <= 1e-6 * C.max()
    assert np.abs(g - arrays[f"g{k}"]).max() <= 1e-6 * C.max()


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(1, 40),
    m=st.integers(1, 40),
    size=st.floats(1e-3, 1e4),
    eps=st.floats(1e-3, 10),
    diameter=st.floats(0.1, 100),
    seed=st.integers(0, 10_000),
)
def test_fused_sweep_equals_two_plain_soft_minima(n, m, size, eps, diameter, seed):
    rng = np.random.default_rng(seed)
    C = size * rng.random((n, m)) ** 3
    a, b = rng.dirichlet(np.ones(n)) + 1e-6, rng.dirichlet(np.ones(m)) + 1e-6
    a, b = a / a.sum(), b / b.sum()
    f, g = annealed_potentials(C, a, b, eps=eps, diameter=diameter)
    f_ref, g_ref = reference(C, eps, 0.5, diameter, a, b)
    assert f == pytest.approx(f_ref, abs=1e-11 * max(size, eps, 1))
    assert g == pytest.approx(g_ref, abs=1e-11 * max(size, eps, 1))


def test_columns_that_underflow_in_every_row_are_right_in_single_precision():
    # Each row is near the first columns and astronomically far from the last ones: their kernel entries are all zero.
    rng = np.random.default_rng(0)
    C = np.concatenate([rng.random((300, 20)), 1e4 + rng.random((300, 30))], axis=1)
    f, g = annealed_potentials(C.astype(np.float32), eps=0.1, diameter=1.0)
    f_ref, g_ref = reference(C, 0.1, 0.5, 1.0)
    assert np.abs(f - f_ref).max() < 1e-6 * C.max()
    assert np.abs(g - g_ref).max() < 1e-6 * C.max()


def test_several_blocks_of_rows_equal_one(monkeypatch):
    from icl25_sava import potentials

    C = np.random.default_rng(0).random((257, 63)) * 20
    whole = annealed_potentials(C, diameter=5.0)
    monkeypatch.setattr(potentials, "_BLOCK_ELEMENTS", 64 * 7)
    parts = annealed_potentials(C, diameter=5.0)
    assert parts.f == pytest.approx(whole.f, abs=1e-12)
    assert parts.g == pytest.approx(whole.g, abs=1e-12)


def test_two_points_in_closed_form():
    s, eps = 1.0, 0.1
    value = -(eps / 2) * math.log((1 + math.exp(-s / eps)) / 2)
    assert value == pytest.approx(0.0346550891, abs=1e-10)
    f, g = annealed_potentials(np.array([[0, s], [s, 0]]), eps=eps, diameter=2.0)
    assert np.concatenate([f, g]) == pytest.approx([value] * 4, abs=1e-12)
    assert calibrated_gradient(f) == pytest.approx([0, 0], abs=1e-12)


@pytest.mark.parametrize("solver", [annealed_potentials, sinkhorn_potentials, emd_potentials])
def test_one_validation_row_and_rank_one_costs(solver):
    options = {"diameter": 3.0} if solver is annealed_potentials else {}
    f, _ = solver(np.array([[1.0], [4], [7], [2]]), **options)
    assert calibrated_gradient(f) == pytest.approx([-10 / 3, 2 / 3, 14 / 3, -2], abs=1e-9)
    f, _ = solver(np.array([[0.0, 2], [1, 3]]), **options)
    assert calibrated_gradient(f) == pytest.approx([-1, 1], abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), shift=st.floats(-50, 50), factor=st.floats(0.01, 100))
def test_shift_scale_and_permutation(seed, shift, factor):
    rng = np.random.default_rng(seed)
    C = 10 * rng.random((11, 7))
    f, g = annealed_potentials(C, eps=0.1, diameter=4.0)
    moved = annealed_potentials(C + shift, eps=0.1, diameter=4.0)
    assert moved.f == pytest.approx(f + shift / 2, abs=1e-11)
    assert moved.g == pytest.approx(g + shift / 2, abs=1e-11)
    scaled = annealed_potentials(factor * C, eps=0.1 * factor, diameter=4 * math.sqrt(factor))
    assert scaled.f == pytest.approx(factor * f, rel=1e-11, abs=1e-11 * factor)
    rows, columns = rng.permutation(11), rng.permutation(7)
    permuted = annealed_potentials(C[rows][:, columns], eps=0.1, diameter=4.0)
    assert permuted.f == pytest.approx(f[rows], abs=1e-12)
    assert permuted.g == pytest.approx(g[columns], abs=1e-12)


def test_plain_distances_anneal_from_the_diameter_itself():
    assert annealing_schedule(8, 1.0, 0.5, p=1) == pytest.approx([8, 8, 4, 2, 1])


def test_converged_duals_satisfy_the_entropic_identity(golden):
    arrays = golden("entropic_identity")
    C, n = arrays["C"], len(arrays["C"])
    exact = calibrated_gradient(arrays["f_exact"])
    assert calibrated_gradient(emd_potentials(C).f) == pytest.approx(exact, abs=1e-9)
    for k, eps in enumerate(arrays["eps"]):
        f, g = sinkhorn_potentials(C, eps=float(eps), tol=1e-14, max_iter=100_000)
        cg = calibrated_gradient(f)
        assert cg == pytest.approx(calibrated_gradient(arrays["f"][k]), abs=1e-9)
        plan = np.exp((f[:, None] + g - C) / eps) / C.size
        assert plan == pytest.approx(arrays["plan"][k], abs=1e-9)
        gap = entropic_gap(plan, float(eps))
        for j in range(C.shape[1]):
            predicted = n / (n - 1) * C[:, j] + gap[:, j]
            assert cg[:, None] - cg == pytest.approx(predicted[:, None] - predicted, abs=1e-9)
            support = np.flatnonzero(arrays["plan_exact"][:, j] > 0)
            for i in support:
                for other in support:
                    corrected = cg[i] - cg[other] - (gap[i, j] - gap[other, j])
                    assert exact[i] - exact[other] == pytest.approx(corrected, abs=1e-9)
        # Duality: the value of the duals is the regularised cost of the plan.
        kl = np.sum(plan * np.log(plan * C.size))
        assert f.mean() + g.mean() == pytest.approx(np.sum(plan * C) + eps * kl, abs=1e-9)


def test_exact_duals_are_feasible_and_tight_on_the_plan(golden):
    arrays = golden("entropic_identity")
    f, g = emd_potentials(arrays["C"])
    slack = arrays["C"] - f[:, None] - g
    assert slack.min() > -1e-12
    assert np.abs(slack[arrays["plan_exact"] > 1e-12]).max() < 1e-12
    assert f.mean() + g.mean() == pytest.approx(np.sum(arrays["plan_exact"] * arrays["C"]), abs=1e-12)


def test_sinkhorn_says_when_it_did_not_converge():
    C = np.random.default_rng(0).random((20, 20)) * 100
    with pytest.warns(RuntimeWarning, match="stopped after 10 iterations"):
        sinkhorn_potentials(C, eps=0.01, max_iter=10)


@pytest.mark.parametrize(
    ("C", "options", "message"),
    [
        (np.ones((0, 3)), {}, "non-empty matrix"),
        (np.array([[1.0, np.nan]]), {}, "1 values that are NaN or infinite, first at row 0, column 1"),
        (np.array([[1.0, np.inf]]), {}, "NaN or infinite"),
        (np.ones((2, 3)), {"a": np.array([0.5, 0.6])}, "a must sum to 1"),
        (np.ones((2, 3)), {"a": np.array([1.0, 0.0])}, "a must be positive"),
        (np.ones((2, 3)), {"b": np.ones(2) / 2}, r"b must have shape \(3,\)"),
        (np.ones((2, 3)), {"eps": 0.0}, "eps must be positive"),
        (np.ones((2, 3)), {"scaling": 1.0}, "scaling must lie"),
        (np.ones((2, 3)), {"diameter": -1.0}, "diameter must be"),
    ],
)
def test_bad_input_is_refused(C, options, message):
    with pytest.raises(ValueError, match=message):
        annealed_potentials(C, **({"diameter": 1.0} | options))


@pytest.mark.extra
def test_torch_and_jax_arrays_give_the_same_potentials():
    import jax.numpy as jnp
    import torch

    C = (10 * np.random.default_rng(0).random((37, 23))).astype(np.float32)
    f, g = annealed_potentials(C, diameter=4.0)
    from_torch = annealed_potentials(torch.from_numpy(C), diameter=4.0)
    from_jax = annealed_potentials(jnp.asarray(C), diameter=4.0)
    assert isinstance(from_torch.f, torch.Tensor)
    assert isinstance(from_jax.g, jnp.ndarray)
    for other in (from_torch, from_jax):
        assert np.asarray(other.f) == pytest.approx(f, abs=1e-5)
        assert np.asarray(other.g) == pytest.approx(g, abs=1e-5)
