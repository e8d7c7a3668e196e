"""PI-DION: a trunk of functions, and two branches that combine them to the solution and to the unknown."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from icl25_pi_dion.branches import MLP, CNNBranch, MLPBranch, SetBranch
from icl25_pi_dion.problem import InverseProblem, TargetScale

__all__ = ["PIDION", "Architecture", "Coefficients", "Constant", "SpaceFeatures"]

LOG_SCALE = 0.3  # standard deviation of the logarithm of a positive unknown at initialisation, roughly


class Constant(nnx.Variable):
    """What a network takes from the measurements before training: means and scales."""


class Coefficients(NamedTuple):
    """What the branches make of measurements: the weights of the columns of ``basis`` and of ``target_basis``.

    Attributes:
        recon: R(m), of the solution, with the weights of the bias and of the lifting.
        inverse: I(m), of the unknown (or its logarithm), with the weight of the bias.
    """

    recon: Float[Array, "B k"]
    inverse: Float[Array, "B k_s"]


@dataclass(frozen=True)
class Architecture:
    """The arguments from which a network was made, with their defaults filled in; see ``PIDION``."""

    p: int
    trunk: tuple[int, ...]
    branch: str
    target_trunk: str
    positive: bool
    fourier: int
    branch_hidden: tuple[int, ...]
    attention: bool


class SpaceFeatures:
    """Input features of a trunk: each coordinate scaled to [-1, 1], and for space waves sin, cos(j pi z / 2), j <= J.

    Args:
        domain: Ends of each coordinate.
        waves: J for each coordinate, 0 for none.
    """

    def __init__(self, domain: Sequence[tuple[float, float]], waves: Sequence[int]) -> None:
        self.domain = tuple((float(low), float(high)) for low, high in domain)
        self.waves = tuple(waves)
        self.n_features = len(self.domain) + 2 * sum(self.waves)

    def __call__(self, y: Float[Array, "*n d"]) -> Float[Array, "*n f"]:
        """Compute the features.

        Args:
            y: Points, shape (..., d).

        Returns:
            Features, shape (..., n_features).
        """
        low, high = (jnp.asarray(ends, y.dtype) for ends in zip(*self.domain, strict=True))
        z = (2 * y - low - high) / (high - low)
        parts = [z]
        for axis, n in enumerate(self.waves):
            phase = z[..., axis, None] * (jnp.arange(1, n + 1, dtype=y.dtype) * (math.pi / 2))
            parts += [jnp.sin(phase), jnp.cos(phase)]
        return jnp.concatenate(parts, axis=-1)


class PIDION(nnx.Module):
    """Physics-informed deep inverse operator network.

    u_hat(y; m) = g(y) + d(y) (sum_k R_k(m) T_k(y) + b) and s_hat(y; m) = sum_k I_k(m) T_k(y) + b_s, or
    s_0 exp(0.3 sum_k I_k(m) T_k(y) + b_s) where the unknown is positive. T is the trunk, R the reconstruction branch
    and I the inverse branch; d vanishes where u is known and g is u there.

    Args:
        problem: The inverse problem.
        p: Number of trunk functions. Default: 48 for one coordinate of space, 96 for more.
        trunk: Widths of the hidden layers of the trunk. Default: (48, 48), or (64, 64).
        branch: ``"mlp"``, ``"cnn"`` (measurements on a grid), ``"set"`` (any set of sensors), or a module that takes
            standardised measurements (B, m) to (B, p); a copy of it with the same weights serves the inverse branch.
        target_trunk: ``"shared"``: s is made of the same functions as u; ``"own"``: s has a trunk of its own, on its
            own coordinates; ``"auto"``: own where those differ from the coordinates of u, or where the problem is
            elliptic (s positive), else shared.
        positive: Whether s_hat is positive. Default: as the problem says.
        fourier: J, number of waves a coordinate of space among the inputs of the trunk. Default: 12, or 6 in more than
            one dimension.
        branch_hidden: Widths of the hidden layers of MLP branches. Default: (96,), or (128,).
        attention: Pool sets by learned weights.
        rngs: Seed of the initial weights, or the generators.
        dtype: Of the parameters.

    Raises:
        ValueError: If an argument is out of range or does not fit the problem.

    Source:
        Cho and Son (ICLR 2025); features, scales, the linear part of branches and own target trunks are this package's.

    Example:
        >>> from icl25_pi_dion.problems import ReactionDiffusionSource
        >>> net = PIDION(ReactionDiffusionSource(), p=16)
        >>> net.coefficients(jnp.zeros((3, 51))).recon.shape
        (3, 18)
    """

    def __init__(
        self,
        problem: InverseProblem,
        p: int | None = None,
        trunk: Sequence[int] | None = None,
        branch: Literal["mlp", "cnn", "set"] | nnx.Module = "mlp",
        target_trunk: Literal["auto", "shared", "own"] = "auto",
        positive: bool | None = None,
        fourier: int | None = None,
        *,
        branch_hidden: Sequence[int] | None = None,
        attention: bool = False,
        rngs: nnx.Rngs | int = 0,
        dtype: DTypeLike = jnp.float32,
    ) -> None:
        problem.check()
        rngs = rngs if isinstance(rngs, nnx.Rngs) else nnx.Rngs(int(rngs))
        space = [letter != "t" for letter in problem.coords]
        in_line = sum(space) < 2
        p = (48 if in_line else 96) if p is None else p
        hidden = ((48, 48) if in_line else (64, 64)) if trunk is None else tuple(trunk)
        branch_hidden = ((96,) if in_line else (128,)) if branch_hidden is None else tuple(branch_hidden)
        n_waves = (12 if in_line else 6) if fourier is None else fourier
        if p < 1 or n_waves < 0 or any(width < 1 for width in (*hidden, *branch_hidden)):
            raise ValueError(
                f"p and widths must be >= 1, fourier >= 0; found {p}, {hidden}, {branch_hidden}, {n_waves}"
            )
        same_coords = tuple(problem.target_coords) == tuple(problem.coords)
        if target_trunk not in ("auto", "shared", "own"):
            raise ValueError(f"target_trunk must be auto, shared or own, found {target_trunk!r}")
        if target_trunk == "shared" and not same_coords:
            raise ValueError(
                f"a shared trunk needs s on the coordinates of u, found {tuple(problem.target_coords)} "
                f"and {tuple(problem.coords)}; pass target_trunk='own'"
            )
        waves = [n_waves * flag for flag in space]
        self.problem = problem
        self.p = p
        self.positive = problem.positive if positive is None else positive
        own = target_trunk == "own" or (target_trunk == "auto" and (not same_coords or self.positive))
        self.architecture = Architecture(
            p,
            hidden,
            branch if isinstance(branch, str) else "module",
            "own" if own else "shared",
            self.positive,
            n_waves,
            branch_hidden,
            attention,
        )
        features = SpaceFeatures(problem.domain, waves)
        self.features = features
        self.trunk = MLP((features.n_features, *hidden, p), rngs=rngs, dtype=dtype)
        axes = problem.target_axes
        self.target_features = SpaceFeatures([problem.domain[a] for a in axes], [waves[a] for a in axes])
        self.target_trunk = MLP((self.target_features.n_features, *hidden, p), rngs=rngs, dtype=dtype) if own else None
        make = _branch_maker(branch, problem, features, p, branch_hidden, attention=attention, rngs=rngs, dtype=dtype)
        self.recon, self.inverse = make(), make()
        self.recon_mean = nnx.Param(jnp.zeros(p, dtype))
        self.recon_bias = nnx.Param(jnp.zeros((), dtype))
        self.inverse_bias = nnx.Param(jnp.zeros((), dtype))
        self.field_mean = Constant(jnp.zeros(() if self.takes_sets else len(problem.sensors()), dtype))
        self.field_scale = Constant(jnp.ones((), dtype))
        self.target_offset = Constant(jnp.asarray(1.0 if self.positive else 0.0, dtype))
        self.target_size = Constant(jnp.ones((), dtype))

    @property
    def takes_sets(self) -> bool:
        """Whether the branches take any set of sensors."""
        return getattr(self.recon, "takes_sets", False)

    def standardise(self, mean: Float[np.ndarray, "*m"], scale: float, target: TargetScale) -> None:
        """Set the constants that measurements determine.

        Args:
            mean: Mean field at the sensors, shape (m,), or one number.
            scale: One standard deviation for all sensors, and for u.
            target: Offset and scale of the unknown.
        """
        dtype = self.recon_mean[...].dtype
        self.field_mean[...] = jnp.asarray(np.broadcast_to(mean, self.field_mean.shape), dtype)
        self.field_scale[...] = jnp.asarray(scale, dtype)
        self.target_offset[...] = jnp.asarray(target.offset, dtype)
        self.target_size[...] = jnp.asarray(target.scale, dtype)

    def basis(self, y: Float[Array, "P d"]) -> Float[Array, "P k"]:
        """Evaluate the functions of which u_hat is made: d T_1 ... d T_p, d and the lifting g.

        Args:
            y: Points, shape (P, d).

        Returns:
            Their values, k = p + 2 columns; without a hard boundary condition d = 1 and g = 0.
        """
        trunk = self.trunk(self.features(y))
        condition = self.problem.boundary()
        if condition is None or not condition.hard:
            factor, lifting = jnp.ones_like(y[:, :1]), jnp.zeros_like(y[:, :1])
        else:
            factor = _vanishing(y, self.problem, initial=condition.initial)
            lifting = condition.lifting(y)[:, None].astype(y.dtype)
        return jnp.concatenate([factor * trunk, factor, lifting], axis=-1)

    def target_basis(self, y: Float[Array, "P d_s"]) -> Float[Array, "P k_s"]:
        """Evaluate the functions of which s_hat, or its logarithm, is made: the target trunk, and 1.

        Args:
            y: Points in the coordinates of s, shape (P, d_s).

        Returns:
            Their values, k_s = p + 1 columns.
        """
        trunk = self.trunk if self.target_trunk is None else self.target_trunk
        return jnp.concatenate([trunk(self.target_features(y)), jnp.ones_like(y[:, :1])], axis=-1)

    def coefficients(
        self,
        values: Float[Array, "B m"],
        locations: Float[Array, "*B m d"] | None = None,
        mask: Bool[Array, "B m"] | None = None,
    ) -> Coefficients:
        """Apply the branches.

        Args:
            values: Measurements, flattened, shape (B, m).
            locations: Sensors, shape (m, d) or (B, m, d); only for branches of sets, by default those of the problem.
            mask: Which readings count, shape (B, m); only for branches of sets.

        Returns:
            R(m) and I(m).
        """
        z = (values - self.field_mean[...]) / self.field_scale[...]
        if self.takes_sets:
            if locations is None:
                locations = jnp.asarray(self.problem.sensors(), values.dtype)
            inputs = (z, locations, jnp.ones(z.shape, bool) if mask is None else mask)
        else:
            inputs = (z,)
        root = math.sqrt(self.p)
        u_scale = self.field_scale[...]
        recon = (self.recon(*inputs) + self.recon_mean[...]) * (u_scale / root)
        bias = jnp.full_like(recon[:, :1], 1.0) * (self.recon_bias[...] * u_scale)
        recon = jnp.concatenate([recon, bias, jnp.ones_like(bias)], axis=-1)
        size = self.log_scale
        inverse = self.inverse(*inputs) * (size / root)
        shift = self.inverse_bias[...] if self.positive else self.target_offset[...] + self.inverse_bias[...] * size
        return Coefficients(recon, jnp.concatenate([inverse, jnp.full_like(inverse[:, :1], 1.0) * shift], axis=-1))

    @property
    def log_scale(self) -> Float[Array, ""] | float:
        """Size of the unknown at initialisation, or of its logarithm where it is positive."""
        return LOG_SCALE if self.positive else self.target_size[...]

    @property
    def reference(self) -> Float[Array, ""] | None:
        """s_0 of a positive unknown, else None."""
        return self.target_offset[...] if self.positive else None


def _vanishing(y: Float[Array, "P d"], problem: InverseProblem, *, initial: bool) -> Float[Array, "P 1"]:
    """The factor d: product of 4 (x - a)(b - x)/(b - a)^2 over space, times (t - t_0)/(T - t_0) if u starts known."""
    factor = jnp.ones_like(y[:, :1])
    for axis, (letter, (low, high)) in enumerate(zip(problem.coords, problem.domain, strict=True)):
        column = y[:, axis : axis + 1]
        if letter != "t":
            factor = factor * (4 * (column - low) * (high - column) / (high - low) ** 2)
        elif initial:
            factor = factor * ((column - low) / (high - low))
    return factor


def _branch_maker(
    branch: str | nnx.Module,
    problem: InverseProblem,
    features: SpaceFeatures,
    p: int,
    hidden: Sequence[int],
    *,
    attention: bool,
    rngs: nnx.Rngs,
    dtype: DTypeLike,
) -> Callable[[], nnx.Module]:
    if isinstance(branch, nnx.Module):
        return lambda: nnx.clone(branch)
    if branch == "set":
        return lambda: SetBranch(features, features.n_features, p, attention=attention, rngs=rngs, dtype=dtype)
    n_sensors = len(problem.sensors())
    if branch == "mlp":
        return lambda: MLPBranch(n_sensors, p, hidden, rngs=rngs, dtype=dtype)
    if branch == "cnn":
        shape = problem.sensor_shape
        if shape is None or math.prod(shape) != n_sensors:
            raise ValueError(
                f"branch='cnn' needs sensors on a grid, found sensor_shape {shape} for {n_sensors} sensors"
            )
        return lambda: CNNBranch(shape, p, rngs=rngs, dtype=dtype)
    raise ValueError(f"branch must be mlp, cnn, set or a flax.nnx module, found {branch!r}")
