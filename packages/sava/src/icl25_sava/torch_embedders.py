"""Networks of torch and timm as embedders. Their weights are never unpickled beyond plain tensors."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["load_network"]

_WEIGHTS = (".safetensors", ".pt", ".pth")
# "package.module.attribute", but not the name of a TorchScript file.
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+(?<!\.pt)(?<!\.pth)(?<!\.pt2)")


def load_network(kind: str, rest: str, *, image_shape: tuple[int, ...] | None, device: str) -> Network:
    """Load a network that maps (b, d) rows to (b, k) features.

    Args:
        kind: "torch" or "timm".
        rest: What follows the first colon of the specification.
        image_shape: Shape of a row as an image, or None to pass rows as they are.
        device: Where it runs.

    Returns:
        The network in evaluation mode, as a function of NumPy arrays.

    Raises:
        ValueError: If the specification or the weights do not fit.
        FileNotFoundError: If the file of weights does not exist.
        ModuleNotFoundError: If a needed package is not installed.
    """
    spec = f"{kind}:{rest}"
    try:
        import torch  # noqa: F401  only to say which extra is missing
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"embedder {spec!r} needs torch: install icl25-sava[{kind}]") from error
    if kind == "timm":
        network, normalize = _timm(spec, rest)
    elif Path(rest).suffix in (".pt", ".pth", ".pt2") and not _MODULE.fullmatch(rest.partition(":")[0]):
        network, normalize = _script(spec, Path(rest)), None
    else:
        name, _, weights = rest.partition(":")
        network, normalize = _module(spec, name, Path(weights) if weights else None), None
    return Network(spec, network.to(device).eval(), image_shape, device, normalize)


@dataclass(frozen=True)
class Network:
    """A torch module as a function of NumPy rows."""

    spec: str
    module: Any
    image_shape: tuple[int, ...] | None
    device: str
    normalize: Callable[[Any], Any] | None

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Map (b, d) rows to (b, k) features."""
        import torch

        inputs = torch.from_numpy(np.array(rows, dtype=np.float32)).to(self.device)
        if self.image_shape is not None:
            height, width, *channels = self.image_shape
            inputs = inputs.reshape(len(rows), height, width, *(channels or [1])).movedim(-1, 1)
        with torch.inference_mode():
            outputs = self.module(inputs if self.normalize is None else self.normalize(inputs))
        if not isinstance(outputs, torch.Tensor):
            raise ValueError(f"embedder {self.spec!r} returned {type(outputs).__name__}, expected one tensor")
        return outputs.flatten(start_dim=1).float().cpu().numpy()


def _existing(spec: str, path: Path) -> Path:
    if not path.is_file():
        raise FileNotFoundError(f"embedder {spec!r}: no file of weights at {path}")
    return path


def _script(spec: str, path: Path) -> Any:
    """A network saved with its code as TorchScript."""
    import torch

    if path.suffix == ".pt2":
        raise ValueError(
            f"embedder {spec!r}: exported programs are not read, because torch unpickles their constants; save "
            "TorchScript, or weights for 'torch:module.attribute:weights.safetensors'"
        )
    try:
        return torch.jit.load(_existing(spec, path), map_location="cpu")
    except RuntimeError as error:
        raise ValueError(
            f"embedder {spec!r}: {path} is no TorchScript; for weights alone name the network too, "
            "'torch:module.attribute:weights.pt'"
        ) from error


def _module(spec: str, name: str, weights: Path | None) -> Any:
    """A network that the user names as ``module.attribute``."""
    import torch

    module_name, _, attribute = name.rpartition(".")
    if not module_name:
        raise ValueError(f"embedder {spec!r}: expected module.attribute after 'torch:', found {name!r}")
    try:
        made = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"embedder {spec!r}: cannot import {name} ({error})") from error
    network = made if isinstance(made, torch.nn.Module) else made()
    if not isinstance(network, torch.nn.Module):
        raise ValueError(f"embedder {spec!r}: {name} gives {type(network).__name__}, expected a torch.nn.Module")
    if weights is not None:
        try:
            network.load_state_dict(_state(spec, weights))
        except RuntimeError as error:
            raise ValueError(f"embedder {spec!r}: {weights} does not fit {name} ({_one_line(error)})") from error
    return network


def _state(spec: str, path: Path) -> dict[str, Any]:
    """Named tensors of a file of weights."""
    import torch

    if path.suffix not in _WEIGHTS:
        raise ValueError(f"embedder {spec!r}: weights end in {path.suffix!r}, expected one of {', '.join(_WEIGHTS)}")
    _existing(spec, path)
    if path.suffix == ".safetensors":
        try:
            from safetensors.torch import load_file
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"embedder {spec!r} needs safetensors: pip install safetensors") from error
        from safetensors import SafetensorError

        try:
            return load_file(path)
        except SafetensorError as error:
            raise ValueError(f"embedder {spec!r}: {path} is not a safetensors file ({error})") from error
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # torch raises UnpicklingError, RuntimeError, EOFError and others for a file that is not plain tensors.
        raise ValueError(f"embedder {spec!r}: {path} does not hold plain tensors ({type(error).__name__})") from error
    if not isinstance(state, dict):
        raise ValueError(f"embedder {spec!r}: {path} holds {type(state).__name__}, expected a state dict")
    return state


def _timm(spec: str, rest: str) -> tuple[Any, Callable[[Any], Any]]:
    """A timm network without its head, and the normalisation that its configuration asks for."""
    name, _, weights = rest.partition(":")
    if not name or not weights:
        raise ValueError(f"embedder {spec!r}: expected timm:NAME:weights, nothing is downloaded")
    try:
        import timm  # ty: ignore[import-not-found]
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"embedder {spec!r} needs timm: install icl25-sava[timm]") from error
    state = _state(spec, Path(weights))
    try:
        network = timm.create_model(name, pretrained=False, num_classes=0)
    except RuntimeError as error:
        raise ValueError(f"embedder {spec!r}: timm has no network {name!r}") from error
    config = network.pretrained_cfg
    heads = config.get("classifier") or ()
    heads = (heads,) if isinstance(heads, str) else tuple(heads)
    state = {key: value for key, value in state.items() if not any(key.startswith(f"{head}.") for head in heads)}
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(f"embedder {spec!r}: {weights} does not fit {name} ({_one_line(error)})") from error
    return network, partial(_normalize, spec, config["mean"], config["std"])


def _normalize(spec: str, mean: tuple[float, ...], std: tuple[float, ...], images: Any) -> Any:
    """Shift and scale pixels in [0, 1] as the network was trained on; grey images take every channel."""
    import torch

    if images.ndim != 4:
        raise ValueError(f"embedder {spec!r} takes images: give image_shape")
    images = images.expand(-1, len(mean), -1, -1) if images.shape[1] == 1 else images
    offset, scale = (torch.tensor(numbers, device=images.device).reshape(1, -1, 1, 1) for numbers in (mean, std))
    return (images - offset) / scale


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
