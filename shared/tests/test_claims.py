"""Claims: intervals against known values, rules at their edges, JSON there and back, tables that can be read."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icl25_shared.claims import (
    Claim,
    Estimate,
    Rule,
    claims_markdown,
    claims_table,
    read_claims,
    t_quantile,
    write_claims,
)


def claim(samples=(0.90, 0.92, 0.94), **changes):
    parts: dict[str, Any] = {
        "id": "auc",
        "statement": "Noisy rows are found.",
        "paper": "0.95",
        "source": "Table 2",
        "measured": Estimate.from_samples(samples),
        "rule": Rule(">=", 0.9),
    }
    return Claim(**{**parts, **changes})


# From the tables of Student's t (two-sided 95 %), to the digits printed there.
@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [
        *[(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (5, 2.5706), (9, 2.2622), (10, 2.2281), (15, 2.1314)],
        *[(20, 2.0860), (29, 2.0452), (30, 2.0423), (31, 2.0395), (40, 2.0211), (60, 2.0003), (100, 1.9840)],
        *[(1000, 1.9623), (10**9, 1.9600)],
    ],
)
def test_t_quantiles_are_those_of_the_tables(degrees, quantile):
    assert t_quantile(degrees) == pytest.approx(quantile, abs=6e-5)


@pytest.mark.parametrize(("degrees", "quantile"), [(31, 2.03951345), (40, 2.02107539), (100, 1.98397152)])
def test_the_expansion_beyond_the_table_holds_to_seven_digits(degrees, quantile):
    assert t_quantile(degrees) == pytest.approx(quantile, abs=1e-7)


def test_one_degree_of_freedom_is_cauchy_and_two_have_a_closed_form():
    assert t_quantile(1) == pytest.approx(math.tan(math.pi * 0.475), abs=1e-6)
    assert t_quantile(2) == pytest.approx(0.95 * math.sqrt(2 / (1 - 0.95**2)), abs=1e-6)


def test_quantiles_fall_without_a_step_where_the_table_ends():
    quantiles = [t_quantile(degrees) for degrees in range(1, 60)]
    steps = -np.diff(quantiles)
    assert (steps > 0).all()
    assert (np.diff(steps) < 0).all()


def test_the_interval_of_two_samples_is_known():
    estimate = Estimate.from_samples([0.0, 2.0])
    assert (estimate.mean, estimate.n, estimate.samples) == (1.0, 2, (0.0, 2.0))
    assert estimate.high == pytest.approx(1 + 12.706205)
    assert estimate.low == pytest.approx(1 - 12.706205)


@pytest.mark.parametrize("n", [3, 10, 50])
def test_the_interval_covers_the_true_mean_95_times_in_100(n):
    generator = np.random.default_rng(0)
    estimates = [Estimate.from_samples(generator.normal(3.0, 2.0, n)) for _ in range(4000)]
    covered = np.mean([estimate.low <= 3.0 <= estimate.high for estimate in estimates])
    assert covered == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / 4000))


def test_one_sample_has_no_interval_and_an_exact_value_a_point():
    single, exact = Estimate.from_samples([0.5]), Estimate.exact(0.5)
    assert math.isnan(single.low)
    assert math.isnan(single.high)
    assert (exact.low, exact.high) == (0.5, 0.5)
    assert not Rule(">=", 0.0, on="low").holds(single)
    assert Rule(">=", 0.5, on="low").holds(exact)


@pytest.mark.parametrize("samples", [[], [1.0, math.nan], [math.inf]])
def test_samples_that_decide_nothing_are_refused(samples):
    with pytest.raises(ValueError, match=r"at least one sample|must be finite, found (nan at position 1|inf)"):
        Estimate.from_samples(samples)


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        (Rule(">=", 2.0), True),
        (Rule(">", 2.0), False),
        (Rule("<=", 2.0), True),
        (Rule("<", 2.0), False),
        (Rule(">=", 1.0, on="every"), True),
        (Rule(">", 1.0, on="every"), False),
        (Rule(">=", 0.0, on="low"), False),
        (Rule("<", 5.0, on="high"), True),
        (Rule("<", 4.0, on="high"), False),
    ],
)
def test_rules_decide(rule, holds):
    assert rule.holds(Estimate.from_samples([1.0, 2.0, 3.0])) is holds  # mean 2, interval [-0.48, 4.48]


def test_rules_say_what_they_are():
    assert str(Rule(">=", 0.1)) == "mean >= 0.1"
    assert str(Rule("<", 5, on="every")) == "every sample < 5"
    assert str(Rule(">", 0.5, on="low")) == "lower bound > 0.5"


@pytest.mark.parametrize("arguments", [("==", 1.0), (">=", math.nan), (">=", 1.0, "median")])
def test_impossible_rules_are_refused(arguments):
    with pytest.raises(ValueError, match="must be"):
        Rule(*arguments)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6),
    st.sampled_from([">=", "<=", "<", ">"]),
    st.floats(-1e6, 1e6),
    st.sampled_from(["mean", "low", "high", "every"]),
)
def test_claims_survive_json(samples, comparison, threshold, on):
    original = claim(samples, rule=Rule(comparison, threshold, on), unit="s", note="smaller", headline=True)
    copy = Claim.from_dict(json.loads(json.dumps(original.to_dict(), allow_nan=False)))
    assert copy.to_dict() == original.to_dict()
    assert copy.holds is original.holds
    assert (copy.rule, copy.measured.samples, copy.headline) == (original.rule, original.measured.samples, True)


def test_the_file_is_read_back_and_repeats_to_the_byte(tmp_path):
    claims = [claim(), claim(id="single", samples=(0.1,))]
    for name in ("a.json", "b.json"):
        write_claims(tmp_path / name, claims, package="sava")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    document = json.loads((tmp_path / "a.json").read_text())
    assert (document["schema"], document["package"]) == (1, "sava")
    assert [entry["holds"] for entry in document["claims"]] == [True, False]
    assert [entry.to_dict() for entry in read_claims(tmp_path / "a.json")] == [entry.to_dict() for entry in claims]


def test_two_claims_of_one_id_are_refused(tmp_path):
    with pytest.raises(ValueError, match="found more than once: auc"):
        write_claims(tmp_path / "claims.json", [claim(), claim()], package="sava")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda entry: entry.update(holds=False), "says holds = False, but its numbers say True"),
        (lambda entry: entry.pop("source"), r"lacks \['source'\]"),
        (lambda entry: entry.update(verdict=1), r"unknown keys \['verdict'\]"),
        (lambda entry: entry["rule"].pop("threshold"), r"rule has unknown keys \[\] and lacks \['threshold'\]"),
        (lambda entry: entry.update(measured=3), "measured must be an object, found int"),
    ],
)
def test_a_file_that_was_tampered_with_is_refused(tmp_path, change, message):
    entry = claim().to_dict()
    change(entry)
    path = tmp_path / "claims.json"
    path.write_text(json.dumps({"schema": 1, "package": "sava", "claims": [entry]}))
    with pytest.raises(ValueError, match=f"claims.json: claim 'auc'.*{message}"):
        read_claims(path)


@pytest.mark.parametrize("document", [[], {"schema": 2, "claims": []}, {"schema": 1}])
def test_other_json_is_no_claims_file(tmp_path, document):
    path = tmp_path / "other.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"other.json is no claims file of schema 1"):
        read_claims(path)


def test_tables_show_every_claim_with_its_verdict(capsys):
    from rich.console import Console

    claims = [claim(unit="AUC"), claim(id="b", statement="a | b [red]", rule=Rule("<", 0.1), note="2 seeds")]
    lines = claims_markdown(claims).splitlines()
    assert lines[2] == (
        "| Noisy rows are found. | 0.95 (Table 2) | 0.92 [0.8703, 0.9697], n = 3 AUC | mean >= 0.9 AUC | yes |"
    )
    assert lines[3].startswith("| a \\| b [red] (2 seeds) |")
    assert lines[3].endswith("| mean < 0.1 | **no** |")
    assert all(line.replace("\\|", "").count("|") == 6 for line in lines)

    Console(width=160).print(claims_table(claims, "Claims"))
    shown = capsys.readouterr().out
    assert "1 of 2 claims hold" in shown
    assert "a | b [red] (2 seeds)" in shown
    assert "0.92 [0.8703, 0.9697], n = 3 AUC" in shown
