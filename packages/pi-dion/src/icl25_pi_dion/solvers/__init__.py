"""Reference solvers, from the unknown function to the solution of the equation: differentiable, on uniform grids."""

from icl25_pi_dion.solvers.elliptic import darcy, helmholtz
from icl25_pi_dion.solvers.grids import sine_matrix, spline_matrix
from icl25_pi_dion.solvers.reaction_diffusion import reaction_diffusion, reaction_diffusion_series

__all__ = [
    "darcy",
    "helmholtz",
    "reaction_diffusion",
    "reaction_diffusion_series",
    "sine_matrix",
    "spline_matrix",
]
