"""The coefficient of a Helmholtz and the permeability of a Darcy equation on the unit square."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from icl25_pi_dion import solvers
from icl25_pi_dion.priors import gaussian_process
from icl25_pi_dion.problem import Derivatives, InverseProblem, TargetScale, grid
from icl25_pi_dion.problems.arguments import check_choice, check_positive
from icl25_pi_dion.solvers.elliptic import poisson

__all__ = ["DarcyPermeability", "EllipticProblem", "HelmholtzCoefficient", "default_load"]

FIRST_EIGENVALUE = 2 * math.pi**2  # of minus the Laplacian on the unit square with zero boundary values


class EllipticProblem(InverseProblem):
    """What the two problems on the unit square share: the load f, u = 0 on the boundary, grids and sensors.

    Args:
        f: The load: a function that takes points (P, 2) to values (P,), for jax arrays; None is
            100 x (1 - x) y (1 - y).
        n_grid: Nodes a side, of u and of the unknown.
        measurement: ``"full"``: u at all nodes; ``"part"``: at the nodes with abs(x - 1/2) and abs(y - 1/2) below
            ``half_width``; ``"sensors"``: at ``n_sensors`` nodes inside the square drawn at random.
        n_sensors: Number of random sensors.
        sensor_seed: Seed of their places.
        half_width: Half the side of the window.
        length_scale: Length scale of the RBF prior of the field g.

    Raises:
        ValueError: If an argument is out of range.
    """

    coords = ("x", "y")
    domain = ((0.0, 1.0), (0.0, 1.0))
    target_coords = ("x", "y")
    positive = True

    def __init__(
        self,
        f: Callable[[Float[Array, "P 2"]], Float[Array, "P"]] | None = None,
        n_grid: int = 33,
        measurement: Literal["full", "part", "sensors"] = "full",
        *,
        n_sensors: int = 100,
        sensor_seed: int = 0,
        half_width: float = 0.35,
        length_scale: float = 0.25,
    ) -> None:
        check_choice("measurement", measurement, ("full", "part", "sensors"))
        check_positive(half_width=half_width, length_scale=length_scale)
        if n_grid < 5:
            raise ValueError(f"n_grid must be >= 5, found {n_grid}")
        if measurement == "sensors" and not 1 <= n_sensors <= (n_grid - 2) ** 2:
            raise ValueError(f"n_sensors must be from 1 to {(n_grid - 2) ** 2}, found {n_sensors}")
        self.f = f
        self.load = default_load if f is None else f
        self.n_grid, self.measurement = n_grid, measurement
        self.n_sensors, self.sensor_seed = n_sensors, sensor_seed
        self.half_width, self.length_scale = float(half_width), float(length_scale)
        self.target_shape = (n_grid, n_grid)
        side = np.abs(np.linspace(0.0, 1.0, n_grid) - 0.5) < self.half_width
        inside = np.zeros((n_grid, n_grid), bool)
        inside[1:-1, 1:-1] = True
        if measurement == "sensors":
            drawn = np.random.default_rng(sensor_seed).permutation(np.flatnonzero(inside))[:n_sensors]
            self._seen, self.sensor_shape = np.sort(drawn), (n_sensors,)
        elif measurement == "part":
            if side.sum() < 2:
                raise ValueError(f"half_width {half_width} holds {side.sum()} nodes a side, expected at least 2")
            self._seen, self.sensor_shape = np.flatnonzero(side[:, None] & side), (int(side.sum()),) * 2
        else:
            self._seen, self.sensor_shape = np.arange(n_grid**2), (n_grid, n_grid)
        points = jnp.asarray(self.target_points())
        size = np.asarray(self.load(points))
        if size.shape != (n_grid**2,) or not np.isfinite(size).all() or not size.any():
            raise ValueError("f must take points (P, 2) to finite values (P,) that are not all zero")
        # The weights of the losses are chosen for the default load.
        self._load_size = float(np.linalg.norm(size) / np.linalg.norm(np.asarray(default_load(points))))

    def sensors(self) -> Float[np.ndarray, "m 2"]:
        """Return where u is measured."""
        return self.target_points()[self._seen]

    def solution_points(self) -> Float[np.ndarray, "n_u 2"]:
        """Return the points of ``solve(s).ravel()``: the grid of the unknown."""
        return self.target_points()

    def solve(self, s: Float[Array | np.ndarray, "n_s"]) -> Float[Array, "n n"]:
        """Solve the equation for a known coefficient: differentiable by jax, in the precision of the coefficient.

        It is solved on the grid of half the mesh width, to which the coefficient is brought by cubic splines.

        Args:
            s: The coefficient on ``target_points()``, flattened, shape (n_s,).

        Returns:
            u at ``solution_points()``; NaN if there is no solution.
        """
        s = jnp.asarray(s).reshape(self.n_grid, self.n_grid)
        return self._solve_fine(s, self._fine_load(s.dtype))[::2, ::2]

    def forward(self, s: Float[Array | np.ndarray, "n_s"]) -> Float[Array, "m"]:
        """Solve the equation for a known coefficient and measure.

        Args:
            s: The coefficient on ``target_points()``, flattened, shape (n_s,).

        Returns:
            The measurement at ``sensors()``.
        """
        return self.solve(s).ravel()[self._seen]

    def _draw_field(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n n_s"]:
        axis = np.linspace(0.0, 1.0, self.n_grid)
        return gaussian_process(n, [axis, axis], rng, length_scale=self.length_scale).reshape(n, -1)

    def _fine_load(self, dtype: DTypeLike) -> Float[Array, "n_fine n_fine"]:
        axis = np.linspace(0.0, 1.0, 2 * self.n_grid - 1)
        return self.load(jnp.asarray(grid([axis, axis]), dtype)).reshape(len(axis), len(axis))

    def _refined(self, field: Float[Array, "n n"]) -> Float[Array, "n_fine n_fine"]:
        spline = jnp.asarray(solvers.spline_matrix(self.n_grid, 2 * self.n_grid - 1), field.dtype)
        return spline @ field @ spline.T

    def _solve_fine(self, s: Float[Array, "n n"], load: Float[Array, "n_fine n_fine"]) -> Float[Array, "n_fine n_fine"]:
        raise NotImplementedError


class HelmholtzCoefficient(EllipticProblem):
    """Find the coefficient q(x, y) in -Laplace(u) - q u = f on the unit square, with u = 0 on its boundary.

    q must stay below the first eigenvalue 2 pi^2 = 19.74 of the Laplacian, where u blows up. The prior is
    q = 1 + 8 sigmoid(1.5 g) with a Gaussian process g. Where u is small, near the boundary, u says little about q.

    Source:
        Cho and Son (ICLR 2025), Helmholtz; the prior is this package's.
    """

    derivatives = ("u", "u_xx", "u_yy")
    target_range = (-math.inf, 19.7)

    def residual(self, d: Derivatives, s: Derivatives, y: Float[Array, "P 2"]) -> Float[Array, "B P"]:
        """Return -u_xx - u_yy - q u - f.

        Args:
            d: u, u_xx and u_yy, each of shape (B, P).
            s: The coefficient q, shape (B, P).
            y: The points, shape (P, 2).

        Returns:
            The residual.
        """
        return -d.u_xx - d.u_yy - s.value * d.u - self.load(y)

    def target_scale(self, measurements: Float[np.ndarray, "n m"]) -> TargetScale:
        """Start from q = 5.

        Args:
            measurements: Flattened measurements, shape (n, m).

        Returns:
            The scales.
        """
        return TargetScale(5.0, 1.0, self._load_size)

    def sample_target(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n n_s"]:
        """Draw q = 1 + 8 sigmoid(1.5 g) with a Gaussian process g.

        Args:
            n: How many.
            rng: Source of the draws.

        Returns:
            The coefficients on ``target_points()``, flattened.
        """
        return 1 + 8 / (1 + np.exp(-1.5 * self._draw_field(n, rng)))

    def check_target(self, s: Float[np.ndarray, "n n_s"]) -> None:
        """Refuse coefficients near or above the first eigenvalue of the Laplacian.

        Args:
            s: Coefficients, flattened, shape (n, n_s).

        Raises:
            ValueError: If a value is 19.7 or more.
        """
        highest = s.max(axis=1)
        bad = np.flatnonzero(highest >= self.target_range[1])
        if len(bad):
            raise ValueError(
                f"sample {bad[0]}: q reaches {highest[bad[0]]:g}, expected below {self.target_range[1]:g}: at the "
                f"first eigenvalue 2 pi^2 = {FIRST_EIGENVALUE:.2f} of the Laplacian u blows up"
            )

    def _solve_fine(self, s: Float[Array, "n n"], load: Float[Array, "n_fine n_fine"]) -> Float[Array, "n_fine n_fine"]:
        return solvers.helmholtz(self._refined(s), load)


class DarcyPermeability(EllipticProblem):
    """Find the permeability a(x, y) in -div(a grad u) = f on the unit square, with u = 0 on its boundary.

    The prior is a = exp(g / 2) with a Gaussian process g. Where grad u = 0, near the maximum of u, u says nothing of a.

    Source:
        Cho and Son (ICLR 2025), Darcy flow; the prior is this package's.
    """

    derivatives = ("u", "u_x", "u_y", "u_xx", "u_yy")
    target_derivatives = ("s", "s_x", "s_y")
    target_range = (0.0, math.inf)

    def residual(self, d: Derivatives, s: Derivatives, y: Float[Array, "P 2"]) -> Float[Array, "B P"]:
        """Return a (u_xx + u_yy) + a_x u_x + a_y u_y + f.

        Args:
            d: u, u_x, u_y, u_xx and u_yy, each of shape (B, P).
            s: The permeability a, a_x and a_y, each of shape (B, P).
            y: The points, shape (P, 2).

        Returns:
            The residual.
        """
        return s.value * (d.u_xx + d.u_yy) + s.s_x * d.u_x + s.s_y * d.u_y + self.load(y)

    def target_scale(self, measurements: Float[np.ndarray, "n m"]) -> TargetScale:
        """Start from the constant permeability whose solution fits the mean of the measurements best.

        Args:
            measurements: Flattened measurements, shape (n, m). Where they are not at ``sensors()``, sensors are taken
                to be spread over the square.

        Returns:
            The scales.

        Raises:
            ValueError: If that permeability is not positive, so that load and measurements contradict each other.
        """
        points = grid([np.linspace(0.0, 1.0, 2 * self.n_grid - 1)] * 2)
        with jax.enable_x64(True):
            load = np.asarray(self.load(jnp.asarray(points))).reshape(2 * self.n_grid - 1, -1)
        # u of the permeability a is that of the permeability 1 divided by a.
        unit = poisson(load)[::2, ::2].ravel()
        seen = np.isfinite(measurements)
        if measurements.shape[1] == len(self._seen):
            unit = unit[self._seen]
            mean = np.divide(np.where(seen, measurements, 0).sum(0), np.maximum(seen.sum(0), 1))
            inverse = float(mean @ (unit * seen.any(0)) / (np.square(unit) @ seen.any(0)))
        else:
            inverse = float(np.mean(measurements[seen]) / unit.mean())
        if not inverse > 0:
            raise ValueError(
                "on average measurements have the opposite sign of the solution for a constant permeability: check f, "
                "the unit and the sensors"
            )
        return TargetScale(1 / inverse, 1.0, self._load_size)

    def sample_target(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n n_s"]:
        """Draw a = exp(g / 2) with a Gaussian process g.

        Args:
            n: How many.
            rng: Source of the draws.

        Returns:
            The permeabilities on ``target_points()``, flattened.
        """
        return np.exp(self._draw_field(n, rng) / 2)

    def _solve_fine(self, s: Float[Array, "n n"], load: Float[Array, "n_fine n_fine"]) -> Float[Array, "n_fine n_fine"]:
        # The spline of the logarithm keeps a positive.
        return solvers.darcy(jnp.exp(self._refined(jnp.log(s))), load)


def default_load(y: Float[Array, "P 2"]) -> Float[Array, "P"]:
    """Return the load 100 x (1 - x) y (1 - y) of the paper.

    Args:
        y: Points, shape (P, 2).

    Returns:
        The load.

    Source:
        Cho and Son (ICLR 2025), Helmholtz and Darcy.
    """
    return 100 * jnp.prod(y * (1 - y), axis=-1)
