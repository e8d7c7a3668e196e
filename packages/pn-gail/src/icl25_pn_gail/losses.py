"""Losses of the discriminator and of the confidence classifier.

The logit g of the discriminator is that of D = sigmoid(g), the probability that a row comes from the AGENT; that of the
confidence classifier is of the row being optimal. sp is softplus: sp(-g) = -log D and sp(g) = -log(1 - D).

Every function may be traced by jit, grad and vmap. A column (n, 1) is taken for a vector (n,); shapes that do not fit
raise TypeError, as in jax. The optima, advantages and the step of the policy that belong to these losses can be had
from here as well.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.nn import softplus
from jaxtyping import Array, Float

from icl25_pn_gail.advantages import gae
from icl25_pn_gail.optima import optimal_discriminator, optimal_generator
from icl25_pn_gail.trpo import trpo_step

__all__ = [
    "Weights",
    "bsc_risk",
    "gae",
    "gail_loss",
    "icgail_loss",
    "imitation_reward",
    "iwil_loss",
    "optimal_discriminator",
    "optimal_generator",
    "pn_loss",
    "sc_risk",
    "supervised_risk",
    "trpo_step",
    "weighted_loss",
    "weights",
    "wgail_weights",
]

Arrays = Array | np.ndarray
Scalar = float | Float[Arrays, ""]


class Weights(NamedTuple):
    """What a demonstrated row counts as, in the loss of the discriminator."""

    positive: Float[Array, " m"]
    """Weight of "does not come from the agent", shape (m,)."""
    negative: Float[Array, " m"]
    """Weight of "comes from the agent", shape (m,)."""


def weights(method: str, r: Float[Arrays, " m"], alpha: Scalar | None = None) -> Weights:
    """Weights of the demonstrated rows under a method: (1, 0), (r / alpha, 0) or (r, 1 - r).

    Args:
        method: ``"gail"``, ``"iwil"`` or ``"pn"``; ``"2iwil"`` and ``"pn-gail"`` are the same as the latter two.
        r: Confidence of each row, shape (m,), from 0 to 1.
        alpha: Share of optimal rows, of which ``"iwil"`` alone makes use. Default: the mean of r.

    Returns:
        Both weights of each row; those of ``"iwil"`` are not finite where alpha is 0.

    Raises:
        ValueError: If there is no such method.

    Source: GAIL (Ho and Ermon, 2016); 2IWIL (Wu et al., 2019); PN-GAIL (ICLR 2025), objective of the discriminator.
    """
    r = jnp.asarray(r)
    if method == "gail":
        return Weights(jnp.ones_like(r), jnp.zeros_like(r))
    if method in ("iwil", "2iwil"):
        return Weights(r / (_mean(r) if alpha is None else alpha), jnp.zeros_like(r))
    if method in ("pn", "pn-gail"):
        return Weights(r, 1 - r)
    raise ValueError(f"method must be 'gail', 'iwil' or 'pn', found {method!r}")


def weighted_loss(
    fake_logits: Float[Arrays, " n"],
    demo_logits: Float[Arrays, " m"],
    positive: Float[Arrays, " m"],
    negative: Float[Arrays, " m"],
    fake_weight: Scalar = 1.0,
) -> Float[Array, ""]:
    """Loss that all methods share: fake_weight mean sp(-g_fake) + mean(positive sp(g) + negative sp(-g)).

    Args:
        fake_logits: Logits of the agent's rows, shape (n,).
        demo_logits: Logits g of demonstrated rows, shape (m,).
        positive: Weight of each of them as not the agent's, shape (m,).
        negative: Weight of each of them as the agent's, shape (m,).
        fake_weight: Weight of the agent's rows, a scalar.

    Returns:
        The loss, to be minimised by the discriminator.

    Raises:
        TypeError: If shapes do not fit.

    Source: PN-GAIL (ICLR 2025), objective of the discriminator.
    """
    (fake,) = _vectors(fake_logits)
    g, positive, negative = _vectors(demo_logits, positive, negative)
    return _mean(softplus(-fake)) * fake_weight + _mean(positive * softplus(g) + negative * softplus(-g))


def gail_loss(fake_logits: Float[Arrays, " n"], demo_logits: Float[Arrays, " m"]) -> Float[Array, ""]:
    """Loss of GAIL, which takes every demonstrated row as optimal.

    Args:
        fake_logits: Logits of the agent's rows, shape (n,).
        demo_logits: Logits of demonstrated rows, shape (m,).

    Returns:
        mean sp(-g_fake) + mean sp(g).

    Raises:
        TypeError: If shapes do not fit.

    Source: GAIL (Ho and Ermon, 2016).
    """
    return weighted_loss(fake_logits, demo_logits, *weights("gail", *map(jnp.zeros_like, _vectors(demo_logits))))


def iwil_loss(
    fake_logits: Float[Arrays, " n"],
    demo_logits: Float[Arrays, " m"],
    r: Float[Arrays, " m"],
    alpha: Scalar | None = None,
) -> Float[Array, ""]:
    """Loss of 2IWIL, which weights demonstrated rows by their confidence.

    Args:
        fake_logits: Logits of the agent's rows, shape (n,).
        demo_logits: Logits of demonstrated rows, shape (m,).
        r: Their confidence, shape (m,), from 0 to 1, not 0 alone.
        alpha: Share of optimal rows. Default: the mean of r.

    Returns:
        mean sp(-g_fake) + mean(r / alpha sp(g)).

    Raises:
        TypeError: If shapes do not fit.

    Source: 2IWIL (Wu et al., 2019).
    """
    return weighted_loss(fake_logits, demo_logits, *weights("iwil", r, alpha))


def pn_loss(
    fake_logits: Float[Arrays, " n"], demo_logits: Float[Arrays, " m"], r: Float[Arrays, " m"]
) -> Float[Array, ""]:
    """Loss of PN-GAIL, where the part of a row that is not optimal counts as the agent's.

    Args:
        fake_logits: Logits of the agent's rows, shape (n,).
        demo_logits: Logits of demonstrated rows, shape (m,).
        r: Their confidence, shape (m,), from 0 to 1.

    Returns:
        mean sp(-g_fake) + mean(r sp(g) + (1 - r) sp(-g)).

    Raises:
        TypeError: If shapes do not fit.

    Source: PN-GAIL (ICLR 2025), objective of the discriminator.
    """
    return weighted_loss(fake_logits, demo_logits, *weights("pn", r))


def icgail_loss(
    fake_logits: Float[Arrays, " n"],
    labelled_logits: Float[Arrays, " n_c"],
    unlabelled_logits: Float[Arrays, " n_u"],
    r_labelled: Float[Arrays, " n_c"],
    min_prior: Scalar = 0.7,
) -> Float[Array, ""]:
    """Loss of IC-GAIL, which completes the agent's rows to the mixture of the demonstrations.

    With Z = max(mean r, min_prior) it is Z mean sp(-g_fake) + (1 - Z) / (1 - mean r) mean((1 - r) sp(-g)) over labelled
    rows + mean sp(g) over unlabelled rows. The middle term is left out where all labelled rows are optimal.

    Args:
        fake_logits: Logits of the agent's rows, shape (n,).
        labelled_logits: Logits of demonstrated rows whose confidence is known, shape (n_c,).
        unlabelled_logits: Logits of the other demonstrated rows, shape (n_u,).
        r_labelled: Confidence of the labelled rows, shape (n_c,), from 0 to 1.
        min_prior: Smallest weight of the agent's rows, a scalar from 0 to 1.

    Returns:
        The loss, to be minimised by the discriminator.

    Raises:
        TypeError: If shapes do not fit.

    Source: IC-GAIL (Wu et al., 2019).
    """
    fake, unlabelled = *_vectors(fake_logits), *_vectors(unlabelled_logits)
    labelled, r = _vectors(labelled_logits, r_labelled)
    bad = _mean(1 - r)
    prior = jnp.maximum(1 - bad, min_prior)
    completion = jnp.where(bad > 0, (1 - prior) / jnp.where(bad > 0, bad, 1), 0)
    return (
        prior * _mean(softplus(-fake)) + completion * _mean((1 - r) * softplus(-labelled)) + _mean(softplus(unlabelled))
    )


def wgail_weights(
    demo_logits: Float[Arrays, " m"], log_prob: Float[Arrays, " m"], beta: Scalar = 1.0
) -> Float[Array, " m"]:
    """Weights of WGAIL, which believes rows that the discriminator and the policy find likely.

    Args:
        demo_logits: Logits of demonstrated rows, shape (m,).
        log_prob: Log-density of their actions under the policy, shape (m,).
        beta: Temperature, a scalar above -1.

    Returns:
        ((1 / D - 1) pi(a | s))^(1 / (beta + 1)), not normalised.

    Raises:
        TypeError: If shapes do not fit.

    Source: WGAIL (Wang et al., 2021).
    """
    return jnp.exp((log_prob - demo_logits) / (beta + 1))


def imitation_reward(logits: Float[Arrays, "*n"], kind: str = "nonsaturating") -> Float[Array, "*n"]:
    """Reward of the policy for rows whose discriminator logits are given.

    Args:
        logits: Logits g of any shape, also scalars.
        kind: ``"nonsaturating"``: -log D, at least 0. ``"airl"``: log(1 - D) - log D = -g. ``"gail"``: log(1 - D), at
            most 0.

    Returns:
        The reward, of the same shape; it falls as the logit grows.

    Raises:
        ValueError: If there is no such kind.

    Source: PN-GAIL (ICLR 2025), reward of the policy; AIRL (Fu et al., 2018); GAIL (Ho and Ermon, 2016).
    """
    if kind == "nonsaturating":
        return softplus(-logits)
    if kind == "airl":
        return -jnp.asarray(logits)
    if kind == "gail":
        return -softplus(logits)
    raise ValueError(f"kind must be 'nonsaturating', 'airl' or 'gail', found {kind!r}")


def supervised_risk(labelled_logits: Float[Arrays, " n_c"], r: Float[Arrays, " n_c"]) -> Float[Array, ""]:
    """Cross-entropy of the confidence classifier on labelled rows.

    Args:
        labelled_logits: Logits g of being optimal, shape (n_c,).
        r: Confidence, shape (n_c,), from 0 to 1.

    Returns:
        mean(r sp(-g) + (1 - r) sp(g)); 0 without rows.

    Raises:
        TypeError: If shapes do not fit.

    Source: PN-GAIL (ICLR 2025), confidence classifier.
    """
    g, r = _vectors(labelled_logits, r)
    return _mean(r * softplus(-g) + (1 - r) * softplus(g))


def bsc_risk(
    labelled_logits: Float[Arrays, " n_c"],
    r: Float[Arrays, " n_c"],
    unlabelled_logits: Float[Arrays, " n_u"],
    alpha: Scalar | None = None,
    beta: Scalar | None = None,
    clip: Scalar | None = 0.01,
) -> Float[Array, ""]:
    """Balanced semi-supervised risk of the confidence classifier.

    It is the supervised risk plus a correction, mean_u(alpha sp(-g) + beta sp(g)) - mean_c(alpha sp(-g) + beta sp(g)),
    whose expectation is zero: without clip the risk is unbiased for every alpha and beta.

    Args:
        labelled_logits: Logits g of being optimal, of labelled rows, shape (n_c,).
        r: Their confidence, shape (n_c,), from 0 to 1.
        unlabelled_logits: Logits of unlabelled rows, shape (n_u,). Without any, or without labelled rows, there is no
            correction.
        alpha: Weight of the positive part of the correction, a scalar. Default: n_u / (n_u + n_c), for which the
            variance is near its minimum.
        beta: Weight of the negative part, likewise.
        clip: Bound of the correction, a scalar, beyond which it has no gradient; None for no bound.

    Returns:
        The risk.

    Raises:
        TypeError: If shapes do not fit.

    Source: PN-GAIL (ICLR 2025), balanced semi-supervised classification; the bound is that of its authors' code.
    """
    supervised = supervised_risk(labelled_logits, r)
    labelled, unlabelled = *_vectors(labelled_logits), *_vectors(unlabelled_logits)
    n_c, n_u = labelled.size, unlabelled.size
    if n_c == 0 or n_u == 0:
        return supervised
    positive, negative = (n_u / (n_u + n_c) if share is None else share for share in (alpha, beta))

    def balance(logits: Float[Arrays, " _"]) -> Float[Array, ""]:
        return _mean(positive * softplus(-logits) + negative * softplus(logits))

    correction = balance(unlabelled) - balance(labelled)
    return supervised + (correction if clip is None else jnp.clip(correction, -clip, clip))


def sc_risk(
    labelled_logits: Float[Arrays, " n_c"],
    r: Float[Arrays, " n_c"],
    unlabelled_logits: Float[Arrays, " n_u"],
    beta: Scalar | None = None,
    nonnegative: bool = True,
    mean_confidence: Scalar | None = None,
) -> Float[Array, ""]:
    """Semi-supervised risk of 2IWIL, the baseline that the balanced one improves upon.

    The unlabelled rows take part of the weight of the positive class where the mean confidence is above one half:
    (mean_c((r - beta) sp(-g)) + beta mean_u sp(-g)) + mean_c((1 - r) sp(g)); else of the negative class:
    mean_c(r sp(-g)) + (mean_c((1 - beta - r) sp(g)) + beta mean_u sp(g)).

    Args:
        labelled_logits: Logits g of being optimal, of labelled rows, shape (n_c,).
        r: Their confidence, shape (n_c,), from 0 to 1.
        unlabelled_logits: Logits of unlabelled rows, shape (n_u,). Without any, beta is 0.
        beta: Weight of the unlabelled rows, a scalar. Default: n_u / (n_u + n_c), as 2IWIL takes it.
        nonnegative: Replace each of both parts by 0 where it is negative.
        mean_confidence: Mean confidence of all labelled rows, a scalar, for batches. Default: the mean of r.

    Returns:
        The risk.

    Raises:
        TypeError: If shapes do not fit.

    Source: 2IWIL (Wu et al., 2019), semi-conf classification.
    """
    (g, r), (unlabelled,) = _vectors(labelled_logits, r), _vectors(unlabelled_logits)
    beta = unlabelled.size / max(unlabelled.size + g.size, 1) if beta is None else beta
    if g.size == 0 or unlabelled.size == 0:
        beta = 0.0
    mostly_good = (_mean(r) if mean_confidence is None else jnp.asarray(mean_confidence)) > 0.5
    beta_positive, beta_negative = jnp.where(mostly_good, beta, 0), jnp.where(mostly_good, 0, beta)
    positive = _mean((r - beta_positive) * softplus(-g)) + beta_positive * _mean(softplus(-unlabelled))
    negative = _mean((1 - beta_negative - r) * softplus(g)) + beta_negative * _mean(softplus(unlabelled))
    if nonnegative:
        positive, negative = jnp.maximum(positive, 0), jnp.maximum(negative, 0)
    return positive + negative


def _vectors(*parts: Float[Arrays, " n"]) -> list[Float[Array, " n"]]:
    """Bring what belongs to the same rows to vectors of the same length."""
    vectors = [jnp.asarray(part) for part in parts]
    vectors = [part[:, 0] if part.ndim == 2 and part.shape[1] == 1 else part for part in vectors]
    if any(part.ndim != 1 for part in vectors) or len({len(part) for part in vectors}) > 1:
        raise TypeError(f"expected vectors of as many rows, found shapes {', '.join(str(np.shape(p)) for p in parts)}")
    return vectors


def _mean(values: Float[Arrays, " _"]) -> Float[Array, ""]:
    """Mean, 0 for no values."""
    values = jnp.asarray(values)
    return jnp.mean(values) if values.size else jnp.zeros((), values.dtype)
