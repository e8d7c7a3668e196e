"""Trust region policy optimisation: a natural gradient step with a line search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from icl25_pn_gail.distributions import Arrays, Categorical, Gaussian

__all__ = ["TRPOStep", "conjugate_gradient", "fisher_vector_product", "trpo_step"]

Apply = Callable[[Any, Any], Gaussian | Categorical]


class TRPOStep(NamedTuple):
    """The result of a step.

    Attributes:
        params: Parameters of the policy after it.
        kl: Mean divergence of the policy after from that before, in nats.
        surrogate_before: Surrogate loss before.
        surrogate_after: Surrogate loss after.
        step_size: Factor 0.5^k that the line search accepted; 0 where it accepted none.
    """

    params: Any
    kl: Float[Array, ""]
    surrogate_before: Float[Array, ""]
    surrogate_after: Float[Array, ""]
    step_size: Float[Array, ""]


def fisher_vector_product(
    apply: Apply, params: Any, obs: Float[Arrays, "n d"], damping: float = 0.1
) -> Callable[[Float[Array, " p"]], Float[Array, " p"]]:
    """Return the product with the Hessian of the mean divergence at the present policy, plus a multiple of one.

    It is the Gauss-Newton form JᵀFJ with F the Fisher information of the distributions, which equals that Hessian and
    needs no second derivatives of the network.

    Args:
        apply: The policy.
        params: Its parameters.
        obs: Observations over which the divergence is averaged.
        damping: What is added to the diagonal.

    Returns:
        A function of a flat vector of parameters.
    """
    flat, unravel = ravel_pytree(params)
    dist, push = jax.linearize(lambda vector: apply(unravel(vector), obs), flat)
    pull = jax.linear_transpose(push, flat)
    return lambda vector: pull(dist.fisher_product(push(vector)))[0] + damping * vector


def conjugate_gradient(
    product: Callable[[Float[Array, " p"]], Float[Array, " p"]],
    b: Float[Array, " p"],
    iterations: int = 10,
    tolerance: float = 1e-10,
) -> Float[Array, " p"]:
    """Solve A x = b for a positive definite A, from x = 0.

    Args:
        product: The product with A.
        b: Right-hand side.
        iterations: Most iterations.
        tolerance: Squared residual at which to stop.

    Returns:
        The approximate solution; 0 for b = 0.
    """

    def unfinished(carry: tuple) -> Array:
        i, *_, squared = carry
        return (i < iterations) & (squared >= jnp.where(i == 0, jnp.finfo(b.dtype).tiny, tolerance))

    def step(carry: tuple) -> tuple:
        i, x, residual, direction, squared = carry
        image = product(direction)
        alpha = squared / jnp.dot(direction, image)
        residual = residual - alpha * image
        new = jnp.dot(residual, residual)
        return i + 1, x + alpha * direction, residual, residual + new / squared * direction, new

    return jax.lax.while_loop(unfinished, step, (0, jnp.zeros_like(b), b, b, jnp.dot(b, b)))[1]


def trpo_step(
    apply: Apply,
    params: Any,
    obs: Float[Arrays, "n d"],
    actions: Any,
    advantages: Float[Arrays, " n"],
    *,
    max_kl: float | Float[Array, ""] = 0.01,
    damping: float = 0.1,
    cg_iterations: int = 10,
    backtracks: int = 10,
    accept_ratio: float | Float[Array, ""] = 0.1,
    kl_slack: float | Float[Array, ""] = 1.5,
    fisher_every: int = 1,
) -> TRPOStep:
    """Take the largest step in the direction of the natural gradient within a trust region that improves the policy.

    The direction solves (F + damping) x = -gradient; its length is such that the quadratic model of the divergence is
    ``max_kl``; then it is halved until the improvement is more than ``accept_ratio`` of what the gradient promised and
    the divergence itself is within the region.

    Args:
        apply: The policy: parameters and observations to distributions.
        params: Parameters of the policy that took the actions.
        obs: Observations, shape (n, d).
        actions: Actions taken, shape (n, a) or (n,).
        advantages: Their advantages, standardised, shape (n,); where all are 0 the parameters stay.
        max_kl: Size of the trust region, in nats, shape ().
        damping: What is added to the diagonal of F.
        cg_iterations: Iterations of conjugate gradients.
        backtracks: Number of step sizes to try.
        accept_ratio: Least ratio, shape (), of the improvement to the expected one.
        kl_slack: Most divergence of an accepted step as a multiple of ``max_kl``, shape (); infinity for none, as in
            the authors' code.
        fisher_every: Use every so-many-th row for F.

    Returns:
        The parameters, and what the step did.

    Raises:
        ValueError: If the numbers of rows differ.

    Source:
        Schulman et al., Trust region policy optimization, ICML 2015; settings of the PN-GAIL authors' code.
    """
    if not len(obs) == len(actions) == len(advantages):
        raise ValueError(f"obs, actions and advantages have {len(obs)}, {len(actions)} and {len(advantages)} rows")
    flat, unravel = ravel_pytree(params)
    before = apply(params, obs)
    log_prob = before.log_prob(actions)

    def loss(vector: Float[Array, " p"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        after = apply(unravel(vector), obs)
        return -jnp.mean(advantages * jnp.exp(after.log_prob(actions) - log_prob)), before.kl(after)  # ty: ignore[invalid-argument-type]

    (surrogate, _), gradient = jax.value_and_grad(loss, has_aux=True)(flat)
    product = fisher_vector_product(apply, params, obs[::fisher_every], damping)
    direction = conjugate_gradient(product, -gradient, cg_iterations)
    model = 0.5 * jnp.dot(direction, product(direction))
    moves = model > 0
    full_step = jnp.where(moves, direction * jnp.sqrt(max_kl / jnp.where(moves, model, 1)), 0)
    promised = -jnp.dot(gradient, full_step)

    def unfinished(carry: tuple) -> Array:
        k, accepted, *_ = carry
        return ~accepted & (k < backtracks) & moves

    def try_next(carry: tuple) -> tuple:
        k, *_ = carry
        size = jnp.asarray(0.5, flat.dtype) ** k
        value, kl = loss(flat + size * full_step)
        improvement = surrogate - value
        accepted = (improvement > accept_ratio * size * promised) & (improvement > 0) & (kl <= kl_slack * max_kl)
        return k + 1, accepted, size, value, kl

    zero = jnp.zeros((), flat.dtype)
    _, accepted, size, value, kl = jax.lax.while_loop(
        unfinished, try_next, (jnp.zeros((), jnp.int32), jnp.asarray(False), zero, surrogate, zero)
    )
    size = jnp.where(accepted, size, 0)
    return TRPOStep(
        unravel(flat + size * full_step),
        jnp.where(accepted, kl, 0),
        surrogate,
        jnp.where(accepted, value, surrogate),
        size,
    )
