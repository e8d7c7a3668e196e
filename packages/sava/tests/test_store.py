from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from icl25_sava import SAVA
from icl25_sava.store import Store


def test_a_store_changes_nothing_and_loads_to_the_same_model(sets, tmp_path, same):
    plain = SAVA(batch_size=50, random_state=0).fit(*sets.data)
    stored = SAVA(batch_size=50, random_state=0, store=tmp_path / "s").fit(*sets.data)
    loaded = SAVA.load(tmp_path / "s")
    assert same(stored, plain)
    assert same(loaded, plain)
    assert np.array_equal(loaded.labels_, plain.labels_)
    assert loaded.get_params()["batch_size"] == 50


def test_a_store_holds_no_pickle(sets, tmp_path):
    SAVA(batch_size=50, random_state=0, store=tmp_path / "s").fit(
        sets.X, sets.y.astype(str), *sets.data[2:3], sets.y_val.astype(str)
    )
    arrays = [path for path in (tmp_path / "s").rglob("*") if path.suffix in (".npy", ".npz")]
    assert len(arrays) > 10
    for path in arrays:
        found = np.load(path, allow_pickle=False)
        for array in [found] if isinstance(found, np.ndarray) else dict(found).values():
            assert array.dtype.kind != "O"


def test_batches_that_are_done_are_not_solved_again(sets, tmp_path, monkeypatch, same):
    whole = SAVA(batch_size=50, random_state=0, store=tmp_path / "s").fit(*sets.data)
    for number in (1, 3):
        (tmp_path / "s" / "done" / f"{number:06d}").unlink()
    (tmp_path / "s" / "cg" / "000001.npy").write_bytes(b"half a file")
    from icl25_sava import valuation

    solved = []
    solve = valuation.solve_batch
    monkeypatch.setattr(valuation, "solve_batch", lambda train, *rest: solved.append(train.rows) or solve(train, *rest))
    again = SAVA(batch_size=50, random_state=0, store=tmp_path / "s").fit(*sets.data)
    assert len(solved) == 2
    assert same(again, whole)


def test_a_store_of_another_run_is_refused(sets, tmp_path):
    store = tmp_path / "s"
    SAVA(batch_size=50, random_state=0, store=store).fit(*sets.data)
    with pytest.raises(ValueError, match="other settings: batch_size 50 -> 60"):
        SAVA(batch_size=60, random_state=0, store=store).fit(*sets.data)
    moved = sets.X.copy()
    moved[0, 0] += 1
    with pytest.raises(ValueError, match="other training data"):
        SAVA(batch_size=50, random_state=0, store=store).fit(moved, *sets.data[1:])
    with pytest.raises(ValueError, match="other validation data"):
        SAVA(batch_size=50, random_state=0, store=store).fit(sets.X, sets.y, sets.X_val + 1, sets.y_val)
    with pytest.raises(ValueError, match="eps"):
        SAVA.load(store, eps=0.2)


def test_the_outer_problem_may_change_without_solving_anew(sets, tmp_path, same):
    SAVA(batch_size=50, random_state=0, store=tmp_path / "s").fit(*sets.data)
    loaded = SAVA.load(tmp_path / "s", outer="uniform")
    assert same(loaded, SAVA(batch_size=50, random_state=0, outer="uniform").fit(*sets.data))


def test_adding_rows_through_a_store(sets, tmp_path, same):
    first, rest = slice(0, 150), slice(150, 240)
    memory = SAVA(batch_size=50, random_state=0).fit(sets.X[first], sets.y[first], sets.X_val, sets.y_val)
    memory.partial_fit(sets.X[rest], sets.y[rest])
    SAVA(batch_size=50, random_state=0, store=tmp_path / "s").fit(sets.X[first], sets.y[first], sets.X_val, sets.y_val)
    added = SAVA.load(tmp_path / "s").partial_fit(sets.X[rest], sets.y[rest])
    assert same(added, memory)
    assert same(SAVA.load(tmp_path / "s"), memory)
    with pytest.raises(ValueError, match="has been added to"):
        SAVA(batch_size=50, random_state=0, store=tmp_path / "s").fit(
            sets.X[first], sets.y[first], sets.X_val, sets.y_val
        )


