"""Choose the device to compute on, for torch and for jax."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Literal, overload

if TYPE_CHECKING:
    import jax
    import torch

__all__ = ["check_device_name", "select_device"]

_NAME = re.compile(r"auto|cpu|mps|cuda(?::(\d+))?")
_GIGABYTE = 1e9


@overload
def select_device(name: str = ..., framework: Literal["torch"] = ...) -> torch.device: ...
@overload
def select_device(name: str, framework: Literal["jax"]) -> jax.Device: ...
@overload
def select_device(name: str = ..., *, framework: Literal["jax"]) -> jax.Device: ...
def select_device(name: str = "auto", framework: Literal["torch", "jax"] = "torch") -> Any:
    """Return the device that a name stands for.

    ``auto`` is the CUDA device with the most free memory, else Apple's GPU, else the CPU. ``cuda`` is the CUDA device
    with the most free memory, ``cuda:N`` the N-th of those that the process sees. What it sees is the framework's
    affair: ``CUDA_VISIBLE_DEVICES`` hides and renumbers devices, ``JAX_PLATFORMS`` restricts jax.

    Args:
        name: ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:N"`` or ``"mps"``.
        framework: ``"torch"`` or ``"jax"``; it is imported by this call.

    Returns:
        A ``torch.device`` or a ``jax.Device``.

    Raises:
        ValueError: If the name or the framework is none of these, or if there is no such device; the message names
            those that exist.
        ImportError: If the framework is not installed.
    """
    match = check_device_name(name)
    if framework not in ("torch", "jax"):
        raise ValueError(f"framework must be torch or jax, found {framework!r}")
    found = _torch_devices() if framework == "torch" else _jax_devices()
    cuda = {label: free for label, (_, free) in found.items() if label.startswith("cuda")}
    if name == "auto":
        label = _roomiest(cuda) or ("mps" if "mps" in found else next(iter(found)))
    elif name == "cuda":
        label = _roomiest(cuda) or name
    else:
        label = f"cuda:{int(match[1])}" if match[1] else name
    if label not in found:
        raise ValueError(f"there is no device {name!r} for {framework}; there are: {_describe(found, framework)}")
    return found[label][0]


def check_device_name(name: str) -> re.Match[str]:
    """See that a name is one that ``select_device`` knows, whether or not there is such a device.

    Args:
        name: The name.

    Returns:
        The match, whose first group is the number of a CUDA device that was asked for by number, else None.

    Raises:
        ValueError: If it is none of ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:N"`` and ``"mps"``.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"device must be auto, cpu, cuda, cuda:N or mps, found {name!r}")
    return match


def _torch_devices() -> dict[str, tuple[Any, int]]:
    """Every device of torch by label, with its free memory in bytes where that is known, else 0."""
    try:
        import torch
    except ImportError as error:
        raise ImportError("device selection for torch needs torch: pip install torch") from error

    found: dict[str, tuple[Any, int]] = {"cpu": (torch.device("cpu"), 0)}
    if torch.backends.mps.is_available():
        found["mps"] = (torch.device("mps"), 0)
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            found[f"cuda:{index}"] = (torch.device("cuda", index), torch.cuda.mem_get_info(index)[0])
    return found


def _jax_devices() -> dict[str, tuple[Any, int]]:
    """As ``_torch_devices``; jax's own list decides, so that ``JAX_PLATFORMS`` is obeyed."""
    try:
        import jax
    except ImportError as error:
        raise ImportError("device selection for jax needs jax: pip install jax") from error

    found: dict[str, tuple[Any, int]] = {}
    for platform, label in (("cpu", "cpu"), ("cuda", "cuda"), ("METAL", "mps")):
        try:
            devices = jax.local_devices(backend=platform)
        except RuntimeError:  # jax's way of saying that the platform is not there, or not allowed
            continue
        if label == "cuda":
            found.update({f"cuda:{index}": (device, _jax_free_memory(device)) for index, device in enumerate(devices)})
        else:
            found[label] = (devices[0], 0)
    if not found:  # TPUs and the like have no name here, but "auto" still finds them
        found = {str(device): (device, 0) for device in jax.local_devices()}
    return found


def _jax_free_memory(device: Any) -> int:
    statistics = device.memory_stats() or {}
    return statistics.get("bytes_limit", 0) - statistics.get("bytes_in_use", 0)


def _roomiest(free: dict[str, int]) -> str | None:
    return max(free, key=lambda label: free[label], default=None)


def _describe(found: dict[str, tuple[Any, int]], framework: str) -> str:
    names = ", ".join(
        f"{label} ({free / _GIGABYTE:.1f} GB free)" if free else label for label, (_, free) in found.items()
    )
    limits = [
        f"{variable}={os.environ[variable]!r}"
        for variable in ("CUDA_VISIBLE_DEVICES", *(("JAX_PLATFORMS",) if framework == "jax" else ()))
        if variable in os.environ
    ]
    return names + (f" (with {' and '.join(limits)})" if limits else "")
