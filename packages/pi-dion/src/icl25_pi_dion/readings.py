"""Sensor readings: on fixed sensors as arrays, or a different set of sensors for each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

__all__ = ["SensorReadings"]


class SensorReadings(NamedTuple):
    """Readings of sensors that may differ from sample to sample, padded to the longest.

    Attributes:
        values: What was read.
        locations: Where, in the coordinates of u.
        mask: Which entries are readings; the others are padding.
    """

    values: Float[np.ndarray, "n m"]
    locations: Float[np.ndarray, "n m d"]
    mask: Bool[np.ndarray, "n m"]

    @classmethod
    def from_list(cls, samples: Sequence[tuple[Float[np.ndarray, "_ d"], Float[np.ndarray, " _"]]]) -> SensorReadings:
        """Pad samples of different lengths.

        Args:
            samples: For each sample the locations, shape (m_i, d), and the values, shape (m_i,).

        Returns:
            The readings.

        Raises:
            ValueError: If there is no sample, one is empty, or lengths or dimensions differ.
        """
        if not len(samples):
            raise ValueError("there are no samples")
        pairs = [(np.asarray(where, float), np.asarray(what, float)) for where, what in samples]
        d = pairs[0][0].shape[-1]
        for i, (where, what) in enumerate(pairs):
            if what.ndim != 1 or where.shape != (len(what), d) or not len(what):
                raise ValueError(
                    f"sample {i} must have locations (m, {d}) and values (m,) with m >= 1, "
                    f"found {where.shape} and {what.shape}"
                )
        longest = max(len(what) for _, what in pairs)
        values = np.zeros((len(pairs), longest))
        locations = np.zeros((len(pairs), longest, d))
        mask = np.zeros((len(pairs), longest), bool)
        for i, (where, what) in enumerate(pairs):
            values[i, : len(what)], locations[i, : len(what)], mask[i, : len(what)] = what, where, True
        return cls(values, locations, mask)
