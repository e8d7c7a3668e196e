"""The verb that compares a network with brain areas: read stimuli and recordings, compare, draw."""

from __future__ import annotations

import re
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl25_lp_conv.datasets.image_files import SUFFIXES, open_files
from icl25_lp_conv.image_batches import normalised
from icl25_lp_conv.network_verbs import read_or_build, split_globs
from icl25_lp_conv.output_verbs import make_table
from icl25_lp_conv.recipe import Recipe
from icl25_lp_conv.rsa import best_layers, read_brain, read_ceilings, rsa, summarize
from icl25_lp_conv.rsa_plots import plot_heatmap, plot_layers
from icl25_shared import InputError, Output, RunFolder, atomic_path, select_device

if TYPE_CHECKING:
    from icl25_lp_conv import cli

_NAMES = ("x", "stimuli", "images")


def run_rsa(flags: cli.Rsa) -> Output:
    """Compare a network with brain areas."""
    for name, value, lowest in (("permutations", flags.permutations, 0), ("batch-size", flags.batch_size, 1)):
        if value < lowest:
            raise InputError(f"--{name} must be >= {lowest}, found {value}")
    if flags.size is not None and flags.size < 1:
        raise InputError(f"--size must be >= 1, found {flags.size}")
    brain = read_brain(flags.brain)
    ceilings = None if flags.ceiling is None else read_ceilings(flags.ceiling)
    loaded = read_or_build(flags.model, flags.pretrained, flags)
    stimuli = _read_stimuli(flags.images, flags.size, _channels(loaded.model))
    model = loaded.model.to(select_device(flags.device))
    run = RunFolder.create(flags.out, program="icl25-lp-conv", verb="rsa", config=flags, force=flags.force)
    with run:
        table = _compare(model, stimuli, brain, ceilings, flags)
        summary = summarize(table)
        best = best_layers(summary)
        for name, frame in (("similarities.csv", table), ("summary.csv", summary)):
            with atomic_path(run.path(name), force=flags.force) as temporary:
                frame.to_csv(temporary, index=False)
        shown = None if ceilings is None else {area: ceilings[area] for area in brain}
        drawn = _comparable(summary)
        run.save_figure(plot_layers(drawn, shown), "layers.png")
        run.save_figure(plot_heatmap(drawn), "areas.png")
    if flags.permutations:
        medians = table.groupby(["layer", "area"])["p_value"].median()
        best["p_value"] = [float(medians[row["layer"], row["area"]]) for _, row in best.iterrows()]
    data = {
        "out": str(run.folder),
        "stimuli": len(stimuli),
        "layers": int(summary["layer"].nunique()),
        "best": best.to_dict("records"),
    }
    n_layers = data["layers"]
    title = f"Most similar of {n_layers} layers, medians over sessions" if n_layers > 1 else "Medians over sessions"
    return Output(data, [_best_table(title, best), f"tables and pictures in {run.folder}"])


def _compare(model: nn.Module, stimuli: Any, brain: Any, ceilings: Any, flags: cli.Rsa) -> pd.DataFrame:
    try:
        return rsa(
            model,
            stimuli,
            brain,
            ceilings,
            layers=split_globs(flags.layers),
            method=flags.method,
            batch_size=flags.batch_size,
            n_permutations=flags.permutations,
            seed=flags.seed,
            n_jobs=flags.jobs,
        )
    except RuntimeError as error:  # torch's, about shapes
        shape, why = tuple(stimuli.shape[1:]), str(error).strip().partition("\n")[0]
        raise InputError(f"the network takes no stimuli of shape {shape}; other channels or --size? ({why})") from error


def _comparable(summary: pd.DataFrame) -> pd.DataFrame:
    """The summary as it can be drawn on one scale: without ceilings where some area has none."""
    known = summary.dropna(subset=["ssm"])["corrected"].notna()
    return summary if known.all() else summary.assign(corrected=np.nan, error=np.nan)


def _channels(model: nn.Module) -> int:
    """Channels of the images that a network takes, which are those of its first convolution."""
    first: Any = next((module for module in model.modules() if hasattr(module, "in_channels")), None)
    return 3 if first is None else first.in_channels


def _read_stimuli(path: Path, size: int | None, channels: int) -> Float[Tensor, "n ..."]:
    """Stimuli as the network takes them; bytes are scaled as in training, floating point is taken as it is."""
    if path.is_dir():
        files = [child for child in path.iterdir() if child.suffix.lower() in SUFFIXES and child.name[0] != "."]
        if not files:
            raise InputError(f"{path} holds no image ({', '.join(SUFFIXES)})")
        if channels not in (1, 3):
            raise InputError(f"the network takes {channels} channels, which images do not have: pass an NPZ file")
        images = open_files(sorted(files, key=_natural), size=size, channels=channels, memory_limit=2**40)
        return normalised(images, Recipe())
    name, array = _read_array(path)
    if array.dtype.kind == "f":
        if size is not None:
            raise InputError(f"--size: {path} holds floating point, which is taken as it is")
        stimuli = array[:, None] if array.ndim == 3 else array
        if stimuli.ndim == 4 and stimuli.shape[1] != channels and stimuli.shape[3] == channels:
            stimuli = stimuli.transpose(0, 3, 1, 2)
        return torch.from_numpy(np.ascontiguousarray(stimuli, np.float32))
    if array.dtype != np.uint8:
        raise InputError(f"{path}: array {name!r} holds {array.dtype}, expected bytes (uint8) or floating point")
    if size is not None:
        raise InputError(f"--size resizes files of images, found {path}")
    images = array[..., None] if array.ndim == 3 else array
    if images.ndim == 4 and images.shape[3] != channels and images.shape[1] == channels:
        images = images.transpose(0, 2, 3, 1)
    if images.ndim != 4 or images.shape[3] != channels:
        expected = f"(n, h, w, {channels}), as the network takes {channels} channels"
        raise InputError(f"{path}: array {name!r} has shape {array.shape}, expected {expected}")
    return normalised(images, Recipe())


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sort 2.png before 10.png."""
    parts = re.split(r"(\d+)", path.name.lower())
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _read_array(path: Path) -> tuple[str, np.ndarray]:
    """The array of stimuli of an NPZ file, never unpickled."""
    if path.suffix.lower() != ".npz":
        raise InputError(f"{path}: expected a folder of images or an NPZ file")
    try:
        with np.load(path, allow_pickle=False) as archive:
            name = next((name for name in _NAMES if name in archive.files), None)
            if name is None and len(archive.files) == 1:
                name = archive.files[0]
            if name is None:
                raise InputError(f"{path} has no array x; it holds {', '.join(archive.files) or 'nothing'}")
            return name, archive[name]
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
        reason = "it holds Python objects" if "allow_pickle" in str(error) else str(error).partition("\n")[0]
        raise InputError(f"{path} is no readable NPZ file ({reason})") from error


def _best_table(title: str, best: pd.DataFrame) -> Any:
    corrected, tested = best["corrected"].notna().any(), "p_value" in best
    columns = ["area", "layer", "sessions", "similarity"]
    columns += ["/ ceiling"] * bool(corrected) + ["p"] * tested
    rows = [
        (
            str(row["area"]),
            str(row["layer"]),
            str(row["n_sessions"]),
            f"{row['ssm']:.3f}",
            *([f"{row['corrected']:.3f}"] if corrected else []),
            *([f"{row['p_value']:.3g}"] if tested else []),
        )
        for _, row in best.iterrows()
    ]
    return make_table(title, columns, rows)
