"""The state of a training on disk, from which it goes on as if it had never stopped."""

from __future__ import annotations

import hashlib
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from flax import serialization

from icl25_shared import atomic_path

__all__ = ["Checkpoint", "Resumed", "identify"]

NAME = "checkpoint.msgpack"


class Resumed(NamedTuple):
    """Where a training goes on from.

    Attributes:
        state: The state.
        history: The history so far.
    """

    state: Any
    history: pd.DataFrame


def identify(*parts: Any) -> str:
    """Hash what decides a training beside its length.

    Args:
        *parts: Arrays, pytrees of arrays, and things with a telling ``repr``.

    Returns:
        A hexadecimal digest.
    """
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(parts):
        is_array = hasattr(leaf, "dtype") and not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        digest.update(np.ascontiguousarray(leaf).tobytes() if is_array else repr(leaf).encode())
    return digest.hexdigest()


class Checkpoint:
    """One file that holds the state, the history, and of which training they are.

    Args:
        folder: Folder of the file.
        identity: What ``identify`` says of the training.
    """

    def __init__(self, folder: str | PathLike[str], identity: str) -> None:
        self.path, self._identity = Path(folder) / NAME, identity

    def write(self, state: Any, history: pd.DataFrame) -> None:
        """Replace the file in one move, so that a crash leaves the old one or the new one.

        Args:
            state: The state.
            history: The history so far.
        """
        tree = {
            "identity": self._identity,
            "columns": [*history.columns],
            "history": [history[name].to_numpy() for name in history.columns],
            "state": jax.tree.map(np.asarray, serialization.to_state_dict(state)),
        }
        with atomic_path(self.path, force=True) as path:
            path.write_bytes(serialization.msgpack_serialize(tree))

    def read(self, state: Any) -> Resumed | None:
        """Read the file.

        Args:
            state: A state of the same shape.

        Returns:
            State and history; None where there is no file.

        Raises:
            ValueError: If the file is damaged or of another training.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            tree = serialization.msgpack_restore(content)
            identity = tree["identity"]
            history = pd.DataFrame(dict(zip(tree["columns"], tree["history"], strict=True)))
            found = serialization.from_state_dict(state, tree["state"]) if identity == self._identity else None
        except Exception as error:  # msgpack raises errors of many kinds on damaged bytes
            raise ValueError(f"{self.path} is damaged: {error}") from error
        if found is None:
            raise ValueError(
                f"{self.path} is of another training: the environment, demonstrations, method, settings or seed differ"
            )
        return Resumed(found, history)
