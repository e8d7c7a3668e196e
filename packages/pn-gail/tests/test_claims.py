from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from icl25_pn_gail import comparison, experiments, reproduce
from icl25_pn_gail.cli import Demo, Reproduce
from icl25_pn_gail.demo import GAIL, IWIL, PN, Outcome, demo_claims, traces_of
from icl25_pn_gail.envs import TwoGoals
from icl25_pn_gail.experiments import PARTS, Budget, Setting, run_setting
from icl25_shared import InputError

TINY = Budget(iterations=2, episodes=2, steps=200, hidden=4)


def outcomes(returns, distances):
    def runs(values, places):
        return [Outcome(*pair, np.zeros((1, 2, 2)), pd.DataFrame()) for pair in zip(values, places, strict=True)]

    return {name: runs(returns[name], distances[name]) for name in (PN, IWIL, GAIL)}


@pytest.mark.parametrize(
    ("pn", "iwil", "gail", "near", "verdicts"),
    [
        (-20, -40, -50, 0.1, [True, True, True, True]),
        (-41, -40, -50, 0.1, [False, False, True, True]),
        (-39, -40, -50, 0.1, [True, True, True, True]),
        (-20, -40, -25, 0.1, [False, True, True, True]),
        (-43, -44, -60, 0.1, [True, True, False, True]),
        (-20, -40, -50, 1.2, [True, True, True, False]),
    ],
)
def test_the_rules_of_the_demonstration_decide(pn, iwil, gail, near, verdicts):
    found = outcomes(
        {PN: [pn] * 2, IWIL: [iwil] * 2, GAIL: [gail] * 2}, {PN: [0.1, near], IWIL: [1.0, 1.1], GAIL: [2.0, 1.9]}
    )
    assert [claim.holds for claim in demo_claims(found, demonstrated=-52.6)] == verdicts


def results(**returns):
    rows = [
        {"method": m.replace("_", "-"), "seed": i, "mean_return": v}
        for m, vs in returns.items()
        for i, v in enumerate(vs)
    ]
    return pd.DataFrame(rows)


def test_the_median_is_not_moved_by_one_failure():
    found = reproduce.median_estimate(np.array([-200.0, -210, -220, -230, -1600]))
    assert found.mean == -220
    assert found.low == -1600
    assert found.high == -200
    assert found.samples == (-200, -210, -220, -230, -1600)
    gain = reproduce.median_estimate(np.array([-200.0, -220, -1600]), np.array([-900.0, -1500, -1600]))
    assert gain.mean == 1280
    assert gain.samples == (700, 1280, 0)
    assert gain.low < 0 < 1280 < gain.high


def pendulum_verdicts(pn=-220.0, iwil=-600.0, gail=-1600.0, other=-1500.0, few=-300.0):
    full = results(pn_gail=[pn] * 3, ic_gail=[other] * 3, wgail=[-1600] * 3, gail=[gail] * 3, bc=[-1400] * 3)
    full = pd.concat([full, pd.DataFrame({"method": "2iwil", "seed": range(3), "mean_return": iwil})])
    partly = pd.DataFrame({"method": ["pn-gail"] * 3 + ["2iwil"] * 3, "mean_return": [few] * 3 + [iwil] * 3})
    claims = reproduce.part_claims("pendulum", {reproduce.ALL: full, reproduce.FEW: partly})
    return {claim.id: claim.holds for claim in claims}


def test_the_rules_of_the_pendulum_decide():
    names = ["beats-2iwil", "beats-gail", "near-expert", "beats-2iwil-20", "near-expert-20", "best-of-all"]
    assert pendulum_verdicts() == dict.fromkeys(names, True)
    assert not pendulum_verdicts(iwil=-519)["beats-2iwil"]
    assert pendulum_verdicts(iwil=-520)["beats-2iwil"]
    assert not pendulum_verdicts(gail=-1019)["beats-gail"]
    assert not pendulum_verdicts(pn=-451)["near-expert"]
    assert not pendulum_verdicts(few=-301)["beats-2iwil-20"]
    assert not pendulum_verdicts(few=-451, iwil=-1500)["near-expert-20"]
    assert not pendulum_verdicts(other=-219)["best-of-all"]


def test_the_rules_of_the_other_parts_decide():
    def found(part, **returns):
        table = pd.DataFrame([{"method": m, "mean_return": v} for m, v in returns.items() for _ in range(3)])
        table["method"] = table["method"].map(lambda name: name.replace("__", "+").replace("_", "-").replace("x", "2"))
        return {setting.title: table for setting in PARTS[part]}

    def verdicts(part, **returns):
        return [claim.holds for claim in reproduce.part_claims(part, found(part, **returns))]

    assert verdicts("ratio", pn_gail=-200, gail=-500) == [True, True]
    assert verdicts("ratio", pn_gail=-200, gail=-499) == [True, False]
    assert verdicts("ratio", pn_gail=-200, gail=-199) == [False, False]
    assert verdicts("labels", pn_gail=-200, xiwil=-200) == [True, True]
    assert verdicts("labels", pn_gail=-201, xiwil=-200) == [False, False]
    assert verdicts("ablation", pn_gail__bsc=-200, xiwil__bsc=-201, pn_gail__sc=-200) == [True, True]
    assert verdicts("ablation", pn_gail__bsc=-200, xiwil__bsc=-200, pn_gail__sc=-199) == [False, False]


