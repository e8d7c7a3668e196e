"""Files that are either whole or absent: atomic writes, and JSON that any parser reads."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import math
import os
import secrets
from collections.abc import Generator, Mapping, Sequence, Set
from datetime import date
from pathlib import Path, PurePath
from typing import Any

__all__ = ["atomic_path", "read_json", "to_jsonable", "write_json"]


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str], *, force: bool = False) -> Generator[Path]:
    """Give a temporary path to write to, and move it onto ``path`` once the block has ended well.

    The temporary file lies in the folder of ``path`` and has its suffix. Its content and the folder entry are flushed
    to the disk, so that whatever happens ``path`` holds the old content or the new one, never a part. When the block
    raises (an interrupt included), the temporary file is removed. Missing parent folders are made.

    Args:
        path: Where the file is to stand in the end.
        force: Replace a file that exists.

    Yields:
        The temporary path; the block must create it.

    Raises:
        FileExistsError: If ``path`` exists and ``force`` is false, before the block runs or, where another process made
            the file meanwhile, after it.
        IsADirectoryError: If ``path`` is a folder.
        FileNotFoundError: If the block wrote nothing.
        OSError: If the folder cannot be made or written, or the disk is full.
    """
    target = Path(path)
    _refuse_existing(target, force=force)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.stem}.{secrets.token_hex(6)}.part{target.suffix}")
    try:
        yield temporary
        _flush(temporary)
        _refuse_existing(target, force=force)
        temporary.replace(target)
        _flush(target.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: str | os.PathLike[str], data: Any, *, force: bool = False) -> None:
    """Write ``data`` as indented UTF-8 JSON, atomically.

    Args:
        path: The file to write.
        data: Anything that ``to_jsonable`` takes.
        force: Replace a file that exists.

    Raises:
        TypeError: If ``data`` holds an object that JSON cannot express.
        FileExistsError: If ``path`` exists and ``force`` is false.
        OSError: As for ``atomic_path``.
    """
    text = json.dumps(to_jsonable(data), indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_path(path, force=force) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file.

    Args:
        path: The file to read.

    Returns:
        What the file holds, in dicts, lists and scalars.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is no UTF-8 JSON; the message names the file, the line and the column.
    """
    content = Path(path).read_bytes()
    try:
        return json.loads(content.decode("utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not JSON: byte {error.start} is not UTF-8") from error


def to_jsonable(obj: Any) -> Any:
    """Turn an object into what ``json.dumps(..., allow_nan=False)`` takes.

    Dataclasses become dicts, paths and dates strings, enum members their values, sets sorted lists, and arrays and
    scalars of numpy, torch, jax and pandas (whatever has ``tolist``) lists and numbers. NaN and infinities, which JSON
    does not know, become None.

    Args:
        obj: The object; containers may be nested.

    Returns:
        Dicts with string keys, lists, strings, numbers, booleans and None.

    Raises:
        TypeError: If some object is none of these, naming its type.

    Example:
        >>> to_jsonable({"values": (1.0, float("nan")), "table": Path("rows.csv")})
        {'values': [1.0, None], 'table': 'rows.csv'}
    """
    if obj is None or (isinstance(obj, bool | str) and not isinstance(obj, enum.Enum)):
        return obj
    if isinstance(obj, enum.Enum):
        return to_jsonable(obj.value)
    if isinstance(obj, int):
        return int(obj)
    if isinstance(obj, float):
        return float(obj) if math.isfinite(obj) else None
    if isinstance(obj, PurePath | date):
        return obj.as_posix() if isinstance(obj, PurePath) else obj.isoformat()
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return {field.name: to_jsonable(getattr(obj, field.name)) for field in dataclasses.fields(obj)}
    if isinstance(obj, Mapping):
        return {_json_key(key): to_jsonable(value) for key, value in obj.items()}
    if isinstance(obj, Set):
        return sorted((to_jsonable(item) for item in obj), key=lambda item: json.dumps(item, sort_keys=True))
    if hasattr(obj, "tolist"):
        return to_jsonable(obj.tolist())
    if isinstance(obj, Sequence) and not isinstance(obj, bytes | bytearray | memoryview):
        return [to_jsonable(item) for item in obj]
    raise TypeError(f"an object of type {type(obj).__module__}.{type(obj).__qualname__} cannot be written as JSON")


def _json_key(key: Any) -> str:
    plain = to_jsonable(key)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _refuse_existing(target: Path, *, force: bool) -> None:
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder, expected a file")
    if not force and (target.exists() or target.is_symlink()):
        raise FileExistsError(f"{target} exists already; pass --force (force=True) to replace it")


def _flush(path: Path) -> None:
    """Have the system write a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # Some network file systems know no fsync of a folder; the rename itself still holds there.
        with contextlib.suppress(OSError) if path.is_dir() else contextlib.nullcontext():
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
