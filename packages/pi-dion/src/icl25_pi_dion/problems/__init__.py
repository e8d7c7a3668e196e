"""The three inverse problems of the paper: a source, a coefficient and a permeability."""

from icl25_pi_dion.problems.elliptic import (
    DarcyPermeability,
    EllipticProblem,
    HelmholtzCoefficient,
    default_load,
)
from icl25_pi_dion.problems.reaction_diffusion import ReactionDiffusionSource

__all__ = ["DarcyPermeability", "EllipticProblem", "HelmholtzCoefficient", "ReactionDiffusionSource", "default_load"]
