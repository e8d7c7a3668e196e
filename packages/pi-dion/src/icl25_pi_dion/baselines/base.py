"""What all baselines have in common: they predict unknowns on the target grid, and are scored alike."""

from __future__ import annotations

import inspect
from typing import Any, Self

import numpy as np
from jaxtyping import Float

__all__ = ["Baseline", "check_counts", "check_seed"]


class Baseline:
    """A method that inverts measurements."""

    def predict(self, M: Any) -> Float[np.ndarray, "n *shape"]:
        """Invert measurements.

        Args:
            M: Measurements, shape (n, *sensor_shape).

        Returns:
            The unknowns on the target grid, shape (n, *target_shape).
        """
        raise NotImplementedError

    def score(self, M: Any, S: Float[np.ndarray, "n *shape"]) -> float:
        """Coefficient of determination of the predicted unknowns, 1 for perfect ones.

        Args:
            M: Measurements, shape (n, *sensor_shape).
            S: True unknowns, shape (n, *target_shape).

        Returns:
            1 - sum (s_hat - s)^2 / sum (s - mean s)^2, over all samples and nodes.
        """
        s = np.asarray(S, float).reshape(len(S), -1)
        s_hat = self.predict(M).reshape(len(s), -1)
        return float(1 - np.sum((s_hat - s) ** 2) / np.sum((s - s.mean(axis=0)) ** 2))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the constructor, as scikit-learn does.

        Args:
            deep: Without effect; there are no nested estimators.

        Returns:
            Values by name.
        """
        return {name: getattr(self, name) for name in self._parameters()}

    def set_params(self, **params: Any) -> Self:
        """Change arguments of the constructor.

        Args:
            **params: Values by name.

        Returns:
            The baseline itself, as if made anew with these arguments.

        Raises:
            ValueError: If there is no such argument, or the constructor refuses its value.
        """
        known = self._parameters()
        unknown = sorted(set(params) - set(known))
        if unknown:
            raise ValueError(f"unknown parameters {', '.join(unknown)}; there are {', '.join(known)}")
        made = type(self)(**{**self.get_params(), **params})
        vars(self).clear()
        vars(self).update(vars(made))
        return self

    @classmethod
    def _parameters(cls) -> list[str]:
        return [name for name in inspect.signature(cls).parameters if name != "self"]


def check_counts(**counts: int | None) -> None:
    """Refuse numbers below 1.

    Args:
        **counts: Numbers by name; None is not checked.

    Raises:
        ValueError: If one is below 1.
    """
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be >= 1, found {value}")


def check_seed(seed: int) -> None:
    """Refuse what cannot seed a generator.

    Args:
        seed: The seed.

    Raises:
        ValueError: If it is no whole number >= 0.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be a whole number >= 0, found {seed!r}")
