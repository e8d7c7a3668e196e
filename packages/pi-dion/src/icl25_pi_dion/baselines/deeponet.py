"""A DeepONet from measurements to the unknown, trained on labels alone."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import optax
from jaxtyping import Float

from icl25_pi_dion.baselines.base import Baseline
from icl25_pi_dion.estimator import InverseOperator
from icl25_pi_dion.network import PIDION
from icl25_pi_dion.problem import InverseProblem

__all__ = ["DeepONet"]


class DeepONet(Baseline):
    """Supervised DeepONet: the networks of ``InverseOperator`` for s, trained on pairs of measurements and unknowns.

    The loss is the misfit of s; neither the equation nor the fit of u is in it. It needs labels, and no problem that
    can be simulated.

    Args:
        problem: The inverse problem, for coordinates, sensors and grid.
        net: The network. Default: ``PIDION(problem)``; pass ``PIDION(problem, branch="cnn")`` for a branch of
            convolutions.
        optimizer: ``"muon"``, ``"adam"``, ``"lbfgs"`` or an optax transformation.
        steps: Number of steps.
        batch_size: Samples a step. Default: 100 for one dimension of space, 64 for more.
        seed: Seed of weights and draws, a whole number >= 0.
        learning_rate: At the start; it falls to 1 % along a cosine. Default: 2e-2 for muon, 1e-3 for Adam.

    Raises:
        ValueError: If an argument is out of range; ``fit`` checks them.

    Source:
        Lu et al., DeepONet (Nature Machine Intelligence 2021), as the supervised baseline of Cho and Son (ICLR 2025).
    """

    def __init__(
        self,
        problem: InverseProblem,
        net: PIDION | None = None,
        optimizer: str | optax.GradientTransformation = "muon",
        steps: int = 1500,
        batch_size: int | None = None,
        seed: int = 0,
        learning_rate: float | None = None,
    ) -> None:
        self.problem, self.net, self.optimizer, self.steps = problem, net, optimizer, steps
        self.batch_size, self.seed, self.learning_rate = batch_size, seed, learning_rate

    def fit(self, M: Any, S: Any) -> Self:
        """Train on labelled measurements.

        Args:
            M: Measurements, shape (n, *sensor_shape).
            S: Their unknowns, shape (n, *target_shape).

        Returns:
            The baseline itself.

        Raises:
            ValueError: If measurements, labels or arguments do not fit; the message says which.
            TypeError: If they are no numbers.
            Diverged: If the loss does not stay finite.
        """
        if S is None:
            raise ValueError("S is None: a supervised DeepONet needs the unknown of each measurement")
        self.operator_ = InverseOperator(
            self.problem,
            self.net,
            self.optimizer,
            self.steps,
            self.batch_size,
            n_collocation=1,  # drawn, but no term of the loss sees them
            weights={"physics": 0.0, "data": 0.0, "h1": 0.0, "boundary": 0.0, "label": 1.0},
            seed=self.seed,
            learning_rate=self.learning_rate,
            early_stop=False,
            calibration=0,
            check_identifiable=False,
        ).fit(M, labels=S)
        self.history_ = np.array([row["label"] for row in self.operator_.history_])
        return self

    def predict(self, M: Any) -> Float[np.ndarray, "n *shape"]:
        """Invert measurements.

        Args:
            M: Measurements, shape (n, *sensor_shape).

        Returns:
            The unknowns on the target grid.

        Raises:
            ValueError: If the measurements do not fit.
            RuntimeError: If it is not fitted.
        """
        if not hasattr(self, "operator_"):
            raise RuntimeError("this DeepONet is not fitted: call fit(measurements, unknowns) first")
        return self.operator_.predict(M).s
