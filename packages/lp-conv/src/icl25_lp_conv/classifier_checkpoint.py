"""The state of a classifier's training in a safetensors file, from which it goes on as if it had never stopped."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from icl25_lp_conv.datasets.images import ImageSplits
from icl25_shared import atomic_path

__all__ = ["ClassifierState", "fingerprint"]

_HASHED_IMAGES = 64
# One entry alone, since a file with several has them in any order.
_KEY = "training"


def fingerprint(model: nn.Module, data: ImageSplits, settings: tuple[object, ...]) -> str:
    """Hash what decides a training beside its initial weights, which the checkpoint holds.

    Args:
        model: The network; names, shapes and types of its tensors count, and which are trained.
        data: The images; all labels count, and some of the images.
        settings: What else decides it.

    Returns:
        64 hexadecimal digits.

    Source: ours.
    """
    digest = hashlib.sha256(repr(settings).encode())
    for part in (data.train, data.val):
        digest.update(repr(part.images.shape).encode())
        digest.update(np.ascontiguousarray(part.labels).tobytes())
        rows = np.unique(np.linspace(0, len(part) - 1, min(len(part), _HASHED_IMAGES)).astype(np.int64))
        digest.update(np.ascontiguousarray(part.read(rows)).tobytes())
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}{tensor.requires_grad}".encode())
    return digest.hexdigest()


@dataclass
class ClassifierState:
    """A training under way.

    Attributes:
        model: The network.
        optimizer: Its optimizer.
        scaler: The scaler of losses in half precision.
        ema: The moving average of the network, or None.
        path: The file that keeps the state.
        identity: Fingerprint of the training, which a file must bear to be read.
        epoch: Epochs done.
        history: The metrics of each epoch done.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    ema: nn.Module | None
    path: Path
    identity: str
    epoch: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)

    def save(self) -> None:
        """Write the file; it is whole at any time.

        Raises:
            OSError: If it cannot be written.
        """
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        if self.ema is not None:
            tensors |= {f"ema.{name}": tensor for name, tensor in self.ema.state_dict().items()}
        for number, entries in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": tensor for name, tensor in entries.items()}
        # Copies, since shared tensors have no place in such a file.
        tensors = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
        rest = {"fingerprint": self.identity, "epoch": self.epoch, "history": self.history}
        rest["scaler"] = self.scaler.state_dict()
        with atomic_path(self.path, force=True) as temporary:
            save_file(tensors, temporary, {_KEY: json.dumps(rest)})

    def load(self) -> None:
        """Bring the training to the state of the file.

        Raises:
            ValueError: If it is no safetensors file or that of another training.
        """
        try:
            with safe_open(self.path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  no mapping
        except SafetensorError as error:
            raise ValueError(f"{self.path} is not a safetensors file ({error})") from error
        rest = json.loads(metadata.get(_KEY, "{}"))
        if rest.get("fingerprint") != self.identity:
            raise ValueError(f"{self.path} is the checkpoint of another training: remove it or choose another folder")
        self.model.load_state_dict(_under("model.", tensors))
        if self.ema is not None:
            self.ema.load_state_dict(_under("ema.", tensors))
        entries: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _under("optimizer.", tensors).items():
            number, _, part = name.partition(".")
            entries.setdefault(int(number), {})[part] = tensor
        self.optimizer.load_state_dict({"state": entries, "param_groups": self.optimizer.state_dict()["param_groups"]})
        self.scaler.load_state_dict(rest["scaler"])
        self.epoch, self.history = rest["epoch"], rest["history"]


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
