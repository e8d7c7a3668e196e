"""The reaction-diffusion equation u_t = D u_xx - kappa u + k u^2 + s(x) with u = 0 at x = 0, x = 1 and t = 0."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from icl25_pi_dion.solvers.grids import difference_eigenvalues, sine_matrix

__all__ = ["reaction_diffusion", "reaction_diffusion_series"]


@partial(jax.jit, static_argnames=("n_times", "n_steps"))
def reaction_diffusion(
    s: Float[Array, " n"],
    *,
    D: ArrayLike = 0.01,
    kappa: ArrayLike = 0.0,
    k: ArrayLike = 0.0,
    T: ArrayLike = 1.0,
    n_times: int = 2,
    n_steps: int = 400,
) -> Float[Array, "n n_times"]:
    """Solve the equation by the method of lines, of second order in the mesh width and in the time step.

    Space is discretised by second-order differences, which the sine transform diagonalises. Diffusion and decay take
    the Crank-Nicolson rule, the reaction k u^2 the explicit two-step rule of Adams and Bashforth.

    Args:
        s: The source at n >= 3 uniform nodes from 0 to 1, ends included; its values at the ends have no effect.
        D: Diffusion coefficient, > 0.
        kappa: Rate of linear decay.
        k: Coefficient of the quadratic reaction. A large k times s blows up in finite time; values are then not finite.
        T: Final time, > 0.
        n_times: Number of times to return, >= 2, evenly from 0 to T.
        n_steps: Steps from 0 to T, rounded up to a multiple of ``n_times - 1``.

    Returns:
        u at the nodes and times, in the precision of ``s``.

    Raises:
        ValueError: If there are fewer than 3 nodes or 2 times, or no step.

    Source:
        Cho and Son (ICLR 2025), reaction-diffusion; the scheme is textbook.
    """
    n = len(s)
    if n < 3 or n_times < 2 or n_steps < 1:
        raise ValueError(f"expected >= 3 nodes, >= 2 times and >= 1 step, found {n}, {n_times} and {n_steps}")
    per_save = -(-n_steps // (n_times - 1))
    step = jnp.asarray(T, s.dtype) / (per_save * (n_times - 1))
    modes = jnp.asarray(sine_matrix(n), s.dtype)
    half = 1 + step / 2 * (jnp.asarray(D, s.dtype) * jnp.asarray(difference_eigenvalues(n), s.dtype) + kappa)
    inverse = (modes / half) @ modes
    inner = s[1:-1]

    def advance(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        u, before = state
        reaction = jnp.asarray(k, s.dtype) * u**2
        # With M the implicit operator, (2 - M) u + step (...) is the right-hand side, so one product does both halves.
        return (inverse @ (2 * u + step * (inner + 1.5 * reaction - 0.5 * before)) - u, reaction), None

    def until_save(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        state, _ = jax.lax.scan(advance, state, None, per_save)
        return state, state[0]

    # u^2 = O(t^2) at the start: a reaction of 0 before it keeps the second order of the two-step rule.
    start = jnp.zeros_like(inner)
    _, saved = jax.lax.scan(until_save, (start, start), None, n_times - 1)
    return jnp.pad(saved.T, ((1, 1), (1, 0)))


@jax.jit
def reaction_diffusion_series(
    s: Float[Array, " n"],
    x: Float[Array | np.ndarray, " n_x"],
    t: Float[Array | np.ndarray, " n_t"],
    *,
    D: ArrayLike = 0.01,
    kappa: ArrayLike = 0.0,
) -> Float[Array, "n_x n_t"]:
    """Evaluate the solution without quadratic reaction in closed form, for the sum of sines through the source.

    s = sum c_j sin(j pi x) gives u = sum c_j (1 - exp(-lam_j t)) / lam_j sin(j pi x), lam_j = D (j pi)^2 + kappa. For
    sources that are such sums with up to n - 2 sines it is exact to rounding.

    Args:
        s: The source at n >= 3 uniform nodes from 0 to 1, ends included; its values at the ends are taken as 0.
        x: Places from 0 to 1.
        t: Times, >= 0.
        D: Diffusion coefficient, > 0.
        kappa: Rate of linear decay, >= 0.

    Returns:
        u at all places and times, in the precision of ``s``.

    Raises:
        ValueError: If there are fewer than 3 nodes.

    Source:
        Cho and Son (ICLR 2025), reaction-diffusion; the series is textbook.

    Example:
        >>> s = jnp.sin(jnp.pi * jnp.linspace(0.0, 1.0, 11))
        >>> round(float(reaction_diffusion_series(s, jnp.array([0.5]), jnp.array([1.0]), kappa=0.1)[0, 0]), 4)
        0.9069
    """
    n = len(s)
    if n < 3:
        raise ValueError(f"expected >= 3 nodes, found {n}")
    transform = jnp.asarray(sine_matrix(n), s.dtype) * (2 / (n - 1)) ** 0.5
    wave = jnp.pi * jnp.arange(1, n - 1, dtype=s.dtype)
    rate = jnp.asarray(D, s.dtype) * wave**2 + kappa
    gain = -jnp.expm1(-rate[:, None] * jnp.asarray(t, s.dtype)) / rate[:, None]
    # Odd about x = 1, so that u is 0 there to the last digit as it is at 0.
    place = jnp.asarray(x, s.dtype)[:, None]
    sign = jnp.where(jnp.arange(1, n - 1) % 2 == 1, 1, -1).astype(s.dtype)
    waves = jnp.where(place <= 0.5, jnp.sin(wave * place), sign * jnp.sin(wave * (1 - place)))
    return waves @ ((transform @ s[1:-1])[:, None] * gain)
