import json
from dataclasses import astuple

import numpy as np
import pytest

from icl25_pi_dion import reproduce, reproduce_ablations, reproduce_paper
from icl25_pi_dion.cli import Demo, Reproduce
from icl25_pi_dion.demo import ALONE, FEW, REFINED, demo_claims
from icl25_pi_dion.experiments import METHODS, Errors, Method, Sizes, run_all, run_method
from icl25_shared import InputError

TINY = Sizes(n_train=120, n_test=40, steps=100, refine=1)


@pytest.mark.parametrize(
    ("alone", "refined", "few", "coverage", "verdicts"),
    [
        (0.03, 0.02, 0.05, 0.9, [True, True, True, True]),
        (0.06, 0.02, 0.07, 0.9, [False, True, True, True]),
        (0.03, 0.02, 0.02, 0.9, [True, False, True, True]),
        (0.03, 0.03, 0.05, 0.9, [True, True, False, True]),
        (0.03, 0.02, 0.05, 0.7, [True, True, True, False]),
    ],
)
def test_the_rules_of_the_demonstration_decide(alone, refined, few, coverage, verdicts):
    errors = {ALONE: np.full(4, alone), REFINED: np.full(4, refined), FEW: np.full(4, few)}
    assert [claim.holds for claim in demo_claims([errors] * 2, [coverage] * 2)] == verdicts


def errors(s, refined=0.02, interior=0.02):
    return [Errors(s, interior, 0.01, refined, refined, 0.5, 0.9)] * 3


def verdicts(name, alone, semi=0.03, few=0.05, **numbers):
    found = dict.fromkeys(METHODS, errors(0.1))
    found |= {
        reproduce.ALONE: errors(alone, **numbers),
        reproduce.SEMI: errors(semi),
        reproduce.FEW: errors(few),
    }
    return {claim.id.removeprefix(f"{name}-"): claim.holds for claim in reproduce.problem_claims(name, found)}


def test_the_rules_of_the_reproduction_decide():
    everything = {"mean-predictor", "semi-supervised", "without-labels", "refined", "interior"}
    good = verdicts("rd", 0.04)
    assert good == dict.fromkeys(everything, True)
    assert not verdicts("rd", 0.3)["mean-predictor"]
    assert not verdicts("rd", 0.06)["without-labels"]
    assert not verdicts("rd", 0.04, refined=0.031)["refined"]
    assert not verdicts("rd", 0.04, interior=0.031)["interior"]
    assert not verdicts("rd", 0.04, semi=0.041)["semi-supervised"]
    assert not verdicts("rd", 0.06, semi=0.051)["semi-supervised"]
    assert verdicts("helmholtz", 0.16, interior=0.09)["error"]
    assert not verdicts("helmholtz", 0.161)["error"]
    assert not verdicts("helmholtz", 0.1, interior=0.091)["interior"]
    assert verdicts("darcy", 0.13)["error"]
    assert not verdicts("darcy", 0.131)["error"]


def test_experiments_learn_without_labels_and_depend_on_the_seed_alone():
    first = run_method("rd", Method(), 100, TINY)
    assert first.s < 0.35 * first.mean_predictor
    assert first.refined < first.s
    again = run_all([("rd", Method())], [100], {"rd": TINY})["rd", Method()][0]
    assert astuple(again) == pytest.approx(astuple(first), rel=1e-2, abs=0.03)


def test_supervised_experiments_use_the_labels():
    few = run_method("rd", Method(labels=20, physics=False), 100, TINY)
    many = run_method("rd", Method(labels=120, physics=False), 100, TINY)
    assert many.s < few.s < few.mean_predictor
    assert few.refined is None


def test_reproduce_writes_results_for_every_method(tmp_path, monkeypatch):
    tiny = Sizes(n_train=60, n_test=10, steps=2, refine=1)
    monkeypatch.setattr(reproduce, "PROBLEMS", {"rd": tiny})
    monkeypatch.setattr(
        reproduce, "METHODS", {title: Method(labels=5, physics="DeepONet" not in title) for title in METHODS}
    )
    output = reproduce.run_reproduce(Reproduce(part="rd", n_seeds=1, out=tmp_path / "run"))
    assert not output.ok  # two steps teach nothing
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    assert set(record["rd"]) == set(METHODS)
    assert (tmp_path / "run" / "rd-noise.png").stat().st_size > 5_000


def test_ablations_change_one_choice_each(tmp_path):
    titles = ("branches without the linear map", "boundary values as a term of the loss")
    flags = Reproduce(part="ablations", n_seeds=1, out=tmp_path / "run")
    output = reproduce_ablations.run_ablations(flags, titles=titles, steps=50, n_test=20)
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    assert record["ablations"] == output.data
    errors = [output.data[title]["s"][0] for title in titles]
    assert errors[0] != errors[1]
    assert max(errors) < 1


def test_ablations_have_no_larger_scale(tmp_path):
    with pytest.raises(InputError, match="scale paper is for"):
        Reproduce(part="ablations", full=True, out=tmp_path / "run")


def test_the_paper_s_scale_runs_on_tiny_numbers(tmp_path):
    flags = Reproduce(part="darcy", full=True, out=tmp_path / "run")
    assert flags.scale == "paper"
    output = reproduce_paper.run_paper(flags, steps=1, n_train=20, n_test=4, width=8, points=16)
    assert np.isfinite(output.data["darcy"]["error_s"])


@pytest.mark.parametrize("kind", [Demo, Reproduce])
def test_no_seeds_are_refused(kind, tmp_path):
    with pytest.raises(InputError, match="n-seeds must be >= 1"):
        kind(n_seeds=0, out=tmp_path / "run").run()
