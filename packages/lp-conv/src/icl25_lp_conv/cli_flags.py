"""What the verbs share: how flags show in the help, and paths that are checked before anything slow is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tyro

from icl25_shared import InputError

# Endings of files, which names of models do not have; those of timm may end in a tag such as ".a1_in1k".
_FILE_ENDINGS = (
    ".pt",
    ".pth",
    ".bin",
    ".ckpt",
    ".safetensors",
    ".onnx",
    ".csv",
    ".npz",
    ".npy",
    ".json",
    ".h5",
    ".zip",
)


def value(metavar: str, *aliases: str) -> Any:
    """How a flag without a default value shows in the help, where its own text says what happens without it."""
    return tyro.conf.arg(metavar=metavar, aliases=aliases or None, help_behavior_hint="")


def check_files(*paths: Path | None) -> None:
    """Refuse files that do not exist, before the import of the libraries that read them takes seconds."""
    for path in paths:
        check_paths(path)
        if path is not None and path.is_dir():
            raise InputError(f"{path} is a folder, expected a file")


def check_paths(*paths: Path | None) -> None:
    """Refuse files or folders that do not exist."""
    for path in paths:
        if path is not None and not path.exists():
            raise FileNotFoundError(f"{path}: no such file or folder")


def check_model(model: str) -> None:
    """Refuse what looks like a file and is none; the name of a model is looked up later."""
    path = Path(model)
    if path.suffix.lower() in _FILE_ENDINGS or path.exists() or model.startswith((".", "/")):
        check_files(path)
