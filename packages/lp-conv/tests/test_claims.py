import json
from dataclasses import replace

import numpy as np
import pytest

from icl25_lp_conv import demo, reproduce, reproduce_paper
from icl25_lp_conv.cli import Demo, Reproduce
from icl25_lp_conv.digits_task import DigitsSizes, digits_accuracies
from icl25_lp_conv.recipe import Recipe
from icl25_lp_conv.recovery import recover
from icl25_lp_conv.sudoku_task import SudokuSizes
from icl25_lp_conv.sudoku_training import SudokuScores
from icl25_shared import InputError

TINY = DigitsSizes(n_train=100, n_test=50, epochs=1, widths=(2, 3, 4))


def test_masked_large_kernels_reach_what_small_ones_do_not():
    """On a seed that the demonstration does not use; the gain is 0.3 on average there, the rule asks for 0.15."""
    accuracy = digits_accuracies(["3x3", "Lp p=4"], [101], DigitsSizes(n_test=500, redrawn=False))
    assert accuracy["Lp p=4"][0] > accuracy["3x3"][0] + 0.08


@pytest.fixture(scope="module")
def found():
    return recover(0, joint=False, channels=1, n_steps=2)


def demo_verdicts(found, rmse, degrees, gain, reach):
    recovery = replace(found, rmse=np.full(6, rmse), error=np.full(6, degrees))
    redrawn = {"7x7": [0.7, 0.6], "Lp p=4": [0.7 + gain, 0.6 + gain]}
    fixed = {"3x3": [0.3, 0.4], "Lp p=4": [0.3 + reach, 0.4 + reach]}
    claims = demo.mask_claims([recovery] * 2, [recovery] * 2) + demo.kernel_claims(redrawn, fixed)
    return [claim.holds for claim in claims]


@pytest.mark.parametrize(
    ("numbers", "verdicts"),
    [
        ((0.01, 8.0, 0.05, 0.2), [True, True, True, True]),
        ((0.03, 8.0, 0.05, 0.2), [False, True, True, True]),
        ((0.01, 13.0, 0.05, 0.2), [True, False, True, True]),
        ((0.01, 8.0, 0.03, 0.2), [True, True, False, True]),
        ((0.01, 8.0, 0.05, 0.1), [True, True, True, False]),
    ],
)
def test_the_rules_of_the_demonstration_decide(found, numbers, verdicts):
    assert demo_verdicts(found, *numbers) == verdicts


def accuracies(lp2, lp4):
    return {"3x3": [0.7] * 3, "7x7": [0.6] * 3, "Lp p=2": [0.6 + lp2] * 3, "Lp p=4": [0.6 + lp4] * 3}


def test_the_rules_of_the_digits_decide():
    claims = reproduce.digits_claims(accuracies(0.04, 0.05), accuracies(0.02, 0.07))
    assert {claim.id: claim.holds for claim in claims} == {
        "lp2-above-large": True,
        "lp2-above-large-fixed": False,
        "lp4-above-large": False,
        "lp4-above-large-fixed": True,
    }


def scores(blank, lines, box):
    return [SudokuScores(100, 0.5, blank, lines, lines + 0.1, box, 0.0)] * 3


def test_the_rules_of_sudoku_decide():
    small, large = scores(0.4, 0.1, 0.1), scores(0.5, 0.1, 0.1)
    good = reproduce.sudoku_claims({"3x3": small, "7x7": large, "Lp p=2": scores(0.495, 0.19, 0.2)})
    assert [claim.holds for claim in good] == [True, True, True]
    bad = reproduce.sudoku_claims({"3x3": small, "7x7": large, "Lp p=2": scores(0.42, 0.1, 0.2)})
    assert [claim.holds for claim in bad] == [False, False, False]


