"""Sudokus as files and text: the CSV layout of the public 1M-Sudoku set, and single boards of 81 characters."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Integer

from icl25_lp_conv.datasets.sudoku_solver import as_boards, describe_conflict, find_conflicts, valid_units
from icl25_shared import atomic_path, progress

__all__ = ["Sudokus", "format_board", "load_csv", "load_puzzles", "parse_board", "save_csv"]

_COLUMNS = ("quizzes", "solutions")
_CHUNK = 100_000  # rows of a file held as text at a time


class Sudokus(NamedTuple):
    """Puzzles and their solutions.

    Attributes:
        puzzles: (n, 9, 9) digits, 0 for a blank.
        solutions: (n, 9, 9) digits 1 .. 9.
    """

    puzzles: Integer[np.ndarray, "n 9 9"]
    solutions: Integer[np.ndarray, "n 9 9"]


def load_csv(path: str | os.PathLike[str]) -> Sudokus:
    """Read puzzles and their solutions from a CSV file in the layout of the public 1M-Sudoku set.

    Args:
        path: A file with the columns ``quizzes`` and ``solutions``, 81 digits each in reading order, 0 or "." for a
            blank; other columns are ignored. It may be compressed (``.gz``, ``.bz2``, ``.xz``, ``.zip``).

    Returns:
        The sudokus, int8, in the order of the file.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is empty, no text or no table, lacks a column, or holds a field that is not 81 digits,
            givens that conflict, a solution that breaks the rules or one that differs from its givens. File, row (the
            first below the header is 1) and column are named.

    Source: the data layout of the paper's Sudoku task.
    """
    return Sudokus(*_read(Path(path), _COLUMNS))


def load_puzzles(path: str | os.PathLike[str]) -> Integer[np.ndarray, "n 9 9"]:
    """Read puzzles alone from a CSV file; it need not have solutions.

    Args:
        path: As for ``load_csv``, but for the column ``quizzes`` alone.

    Returns:
        (n, 9, 9) digits, 0 for a blank, int8.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: As for ``load_csv``.

    Source: the data layout of the paper's Sudoku task.
    """
    return _read(Path(path), _COLUMNS[:1])[0]


def save_csv(path: str | os.PathLike[str], data: Sudokus, *, force: bool = False) -> None:
    """Write sudokus in the layout that ``load_csv`` reads; a crash leaves no half of a file.

    Args:
        path: The file to write.
        data: The sudokus.
        force: Replace a file that exists.

    Raises:
        ValueError: If the puzzles or solutions are no boards or differ in number.
        FileExistsError: If the file exists and ``force`` is false.
        OSError: If the file cannot be written.

    Source: the data layout of the paper's Sudoku task.
    """
    puzzles = as_boards(data.puzzles, "puzzles", lowest=0).reshape(-1, 81)
    solutions = as_boards(data.solutions, "solutions", lowest=1).reshape(-1, 81)
    if len(puzzles) != len(solutions):
        raise ValueError(f"there are {len(puzzles)} puzzles and {len(solutions)} solutions, expected as many")
    with atomic_path(path, force=force) as temporary, temporary.open("wb") as file:
        file.write(f"{','.join(_COLUMNS)}\n".encode())
        for start in range(0, len(puzzles), _CHUNK):
            rows = slice(start, start + _CHUNK)
            lines = np.empty((len(puzzles[rows]), 164), np.uint8)
            lines[:, :81], lines[:, 82:163] = puzzles[rows] + ord("0"), solutions[rows] + ord("0")
            lines[:, 81], lines[:, 163] = ord(","), ord("\n")
            file.write(lines.tobytes())


def parse_board(text: str) -> Integer[np.ndarray, "9 9"]:
    """Read one board that a person typed.

    Args:
        text: 81 characters in reading order, ``0`` or ``.`` for a blank; white space between them does not count.

    Returns:
        (9, 9) digits, 0 for a blank, int8.

    Raises:
        ValueError: If there are not 81 characters, one is neither a digit nor a full stop, or two givens conflict.

    Source: ours.

    Example:
        >>> parse_board("53..7...." + 72 * ".")[0]
        array([5, 3, 0, 0, 7, 0, 0, 0, 0], dtype=int8)
    """
    cells = "".join(text.split()).replace(".", "0")
    problem = _text_problem(cells)
    if problem is None:
        board = np.array([int(cell) for cell in cells], np.int8).reshape(9, 9)
        problem = describe_conflict(board)
        if problem is None:
            return board
    raise ValueError(f"the board cannot be read: {problem}")


def format_board(board: Integer[np.ndarray, "9 9"]) -> str:
    """Write a board as 81 digits in reading order.

    Args:
        board: (9, 9) digits, 0 for a blank.

    Returns:
        What ``parse_board`` and a field of the CSV file take.

    Raises:
        ValueError: If the array is no board.

    Source: ours.
    """
    return "".join(map(str, as_boards(board, "board", lowest=0).ravel().tolist()))


def _read(path: Path, columns: tuple[str, ...]) -> list[np.ndarray]:
    """The boards of each column, checked against the rules and each other."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder, expected a CSV file")
    parts: list[list[np.ndarray]] = []
    n_rows = 0
    try:
        with warnings.catch_warnings(), _open(path) as chunks, progress(f"reading {path.name}") as bar:
            # A row with more fields than the header is an error, not a warning that fields were lost.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            for chunk in chunks:
                parts.append(_check_chunk(path, chunk, columns, n_rows))
                n_rows += len(chunk)
                bar.advance(len(chunk))
    except pd.errors.EmptyDataError as error:
        raise ValueError(f"{path} is empty, expected the columns {' and '.join(columns)}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: byte {error.start} cannot be decoded") from error
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise ValueError(f"{path} is not a CSV table: {' '.join(str(error).split())}") from error
    if n_rows == 0:
        raise ValueError(f"{path} holds no puzzles, only a header")
    return [np.concatenate(boards) for boards in zip(*parts, strict=True)]


