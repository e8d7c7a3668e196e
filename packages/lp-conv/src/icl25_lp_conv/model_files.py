"""Files that hold a network: its weights, where it came from, and which convolutions were given masks."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from icl25_lp_conv.layer_records import changed_layers, install_layers, layers_of_state
from icl25_lp_conv.models.sources import ModelSource
from icl25_shared import atomic_path

__all__ = ["LoadedModel", "load_model", "save_model"]

_KEY = "icl25-lp-conv"
_VERSION = 1
_PICKLED = (".pt", ".pth", ".ckpt", ".bin")
# Where training scripts put the weights in their checkpoints, and what wrappers of torch put before the names.
_NESTED = ("model", "state_dict", "model_ema")
_PREFIXES = ("module.", "_orig_mod.")
_ZIP = b"PK\x03\x04"
# What torch raises on files that are cut off or no files of its own.
_UNREADABLE = (RuntimeError, EOFError, OSError, ValueError, KeyError, TypeError, AttributeError, IndexError)


@dataclass(frozen=True)
class LoadedModel:
    """What a model file holds.

    Attributes:
        model: The network, in evaluation mode, on the CPU.
        source: What it was built from.
    """

    model: nn.Module
    source: ModelSource


def save_model(path: str | os.PathLike[str], model: nn.Module, source: ModelSource, force: bool = False) -> None:
    """Write a network to a file from which ``load_model`` builds it again.

    Beside the weights the file says what the network was built from, and describes each convolution that is no longer
    as it was built; so networks that were converted, merged, cropped or given random masks can be saved.

    Args:
        path: The file: ``.safetensors``, or ``.pt`` for a file of torch that holds tensors and strings alone.
        model: The network.
        source: What it was built from.
        force: Replace a file that exists.

    Raises:
        ValueError: If the suffix is another one, or the network differs from its source in more than convolutions.
        FileExistsError: If the file exists and ``force`` is false.
        OSError: If the file cannot be written.

    Source: ours.
    """
    path = Path(path)
    if path.suffix not in (".safetensors", ".pt"):
        raise ValueError(f"{path}: a model file must end in .safetensors or .pt")
    built = _build(source)
    record = {"version": _VERSION, "source": asdict(source), "layers": changed_layers(model, built)}
    state = model.state_dict()
    try:
        with torch.random.fork_rng(devices=[]):
            _check_fit(install_layers(built, record["layers"]), state)
    except ValueError as error:
        raise ValueError(
            f"the model is not {source.name} with other convolutions, so that a file could not restore it: {error}"
        ) from error
    tensors = _independent(state)
    text = json.dumps(record)
    with atomic_path(path, force=force) as temporary:
        if path.suffix == ".safetensors":
            save_file(tensors, temporary, {_KEY: text})
        else:
            with temporary.open("wb") as file:  # torch itself reports a path that cannot be written as a bug of its own
                torch.save({_KEY: text, "state": tensors}, file)


def load_model(path: str | os.PathLike[str], source: ModelSource | None = None) -> LoadedModel:
    """Read a network from a file of ``save_model``, or from a checkpoint that holds weights alone.

    Checkpoints of other programs, the authors' among them, need ``source``. Which of their convolutions have masks
    (entries ``C`` and ``log2p``) or larger kernels shows in the weights; weights may lie under ``model``,
    ``state_dict`` or ``model_ema``, with names that begin with ``module.``. Objects are never unpickled.

    Args:
        path: The file, ``.safetensors``, ``.pt``, ``.pth``, ``.ckpt`` or ``.bin``.
        source: What the network was built from. If the file says so too, both must agree; a file that names a function
            outside this package is read only if ``source`` names the same function, since building calls it.

    Returns:
        The network and its source.

    Raises:
        ValueError: If the file cannot be read, holds other objects than tensors, strings and numbers, or does not fit
            the source; the message names it.
        FileNotFoundError: If there is no such file.
        IsADirectoryError: If it is a folder.
        ImportError: If the network needs a library that is not installed.

    Source: ours; names in the state are those of the authors' checkpoints.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, expected a model file")
    if not path.is_file():
        raise FileNotFoundError(f"there is no model file {path}")
    if path.suffix == ".safetensors":
        text, state = _read_safetensors(path)
    elif path.suffix in _PICKLED:
        text, state = _read_pickled(path)
    else:
        raise ValueError(f"{path}: a model file must end in .safetensors, {', '.join(_PICKLED)}")
    if text is None and source is None:
        raise ValueError(f"{path} holds weights alone: name the network that they are of (source=ModelSource(...))")
    record = None if text is None else _read_record(path, text)
    if record is not None:
        source = _agreed_source(path, record["source"], source)
    assert source is not None  # noqa: S101 - one of the two is there
    with torch.random.fork_rng(devices=[]):
        model = source.build()
        try:
            layers = layers_of_state(model, state) if record is None else record["layers"]
            model = install_layers(model, layers)
            _load(model, state)
        except ValueError as error:
            raise ValueError(f"{path} does not fit {source.name}: {error}") from error
    return LoadedModel(model.eval(), source)


