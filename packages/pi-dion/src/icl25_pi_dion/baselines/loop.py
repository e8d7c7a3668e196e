"""A training loop for the networks that are not trained by ``InverseOperator``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from icl25_pi_dion.training import Diverged
from icl25_shared import progress

__all__ = ["Loop"]


@dataclass
class Loop:
    """A training loop in compiled chunks of steps.

    Attributes:
        loss: Takes parameters, the key of the step and the data to the loss.
        optimizer: The optimiser.
        steps: Number of steps.
        label: What the progress bar says.
        chunk: Steps compiled into one call.
    """

    loss: Callable[[Any, Key[Array, ""], Any], Float[Array, ""]]
    optimizer: optax.GradientTransformationExtraArgs
    steps: int
    label: str
    chunk: int = 50
    _compiled: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._compiled = jax.jit(self._run_chunk)

    def run(self, params: Any, data: Any, seed: int) -> tuple[Any, Float[np.ndarray, " c"]]:
        """Train.

        Args:
            params: Parameters to start from.
            data: Arrays that the loss needs: they are arguments of the compiled program, not part of it.
            seed: Seed of all draws.

        Returns:
            The parameters after the last step, and the mean loss of each chunk.

        Raises:
            Diverged: If the loss is not finite.
        """
        state, key, means = self.optimizer.init(params), jax.random.key(seed), []
        with progress(self.label, self.steps) as bar:
            for first in range(0, self.steps, self.chunk):
                steps = jnp.arange(first, min(first + self.chunk, self.steps))
                params, state, mean = self._compiled(params, state, key, steps, data)
                means.append(float(mean))
                if not np.isfinite(means[-1]):
                    raise Diverged(
                        f"{self.label}: the loss is not finite after step {first}; choose a smaller learning_rate"
                    )
                bar.advance(len(steps))
        return params, np.array(means)

    def _run_chunk(
        self, params: Any, state: Any, key: Key[Array, ""], steps: Array, data: Any
    ) -> tuple[Any, Any, Float[Array, ""]]:
        def one(carry: tuple[Any, Any], step: Array) -> tuple[tuple[Any, Any], Float[Array, ""]]:
            params, state = carry
            drawn = jax.random.fold_in(key, step)
            value, gradient = jax.value_and_grad(self.loss)(params, drawn, data)
            updates, state = self.optimizer.update(
                gradient, state, params, value=value, grad=gradient, value_fn=lambda p: self.loss(p, drawn, data)
            )
            return (optax.apply_updates(params, updates), state), value

        (params, state), values = jax.lax.scan(one, (params, state), steps)
        return params, state, values.mean()
