"""Norms of functions on a grid, by which classical methods choose among the unknowns that fit."""

from __future__ import annotations

import math
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from icl25_pi_dion.problem import InverseProblem

__all__ = ["GridNorm"]


class GridNorm:
    """L2 norm and norm of the gradient on the target grid of a problem, which is uniform along each axis.

    Integrals are trapezoidal sums and derivatives differences of neighbours, so that norms do not depend on the number
    of nodes. Both are diagonal in one basis, a product of one for each axis.

    Args:
        problem: The inverse problem.

    Raises:
        ValueError: If its ``target_points`` are not the grid that its shape says.
    """

    def __init__(self, problem: InverseProblem) -> None:
        self.shape = tuple(problem.target_grid)
        if len(problem.target_points()) != math.prod(self.shape) or min(self.shape) < 3:
            raise ValueError(
                f"the unknown of {type(problem).__name__} is not on a grid: {len(problem.target_points())} points for "
                f"the shape {self.shape}"
            )
        ends = [problem.domain[axis] for axis in problem.target_axes]
        self._axes = [_axis(n, high - low) for n, (low, high) in zip(self.shape, ends, strict=True)]

    @cached_property
    def weights(self) -> Float[np.ndarray, " n_s"]:
        """Weights w of the integral: the squared L2 norm of s is sum w s^2."""
        return _products([mass for mass, _, _, _ in self._axes]).ravel()

    @cached_property
    def inside(self) -> Bool[np.ndarray, " n_s"]:
        """Which nodes are not on the edge of the grid."""
        return np.pad(np.ones([n - 2 for n in self.shape], bool), 1).ravel()

    @cached_property
    def stiffness(self) -> Float[np.ndarray, "n_s n_s"]:
        """The matrix K of the squared norm of the gradient, s K s."""
        total = np.zeros((1, 1))
        for axis in range(len(self.shape)):
            term = np.ones((1, 1))
            for other, (mass, stiffness, _, _) in enumerate(self._axes):
                term = np.kron(term, stiffness if other == axis else np.diag(mass))
            total = total + term
        return total

    def stiff(self, s: Float[Array, " n_s"]) -> Float[Array, " n_s"]:
        """Multiply by K without forming it.

        Args:
            s: A function on the grid, flattened.

        Returns:
            K s, so that s K s is the squared norm of its gradient.
        """
        values = s.reshape(self.shape)
        total = jnp.zeros_like(values)
        for axis in range(len(self.shape)):
            term = values
            for other, (mass, stiffness, _, _) in enumerate(self._axes):
                term = _along(stiffness if other == axis else np.diag(mass), term, other)
            total = total + term
        return total.ravel()

    def inverse(self, g: Float[Array, " n_s"], shift: float = 1.0) -> Float[Array, " n_s"]:
        """Solve (K + shift W) s = g, W the diagonal matrix of the weights.

        Args:
            g: Right-hand side, flattened.
            shift: > 0; K alone does not see constants.

        Returns:
            s, flattened.
        """
        values = g.reshape(self.shape)
        for axis, (_, _, _, basis) in enumerate(self._axes):
            values = _along(basis.T, values, axis)
        parts = [eigenvalues for _, _, eigenvalues, _ in self._axes]
        values = values / (_sums(parts) + shift)
        for axis, (_, _, _, basis) in enumerate(self._axes):
            values = _along(basis, values, axis)
        return values.ravel()


def _axis(n: int, length: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Weights, stiffness, eigenvalues and the basis in which the weights are 1 and the stiffness is diagonal."""
    h = length / (n - 1)
    mass = np.full(n, h)
    mass[[0, -1]] = h / 2
    slopes = np.diff(np.eye(n), axis=0) / h
    stiffness = h * slopes.T @ slopes
    root = 1 / np.sqrt(mass)
    eigenvalues, basis = np.linalg.eigh(root[:, None] * stiffness * root)
    return mass, stiffness, np.maximum(eigenvalues, 0), root[:, None] * basis


def _along(matrix: np.ndarray, values: Array, axis: int) -> Array:
    return jnp.moveaxis(jnp.tensordot(jnp.asarray(matrix, values.dtype), values, (1, axis)), 0, axis)


def _products(parts: list[np.ndarray]) -> np.ndarray:
    total = np.ones(())
    for part in parts:
        total = np.multiply.outer(total, part)
    return total


def _sums(parts: list[np.ndarray]) -> np.ndarray:
    total = np.zeros(())
    for part in parts:
        total = np.add.outer(total, part)
    return total
