"""What several verbs share: reading the network that a command line names, where results go, and tables."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.table import Table
from torch import nn

from icl25_lp_conv.model_files import LoadedModel, load_model
from icl25_lp_conv.models import ModelSource, Preset, build_model, presets
from icl25_shared import InputError, RunFolder

if TYPE_CHECKING:
    from icl25_lp_conv import cli

_TEXT = frozenset({"", "layer", "area", "kernel", "padding", "network"})


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


def output_file(out: Path | None, default: str, force: bool, endings: Iterable[str], flag: str = "--out") -> Path:
    """The file to write to, refused before the work begins where it cannot be written after it."""
    path = Path(default) if out is None else out
    if path.is_dir():
        raise InputError(f"{flag} {path} is a folder, expected a file such as {path / default}")
    if not path.name.endswith(tuple(endings)):
        raise InputError(f"{flag} {path}: expected a name that ends in {' or '.join(endings)}")
    if path.exists() and not force:
        raise InputError(f"{flag} {path} exists: --force replaces it")
    return path


def output_files(out: Path | None, default: str, names: Sequence[str], force: bool) -> list[Path]:
    """The files to write in a folder, refused before the work begins where they cannot be written after it."""
    folder = Path(default) if out is None else out
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder} is a file, expected a folder")
    paths = [folder / name for name in names]
    for path in paths:
        if path.exists() and not force:
            raise InputError(f"{path} exists: --force replaces it")
    return paths


def open_run(flags: cli.Train | cli.SudokuTrain, verb: str, names: Sequence[str]) -> RunFolder:
    """The folder of a training: new, begun anew (--force: its files are removed) or to be gone on with (--resume)."""
    if flags.resume:
        if flags.force:
            raise InputError("--resume and --force exclude each other: the one goes on, the other begins anew")
        if flags.out is None:
            raise InputError("--resume goes on with the run of a folder: name it with --out")
        if not (flags.out / "run.json").exists():
            raise InputError(f"there is no run to resume in {flags.out}")
    elif flags.out is not None:
        paths = [path for path in (flags.out / name for name in names) if path.exists()]
        if paths and not flags.force:
            raise InputError(f"{paths[0]} exists: --resume goes on with a run that broke off, --force begins anew")
        for path in paths:
            path.unlink()
    force = flags.force or flags.resume
    return RunFolder.create(flags.out, program="icl25-lp-conv", verb=verb, config=flags, force=force)


def count_parameters(model: nn.Module) -> int:
    """Number of parameters, each counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def split_globs(text: str | None) -> list[str] | None:
    """Globs that were separated by commas."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def make_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table whose columns of numbers are aligned to the right."""
    table = Table(title=title, title_justify="left", show_header=any(columns))
    for column in columns:
        # A name that is cut in the middle says nothing.
        table.add_column(column, justify="left" if column in _TEXT else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