def test_settings_make_the_demonstrations_that_they_say():
    demos, full = Setting("", (), good=1, bad=2, labelled=0.25, noise=0.1).demonstrations()
    assert (full.n_rows, full.n_episodes, full.n_labelled) == (600, 3, 600)
    assert sorted(set(full.confidence.tolist())) == [0.1, 1.0]
    assert (full.confidence == 1.0).sum() == 200
    assert demos.n_labelled == 150
    noise = (demos.confidence - full.confidence)[demos.labelled & (full.confidence == 0.1)]
    assert 0.05 < noise.std() < 0.12
    np.testing.assert_array_equal(demos.obs, full.obs)


def test_runs_of_equal_recipes_are_done_once(monkeypatch):
    full, few, noisy = Setting("", ()), Setting("", (), labelled=0.2), Setting("", (), noise=0.2)
    same = [
        (
            full.recipe("pn-gail"),
            few.recipe("pn-gail+oracle"),
            noisy.recipe("pn-gail+oracle"),
            full.recipe("pn-gail+sc"),
        ),
        (few.recipe("pn-gail"), few.recipe("pn-gail+bsc")),
        (few.recipe("2iwil"), few.recipe("2iwil+sc")),
        (few.recipe("2iwil+bsc"),),
        (noisy.recipe("pn-gail"),),
        (full.recipe("gail"),),
        (full.recipe("bc"),),
        (Setting("", (), bad=5).recipe("pn-gail"),),
    ]
    assert [len(set(group)) for group in same] == [1] * len(same)
    assert len({recipe for group in same for recipe in group}) == len(same)

    asked = []
    real = comparison.compare

    def compare(env, demos, methods, *given, **options):
        asked.append((methods, demos.n_labelled))
        return real(env, demos, methods, *given, **options)

    monkeypatch.setattr(comparison, "compare", compare)
    known = {}
    first = run_setting(Setting("", ("pn-gail", "bc"), good=1, bad=1), [3, 4], TINY, known)
    again = run_setting(Setting("", ("gail", "pn-gail+oracle"), good=1, bad=1, labelled=0.5), [3, 4], TINY, known)
    assert asked == [(["pn-gail", "bc"], 400), (["gail"], 200)]
    assert again.results["method"].tolist() == ["gail", "gail", "pn-gail+oracle", "pn-gail+oracle"]
    assert again.results["seed"].tolist() == [3, 4, 3, 4]
    assert again.results["mean_return"].tolist()[2:] == first.results["mean_return"].tolist()[:2]
    assert [history["method"].iloc[0] for history in again.histories] == again.results["method"].tolist()
    # They are what they would have been.
    alone = run_setting(Setting("", ("pn-gail+oracle",), good=1, bad=1, labelled=0.5), [3, 4], TINY)
    assert alone.results["mean_return"].tolist() == again.results["mean_return"].tolist()[2:]


def test_settings_say_what_they_are():
    assert Setting("", (), labelled=0.05).heading == "5 good and 50 bad episodes, 5 % of rows rated"
    assert Setting("", (), bad=5, noise=0.2).heading == "5 good and 5 bad episodes, all rows rated with noise of 0.2"


def test_reproduce_writes_results_for_every_method(tmp_path, monkeypatch):
    methods = ("pn-gail", "2iwil", "gail")
    tiny = tuple(Setting(s.title, methods, good=1, bad=1, labelled=s.labelled) for s in PARTS["ratio"])
    monkeypatch.setitem(experiments.PARTS, "ratio", tiny)
    flags = Reproduce(part="ratio", n_seeds=2, out=tmp_path / "run")
    output = reproduce.run_reproduce(flags, TINY)
    assert not output.ok  # two iterations teach nothing
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    found = pd.DataFrame(record["runs"])
    assert found.groupby(["setting", "method"]).size().tolist() == [2] * 6
    assert pd.read_csv(tmp_path / "run" / "returns.csv")["mean_return"].between(-2000, 0).all()
    assert (tmp_path / "run" / "ratio-1.png").stat().st_size > 5_000
    assert [claim["id"] for claim in json.loads((tmp_path / "run" / "claims.json").read_text())["claims"]] == [
        "few-bad",
        "more-bad",
    ]


@pytest.mark.extra
def test_the_full_configuration_runs_on_tiny_numbers(tmp_path):
    from icl25_pn_gail.reproduce_paper import FullScale, run_paper

    flags = Reproduce(full=True, n_seeds=1, out=tmp_path / "run")
    assert flags.scale == "paper"
    config = {"hidden": (4,), "steps_per_iteration": 200, "eval_every": 1, "eval_episodes": 1}
    scale = FullScale(64, (1, 1, 1), 50, 0.5, 1, "ppo", 1, config)
    output = run_paper(flags, ("Pendulum-v1",), scale)
    assert len(output.data["runs"]) == 6
    assert (tmp_path / "run" / "Pendulum-v1.npz").exists()


def test_traces_begin_at_the_start_and_follow_the_policy():
    class Right:
        def predict(self, obs):
            return np.tile([1.0, 0.0], (len(obs), 1)), None

    traces = traces_of(Right(), TwoGoals(), n=3)
    assert traces.shape == (3, 31, 2)
    np.testing.assert_allclose(np.diff(traces, axis=1), np.tile([0.1, 0.0], (3, 30, 1)), atol=1e-6)
    assert np.abs(traces[:, 0] - [0, -1]).max() < 0.3


@pytest.mark.parametrize("kind", [Demo, Reproduce])
def test_no_seeds_are_refused(kind, tmp_path):
    with pytest.raises(InputError, match="n-seeds must be >= 1"):
        kind(n_seeds=0, out=tmp_path / "run").run()
