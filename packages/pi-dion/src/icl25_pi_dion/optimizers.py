"""Optimisers by name, with their schedules."""

from __future__ import annotations

import jax
import optax
from optax import contrib

__all__ = ["DEFAULT_RATES", "make_optimizer"]

DEFAULT_RATES = {"muon": 2e-2, "adam": 1e-3, "lbfgs": 1.0}


def make_optimizer(
    optimizer: str | optax.GradientTransformation, steps: int, learning_rate: float | None = None
) -> optax.GradientTransformationExtraArgs:
    """Return an optax transformation, its rate falling along a cosine to 1 % over the steps.

    Args:
        optimizer: ``"muon"`` (matrices by orthogonalised momentum, the rest by Adam), ``"adam"``, ``"lbfgs"`` (with a
            line search, no schedule), or a transformation of your own, which is used as it is.
        steps: Length of the schedule.
        learning_rate: Rate at the start. Default: 2e-2 for muon, 1e-3 for Adam, 1 for L-BFGS.

    Returns:
        The transformation.

    Raises:
        ValueError: If the name is unknown, or the rate is not > 0.
    """
    if isinstance(optimizer, optax.GradientTransformation):
        return optax.with_extra_args_support(optimizer)
    if optimizer not in DEFAULT_RATES:
        raise ValueError(
            f"optimizer must be {', '.join(DEFAULT_RATES)} or an optax transformation, found {optimizer!r}"
        )
    rate = DEFAULT_RATES[optimizer] if learning_rate is None else learning_rate
    if not rate > 0:
        raise ValueError(f"learning_rate must be > 0, found {rate}")
    if optimizer == "lbfgs":
        return optax.with_extra_args_support(optax.lbfgs(learning_rate=rate if learning_rate else None))
    schedule = optax.cosine_decay_schedule(rate, max(steps, 1), alpha=0.01)
    made = contrib.muon(schedule) if optimizer == "muon" else optax.adam(schedule)
    return optax.with_extra_args_support(made)


def scaled(updates: optax.Updates, factor: jax.Array) -> optax.Updates:
    """Multiply all updates, as a smaller learning rate would.

    Args:
        updates: A tree of arrays.
        factor: The factor.

    Returns:
        The scaled tree.
    """
    return jax.tree.map(lambda update: update * factor.astype(update.dtype), updates)
