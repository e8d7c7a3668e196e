"""FILL IN: one idea of the paper in each such file, named as the field names it. This one stands in for it."""

import numpy as np
from jaxtyping import Float


def running_mean(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Mean of the first 1, 2, ... n entries.

    Args:
        x: Numbers, of shape (n,), with n >= 1; finite.

    Returns:
        The means, of shape (n,).

    Raises:
        ValueError: If `x` is empty, or an entry is NaN or infinite; the message says which comes first.

    Source:
        FILL IN: the paper's equation, algorithm or section.

    Example:
        >>> running_mean(np.array([1.0, 2.0, 6.0])).tolist()
        [1.0, 1.5, 3.0]
    """
    if len(x) == 0:
        raise ValueError("x is empty, expected at least one number")
    bad = np.flatnonzero(~np.isfinite(x))
    if len(bad):
        raise ValueError(f"x must be finite, has {len(bad)} such entries, first {x[bad[0]]} at {bad[0]}")
    return np.cumsum(x) / np.arange(1, len(x) + 1)
