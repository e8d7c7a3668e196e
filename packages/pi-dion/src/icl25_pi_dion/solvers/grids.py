"""What the solvers share: the sine transform that diagonalises differences, and splines from grid to grid."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float
from scipy.interpolate import CubicSpline

__all__ = ["difference_eigenvalues", "refinement", "sine_matrix", "spline_matrix"]


@lru_cache(maxsize=32)
def sine_matrix(n: int) -> Float[np.ndarray, "k k"]:
    """Return the sine transform over the k = n - 2 inner nodes of a uniform grid: symmetric and its own inverse.

    Its columns are the eigenvectors of second-order differences with zero values at both ends.

    Args:
        n: Nodes from 0 to 1, ends included, >= 3.

    Returns:
        The matrix sqrt(2 / (n - 1)) sin(pi j k / (n - 1)), read-only.
    """
    j = np.arange(1, n - 1)
    matrix = np.sqrt(2 / (n - 1)) * np.sin(np.pi * (np.outer(j, j) % (2 * (n - 1))) / (n - 1))
    matrix.setflags(write=False)
    return matrix


@lru_cache(maxsize=32)
def difference_eigenvalues(n: int) -> Float[np.ndarray, " k"]:
    """Return the eigenvalues of minus the second-order difference over the inner nodes of a uniform grid.

    Args:
        n: Nodes from 0 to 1, ends included, >= 3.

    Returns:
        Those of the columns of ``sine_matrix(n)``, ascending, read-only.
    """
    values = (2 * (n - 1) * np.sin(np.pi * np.arange(1, n - 1) / (2 * (n - 1)))) ** 2
    values.setflags(write=False)
    return values


@lru_cache(maxsize=32)
def spline_matrix(n: int, n_fine: int) -> Float[np.ndarray, "n_fine n"]:
    """Return the matrix of cubic spline interpolation (not-a-knot) from one uniform grid to another.

    Args:
        n: Nodes that carry values, ends included, >= 2.
        n_fine: Nodes to interpolate to.

    Returns:
        The matrix, read-only. It reproduces cubic polynomials from 4 nodes on, and values at shared nodes.
    """
    matrix = CubicSpline(np.linspace(0, 1, n), np.eye(n))(np.linspace(0, 1, n_fine))
    matrix.setflags(write=False)
    return matrix


def refinement(n: int, at_least: int) -> int:
    """Return into how many parts to cut each cell of a grid for it to have enough cells.

    Args:
        n: Nodes, ends included.
        at_least: Cells that the fine grid needs.

    Returns:
        The number of parts, >= 1.
    """
    return max(1, -(-at_least // (n - 1)))