def test_added_rows_with_a_new_class_survive_the_store(sets, tmp_path, same):
    SAVA(batch_size=50, random_state=0, store=tmp_path / "s").fit(*sets.data)
    added = SAVA.load(tmp_path / "s").partial_fit(sets.X[:40] - 9, np.full(40, 11))
    loaded = SAVA.load(tmp_path / "s")
    assert loaded.classes_.tolist() == [0, 1, 2, 11]
    assert same(loaded, added)
    loaded.partial_fit(sets.X[:20] + 1, sets.y[:20])


def test_an_addition_that_broke_off_goes_on_with_the_same_rows_only(sets, tmp_path, same):
    store = tmp_path / "s"
    SAVA(batch_size=50, random_state=0, store=store).fit(*sets.data)
    whole = SAVA.load(store).partial_fit(sets.X + 0.1, sets.y)
    (store / "done" / "000007.npy").unlink(missing_ok=True)
    (store / "done" / "000007").unlink()
    broken = SAVA.load(store)
    assert not hasattr(broken, "values_")
    with pytest.raises(ValueError, match="waits for the rest of other rows"):
        broken.partial_fit(sets.X + 0.2, sets.y)
    assert same(SAVA.load(store).partial_fit(sets.X + 0.1, sets.y), whole)


def test_embedders_are_fitted_anew_from_the_stored_validation_rows(sets, tmp_path, same):
    stored = SAVA(batch_size=50, embedder="pca:2", random_state=0, store=tmp_path / "s").fit(*sets.data)
    assert same(SAVA.load(tmp_path / "s"), stored)
    with pytest.raises(ValueError, match="embedder"):
        SAVA.load(tmp_path / "s", embedder="pca:3")


@pytest.mark.parametrize("damage", ["meta.json", "cg/000001.npy", "cbar/000002.npy", "W.npy", "segments/000.npz"])
def test_damage_is_named(sets, tmp_path, damage):
    store = tmp_path / "s"
    SAVA(batch_size=50, random_state=0, store=store).fit(*sets.data)
    (store / damage).write_bytes(b"\x93NUMPY broken" if damage != "meta.json" else b"{")
    with pytest.raises(ValueError, match=damage.split("/")[-1]):
        SAVA.load(store)


def test_what_is_no_store_is_refused(sets, tmp_path):
    with pytest.raises(ValueError, match=r"no meta\.json"):
        SAVA.load(tmp_path / "nothing")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds no store"):
        SAVA(store=tmp_path / "full").fit(*sets.data)
    with pytest.raises(NotADirectoryError, match="is a file"):
        SAVA(store=tmp_path / "full" / "notes.txt").fit(*sets.data)
    (tmp_path / "meta.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(ValueError, match="format 99"):
        SAVA.load(tmp_path)
    Store(tmp_path / "gone").remove()


CHILD = """
import sys
import numpy as np
from icl25_sava import SAVA, pairs, valuation
import time
solve = valuation.solve_batch
def slow(*arguments):
    time.sleep(0.03)
    return solve(*arguments)
valuation.solve_batch = slow
data = np.load(sys.argv[1])
SAVA(batch_size=20, random_state=0, store=sys.argv[2]).fit(data["X"], data["y"], data["X_val"], data["y_val"])
"""


def test_killed_at_any_moment_a_run_goes_on_to_the_same_bytes(sets, tmp_path, same):
    np.savez(tmp_path / "data.npz", X=sets.X, y=sets.y, X_val=sets.X_val, y_val=sets.y_val)
    whole = SAVA(batch_size=20, random_state=0).fit(*sets.data)
    for number, batches in enumerate((1, 5)):
        store = tmp_path / f"s{number}"
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path / "data.npz"), str(store)])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and len(list(store.glob("done/0*"))) < batches:
            time.sleep(0.002)
        os.kill(child.pid, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        assert batches <= len(list(store.glob("done/0*"))) < 12
        resumed = SAVA(batch_size=20, random_state=0, store=store).fit(*sets.data)
        assert same(resumed, whole)
