"""The methods of the family, as ways to draw and to weight demonstrated rows."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from icl25_pn_gail.losses import weights
from icl25_pn_gail.rollout import Scaler
from icl25_pn_gail.training import DemoSet, Stream

__all__ = ["METHODS", "Method", "demo_set"]


class Method(NamedTuple):
    """What a method makes of demonstrations.

    Attributes:
        title: Its name in tables and pictures.
        classifier: How it fills in missing confidences by default: ``bsc`` or ``sc``; None where it needs none.
        needs_labels: Whether it needs at least one given confidence.
    """

    title: str
    classifier: str | None
    needs_labels: bool


METHODS = {
    "pn-gail": Method("PN-GAIL", "bsc", True),
    "2iwil": Method("2IWIL", "sc", True),
    "ic-gail": Method("IC-GAIL", None, True),
    "wgail": Method("WGAIL", None, False),
    "gail": Method("GAIL", None, False),
    "gail-c": Method("GAIL, labelled rows", None, True),
    "gail-reweight": Method("GAIL, labelled rows, weighted", None, True),
}


def demo_set(
    method: str,
    obs: Float[np.ndarray, "n d"],
    actions: np.ndarray,
    given: Float[np.ndarray, " n"],
    filled: Float[np.ndarray, " n"],
    scaler: Scaler,
    min_prior: float = 0.7,
) -> DemoSet:
    """Prepare demonstrations for a method.

    Args:
        method: Its key in ``METHODS``.
        obs: Observations, not normalised.
        actions: Actions in the policy's units, (n, a) or (n,).
        given: Confidences; NaN where there is none.
        filled: The same without gaps.
        scaler: Normalisation of observations.
        min_prior: Least class prior of IC-GAIL.

    Returns:
        The rows with their weights.

    Raises:
        ValueError: If the confidences are such that nothing is left to imitate.

    Source:
        2IWIL and IC-GAIL: Wu et al., Imitation learning from imperfect demonstration, ICML 2019. PN-GAIL: its
        objective. WGAIL: Wang et al., Learning to weight imperfect demonstrations, ICML 2021.
    """
    n = len(obs)
    everything, labelled = np.arange(n), np.flatnonzero(~np.isnan(given))
    ones = np.ones(n)
    second: Stream | None = None
    fake_weight = 1.0
    if method in ("2iwil", "gail-reweight", "pn-gail"):
        rows = labelled if method == "gail-reweight" else everything
        alpha = float(np.mean(filled[rows]))
        if alpha <= 0:
            raise ValueError("every confidence is 0, so there is nothing to imitate; expected some rows above 0")
        found = weights("pn" if method == "pn-gail" else "iwil", filled, alpha)
        first = _stream(rows, n, np.asarray(found.positive), np.asarray(found.negative))
    elif method == "ic-gail":
        mean = float(np.mean(given[labelled]))
        fake_weight = max(mean, min_prior)
        share = (1 - fake_weight) / (1 - mean) if mean < 1 else 0.0
        # Each stream makes half of a batch, so its mean counts half.
        first = _stream(labelled, n, 0 * ones, 2 * share * (1 - filled))
        unlabelled = np.setdiff1d(everything, labelled)
        second = _stream(unlabelled if len(unlabelled) else everything, n, 2 * ones, 0 * ones)
    else:
        first = _stream(labelled if method == "gail-c" else everything, n, ones, 0 * ones)
    discrete = actions.ndim == 1
    return DemoSet(
        obs=jnp.asarray(scaler(obs), jnp.result_type(float)),
        actions=jnp.asarray(actions, jnp.int32 if discrete else jnp.result_type(float)),
        confidence=jnp.asarray(filled, jnp.result_type(float)),
        first=first,
        second=first if second is None else second,
        fake_weight=jnp.asarray(fake_weight),
        reweight=jnp.asarray(method == "wgail"),
        scaler=Scaler(*(jnp.asarray(part, jnp.result_type(float)) for part in scaler)),
    )


def _stream(rows: np.ndarray, n: int, positive: np.ndarray, negative: np.ndarray) -> Stream:
    padded = np.zeros(n, np.int32)
    padded[: len(rows)] = rows
    number = jnp.result_type(float)
    return Stream(
        jnp.asarray(padded), jnp.asarray(len(rows)), jnp.asarray(positive, number), jnp.asarray(negative, number)
    )
