"""One CPU device for each core, so that independent runs are computed side by side."""

from __future__ import annotations

import os
import sys

__all__ = ["devices_for_runs"]


def devices_for_runs(n: int | None = None, *, cpu_only: bool = False) -> int:
    """Have jax see the CPU as several devices; runs of a comparison are then spread over them.

    This is to be done before jax is imported, and changes nothing where ``XLA_FLAGS`` is set already.

    Args:
        n: Number of devices, at least 1. Default: one for each core that this process may use.
        cpu_only: Hide other devices from jax, unless ``JAX_PLATFORMS`` says what it is to see.

    Returns:
        The number of devices that jax was told of; 0 where nothing was changed.

    Raises:
        ValueError: If ``n`` is less than 1.
    """
    if n is not None and n < 1:
        raise ValueError(f"n must be >= 1, found {n}")
    if "jax" in sys.modules:
        return 0
    if cpu_only:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if "XLA_FLAGS" in os.environ:
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    n = cores if n is None else n
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={n}"
    return n
