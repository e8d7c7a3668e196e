"""The source of a reaction-diffusion equation."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from icl25_pi_dion import solvers
from icl25_pi_dion.priors import gaussian_process, sine_series
from icl25_pi_dion.problem import Derivatives, InverseProblem, TargetScale, grid
from icl25_pi_dion.problems.arguments import check_choice, check_positive
from icl25_pi_dion.solvers.grids import refinement

__all__ = ["ReactionDiffusionSource"]

_FINE_CELLS, _TIME_STEPS = 200, 400  # of the solver: errors of about 3e-5
_END_SHARE = 0.05  # of its largest value that a source may have at the ends


class ReactionDiffusionSource(InverseProblem):
    """Find the source s(x) in u_t = D u_xx - kappa u + k u^2 + s(x), with u = 0 at x = 0, x = 1 and t = 0.

    With ``k = 0`` the map from s to u is linear, and with the default prior it is evaluated in closed form: sources are
    then understood as sums of sines through the nodes, which vanish at both ends.

    Args:
        D: Diffusion coefficient, > 0.
        kappa: Rate of linear decay, >= 0.
        k: Coefficient of the quadratic reaction.
        T: Final time, > 0.
        measurement: ``"final"``: u(x, T) at ``n_sensors`` places from 0 to 1; ``"window"``: u(x, T) at those of
            these places that lie in ``window``; ``"full"``: u at ``n_sensors`` places and ``n_times`` times.
        n_sensors: Number of places, ends included, which are the nodes of s too.
        n_times: Number of times from 0 to T of the full measurement.
        window: Interval of x that is seen with ``measurement="window"``.
        prior: ``"sine"``: s = sum c_n sin(n pi x) with c_n ~ N(0, ((n pi)^2 + tau^2)^-alpha), n <= ``n_modes``, scaled
            to unit mean square; ``"rbf"``: Gaussian process with kernel exp(-(x - x')^2 / (2 length_scale^2)), whose
            draws do not vanish at the ends, where they conflict with u = 0.
        alpha: Smoothness of the sine prior.
        tau: Inverse length scale of the sine prior.
        n_modes: Number of sines. Default: 24, or as many as the places allow.
        length_scale: Length scale of the RBF prior.

    Raises:
        ValueError: If an argument is out of range.

    Source:
        Cho and Son (ICLR 2025), reaction-diffusion; coefficients and priors are this package's.
    """

    coords = ("x", "t")
    target_coords = ("x",)
    derivatives = ("u", "u_t", "u_xx")

    def __init__(
        self,
        D: float = 0.01,
        kappa: float = 0.1,
        k: float = 0.0,
        T: float = 1.0,
        measurement: Literal["final", "window", "full"] = "final",
        n_sensors: int = 51,
        *,
        n_times: int = 11,
        window: Sequence[float] = (0.0, 0.5),
        prior: Literal["sine", "rbf"] = "sine",
        alpha: float = 3.0,
        tau: float = 10.0,
        n_modes: int | None = None,
        length_scale: float = 0.2,
    ) -> None:
        check_choice("measurement", measurement, ("final", "window", "full"))
        check_choice("prior", prior, ("sine", "rbf"))
        check_positive(D=D, T=T, alpha=alpha, length_scale=length_scale)
        if not (math.isfinite(kappa) and kappa >= 0 and math.isfinite(k) and math.isfinite(tau)):
            raise ValueError(f"kappa must be >= 0, k and tau finite, found {kappa}, {k} and {tau}")
        if n_sensors < 5 or n_times < 3:
            raise ValueError(f"n_sensors must be >= 5 and n_times >= 3, found {n_sensors} and {n_times}")
        n_modes = min(24, n_sensors - 2) if n_modes is None else n_modes
        if not 1 <= n_modes <= n_sensors - 2:
            raise ValueError(f"n_modes must be from 1 to n_sensors - 2 = {n_sensors - 2}, found {n_modes}")
        self.D, self.kappa, self.k, self.T = float(D), float(kappa), float(k), float(T)
        self.measurement, self.n_sensors, self.n_times = measurement, n_sensors, n_times
        self.window = (float(window[0]), float(window[1]))
        self.prior, self.alpha, self.tau = prior, float(alpha), float(tau)
        self.n_modes, self.length_scale = n_modes, float(length_scale)
        self.domain = ((0.0, 1.0), (0.0, self.T))
        self.target_shape = (n_sensors,)
        x = np.linspace(0.0, 1.0, n_sensors)
        self._seen = (x >= self.window[0] - 1e-12) & (x <= self.window[1] + 1e-12)
        if measurement == "window" and self._seen.sum() < 2:
            raise ValueError(f"window {self.window} holds {self._seen.sum()} of the {n_sensors} places, expected 2")
        shapes = {"final": (n_sensors,), "window": (int(self._seen.sum()),), "full": (n_sensors, n_times)}
        self.sensor_shape = shapes[measurement]

    def residual(self, d: Derivatives, s: Derivatives, y: Float[Array, "P 2"]) -> Float[Array, "B P"]:
        """Return u_t - D u_xx + kappa u - k u^2 - s.

        Args:
            d: u, u_t and u_xx, each of shape (B, P).
            s: The source, shape (B, P).
            y: The points, shape (P, 2).

        Returns:
            The residual.
        """
        return d.u_t - self.D * d.u_xx + self.kappa * d.u - self.k * d.u**2 - s.value

    def sensors(self) -> Float[np.ndarray, "m 2"]:
        """Return where u is measured."""
        x = np.linspace(0.0, 1.0, self.n_sensors)
        if self.measurement == "full":
            return grid([x, np.linspace(0.0, self.T, self.n_times)])
        return grid([x[self._seen] if self.measurement == "window" else x, np.array([self.T])])

    def target_scale(self, measurements: Float[np.ndarray, "n m"]) -> TargetScale:
        """Guess the size of the source from that of u, as if it were sin(pi x) everywhere.

        Args:
            measurements: Flattened measurements, shape (n, m).

        Returns:
            The scales.
        """
        rate = self.D * math.pi**2 + self.kappa
        gain = -math.expm1(-rate * self.T) / rate
        late = measurements if self.measurement != "full" else measurements.reshape(len(measurements), -1, self.n_times)
        size = float(np.sqrt(np.nanmean(np.square(late if late.ndim == 2 else late[..., -1])))) / gain
        return TargetScale(0.0, size, size)

    def solution_points(self) -> Float[np.ndarray, "n_u 2"]:
        """Return the points of ``solve(s).ravel()``: ``n_sensors`` places by ``n_times`` times, from 0 to the ends."""
        return grid([np.linspace(0.0, 1.0, self.n_sensors), np.linspace(0.0, self.T, self.n_times)])

    def solve(self, s: Float[Array | np.ndarray, "n_s"]) -> Float[Array, "n_s n_times"]:
        """Solve the equation for a known source: differentiable by jax, in the precision of the source.

        Args:
            s: The source on ``target_points()``, shape (n_s,).

        Returns:
            u at ``solution_points()``.
        """
        return self._solve(jnp.asarray(s), self.n_times)

    def forward(self, s: Float[Array | np.ndarray, "n_s"]) -> Float[Array, "m"]:
        """Solve the equation for a known source and measure.

        Args:
            s: The source on ``target_points()``, shape (n_s,).

        Returns:
            The measurement at ``sensors()``.
        """
        if self.measurement == "full":
            return self.solve(s).ravel()
        final = self._solve(jnp.asarray(s), 2)[:, -1]
        return final[self._seen] if self.measurement == "window" else final

    def sample_target(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n n_s"]:
        """Draw sources from the prior.

        Args:
            n: How many.
            rng: Source of the draws.

        Returns:
            The sources on ``target_points()``.
        """
        x = np.linspace(0.0, 1.0, self.n_sensors)
        if self.prior == "rbf":
            return gaussian_process(n, [x], rng, length_scale=self.length_scale)
        return sine_series(n, x, rng, n_modes=self.n_modes, alpha=self.alpha, tau=self.tau)

    def check_target(self, s: Float[np.ndarray, "n n_s"]) -> None:
        """Warn of sources that conflict with u = 0 at the ends, where they cannot be found.

        Args:
            s: Sources, shape (n, n_s).
        """
        super().check_target(s)
        conflict = np.flatnonzero(np.abs(s[:, [0, -1]]).max(axis=1) > _END_SHARE * np.abs(s).max(axis=1))
        if len(conflict):
            warnings.warn(
                f"{len(conflict)} of {len(s)} sources, first sample {conflict[0]}, do not vanish at x = 0 and x = 1, "
                "where u = 0: they cannot be found there, so look at errors away from the ends",
                UserWarning,
                stacklevel=3,
            )

    def _solve(self, s: Float[Array, "n_s"], n_times: int) -> Float[Array, "n_s n_times"]:
        if self.k == 0 and self.prior == "sine":
            places, times = np.linspace(0.0, 1.0, self.n_sensors), np.linspace(0.0, self.T, n_times)
            return solvers.reaction_diffusion_series(s, places, times, D=self.D, kappa=self.kappa)
        parts = refinement(self.n_sensors, _FINE_CELLS)
        fine = jnp.asarray(solvers.spline_matrix(self.n_sensors, parts * (self.n_sensors - 1) + 1), s.dtype) @ s
        reaction = {"D": self.D, "kappa": self.kappa, "k": self.k, "T": self.T}
        return solvers.reaction_diffusion(fine, **reaction, n_times=n_times, n_steps=_TIME_STEPS)[::parts]