def _open(path: Path) -> Any:
    return pd.read_csv(path, dtype=str, keep_default_na=False, na_filter=False, index_col=False, chunksize=_CHUNK)


def _check_chunk(path: Path, chunk: pd.DataFrame, columns: tuple[str, ...], n_before: int) -> list[np.ndarray]:
    chunk.columns = chunk.columns.str.strip()
    for column in columns:
        if column not in chunk:
            raise ValueError(f"{path} has no column {column!r}; it has {', '.join(map(repr, chunk.columns))}")
    boards = [_parse_column(path, chunk[column].tolist(), column, n_before) for column in columns]
    conflicts = find_conflicts(boards[0]).any(axis=1)
    if conflicts.any():
        row = int(conflicts.argmax())
        what = describe_conflict(boards[0][row])
        raise ValueError(f"{path}, row {n_before + row + 1}, column {columns[0]!r}: illegal givens, {what}")
    if len(boards) == 2:
        _check_solutions(path, *boards, n_before)
    return boards


def _check_solutions(path: Path, puzzles: np.ndarray, solutions: np.ndarray, n_before: int) -> None:
    invalid = ~valid_units(solutions).all(axis=1)
    if invalid.any():
        row = int(invalid.argmax())
        what = describe_conflict(solutions[row]) or "it has a blank"
        raise ValueError(f"{path}, row {n_before + row + 1}, column 'solutions': not a completed board, {what}")
    differs = (puzzles > 0) & (puzzles != solutions)
    if differs.any():
        row, i, j = (int(index) for index in np.argwhere(differs)[0])
        raise ValueError(
            f"{path}, row {n_before + row + 1}, column 'solutions': the solution has {solutions[row, i, j]} in row "
            f"{i + 1}, column {j + 1} of the board, where the puzzle has {puzzles[row, i, j]}"
        )


def _parse_column(path: Path, texts: list[str], column: str, n_before: int) -> np.ndarray:
    if column == _COLUMNS[0]:  # blanks of puzzles are often dots
        texts = [text.strip().replace(".", "0") for text in texts]
    joined = "".join(texts).encode()
    digits = np.frombuffer(joined, np.uint8) - np.uint8(ord("0"))  # other characters wrap round or lie above 9
    if len(joined) == 81 * len(texts) and not (digits > 9).any() and set(map(len, texts)) <= {81}:
        return digits.astype(np.int8).reshape(-1, 9, 9)
    for row, text in enumerate(texts):
        problem = _text_problem(text)
        if problem is not None:
            raise ValueError(f"{path}, row {n_before + row + 1}, column {column!r}: {problem}")
    raise AssertionError("a column that fails as a whole has a field that fails")


def _text_problem(text: str) -> str | None:
    """What keeps a text from being 81 digits."""
    wrong = next((place for place, character in enumerate(text) if character not in "0123456789"), None)
    if len(text) != 81:
        return f"expected 81 digits, found {len(text)} characters"
    if wrong is not None:
        return f"expected 81 digits, found {text[wrong]!r} at character {wrong + 1}"
    return None
