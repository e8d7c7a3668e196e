"""How demonstrations come from files and other libraries, and go to files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icl25_pn_gail.demonstrations import Demonstrations

__all__ = ["FileFormats"]

_Path = str | os.PathLike[str]
_Names = str | Sequence[str] | None


class FileFormats:
    """The methods of ``Demonstrations`` that read and write.

    Source:
        This package's.
    """

    @staticmethod
    def from_npz(
        path: _Path,
        obs_cols: _Names = None,
        act_cols: _Names = None,
        confidence_col: str | None = None,
        episode_col: str | None = None,
        *,
        confidence_range: tuple[float, float] | None = None,
        discrete: bool | None = None,
    ) -> Demonstrations:
        """Read arrays from an NPZ file, such as ``obs``, ``acts``, ``confidence`` and ``episode``.

        Args:
            path: The file.
            obs_cols: Names of the arrays of observations, where they are not the usual ones.
            act_cols: Names of the arrays of actions.
            confidence_col: Name of the array of confidences.
            episode_col: Name of the array of labels of episodes.
            confidence_range: Lowest and highest possible rating, which become 0 and 1.
            discrete: Whether actions are ids. Default: where they are whole numbers in one column.

        Returns:
            The demonstrations.

        Raises:
            ValueError: If the file is corrupt, or what it holds does not fit; the message names file and array.
            OSError: If there is no such file, or it is a folder.
        """
        from icl25_pn_gail.readers import read_npz

        return read_npz(
            path,
            obs_cols,
            act_cols,
            confidence_col,
            episode_col,
            confidence_range=confidence_range,
            discrete=discrete,
        )

    @staticmethod
    def from_csv(
        path: _Path,
        obs_cols: _Names = None,
        act_cols: _Names = None,
        confidence_col: str | None = None,
        episode_col: str | None = None,
        *,
        confidence_range: tuple[float, float] | None = None,
        discrete: bool | None = None,
    ) -> Demonstrations:
        """Read a CSV file with columns such as ``obs_0``, ``obs_1``, ``act_0``, ``confidence`` and ``episode``.

        Args:
            path: The file.
            obs_cols: Names of the columns of observations, where they are not the usual ones: a list, names with commas
                between them, or what numbered names begin with.
            act_cols: Names of the columns of actions, likewise.
            confidence_col: Name of the column of confidences.
            episode_col: Name of the column of labels of episodes.
            confidence_range: Lowest and highest possible rating, which become 0 and 1.
            discrete: Whether actions are ids. Default: where they are whole numbers in one column.

        Returns:
            The demonstrations, in double precision.

        Raises:
            ValueError: If the file is corrupt, or what it holds does not fit; the message names file, column and row.
            OSError: If there is no such file, or it is a folder.
        """
        from icl25_pn_gail.table_readers import read_csv

        return read_csv(
            path,
            obs_cols,
            act_cols,
            confidence_col,
            episode_col,
            confidence_range=confidence_range,
            discrete=discrete,
        )

    @staticmethod
    def from_parquet(
        path: _Path,
        obs_cols: _Names = None,
        act_cols: _Names = None,
        confidence_col: str | None = None,
        episode_col: str | None = None,
        *,
        confidence_range: tuple[float, float] | None = None,
        discrete: bool | None = None,
    ) -> Demonstrations:
        """Read a Parquet file; columns as of ``from_csv``, or lists such as ``observation.state`` and ``action``.

        Args:
            path: The file.
            obs_cols: As of ``from_csv``.
            act_cols: As of ``from_csv``.
            confidence_col: As of ``from_csv``.
            episode_col: As of ``from_csv``.
            confidence_range: As of ``from_csv``.
            discrete: As of ``from_csv``.

        Returns:
            The demonstrations.

        Raises:
            ValueError: If the file is corrupt, or what it holds does not fit; the message names file, column and row.
            OSError: If there is no such file, or it is a folder.
        """
        from icl25_pn_gail.table_readers import read_parquet

        return read_parquet(
            path,
            obs_cols,
            act_cols,
            confidence_col,
            episode_col,
            confidence_range=confidence_range,
            discrete=discrete,
        )

    @staticmethod
    def from_official(mixture_npy: _Path, conf_npy: _Path, obs_dim: int) -> Demonstrations:
        """Read the two NPY files of the paper's code.

        Args:
            mixture_npy: File of shape (N, d + a): observations and actions side by side.
            conf_npy: File of shape (N,) or (N, 1): confidences.
            obs_dim: Number of observations d.

        Returns:
            The demonstrations; their episodes are not known.

        Raises:
            ValueError: If a file is corrupt, or shapes do not fit.
            OSError: If there is no such file, or it is a folder.
        """
        from icl25_pn_gail.readers import read_official

        return read_official(mixture_npy, conf_npy, obs_dim)

    @staticmethod
    def from_minari(dataset_or_id: Any) -> Demonstrations:
        """Take the episodes of a Minari dataset on this machine; needs the extra ``minari``.

        Args:
            dataset_or_id: A ``MinariDataset``, its folder, or the id of a dataset that was downloaded before.

        Returns:
            The demonstrations, without labels.

        Raises:
            ValueError: If it is no such dataset, or its spaces are no vectors.
            FileNotFoundError: If it is not on this machine; nothing is ever downloaded.
            ImportError: If minari, or the library that its files need, is not installed.
        """
        from icl25_pn_gail.minari_reader import read_minari

        return read_minari(dataset_or_id)

    @staticmethod
    def from_imitation(trajectories: Iterable[Any]) -> Demonstrations:
        """Take trajectories of the library imitation, or of the same shape.

        Args:
            trajectories: Objects with ``obs`` (T + 1, d) and ``acts`` (T, a) or (T,), and perhaps ``rews`` (T,).

        Returns:
            The demonstrations, an episode for each trajectory, without labels.

        Raises:
            ValueError: If there is none, or shapes do not fit; the message says which.
            TypeError: If an object is no trajectory.
        """
        from icl25_pn_gail.trajectories import from_trajectories

        return from_trajectories(trajectories)

    @staticmethod
    def from_sb3(replay_buffer: Any, *, scaled_actions: bool = True) -> Demonstrations:
        """Take the steps in a replay buffer of Stable-Baselines3, in order of time for each environment.

        Args:
            replay_buffer: The ``ReplayBuffer`` object, as ``model.replay_buffer``.
            scaled_actions: Whether it holds actions of a Box scaled to [-1, 1], as all learners of that library store
                them; they are scaled back. False for a buffer that you filled yourself.

        Returns:
            The demonstrations, without labels, episodes cut where ``dones`` says so.

        Raises:
            ValueError: If the buffer is empty, holds other than vectors, or actions outside [-1, 1] to scale back.
            TypeError: If it is no replay buffer. Files are refused: they are pickles, which can run any code.
        """
        from icl25_pn_gail.trajectories import from_replay_buffer

        return from_replay_buffer(replay_buffer, scaled_actions=scaled_actions)

    def to_npz(self: Demonstrations, path: _Path, force: bool = False) -> None:
        """Write everything to an NPZ file; the same demonstrations give the same bytes.

        Args:
            path: The file.
            force: Replace a file that exists.

        Raises:
            FileExistsError: If the file exists and ``force`` is false.
            ValueError: If labels of episodes are neither text nor whole numbers.
            TypeError: If ``meta`` holds what JSON cannot express.
        """
        from icl25_pn_gail.writers import write_npz

        write_npz(path, self, force)

    def to_parquet(self: Demonstrations, path: _Path, force: bool = False) -> None:
        """Write everything to a Parquet file, a column for each observation and action.

        Args:
            path: The file.
            force: Replace a file that exists.

        Raises:
            FileExistsError: If the file exists and ``force`` is false.
            ValueError: If labels of episodes are neither text nor whole numbers.
            TypeError: If ``meta`` holds what JSON cannot express.
        """
        from icl25_pn_gail.writers import write_parquet

        write_parquet(path, self, force)

    def to_csv(self: Demonstrations, path: _Path, force: bool = False) -> None:
        """Write a CSV file, to the last bit in double precision; ``meta`` has no place in it.

        Args:
            path: The file.
            force: Replace a file that exists.

        Raises:
            FileExistsError: If the file exists and ``force`` is false.
            ValueError: If labels of episodes are neither text nor whole numbers.
        """
        from icl25_pn_gail.writers import write_csv

        write_csv(path, self, force)
