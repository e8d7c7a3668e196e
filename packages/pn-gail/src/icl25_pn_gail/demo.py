"""The demonstration: FILL IN, on which real data it shows what, against which baseline."""

from typing import TYPE_CHECKING

import numpy as np

from icl25_pn_gail.means import running_mean
from icl25_shared.claims import Claim, Estimate, Rule, claims_table
from icl25_shared.cli import CommonFlags, Output
from icl25_shared.runs import RunFolder

if TYPE_CHECKING:
    from jaxtyping import Float
    from matplotlib.figure import Figure


def run_demo(flags: CommonFlags) -> Output:
    """Average normal draws and claim that the mean comes near zero."""
    with RunFolder.create(flags.out, program="icl25-pn-gail", verb="demo", config=flags, force=flags.force) as folder:
        means = running_mean(np.random.default_rng(flags.seed).standard_normal(10_000))
        claims = [mean_claim([float(means[-1])])]
        result = {"means": means[::100].tolist()}
        folder.write_json("result.json", result)
        folder.write_claims(claims)
        folder.save_figure(draw_means(means), "means.png")
    data = {**result, "claims": [claim.to_dict() for claim in claims]}
    return Output(data, [claims_table(claims, "icl25-pn-gail demo")], ok=all(claim.holds for claim in claims))


def mean_claim(means: list[float]) -> Claim:
    """FILL IN: a claim of the paper, with the rule that was fixed before it was measured."""
    return Claim(
        id="mean-near-zero",
        statement="FILL IN: the paper's sentence in our own words",
        paper="not stated",
        source="FILL IN: section, table or figure",
        measured=Estimate.from_samples([abs(mean) for mean in means]),
        rule=Rule("<=", 0.05),
        headline=True,
    )


def draw_means(means: "Float[np.ndarray, ' n']") -> "Figure":
    """Draw how the mean settles."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.add_subplot(xlabel="draws", ylabel="mean", xscale="log")
    axes.plot(np.arange(1, len(means) + 1), means)
    axes.axhline(0, color="grey", linewidth=1)
    return figure
