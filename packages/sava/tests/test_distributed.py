"""What needs an optional library: other array libraries, accelerators, clusters."""

from __future__ import annotations

import numpy as np
import pytest

from icl25_sava import SAVA
from icl25_sava.pairs import Recipe, make_batch, solve_batch

pytestmark = pytest.mark.extra


def batches(sets, dtype, sizes=(31, 30, 29)):
    centre = sets.X_val.mean(axis=0)
    W = np.array([[1.0, 9, 8], [7, 2, 6], [5, 4, 3]])
    train = make_batch(sets.X, sets.y, np.arange(240), embed=None, centre=centre, dtype=dtype)
    parts = np.split(np.arange(90), np.cumsum(sizes)[:-1])
    val = [make_batch(sets.X_val[i], sets.y_val[i], i, embed=None, centre=centre, dtype=dtype) for i in parts]
    return train, val, W


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float64", 1e-9)])
def test_stacked_problems_in_torch_equal_those_in_numpy(sets, p, dtype, tolerance, monkeypatch):
    from icl25_sava import accelerated

    train, val, W = batches(sets, dtype)
    recipe = Recipe(p=p, dtype=dtype, lambda_y=0.7)
    expected = solve_batch(train, val, W, recipe)
    for free in (1 << 30, 1):  # all problems at once, and one after the other
        monkeypatch.setattr(accelerated, "_CPU_BYTES", free)
        found = accelerated.solve_batch_on_device(train, val, W, recipe)
        assert found.gradients == pytest.approx(expected.gradients, abs=tolerance)
        assert found.costs == pytest.approx(expected.costs, abs=tolerance)
        assert np.array_equal(found.nearest, expected.nearest)
        assert found.nearest_cost == pytest.approx(expected.nearest_cost, abs=tolerance)


def test_other_solvers_run_on_the_processor(sets):
    from icl25_sava.accelerated import solve_batch_on_device

    train, val, W = batches(sets, "float64")
    recipe = Recipe(dtype="float64", solver="emd")
    assert np.array_equal(
        solve_batch_on_device(train, val, W, recipe).gradients, solve_batch(train, val, W, recipe).gradients
    )


def test_a_device_that_is_not_there_is_named(sets):
    import torch

    missing = "cuda:99" if torch.cuda.is_available() else "cuda"
    with pytest.raises(ValueError, match="cpu"):
        SAVA(device=missing).fit(*sets.data)
    assert SAVA(device="auto", random_state=0).fit(*sets.data).values_.shape == (240,)


def test_tensors_of_torch_and_jax_are_read(sets):
    import jax.numpy as jnp
    import torch

    X, X_val = sets.X.astype(np.float32), sets.X_val.astype(np.float32)
    expected = SAVA(batch_size=60, random_state=0).fit(X, sets.y, X_val, sets.y_val).values_
    for wrap in (lambda array: torch.from_numpy(array), jnp.asarray):
        found = SAVA(batch_size=60, random_state=0).fit(wrap(X), wrap(sets.y), wrap(X_val), wrap(sets.y_val))
        assert np.array_equal(found.values_, expected)


def test_a_cluster_of_two_processes_gives_the_same_bytes(sets, same, tmp_path):
    import joblib
    from distributed import Client, LocalCluster

    expected = SAVA(batch_size=40, random_state=0).fit(*sets.data)
    np.save(tmp_path / "x.npy", sets.X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster), joblib.parallel_config(backend="dask"):
        assert same(SAVA(batch_size=40, random_state=0, n_jobs=-1).fit(*sets.data), expected)
        stored = SAVA(batch_size=40, random_state=0, n_jobs=-1, store=tmp_path / "store")
        assert same(stored.fit(mapped, *sets.data[1:]), expected)
