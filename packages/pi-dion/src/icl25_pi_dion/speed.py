"""How fast: the physics loss with derivatives of the trunk alone, against a Hessian for each sample and point."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from icl25_pi_dion import losses
from icl25_pi_dion.network import PIDION
from icl25_pi_dion.problem import Derivatives
from icl25_pi_dion.problems import ReactionDiffusionSource

__all__ = ["Timing", "fastest", "loss_case", "physics_by_hessians"]


class Timing(NamedTuple):
    """What a call took.

    Attributes:
        seconds: The fastest of the repetitions, without compilation.
        value: What it returned.
    """

    seconds: float
    value: Any


def fastest(function: Callable[..., Any], *arguments: Any, repeats: int = 5) -> Timing:
    """Time a function, after one call that compiles it.

    Args:
        function: What is timed.
        *arguments: Its arguments.
        repeats: How often.

    Returns:
        The shortest time and the result.
    """
    value = jax.block_until_ready(function(*arguments))
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        seconds.append(time.perf_counter() - start)
    return Timing(min(seconds), value)


def loss_case(
    batch: int, n_points: int = 512, p: int = 64, seed: int = 0, loss: Callable[..., Float[Array, ""]] | None = None
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Make the value and gradient of the physics loss of reaction-diffusion, compiled, and arguments for it.

    Args:
        batch: Number of samples.
        n_points: Number of collocation points.
        p: Number of trunk functions; the trunk has two hidden layers of 64.
        seed: Seed of weights and arguments.
        loss: Takes what ``losses.physics`` takes. Default: that.

    Returns:
        The function and its arguments: the parameters of the network and the coefficients R and I are differentiated.
    """
    loss = losses.physics if loss is None else loss
    problem = ReactionDiffusionSource()
    net = PIDION(problem, p=p, trunk=(64, 64), rngs=seed)
    graph, params, rest = nnx.split(net, nnx.Param, ...)
    rng = np.random.default_rng(seed)
    points = jnp.asarray(rng.uniform(size=(n_points, 2)), jnp.float32)
    recon, inverse = (
        jnp.asarray(rng.standard_normal((batch, width)) / np.sqrt(p), jnp.float32)
        for width in (net.basis(points[:1]).shape[1], net.target_basis(points[:1, :1]).shape[1])
    )

    def value(arguments: Any, points: Float[Array, "P 2"]) -> Float[Array, ""]:
        params, recon, inverse = arguments
        net = nnx.merge(graph, params, rest)
        return loss(problem, net.basis, recon, inverse, points, net.target_basis)

    return jax.jit(jax.value_and_grad(value)), ((params, recon, inverse), points)


def physics_by_hessians(
    problem: ReactionDiffusionSource,
    trunk: losses.Basis,
    recon: Float[Array, "B k"],
    inverse: Float[Array, "B k_s"],
    points: Float[Array, "P 2"],
    target_trunk: losses.Basis,
) -> Float[Array, ""]:
    """The physics loss as it is written without the shared trunk: each sample differentiates the network anew.

    Args:
        problem: Reaction-diffusion.
        trunk: Functions of which u is made.
        recon: Their coefficients, shape (B, k).
        inverse: Coefficients of s, shape (B, k_s).
        points: Collocation points (x, t), shape (P, 2).
        target_trunk: Functions of which s is made.

    Returns:
        The same number as ``losses.physics``.
    """

    def at_point(r: Float[Array, " k"], i: Float[Array, " k_s"], y: Float[Array, "2"]) -> Float[Array, ""]:
        def u(y: Float[Array, "2"]) -> Float[Array, ""]:
            return r @ trunk(y[None])[0]

        slope, curvature = jax.grad(u)(y), jax.hessian(u)(y)
        found = {"u": u(y), "u_t": slope[1], "u_xx": curvature[0, 0]}
        d = Derivatives({name: value.reshape(1, 1) for name, value in found.items()}, "")
        s = Derivatives({"value": (i @ target_trunk(y[None, :1])[0]).reshape(1, 1)}, "")
        return problem.residual(d, s, y[None])[0, 0] ** 2

    over_points = jax.vmap(at_point, in_axes=(None, None, 0))
    return jnp.mean(jax.vmap(over_points, in_axes=(0, 0, None))(recon, inverse, points))
