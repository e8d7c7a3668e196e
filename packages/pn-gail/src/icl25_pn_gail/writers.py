"""Files of demonstrations, each whole or absent."""

from __future__ import annotations

import json
import os
import zipfile
from typing import Any

import numpy as np
import pandas as pd

from icl25_pn_gail.demonstrations import Demonstrations
from icl25_shared.files import atomic_path, to_jsonable

__all__ = ["META_KEY", "to_table", "write_csv", "write_npz", "write_parquet"]

META_KEY = b"icl25_pn_gail"
"""Where a Parquet file keeps ``meta``."""


def write_npz(path: str | os.PathLike[str], demos: Demonstrations, force: bool = False) -> None:
    """Write demonstrations to an NPZ file; see ``Demonstrations.to_npz``.

    Args:
        path: The file.
        demos: The demonstrations.
        force: Replace a file that exists.

    Raises:
        FileExistsError: If the file exists and ``force`` is false.
        ValueError: If labels of episodes are neither text nor whole numbers.
        TypeError: If ``meta`` holds what JSON cannot express.

    Source:
        This package's.
    """
    arrays: dict[str, Any] = {
        "obs": demos.obs,
        "acts": demos.acts,
        "confidence": demos.confidence,
        "episode": _plain_labels(demos),
        "next_obs": demos.next_obs,
        "reward": demos.reward,
        "meta": np.array(_meta(demos)) if demos.meta else None,
    }
    with atomic_path(path, force=force) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            if array is None:
                continue
            # An entry made from its name alone may carry the time of writing.
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def write_parquet(path: str | os.PathLike[str], demos: Demonstrations, force: bool = False) -> None:
    """Write demonstrations to a Parquet file; see ``Demonstrations.to_parquet``.

    Args:
        path: The file.
        demos: The demonstrations.
        force: Replace a file that exists.

    Raises:
        FileExistsError: If the file exists and ``force`` is false.
        ValueError: If labels of episodes are neither text nor whole numbers.
        TypeError: If ``meta`` holds what JSON cannot express.

    Source:
        This package's.
    """
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.Table.from_pandas(to_table(demos), preserve_index=False)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), META_KEY: _meta(demos)})
    with atomic_path(path, force=force) as temporary:
        parquet.write_table(table, temporary)


def write_csv(path: str | os.PathLike[str], demos: Demonstrations, force: bool = False) -> None:
    """Write demonstrations to a CSV file; see ``Demonstrations.to_csv``.

    Args:
        path: The file.
        demos: The demonstrations.
        force: Replace a file that exists.

    Raises:
        FileExistsError: If the file exists and ``force`` is false.
        ValueError: If labels of episodes are neither text nor whole numbers.

    Source:
        This package's.
    """
    table = to_table(demos)
    # The shortest text of a number in single precision is another number in double precision.
    singles = table.select_dtypes("float32").columns
    with atomic_path(path, force=force) as temporary:
        table.astype(dict.fromkeys(singles, np.float64)).to_csv(temporary, index=False)


def to_table(demos: Demonstrations) -> pd.DataFrame:
    """Return demonstrations as a table, as the files hold it.

    Args:
        demos: The demonstrations.

    Returns:
        Columns ``episode`` (where known), ``obs_0``, ..., ``act_0``, ..., ``confidence``, ``reward`` and
        ``next_obs_0``, ... (where known).

    Raises:
        ValueError: If labels of episodes are neither text nor whole numbers.

    Source:
        This package's.
    """
    columns: dict[str, np.ndarray] = {}
    labels = _plain_labels(demos)
    if labels is not None:
        columns["episode"] = labels
    columns |= _numbered("obs", demos.obs)
    columns |= _numbered("act", demos.acts[:, None] if demos.discrete else demos.acts)
    columns["confidence"] = demos.confidence
    if demos.reward is not None:
        columns["reward"] = demos.reward
    if demos.next_obs is not None:
        columns |= _numbered("next_obs", demos.next_obs)
    return pd.DataFrame(columns)


def _numbered(stem: str, values: np.ndarray) -> dict[str, np.ndarray]:
    return {f"{stem}_{column}": values[:, column] for column in range(values.shape[1])}


def _plain_labels(demos: Demonstrations) -> np.ndarray | None:
    if demos.episode is not None and demos.episode.dtype.kind not in "iuU":
        kinds = sorted({type(name).__name__ for name in demos.episode_names})
        raise ValueError(f"labels of episodes must be text or whole numbers to be written, found {', '.join(kinds)}")
    return demos.episode


def _meta(demos: Demonstrations) -> str:
    return json.dumps(to_jsonable(demos.meta), allow_nan=False)
