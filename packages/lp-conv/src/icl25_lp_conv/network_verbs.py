"""How verbs come by a network: read from a file, or built from a name."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from icl25_lp_conv.model_files import LoadedModel, load_model
from icl25_lp_conv.models import ModelSource, Preset, build_model, presets
from icl25_shared import InputError, select_device

if TYPE_CHECKING:
    from icl25_lp_conv import cli


def read_file(path: Path, flags: cli.ArchitectureFlags) -> LoadedModel:
    """The network of a file, in evaluation mode."""
    name = flags.architecture
    if name is None and (flags.num_classes is not None or flags.small_images):
        raise InputError("--num-classes and --small-images belong to --architecture: name it too")
    source = None if name is None else ModelSource(name, flags.num_classes, flags.small_images)
    try:
        return load_model(path, source)
    except ImportError as error:
        raise InputError(str(error)) from error
    except ValueError as error:
        if "holds weights alone" not in str(error):
            raise
        message = f"{path} holds weights alone: name the network that they are of with --architecture"
        raise InputError(message) from error


def read_sudoku_network(path: Path, device: str) -> nn.Module:
    """A network of a file that takes Sudoku boards, on the device."""
    loaded = load_model(path)
    if not loaded.source.name.startswith("sudoku-cnn"):
        raise InputError(f"{path} holds {loaded.source.name}, expected a network of `sudoku train`")
    return loaded.model.to(select_device(device))


def read_or_build(model: str, pretrained: bool, flags: cli.ArchitectureFlags) -> LoadedModel:
    """The network of a file, or one that is built from its name with weights that the seed decides."""
    if Path(model).exists():
        if pretrained:
            raise InputError(f"--pretrained is for names of models, but {model} is a file")
        return read_file(Path(model), flags)
    if flags.architecture is not None:
        raise InputError(f"--architecture is for files, but there is no file {model}")
    return build(ModelSource(model, flags.num_classes, flags.small_images), pretrained, flags.seed)


def build(source: ModelSource, pretrained: bool, seed: int) -> LoadedModel:
    """A network from its name, with weights that the seed decides, in training mode."""
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(seed)
        try:
            model = build_model(source.name, source.num_classes, source.small_images, pretrained)
        except ImportError as error:
            raise InputError(str(error)) from error
    return LoadedModel(model, source)


def find_preset(name: str) -> Preset:
    """A preset by name."""
    if name not in presets:
        close = difflib.get_close_matches(name, presets, n=1)
        hint = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(presets)}"
        raise InputError(f"--preset: there is no preset {name!r}; {hint}")
    return presets[name]


def count_parameters(model: nn.Module) -> int:
    """Number of parameters, each counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def split_globs(text: str | None) -> list[str] | None:
    """Globs that were separated by commas."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]
