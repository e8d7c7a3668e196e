"""The network of the confidence classifier, and its training: pure functions over its layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from icl25_pn_gail.losses import Arrays, Scalar, bsc_risk, sc_risk, supervised_risk

__all__ = ["Layer", "Risk", "Sampling", "initial_layers", "logits", "train"]


HEAD_SCALE = 0.1  # of the initial weights of the last layer, so that first predictions are near one half
LARGEST_BATCH = 1024  # rows of one step
LARGEST_DRAW = 1 << 24  # decisions of dropout drawn at once
ROWS_AT_ONCE = 1 << 14  # of a prediction


class Layer(NamedTuple):
    """An affine map of rows, x weight + bias."""

    weight: Float[Arrays, "i o"]
    """Weights, shape (inputs, outputs)."""
    bias: Float[Arrays, " o"]
    """Bias, shape (outputs,)."""


class Risk(NamedTuple):
    """What is minimised: the numbers of ``bsc_risk`` and ``sc_risk``."""

    alpha: Scalar
    """Weight of the positive part of the correction."""
    beta: Scalar
    """Weight of its negative part, or of the unlabelled rows."""
    clip: Scalar
    """Bound of the correction, infinite for none."""
    mean_confidence: Scalar
    """Mean confidence of all labelled rows."""


@dataclass(frozen=True)
class Sampling:
    """How many rows a step draws, with replacement."""

    n_labelled: int
    """Labelled rows."""
    n_unlabelled: int
    """Unlabelled rows, 0 for none."""

    @classmethod
    def of(cls, labelled: int, unlabelled: int, batch_size: int) -> Sampling:
        """Draw as many unlabelled rows for each labelled one as there are, at least one, while memory is bounded.

        Args:
            labelled: Number of labelled rows.
            unlabelled: Number of unlabelled rows.
            batch_size: Labelled rows of a step.

        Returns:
            Counts of which the second is 0 where there are no unlabelled rows, and the sum is at most 1,024 unless
            ``batch_size`` exceeds half of that.
        """
        if unlabelled == 0:
            return cls(batch_size, 0)
        wanted = batch_size * max(1, unlabelled // labelled)
        return cls(batch_size, min(wanted, max(batch_size, LARGEST_BATCH - batch_size)))


class _State(NamedTuple):
    layers: list[Layer]
    optimizer: Any


class _Draws(NamedTuple):
    rows: Int[Arrays, "steps b"]
    kept: tuple[Bool[Arrays, "steps b _"], ...]


def initial_layers(sizes: Sequence[int], rng: np.random.Generator) -> list[Layer]:
    """Draw layers: weights and biases uniform in +-1 / sqrt(inputs), the last ones smaller and without bias.

    Args:
        sizes: Widths, from the inputs to the output.
        rng: Generator.

    Returns:
        One layer less than widths, in single precision.

    Source: Initialisation in the code of the authors of PN-GAIL (ICLR 2025).
    """
    layers = []
    for inputs, outputs in pairwise(sizes):
        bound = inputs**-0.5
        weight = rng.uniform(-bound, bound, (inputs, outputs)).astype(np.float32)
        layers.append(Layer(weight, rng.uniform(-bound, bound, outputs).astype(np.float32)))
    layers[-1] = Layer(np.float32(HEAD_SCALE) * layers[-1].weight, np.zeros_like(layers[-1].bias))
    return layers


def logits(layers: Sequence[Layer], X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
    """Logit of being optimal, without dropout, in the precision of the layers.

    Args:
        layers: The network.
        X: Rows, shape (n, d).

    Returns:
        One logit for each row.

    Raises:
        ValueError: If X has another width than the first layer.
    """
    found = np.empty(len(X), layers[-1].weight.dtype)
    for start in range(0, len(X), ROWS_AT_ONCE):
        hidden = X[start : start + ROWS_AT_ONCE].astype(found.dtype)
        for layer in layers[:-1]:
            hidden = np.tanh(hidden @ layer.weight + layer.bias)
        found[start : start + ROWS_AT_ONCE] = (hidden @ layers[-1].weight + layers[-1].bias)[:, 0]
    return found


def train(
    layers: list[Layer],
    X: Float[np.ndarray, "n d"],
    r: Float[np.ndarray, " n"],
    risk: Risk,
    sampling: Sampling,
    rng: np.random.Generator,
    *,
    method: str,
    steps: int,
    lr: float,
    dropout: float,
) -> list[Layer]:
    """Minimise the risk by Adam with AMSGrad, in one compiled loop for as many steps as memory holds the draws of.

    Args:
        layers: The network to start from.
        X: Rows, shape (n, d), of single precision.
        r: Confidence of each row, shape (n,); NaN where unlabelled.
        risk: Its numbers.
        sampling: Rows of a step.
        rng: Generator of the draws.
        method: Which risk: ``"bsc"``, ``"sc"`` or else the supervised one.
        steps: Number of steps.
        lr: Learning rate.
        dropout: Share of hidden units that are left out in a step, in [0, 1).

    Returns:
        The trained network, as numpy arrays.

    Raises:
        ValueError: If shapes do not fit.

    Source: PN-GAIL (ICLR 2025), training of the confidence classifier, as in its authors' code.
    """
    state = _State(layers, optax.amsgrad(lr).init(layers))
    run = partial(_run_steps, method=method, n_labelled=sampling.n_labelled)
    known = np.where(np.isnan(r), 0, r).astype(np.float32)
    numbers = jax.tree.map(np.float32, risk)
    widths = [layer.bias.size for layer in layers[:-1]]
    for count, draws in _draw(r, sampling, widths, rng, steps, dropout):
        state = run(state, X, known, draws, count, np.float32(lr), np.float32(1 / (1 - dropout)), numbers)
    return [Layer(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in state.layers]


def _draw(
    r: Float[np.ndarray, " n"],
    sampling: Sampling,
    widths: Sequence[int],
    rng: np.random.Generator,
    steps: int,
    dropout: float,
) -> Iterator[tuple[int, _Draws]]:
    """Rows and dropout of all steps, in blocks of equal shape, each with the number of steps to make of it.

    numpy draws faster than the compiled program would, and needs no compilation.
    """
    labelled, unlabelled = np.flatnonzero(~np.isnan(r)), np.flatnonzero(np.isnan(r))
    n_rows = sampling.n_labelled + sampling.n_unlabelled
    block = min(steps, max(1, LARGEST_DRAW // (n_rows * max(1, sum(widths)))))
    for start in range(0, steps, block):
        rows = labelled[rng.integers(len(labelled), size=(block, sampling.n_labelled))]
        if sampling.n_unlabelled:
            others = unlabelled[rng.integers(len(unlabelled), size=(block, sampling.n_unlabelled))]
            rows = np.concatenate([rows, others], axis=1)
        kept = tuple(rng.random((block, n_rows, width), dtype=np.float32) >= dropout for width in widths)
        yield min(block, steps - start), _Draws(rows.astype(np.int32), kept)


@partial(jax.jit, static_argnames=("method", "n_labelled"))
def _run_steps(
    state: _State,
    X: Float[Array, "n d"],
    r: Float[Array, " n"],
    draws: _Draws,
    count: Int[Array, ""],
    lr: Float[Array, ""],
    scale: Float[Array, ""],
    risk: Risk,
    method: str,
    n_labelled: int,
) -> _State:
    """Make the first ``count`` of the drawn steps."""
    optimizer = optax.amsgrad(lr)

    def step(i: Int[Array, ""], state: _State) -> _State:
        rows = draws.rows[i]
        scales = [kept[i] * scale for kept in draws.kept]
        gradient = jax.grad(_loss)(state.layers, X[rows], r[rows[:n_labelled]], scales, risk, method)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer)
        return _State(cast(list[Layer], optax.apply_updates(state.layers, updates)), optimizer_state)

    return jax.lax.fori_loop(0, count, step, state)


def _loss(
    layers: list[Layer],
    x: Float[Array, "b d"],
    r: Float[Array, " b_c"],
    scales: list[Float[Array, "b _"]],
    risk: Risk,
    method: str,
) -> Float[Array, ""]:
    """Risk of a batch, whose labelled rows stand first; hidden units are multiplied by their scales."""
    for layer, scale in zip(layers[:-1], scales, strict=True):
        x = jnp.tanh(x @ layer.weight + layer.bias) * scale
    g = (x @ layers[-1].weight + layers[-1].bias)[:, 0]
    labelled, unlabelled = g[: len(r)], g[len(r) :]
    if method == "bsc":
        return bsc_risk(labelled, r, unlabelled, risk.alpha, risk.beta, risk.clip)
    if method == "sc":
        return sc_risk(labelled, r, unlabelled, risk.beta, mean_confidence=risk.mean_confidence)
    return supervised_risk(labelled, r)
