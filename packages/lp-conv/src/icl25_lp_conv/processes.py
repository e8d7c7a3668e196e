"""The processes that train one network together, as ``torchrun`` starts them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch
from torch import distributed, nn

from icl25_shared import select_device

__all__ = ["Process", "join_processes", "share_buffers", "sum_over_processes"]


@dataclass(frozen=True)
class Process:
    """This process among those of a training.

    Attributes:
        rank: Its number, from 0.
        n: How many there are.
        device: Where it computes.
    """

    rank: int
    n: int
    device: torch.device

    @property
    def on_cuda(self) -> bool:
        """Whether it computes on a GPU of CUDA."""
        return self.device.type == "cuda"


@contextlib.contextmanager
def join_processes(device: str | torch.device) -> Generator[Process]:
    """Join the processes that ``torchrun`` has started (``WORLD_SIZE`` above 1), or be the only one.

    Args:
        device: As ``icl25_shared.select_device`` takes it. Of several processes on CUDA each takes the device of its
            local rank.

    Yields:
        This process.

    Raises:
        ValueError: If there is no such device.

    Source: ours.
    """
    n = int(os.environ.get("WORLD_SIZE", "1"))
    if n == 1:
        yield Process(0, 1, select_device(str(device)))
        return
    chosen = select_device(str(device))
    if chosen.type == "cuda":
        chosen = select_device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}")
        torch.cuda.set_device(chosen)
    joins = not distributed.is_initialized()
    if joins:
        distributed.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield Process(distributed.get_rank(), n, chosen)
    finally:
        if joins:
            distributed.destroy_process_group()


def sum_over_processes(values: Sequence[float], process: Process) -> list[float]:
    """Add up numbers of all processes.

    Args:
        values: The numbers of this one.
        process: This process.

    Returns:
        The sums, one for each number, the same in all processes.

    Source: ours.
    """
    if process.n == 1:
        return list(values)
    tensor = torch.tensor(values, dtype=torch.float64, device=process.device)
    distributed.all_reduce(tensor)
    return tensor.tolist()


def share_buffers(model: nn.Module, process: Process) -> None:
    """Give all processes the buffers (running statistics) of the first.

    Args:
        model: The network, which is changed.
        process: This process.

    Source: ours.
    """
    if process.n > 1:
        for buffer in model.buffers():
            distributed.broadcast(buffer, 0)
