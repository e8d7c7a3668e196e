"""The state of a Sudoku training in a safetensors file, from which it goes on as if it had never stopped."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import torch
from jaxtyping import Integer
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from icl25_shared import atomic_path

__all__ = ["TrainingState", "fingerprint"]


def fingerprint(
    model: nn.Module,
    boards: Integer[Tensor, "n 9 9"],
    targets: Integer[Tensor, "n 9 9"],
    settings: tuple[object, ...],
) -> str:
    """Hash what decides a training beside its initial weights, which the checkpoint holds, and its length.

    Args:
        model: The network; the names, shapes and types of its parameters count, and which are trained.
        boards: (n, 9, 9) puzzles on the CPU.
        targets: (n, 9, 9) solutions on the CPU.
        settings: What else decides it.

    Returns:
        64 hexadecimal digits.

    Source: ours.
    """
    digest = hashlib.sha256(repr(settings).encode())
    for tensor in (boards, targets):
        digest.update(tensor.numpy())
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}{tensor.requires_grad}".encode())
    return digest.hexdigest()


@dataclass
class TrainingState:
    """A training under way, and the file that keeps it.

    Attributes:
        model: The network.
        optimizer: Its optimizer.
        path: The file, or None to keep nothing.
        identity: Fingerprint of the training, which a file must bear to be read.
        step: Steps done.
        loss_sum: Loss of the epoch under way, summed over its puzzles.
        losses: Mean loss of each epoch done.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    path: Path | None = None
    identity: str = ""
    step: int = 0
    loss_sum: float = 0.0
    losses: list[float] = field(default_factory=list)

    def save(self) -> None:
        """Write the file, if there is to be one; it is whole at any time.

        Raises:
            OSError: If it cannot be written.
        """
        if self.path is None:
            return
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for number, entries in self.optimizer.state_dict()["state"].items():
            tensors.update({f"optimizer.{number}.{name}": tensor for name, tensor in entries.items()})
        tensors["losses"] = torch.tensor([*self.losses, self.loss_sum], dtype=torch.float64)
        tensors = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
        with atomic_path(self.path, force=True) as temporary:
            save_file(tensors, temporary, {"fingerprint": self.identity, "step": str(self.step)})

    def load(self) -> None:
        """Bring network, optimizer and counters to the state of the file.

        Raises:
            ValueError: If it is no safetensors file or that of another training.
        """
        path = self.path
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  no mapping
        except SafetensorError as error:
            raise ValueError(f"{path} is not a safetensors file ({error})") from error
        if metadata.get("fingerprint") != self.identity:
            raise ValueError(f"{path} is the checkpoint of another training: remove it or choose another file")
        entries: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            kind, _, rest = name.partition(".")
            if kind == "optimizer":
                number, _, part = rest.partition(".")
                entries.setdefault(int(number), {})[part] = tensor
        self.model.load_state_dict({k.removeprefix("model."): t for k, t in tensors.items() if k.startswith("model.")})
        self.optimizer.load_state_dict({"state": entries, "param_groups": self.optimizer.state_dict()["param_groups"]})
        *self.losses, self.loss_sum = tensors["losses"].tolist()
        self.step = int(metadata["step"])
