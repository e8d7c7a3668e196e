"""Pictures of a table of values, into a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from icl25_sava import plots, workflows
from icl25_sava.audits import known_rows
from icl25_sava.evaluation import detection_curve
from icl25_sava.sava import SAVA
from icl25_sava.tables import read_values
from icl25_shared import InputError, Output, atomic_path

if TYPE_CHECKING:
    from icl25_sava import cli

__all__ = ["run_plot", "save_pictures"]


def run_plot(flags: cli.Plot) -> Output:
    """Draw."""
    out = flags.out if flags.out is not None else Path("plots")
    table = read_values(flags.values)
    values = table["value"].to_numpy(np.float64)
    figures = {}
    if flags.truth is not None:
        known_values, mask = known_rows(table, flags.truth, flags.audit)
        figures["detection.png"] = plots.plot_detection({"values": detection_curve(known_values, mask)})
        figures["histogram.png"] = plots.plot_histogram(known_values, mask)
    elif "label" in table:
        figures["histogram.png"] = plots.plot_histogram(values, table["label"].to_numpy())
    if flags.store is not None:
        model = SAVA.load(flags.store)
        if model.valuation_.pending:
            raise InputError(f"the store {flags.store} is not complete")
        figures["batches.png"] = plots.plot_batches(model.batch_costs_, model.outer_plan_)
    if (flags.train is None) != (flags.val is None):
        raise InputError("--train and --val belong together: the worst rows are shown beside validation rows")
    if flags.train is not None and flags.val is not None:
        figures["worst.png"] = _worst(flags, table)
    if not figures:
        raise InputError("nothing to draw: the table has no labels; give --truth, --store, or --train and --val")
    made = save_pictures(figures, out, flags.force)
    return Output({"pictures": made}, [f"wrote {picture}" for picture in made])


def save_pictures(figures: Mapping[str, Any], folder: Path, force: bool) -> list[str]:
    """Write all pictures, or none where one of them may not be written."""
    if folder.is_file():
        raise InputError(f"--out {folder} is a file, expected a folder")
    for name in figures:
        if (folder / name).exists() and not force:
            raise InputError(f"{folder / name} exists: --force replaces it")
    for name, figure in figures.items():
        with atomic_path(folder / name, force=force) as path:
            figure.savefig(path, dpi=150)
    return [str(folder / name) for name in figures]


def _worst(flags: cli.Plot, table: pd.DataFrame) -> Any:
    if flags.train is None or flags.val is None or "nearest_id" not in table:
        raise InputError(f'{flags.values} has no column "nearest_id": the method knows no nearest rows')
    train, val = workflows.read_pair(flags.reading(), flags.train, flags.val)
    shape = train.image_shape
    if flags.image_shape is not None:
        try:
            shape = tuple(int(part) for part in flags.image_shape.lower().split("x"))
        except ValueError:
            raise InputError(f"--image-shape: expected HxW or HxWxC, found {flags.image_shape!r}") from None
    if shape is None:
        raise InputError("the rows are no images: give --image-shape HxW or HxWxC")
    rows = _places(train.ids, table["id"], f"{flags.train} lacks ids of {flags.values}")
    nearest = _places(val.ids, table["nearest_id"], f"{flags.val} lacks validation ids of {flags.values}")
    if train.y is None or val.y is None:
        raise InputError("the labels of the rows stand beside them: name their column with --label")
    values = table["value"].to_numpy(np.float64)
    return plots.plot_worst(train.X[rows], train.y[rows], values, nearest, val.X, val.y, shape)


def _places(known: np.ndarray, wanted: pd.Series, complaint: str) -> np.ndarray:
    """Row number of each wanted id; the table may be in another order than the file."""
    places = pd.Series(np.arange(len(known)), index=known.astype(str)).reindex(wanted.astype(str))
    if places.isna().any():
        raise InputError(f"{complaint}: the first is {places.index[int(places.isna().to_numpy().argmax())]}")
    return places.to_numpy(np.int64)
