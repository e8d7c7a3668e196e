"""Files of arrays, NPZ and NPY, and the reader that tells kinds of files by their endings."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from icl25_pn_gail.columns import Columns, find_columns
from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.file_parts import assemble, existing_file, first_line

__all__ = ["read_demonstrations", "read_npz", "read_official"]

_PICKLES = (".pkl", ".pickle", ".zip", ".pt", ".pth")
_MINARI = "minari:"


def read_demonstrations(
    path: str | os.PathLike[str],
    obs_cols: str | Sequence[str] | None = None,
    act_cols: str | Sequence[str] | None = None,
    confidence_col: str | None = None,
    episode_col: str | None = None,
    *,
    confidence_range: tuple[float, float] | None = None,
    discrete: bool | None = None,
) -> Demonstrations:
    """Read demonstrations; what kind of file it is, its ending says.

    Args:
        path: A file .npz, .csv, .parquet or .pq; the folder of a Minari dataset; or ``minari:`` and the id of one that
            was downloaded before.
        obs_cols: Names of observations in a file, where they are not the usual ones: a list, names with commas between
            them, or what numbered names begin with ("joint" for joint_0, joint_1, ...).
        act_cols: Names of actions, likewise.
        confidence_col: Name of the confidences.
        episode_col: Name of the labels of episodes.
        confidence_range: Lowest and highest possible rating, which become 0 and 1.
        discrete: Whether actions are ids. Default: where they are whole numbers in one column.

    Returns:
        The demonstrations.

    Raises:
        FileNotFoundError: If there is no such file or dataset.
        IsADirectoryError: If it is a folder and no Minari dataset.
        ValueError: If the kind is unknown, the file corrupt, or what it holds does not fit. The message is one line.
        ImportError: If a Minari dataset needs a library that is not installed.

    Source:
        This package's.
    """
    options: dict[str, Any] = {
        "obs_cols": obs_cols,
        "act_cols": act_cols,
        "confidence_col": confidence_col,
        "episode_col": episode_col,
        "confidence_range": confidence_range,
        "discrete": discrete,
    }
    name = os.fspath(path)
    if name.startswith(_MINARI) or (Path(path) / "data" / "metadata.json").exists():
        return _read_minari(name, options)
    path = Path(path)
    if (path / "metadata.json").exists():
        return _read_minari(name, options)
    suffix = path.suffix.lower()
    readers: dict[str, Callable[..., Demonstrations]] = {".npz": read_npz}
    if suffix in (".csv", ".parquet", ".pq"):
        from icl25_pn_gail.table_readers import read_csv, read_parquet

        readers |= {".csv": read_csv, ".parquet": read_parquet, ".pq": read_parquet}
    existing_file(path)
    if suffix in _PICKLES:
        raise ValueError(
            f"{path}: may hold pickled objects, which can run any code and are never opened here; load it in your own "
            "Python and pass the object, for instance Demonstrations.from_sb3(model.replay_buffer), then to_npz"
        )
    if suffix == ".npy":
        raise ValueError(f"{path}: one array is not enough; Demonstrations.from_official takes the paper's two files")
    if suffix not in readers:
        raise ValueError(
            f"{path}: unknown kind of file {suffix!r}, expected .npz, .csv, .parquet, .pq, the folder of a Minari "
            "dataset or minari:ID"
        )
    return readers[suffix](path, **options)


def read_npz(
    path: str | os.PathLike[str],
    obs_cols: str | Sequence[str] | None = None,
    act_cols: str | Sequence[str] | None = None,
    confidence_col: str | None = None,
    episode_col: str | None = None,
    *,
    confidence_range: tuple[float, float] | None = None,
    discrete: bool | None = None,
) -> Demonstrations:
    """Read an NPZ file; see ``Demonstrations.from_npz``.

    Args:
        path: The file.
        obs_cols: Names of the arrays of observations.
        act_cols: Names of the arrays of actions.
        confidence_col: Name of the array of confidences.
        episode_col: Name of the array of labels of episodes.
        confidence_range: Lowest and highest possible rating, which become 0 and 1.
        discrete: Whether actions are ids.

    Returns:
        The demonstrations.

    Raises:
        ValueError: If the file is corrupt, or what it holds does not fit; the message names file and array.
        OSError: If there is no such file, or it is a folder.

    Source:
        This package's.
    """
    path = existing_file(path)
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path}: not a readable NPZ file (it is no zip archive)")
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()  # numpy would read some arrays of a damaged file
        if broken is not None:
            raise ValueError(f"{path}: not a readable NPZ file ({broken} is damaged)")
        with np.load(path, allow_pickle=False) as file:
            columns = _columns(path, file.files, obs_cols, act_cols, confidence_col, episode_col)
            arrays = {name: _member(path, file, name) for name in columns.names()}
            meta = _meta(path, _member(path, file, "meta")) if "meta" in file.files else {}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise ValueError(f"{path}: not a readable NPZ file ({first_line(error)})") from error
    return assemble(path, columns, arrays, meta, confidence_range=confidence_range, discrete=discrete)


def read_official(
    mixture_npy: str | os.PathLike[str], conf_npy: str | os.PathLike[str], obs_dim: int
) -> Demonstrations:
    """Read the two NPY files of the paper's code; see ``Demonstrations.from_official``.

    Args:
        mixture_npy: File of shape (N, d + a).
        conf_npy: File of shape (N,) or (N, 1).
        obs_dim: Number of observations d.

    Returns:
        The demonstrations; their episodes are not known.

    Raises:
        ValueError: If a file is corrupt, or shapes do not fit.
        OSError: If there is no such file, or it is a folder.

    Source:
        The format of the code of PN-GAIL, ICLR 2025, which is that of 2IWIL, ICML 2019.
    """
    mixture, confidence = _read_npy(mixture_npy), _read_npy(conf_npy)
    if mixture.ndim != 2:
        raise ValueError(f"{os.fspath(mixture_npy)}: expected shape (N, d + a), found {mixture.shape}")
    if not 1 <= obs_dim < mixture.shape[1]:
        raise ValueError(
            f"obs_dim must be from 1 to {mixture.shape[1] - 1}, since {os.fspath(mixture_npy)} has {mixture.shape[1]} "
            f"columns of observations and actions; found {obs_dim}"
        )
    if mixture.dtype.kind in "iub":
        mixture = mixture.astype(np.float64)
    try:
        return Demonstrations(mixture[:, :obs_dim], mixture[:, obs_dim:], confidence)
    except ValueError as error:
        raise ValueError(f"{os.fspath(mixture_npy)}, {os.fspath(conf_npy)}: {error}") from error


def _read_minari(name: str, options: Mapping[str, Any]) -> Demonstrations:
    from icl25_pn_gail.minari_reader import read_minari

    given = [option for option, value in options.items() if value is not None]
    if given:
        raise ValueError(f"{name}: a Minari dataset says what is what; {', '.join(given)} cannot be given")
    return read_minari(name.removeprefix(_MINARI))


def _columns(path: Path, available: Sequence[str], *given: Any) -> Columns:
    try:
        return find_columns(available, *given)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _member(path: Path, file: Any, name: str) -> np.ndarray:
    try:
        return file[name]
    except ValueError as error:
        raise _unreadable(f"{path}: array {name!r}", error) from error


def _read_npy(path: str | os.PathLike[str]) -> np.ndarray:
    path = existing_file(path)
    try:
        with path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise _unreadable(str(path), error) from error


def _unreadable(where: str, error: Exception) -> ValueError:
    message = first_line(error)
    if "allow_pickle" in message or "Python objects" in message:
        return ValueError(f"{where}: holds Python objects, which are never unpickled; save plain arrays")
    return ValueError(f"{where}: not a readable array ({message})")


def _meta(path: Path, array: np.ndarray) -> dict[str, Any]:
    if array.dtype.kind != "U" or array.ndim:
        return {}  # an array of somebody else
    try:
        meta = json.loads(str(array))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: array 'meta' is not JSON ({first_line(error)})") from error
    if not isinstance(meta, dict):
        raise ValueError(f"{path}: array 'meta' must hold names and values, found {type(meta).__name__}")
    return meta