def test_the_rules_of_the_alignment_decide():
    good = reproduce.alignment_claims({"7x7": [0.2, 0.3], "Lp p=2": [0.25, 0.36]}, [1.0, 0.95])
    assert [claim.holds for claim in good] == [False, True]  # two seeds do not settle a difference of 0.05
    better = reproduce.alignment_claims({"7x7": [0.2, 0.3], "Lp p=2": [0.30, 0.401]}, [1.0, 0.8])
    assert [claim.holds for claim in better] == [True, False]


def test_claims_of_the_papers_scale_decide():
    names = ("base", "large", "lp2", "lp4", "lp16")
    accuracy = dict(zip(names, ([0.70, 0.71], [0.76, 0.77], [0.75, 0.76], [0.7, 0.7], [0.7, 0.7]), strict=True))
    assert [claim.holds for claim in reproduce_paper.paper_claims(accuracy)] == [True, False]


def test_the_demonstration_leaves_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "REDRAWN", TINY)
    monkeypatch.setattr(demo, "FIXED", replace(TINY, redrawn=False))
    monkeypatch.setattr(demo, "recover", lambda seed, joint: recover(seed, joint=joint, channels=1, n_steps=3))
    monkeypatch.setattr(demo, "cpu_count", lambda: 1)
    for name in ("a", "b"):
        demo.run_demo(Demo(out=tmp_path / name, seed=3, n_seeds=1))
    assert (tmp_path / "a/result.json").read_bytes() == (tmp_path / "b/result.json").read_bytes()
    assert json.loads((tmp_path / "a/result.json").read_text())["seeds"] == [3]
    assert len(list(tmp_path.glob("a/*.png"))) == 2


def test_experiments_run_through(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce, "REDRAWN", TINY)
    monkeypatch.setattr(reproduce, "FIXED", replace(TINY, redrawn=False))
    monkeypatch.setattr(
        reproduce, "SudokuSizes", lambda: SudokuSizes(n_train=60, n_test=20, depth=1, width=4, epochs=1)
    )
    monkeypatch.setattr(reproduce, "N_STIMULI", 12)
    monkeypatch.setattr(reproduce, "cpu_count", lambda: 1)
    output = reproduce.run_reproduce(Reproduce(out=tmp_path / "run", n_seeds=1))
    claims = json.loads((tmp_path / "run/claims.json").read_text())["claims"]
    assert len(claims) == len(output.data["claims"]) == 9
    assert sum(claim["headline"] for claim in claims) == 1
    assert {path.name for path in tmp_path.glob("run/*.png")} == {
        *("digits-redrawn.png", "digits-fixed.png", "sudoku.png", "alignment.png")
    }


def images(path):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (20, 16, 16, 1), dtype=np.uint8), np.arange(20) % 2
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)


def test_the_papers_scale_trains_every_variant_and_goes_on(tmp_path):
    images(tmp_path / "data.npz")
    flags = Reproduce(scale="paper", data=tmp_path / "data.npz", out=tmp_path / "run", n_seeds=2)
    options = {"model_name": "digits-resnet(widths=(2, 2, 2))", "recipe": Recipe.small(epochs=1, batch_size=10)}
    first = reproduce_paper.run_paper_scale(flags, **options)
    assert set(first.data["accuracy"]) == set(reproduce_paper.PAPER_PRESETS)
    assert all(len(found) == 2 for found in first.data["accuracy"].values())
    assert (tmp_path / "run/lp4-1/model.safetensors").exists()
    again = reproduce_paper.run_paper_scale(replace(flags, force=True), **options)
    assert again.data["accuracy"] == first.data["accuracy"]


@pytest.mark.parametrize(("flags", "message"), [({"n_seeds": 0}, "--n-seeds"), ({"scale": "paper"}, "needs --data")])
def test_flags_that_cannot_be(flags, message):
    with pytest.raises(InputError, match=message):
        reproduce.run_reproduce(Reproduce(**flags))


def test_a_demonstration_without_seeds_is_refused():
    with pytest.raises(InputError, match="--n-seeds"):
        demo.run_demo(Demo(n_seeds=0))
