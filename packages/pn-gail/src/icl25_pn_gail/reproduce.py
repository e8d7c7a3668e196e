"""The paper's experiment: FILL IN, which, at which scale."""

from typing import TYPE_CHECKING

from icl25_pn_gail.demo import mean_claim
from icl25_pn_gail.means import running_mean
from icl25_shared.claims import claims_table
from icl25_shared.cli import Output
from icl25_shared.runs import RunFolder
from icl25_shared.seeding import spawn_generators

if TYPE_CHECKING:
    from icl25_pn_gail.cli import Reproduce


def run_reproduce(flags: "Reproduce") -> Output:
    """Average normal draws for several seeds and hold the claim against the interval."""
    with RunFolder.create(
        flags.out, program="icl25-pn-gail", verb="reproduce", config=flags, force=flags.force
    ) as folder:
        generators = spawn_generators(flags.seed, flags.n_seeds)
        means = [float(running_mean(rng.standard_normal(10_000))[-1]) for rng in generators]
        claims = [mean_claim(means)]
        folder.write_json("result.json", {"means": means})
        folder.write_claims(claims)
    data = {"means": means, "claims": [claim.to_dict() for claim in claims]}
    return Output(data, [claims_table(claims, "icl25-pn-gail reproduce")], ok=all(claim.holds for claim in claims))
