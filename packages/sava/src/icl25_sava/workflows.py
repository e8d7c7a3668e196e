"""From files to files: what the command line does, as functions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from icl25_sava.base import ValueEstimator
from icl25_sava.baselines import LAVA, BatchwiseLAVA, KNNShapley, NearestCost, RandomValues
from icl25_sava.evaluation import detection_auc
from icl25_sava.inputs import Rows, refuse_non_finite
from icl25_sava.readers import Dataset, read_dataset
from icl25_sava.sava import SAVA
from icl25_sava.store import Store
from icl25_shared import get_logger, read_json, write_json

__all__ = [
    "METHODS",
    "Reading",
    "StoredIds",
    "compare_methods",
    "make_method",
    "read_pair",
    "store_ids",
    "stored_ids",
    "value_table",
    "workers",
]

METHODS: Mapping[str, type[ValueEstimator]] = {
    "sava": SAVA,
    "lava": LAVA,
    "batchwise-lava": BatchwiseLAVA,
    "nearest": NearestCost,
    "knn-shapley": KNNShapley,
    "random": RandomValues,
}
"""Estimators by the names that the command line knows."""

_log = get_logger(__name__)


class Reading(NamedTuple):
    """Which columns of a file are what; see ``icl25_sava.readers.read_dataset``."""

    label: str | None = None
    features: str | None = None
    embedding: str | None = None
    id_column: str | None = None

    def read(self, path: Path) -> Dataset:
        """Read a file or folder.

        Args:
            path: the file or folder.

        Returns:
            Its rows.

        Raises:
            ValueError: it cannot be read, or lacks a column.
            FileNotFoundError: it does not exist.
        """
        return read_dataset(path, **self._asdict())


class StoredIds(NamedTuple):
    """Ids of the rows of a store."""

    train: np.ndarray
    val: np.ndarray
    reading: Reading


def make_method(name: str, options: Mapping[str, Any]) -> ValueEstimator:
    """Estimator by name, with those of the options that it knows.

    Args:
        name: a key of ``METHODS``.
        options: parameters of ``SAVA``; ``k`` for KNN-Shapley.

    Returns:
        The estimator, not yet fitted.

    Raises:
        ValueError: the name is unknown.
    """
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}, expected one of {', '.join(METHODS)}")
    for package in ("torch", "timm"):
        if str(options.get("embedder", "")).startswith(f"{package}:") and find_spec(package) is None:
            raise ValueError(f"the embedder needs {package}: pip install 'icl25-sava[{package}]'")
    kind = METHODS[name]
    known = set(kind().get_params(deep=False))
    return kind(**{option: value for option, value in options.items() if option in known})


def read_pair(reading: Reading, train: Path, val: Path, *, labels: bool = True) -> tuple[Dataset, Dataset]:
    """Read training and validation rows and see that they fit together.

    Args:
        reading: which columns are what.
        train: file or folder of the training rows.
        val: file or folder of the validation rows.
        labels: whether labels are needed.

    Returns:
        Both data sets.

    Raises:
        ValueError: a file cannot be read, has no labels though they are needed, or the features differ.
    """
    sets = reading.read(train), reading.read(val)
    for path, data in zip((train, val), sets, strict=True):
        if labels and data.y is None:
            raise ValueError(f"{path}: no labels: name their column with --label, or set --lambda-y 0")
    if sets[0].X.shape[1] != sets[1].X.shape[1]:
        raise ValueError(
            f"{train} has {sets[0].X.shape[1]} features, {val} has {sets[1].X.shape[1]}: they must be the same"
        )
    for path, data in zip((train, val), sets, strict=True):
        for start, chunk in Rows(data.X).chunks():
            refuse_non_finite(chunk, start, str(path), list(data.feature_names))
    names = sets[0].feature_names, sets[1].feature_names
    if names[0] != names[1]:
        first = next(i for i, (a, b) in enumerate(zip(*names, strict=True)) if a != b)
        raise ValueError(
            f'feature {first} is "{names[0][first]}" in {train} but "{names[1][first]}" in {val}: '
            "the same columns in the same order are needed"
        )
    return _like_labels(*sets)


def _like_labels(train: Dataset, val: Dataset) -> tuple[Dataset, Dataset]:
    """Labels as text on both sides where a file of numbers meets one that has the same numbers and words too."""
    if train.y is None or val.y is None or (train.y.dtype.kind in "UST") == (val.y.dtype.kind in "UST"):
        return train, val
    texts = train.y.astype(str), val.y.astype(str)
    if not np.isin(np.unique(texts[0]), texts[1]).any():
        return train, val
    return replace(train, y=texts[0]), replace(val, y=texts[1])


def workers(jobs: int, n: int, m: int) -> int:
    """Number of worker processes: as asked for, or one per core where the work outlasts their start.

    Args:
        jobs: number asked for, -1 for one per core, 0 for a choice.
        n: number of training rows.
        m: number of validation rows.

    Returns:
        The number, or -1 for one per core.
    """
    if jobs:
        return jobs
    seconds = n * m * 3e-8  # of one core, at a dozen sweeps
    return -1 if seconds > 20 else 1


def images(data: Dataset) -> np.ndarray:
    """The rows of a data set in the shape that an image embedder takes, without a copy."""
    return data.X if data.image_shape is None else data.X.reshape(len(data.X), *data.image_shape)


def value_table(model: ValueEstimator, ids: np.ndarray, val_ids: np.ndarray) -> pd.DataFrame:
    """Table of values, one line per training row in the order given.

    Args:
        model: fitted estimator of n rows.
        ids: ids of the training rows, shape (n,).
        val_ids: ids of the validation rows, shape (m,).

    Returns:
        Columns id, label, value, score, rank (1 is the worst), batch, and, where the method knows them, nearest_id and
        nearest_cost.

    Raises:
        ValueError: the ids do not match the rows.
    """
    if len(ids) != len(model.values_):
        raise ValueError(f"{len(ids)} ids for {len(model.values_)} values")
    rank = np.empty(len(ids), np.int64)
    rank[model.ranking_] = np.arange(1, len(ids) + 1)
    columns = {
        "id": ids,
        "label": model.labels_,
        "value": model.values_,
        "score": model.scores_,
        "rank": rank,
        "batch": getattr(model, "batch_index_", np.zeros(len(ids), np.int64)),
    }
    if isinstance(model, SAVA):
        columns |= {"nearest_id": val_ids[model.nearest_], "nearest_cost": model.nearest_cost_}
    return pd.DataFrame(columns)


def store_ids(store: Path, ids: np.ndarray, *, val_ids: np.ndarray | None = None, reading: Reading) -> None:
    """Keep the ids of rows, and how their file was read, beside the solved batches.

    Args:
        store: folder of the store.
        ids: ids of all training rows, shape (n,).
        val_ids: ids of the validation rows; those that are there stay when None.
        reading: which columns are what.
    """
    path = store / "ids.json"
    known = read_json(path) if path.exists() else {}
    val = known["val"] if val_ids is None else val_ids.tolist()
    write_json(path, {"train": ids.tolist(), "val": val, "reading": reading._asdict()}, force=True)


def stored_ids(store: Path) -> StoredIds:
    """What ``store_ids`` kept.

    Args:
        store: folder of the store.

    Returns:
        Ids and columns.

    Raises:
        ValueError: the store was not written by the command line.
    """
    path = store / "ids.json"
    if not Store(store).exists:
        raise ValueError(f"{store} is not a store: it has no meta.json")
    if not path.exists():
        raise ValueError(f"the store {store} has no ids: it was made from Python, add to it there")
    kept = read_json(path)
    return StoredIds(np.array(kept["train"]), np.array(kept["val"]), Reading(**kept["reading"]))


def compare_methods(
    train: Dataset, val: Dataset, methods: Sequence[str], options: Mapping[str, Any], mask: np.ndarray | None = None
) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """Value the same rows by several methods.

    Args:
        train: training rows, n of them.
        val: validation rows.
        methods: names, see ``METHODS``.
        options: parameters, see ``make_method``.
        mask: which rows are known to be bad, shape (n,), for the column ``auc``.

    Returns:
        A table (method, seconds, rank correlation with the first method, auc) and the values by method.

    Raises:
        ValueError: bad data, or an unknown method.
    """
    values, lines = {}, []
    options = {"n_jobs": workers(0, len(train), len(val)), **options}
    for name in methods:
        model = make_method(name, options)
        _log.info("valuing by %s", name)
        started = time.perf_counter()
        model.fit(images(train), train.y, images(val), val.y)
        seconds = time.perf_counter() - started
        values[name] = model.values_
        first = next(iter(values.values()))
        correlation = float(pd.Series(model.values_).corr(pd.Series(first), method="spearman"))
        line = {"method": name, "seconds": seconds, "rank_correlation": correlation}
        if mask is not None:
            line["auc"] = detection_auc(model.values_, mask)
        lines.append(line)
    return pd.DataFrame(lines), values


def new_ids(known: np.ndarray, data: Dataset, id_column: str | None) -> np.ndarray:
    """Ids of rows that are added to known ones: row numbers go on where the known ones end.

    Args:
        known: ids so far.
        data: the new rows.
        id_column: the column of their ids; None for row numbers, or the paths of images.

    Returns:
        Ids of the new rows.

    Raises:
        ValueError: an id is known already.
    """
    ids = data.ids
    if id_column is None and data.image_shape is None:
        ids = ids + len(known)
    repeated = np.isin(ids.astype(str), known.astype(str))
    if repeated.any():
        raise ValueError(
            f"{int(repeated.sum())} ids of {data.source} are in the store already, first {ids[repeated][0]}"
        )
    return ids
