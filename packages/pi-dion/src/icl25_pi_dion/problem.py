"""What an inverse problem is: an equation, where it holds, and where its solution is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from icl25_pi_dion.autodiff import axes_of

__all__ = ["Derivatives", "Dirichlet", "InverseProblem", "TargetScale"]


@dataclass(frozen=True)
class Dirichlet:
    """Values that u takes on the boundary of the domain and, where there is a time coordinate, at its start.

    Attributes:
        value: A number, or a function that takes points (P, d) to values (P,). It is evaluated inside the domain too,
            as the lifting g of u_hat = g + d * (...), where d vanishes on the boundary.
        initial: Whether u takes these values at the start of time as well.
        hard: Build the values into the network, which then has them exactly; else they are a term of the loss.
    """

    value: float | Callable[[Float[Array, "P d"]], Float[Array, "P"]] = 0.0
    initial: bool = True
    hard: bool = True

    def lifting(self, y: Float[Array, "P d"] | Float[np.ndarray, "P d"]) -> Float[Array, "P"]:
        """Evaluate the boundary values at points.

        Args:
            y: Points, shape (P, d).

        Returns:
            The values.

        Raises:
            ValueError: If the function of the values returns another shape than (P,).
        """
        value: Any = self.value
        if callable(value):
            found = jnp.asarray(value(jnp.asarray(y)))
            if found.shape != y.shape[:-1]:
                raise ValueError(f"boundary values must have shape {y.shape[:-1]}, found {found.shape}")
            return found
        return jnp.full_like(jnp.asarray(y)[..., 0], value)


class TargetScale(NamedTuple):
    """The typical size of the unknown function, which the last layer of a network is scaled to.

    Attributes:
        offset: Where the network starts: a mean, or the geometric mean of a positive unknown.
        scale: Standard deviation; that of the logarithm is fixed for a positive unknown.
        residual: Size of the terms of the equation; the physics loss is in its unit.
    """

    offset: float = 0.0
    scale: float = 1.0
    residual: float = 1.0


class Derivatives:
    """A function and its derivatives at the collocation points, as attributes: ``d.u``, ``d.u_xx``, ``s.value``."""

    def __init__(self, values: dict[str, Any], declared_in: str) -> None:
        self._values = values
        self._declared_in = declared_in

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._values:
            raise AttributeError(
                f"{name!r} is not among the declared derivatives {', '.join(self._values)}; "
                f"add it to {self._declared_in} of the problem"
            )
        return self._values[name]


class InverseProblem:
    """A partial differential equation F[u, s] = 0 with an unknown function s, of which only u is measured.

    Subclass it for an equation of your own: name the coordinates and the derivatives that the residual needs, and write
    the residual. That suffices to train and to invert. ``forward`` (from the unknown to the measurement) and
    ``sample_target`` add simulation, calibrated errors and the check of what can be identified.

    Attributes:
        coords: The letters of the coordinates of u; ``t`` is time.
        domain: Lower and upper end of each coordinate.
        target_coords: Those coordinates on which the unknown s depends.
        derivatives: Names of the derivatives of u in the residual.
        target_derivatives: Names of the derivatives of s in the residual; ``s`` itself is ``s.value``.
        positive: Whether s is positive, which the network then keeps to.
        sensor_shape: Shape of one measurement. Where ``sensors`` is not overridden, sensors form a grid of this shape
            over the domain, axes in the order of ``coords``, or over space at the final time where the shape has one
            axis fewer than there are coordinates. None: that of the measurements.
        target_shape: Shape of the grid on which s is returned.
        target_range: Values between which s must lie in labels, ends excluded.

    Source:
        Cho and Son (ICLR 2025), problem setting.

    Example:
        >>> class Sine(InverseProblem):
        ...     coords = ("x", "t")
        ...     target_coords = ("x",)
        ...     derivatives = ("u", "u_t", "u_xx")
        ...
        ...     def residual(self, d, s, y):
        ...         return d.u_t - 0.01 * d.u_xx - jnp.sin(d.u) - s.value
    """

    coords: Sequence[str] = ("x", "t")
    domain: Sequence[tuple[float, float]] = ((0.0, 1.0), (0.0, 1.0))
    target_coords: Sequence[str] = ("x",)
    derivatives: Sequence[str] = ("u",)
    target_derivatives: Sequence[str] = ("s",)
    positive: bool = False
    sensor_shape: tuple[int, ...] | None = None
    target_shape: tuple[int, ...] | None = None
    target_range: tuple[float, float] = (-math.inf, math.inf)

    def residual(self, d: Derivatives, s: Derivatives, y: Float[Array, "P d"]) -> Float[Array, "B P"]:
        """Return F[u, s] at points, zero where the equation holds.

        Args:
            d: u and its declared derivatives, each of shape (B, P): a row for each measurement.
            s: The unknown, ``s.value``, and its declared derivatives (``s.s_x``), each of shape (B, P).
            y: The points, shape (P, d).

        Returns:
            The residual.

        Raises:
            NotImplementedError: If the subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define residual(d, s, y)")

    def boundary(self) -> Dirichlet | None:
        """Return what is known of u on the boundary; None where nothing is."""
        return Dirichlet(0.0)

    def sensors(self) -> Float[np.ndarray, "m d"]:
        """Return where u is measured, one point a row, in the order of the flattened measurement.

        Raises:
            ValueError: If ``sensor_shape`` is not known, or does not fit the coordinates.
        """
        if self.sensor_shape is None:
            raise ValueError(f"{type(self).__name__} has no sensor_shape: set it, or override sensors()")
        missing = len(self.coords) - len(self.sensor_shape)
        at_end = missing == 1 and "t" in self.coords
        if missing and not at_end:
            raise ValueError(
                f"sensors of shape {self.sensor_shape} form no grid over the coordinates {', '.join(self.coords)}: "
                "override sensors() of the problem"
            )
        sizes = iter(self.sensor_shape)
        axes = [
            np.array([high]) if at_end and letter == "t" else np.linspace(low, high, next(sizes))
            for letter, (low, high) in zip(self.coords, self.domain, strict=True)
        ]
        return grid(axes)

    def target_points(self) -> Float[np.ndarray, "n_s d_s"]:
        """Return the grid on which s is given: 51 points a coordinate in one dimension, 33 in more by default."""
        ends = [self.domain[axis] for axis in self.target_axes]
        return grid([np.linspace(*end, n) for end, n in zip(ends, self.target_grid, strict=True)])

    def target_scale(self, measurements: Float[np.ndarray, "n m"]) -> TargetScale:
        """Guess the typical size of the unknown from measurements; by default 1, for any problem.

        Args:
            measurements: Flattened measurements, shape (n, m); NaN where a sensor is missing.

        Returns:
            The scales.

        Raises:
            ValueError: In problems that need measurements of a certain sign.
        """
        return TargetScale()

    def forward(self, s: Float[Array, "n_s"]) -> Float[Array, "m"]:
        """Solve the equation for a known s and measure: differentiable by jax, in its current precision.

        Args:
            s: The unknown on ``target_points()``, flattened, shape (n_s,).

        Returns:
            The measurement at ``sensors()``.

        Raises:
            NotImplementedError: If the subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define forward(s), so it cannot be simulated")

    def sample_target(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n n_s"]:
        """Draw unknown functions from the prior.

        Args:
            n: How many.
            rng: Source of the draws.

        Returns:
            The functions on ``target_points()``, flattened.

        Raises:
            NotImplementedError: If the subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define sample_target(n, rng), so it has no prior")

    def check_target(self, s: Float[np.ndarray, "n n_s"]) -> None:
        """Refuse unknowns for which the equation makes no sense.

        Args:
            s: Unknowns on the target grid, flattened, shape (n, n_s).

        Raises:
            ValueError: If a value does not lie inside ``target_range``, or is not positive where it must be.
        """
        low, high = self.target_range
        low = max(low, 0.0) if self.positive else low
        bad = np.argwhere((s <= low) | (s >= high))
        if len(bad):
            i, j = bad[0]
            raise ValueError(
                f"sample {i}, value {j}: the unknown must lie between {low:g} and {high:g}, found {s[i, j]:g}"
            )

    @property
    def target_grid(self) -> tuple[int, ...]:
        """Shape of the grid on which s is given."""
        d = len(self.target_coords)
        return tuple(self.target_shape) if self.target_shape else (51,) if d == 1 else (33,) * d

    @property
    def target_axes(self) -> tuple[int, ...]:
        """Which columns of a point the unknown depends on."""
        return tuple(tuple(self.coords).index(letter) for letter in self.target_coords)

    def check(self) -> None:
        """See that coordinates, domain and derivatives fit each other.

        Raises:
            ValueError: If they do not; the message says which.
        """
        name = type(self).__name__
        if len(set(self.coords)) != len(self.coords) or any(len(letter) != 1 for letter in self.coords):
            raise ValueError(f"{name}.coords must be different single letters, found {tuple(self.coords)}")
        if len(self.domain) != len(self.coords):
            raise ValueError(f"{name}.domain has {len(self.domain)} intervals for {len(self.coords)} coordinates")
        for letter, (low, high) in zip(self.coords, self.domain, strict=True):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ValueError(f"{name}.domain of {letter} must be an interval, found ({low}, {high})")
        unknown = [letter for letter in self.target_coords if letter not in self.coords]
        if unknown or not self.target_coords:
            raise ValueError(f"{name}.target_coords must be some of {tuple(self.coords)}, found {self.target_coords}")
        for names, function, coords in (
            (self.derivatives, "u", self.coords),
            (self.target_derivatives, "s", self.target_coords),
        ):
            for derivative in names:
                axes_of(derivative, coords)
                if derivative.partition("_")[0] != function:
                    raise ValueError(f"{name} declares {derivative!r} where derivatives of {function} are expected")


def grid(axes: Sequence[Float[np.ndarray, "_"]]) -> Float[np.ndarray, "n d"]:
    """Return all combinations of coordinates, the last axis running fastest.

    Args:
        axes: The values of each coordinate.

    Returns:
        One point a row.
    """
    return np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")], axis=-1)
