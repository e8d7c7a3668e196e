"""Trees of arrays on disk by Orbax: parameters of networks, and states of training to resume from."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

__all__ = ["CheckpointFolder"]

logging.getLogger("absl").setLevel(logging.ERROR)


class CheckpointFolder:
    """Checkpoints by step, each whole or absent; the newest is kept.

    Leaves are stored under their paths in the tree, so that a checkpoint does not depend on the classes that held them.

    Args:
        folder: Where they lie.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).absolute()

    def latest(self) -> int | None:
        """Return the newest step, None where there is none."""
        if not self.folder.is_dir():
            return None
        with self._manager() as manager:
            return manager.latest_step()

    def save(self, step: int, tree: Any, record: dict[str, Any]) -> None:
        """Write a checkpoint; older ones are removed once it is whole.

        Args:
            step: Its number.
            tree: Arrays.
            record: What else belongs to it, as JSON.
        """
        arrays = {name: leaf for name, leaf in _named(tree).items() if leaf.size}  # Orbax refuses empty arrays
        with self._manager() as manager:
            manager.save(
                step,
                args=ocp.args.Composite(arrays=ocp.args.StandardSave(arrays), record=ocp.args.JsonSave(record)),
                force=True,
            )

    def load(self, like: Any) -> tuple[Any, dict[str, Any]]:
        """Read the newest checkpoint.

        Args:
            like: A tree of the same structure, with arrays of the same shapes and types.

        Returns:
            The tree and the record.

        Raises:
            FileNotFoundError: If there is no checkpoint.
            ValueError: If it holds other arrays, or cannot be read.
        """
        step = self.latest()
        if step is None:
            raise FileNotFoundError(f"{self.folder}: no checkpoint")
        expected = _named(like)
        shapes = {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in expected.items() if leaf.size}
        try:
            # In double precision, so that double arrays stay so.
            with jax.enable_x64(True), self._manager() as manager:
                restored = manager.restore(
                    step,
                    args=ocp.args.Composite(arrays=ocp.args.StandardRestore(shapes), record=ocp.args.JsonRestore()),
                )
        except (KeyError, ValueError, TypeError, OSError) as error:
            raise ValueError(f"{self.folder} does not hold the checkpoint of such a network: {error}") from error
        arrays = {**restored["arrays"], **{name: leaf for name, leaf in expected.items() if not leaf.size}}
        for name, leaf in expected.items():
            if name not in arrays or arrays[name].shape != leaf.shape:
                raise ValueError(f"{self.folder} is the checkpoint of another network: {name} does not fit")
        leaves = [np.asarray(arrays[name]) for name in expected]
        return jax.tree.unflatten(jax.tree.structure(like), leaves), restored["record"]

    def _manager(self) -> ocp.CheckpointManager:
        options = ocp.CheckpointManagerOptions(max_to_keep=1, enable_async_checkpointing=False)
        return ocp.CheckpointManager(self.folder, options=options)


def _named(tree: Any) -> dict[str, np.ndarray]:
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
