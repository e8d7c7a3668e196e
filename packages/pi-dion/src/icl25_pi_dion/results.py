"""What an inversion returns: the unknown, how well the equation and the readings are met, and how far to trust it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Shaped

if TYPE_CHECKING:
    import xarray

__all__ = ["InversionResult"]


@dataclass(frozen=True)
class InversionResult:
    """The inversions of n measurements.

    Attributes:
        s: The unknown, shape (n, *target_shape), or (n, n_points) at points that were asked for.
        points_s: Where, in the coordinates of s, one point a row, in the order of the flattened ``s``.
        u: The solution, shape (n, n_u), if it was asked for.
        points_u: Where.
        residual_rms: Root mean square residual of the equation for each measurement, in units of its typical size.
        misfit_rms: Root mean square misfit to the readings, over the standard deviation of the training measurements.
        error_estimate: Relative L2 error of s that 90 % of simulated measurements stay below; NaN where the problem
            cannot be simulated and no labels were given.
        ood_score: Distance from the training measurements: about 1 for measurements like them, above 6 for others.
        refined: Whether s was refined by Gauss-Newton steps.
        n_refine: Largest number of steps allowed.
        meta: Names of coordinates and the like.
    """

    s: Float[np.ndarray, "n *shape"]
    points_s: Float[np.ndarray, "n_s d_s"]
    u: Float[np.ndarray, "n n_u"] | None
    points_u: Float[np.ndarray, "n_u d"] | None
    residual_rms: Float[np.ndarray, " n"]
    misfit_rms: Float[np.ndarray, " n"]
    error_estimate: Float[np.ndarray, " n"]
    ood_score: Float[np.ndarray, " n"]
    refined: bool = False
    n_refine: int = 0
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def residual(self) -> Float[np.ndarray, " n"]:
        """Another name of ``residual_rms``."""
        return self.residual_rms

    def __len__(self) -> int:
        return len(self.s)

    def arrays(self) -> dict[str, Shaped[np.ndarray, "*_"]]:
        """Return all arrays by name, those of u only if there are some."""
        names = ("s", "points_s", "u", "points_u", "residual_rms", "misfit_rms", "error_estimate", "ood_score")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def to_npz(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write all arrays to an NPZ file.

        Args:
            path: The file.
            force: Replace a file that exists.

        Raises:
            FileExistsError: If the file exists and ``force`` is false.
        """
        from icl25_pi_dion.tables import write_arrays

        write_arrays(path, self.arrays(), force=force)

    def to_csv(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write a CSV file with a row for each measurement: its diagnostics, then s at each point.

        Args:
            path: The file.
            force: Replace a file that exists.

        Raises:
            FileExistsError: If the file exists and ``force`` is false.
        """
        from icl25_pi_dion.tables import write_result_table

        write_result_table(path, self, force=force)

    def to_xarray(self) -> xarray.Dataset:
        """Return an ``xarray.Dataset``; needs the extra ``xarray``.

        Raises:
            ImportError: If xarray is not installed.
        """
        from icl25_pi_dion.tables import result_dataset

        return result_dataset(self)

    def plot(self, truth: Float[np.ndarray, "n *shape"] | None = None, n: int = 3) -> Any:
        """Draw the first inversions, beside the truth where it is given.

        Args:
            truth: True unknowns, shape (n, *target_shape).
            n: How many.

        Returns:
            A matplotlib figure.

        Raises:
            ValueError: If ``n`` is less than 1, or the truth has another size.
        """
        from icl25_pi_dion.plotting import plot_inversions

        return plot_inversions(self, truth=truth, n=n)