def _build(source: ModelSource) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        return source.build()


def _check_fit(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    own = model.state_dict()
    unknown, missing = sorted(set(state) - set(own)), sorted(set(own) - set(state))
    if unknown or missing:
        lists = (("unknown", unknown), ("missing", missing))
        found = [f"{kind} {', '.join(names[:3])}" for kind, names in lists if names]
        raise ValueError("; ".join(found))
    for name, tensor in state.items():
        if tensor.shape != own[name].shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {tuple(own[name].shape)}")


def _load(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Take the weights over, in the precision in which they are."""
    _check_fit(model, state)
    for name, _ in model.named_parameters():
        n_bad = int((~torch.isfinite(state[name])).sum()) if name in state else 0
        if n_bad:
            raise ValueError(f"{name} has {n_bad} values that are not finite")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if name in state and tensor.dtype != state[name].dtype:
            tensor.data = tensor.data.to(state[name].dtype)
    model.load_state_dict(state)


def _independent(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, none of which shares memory with another, or is a view of a larger one."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in state.items():
        plain = tensor.detach().cpu().contiguous()
        storage = plain.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != plain.nbytes:
            plain = plain.clone()
        seen.add(plain.untyped_storage().data_ptr())
        tensors[name] = plain
    return tensors


def _read_safetensors(path: Path) -> tuple[str | None, dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_KEY)
            return text, _weights(path, {name: file.get_tensor(name) for name in file.keys()}, text)  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file ({error})") from error


def _read_pickled(path: Path) -> tuple[str | None, dict[str, Tensor]]:
    """Read a file of torch, of which the tensors stay on the disk until they are used."""
    with path.open("rb") as file:
        is_zipped = file.read(len(_ZIP)) == _ZIP
    try:
        # Training scripts leave their arguments in checkpoints, in a class that does nothing.
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zipped or None)
    except pickle.UnpicklingError as error:
        match = re.search(r"Unsupported (global: GLOBAL|class) (\S+)", str(error))
        if match is None:
            raise ValueError(f"{path} is not a readable file of torch") from error
        raise ValueError(
            f"{path} holds an object ({match[2]}) that is not read: only tensors, strings and numbers are"
        ) from error
    except _UNREADABLE as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "it ends too early"
        raise ValueError(f"{path} is not a readable file of torch ({reason})") from error
    text = content.get(_KEY) if isinstance(content, dict) else None
    if text is not None:
        return text, _weights(path, content.get("state"), text)
    for name in _NESTED:
        if isinstance(content, dict) and isinstance(content.get(name), Mapping):
            content = content[name]
            break
    return None, _weights(path, content, None)


def _weights(path: Path, content: Any, text: str | None) -> dict[str, Tensor]:
    """The weights, if that is what it is; without the prefixes of wrappers unless the file is one of ours."""
    if not isinstance(content, Mapping) or not content:
        raise ValueError(f"{path} holds no weights by name")
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ValueError(f"{path} holds no weights by name: {name} is a {type(tensor).__name__}")
    state = dict(content)
    for prefix in _PREFIXES if text is None else ():
        if all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    return state


def _read_record(path: Path, text: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
        version, source, layers = record["version"], ModelSource(**record["source"]), record["layers"]
        if not isinstance(source.name, str) or not isinstance(layers, dict):
            raise TypeError("a part has a wrong type")
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{path}: what it says about its network cannot be read ({error!r})") from error
    if version != _VERSION:
        raise ValueError(
            f"{path} is of version {version}, expected {_VERSION}: it takes another version of icl25-lp-conv"
        )
    return {"source": source, "layers": layers}


def _agreed_source(path: Path, recorded: ModelSource, given: ModelSource | None) -> ModelSource:
    if given is not None and given != recorded:
        raise ValueError(f"{path} holds {recorded}, found source={given}")
    if given is None and recorded.is_function:
        raise ValueError(
            f"{path} was built by the function {recorded.name}, which a file may not call by itself: "
            f"pass source={recorded} (on the command line --architecture {recorded.name}) if you trust it"
        )
    return recorded
