"""Recorded steps of mixed quality, a few of them with a confidence: the data that every method here learns from."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Shaped

from icl25_pn_gail import row_arrays
from icl25_pn_gail.file_formats import FileFormats

if TYPE_CHECKING:
    from icl25_pn_gail.checking import Report

__all__ = ["Demonstrations", "Split"]


class Split(NamedTuple):
    """Two parts of demonstrations.

    Attributes:
        first: The part of the size that was asked for.
        rest: What is left.
    """

    first: Demonstrations
    rest: Demonstrations


@dataclasses.dataclass(frozen=True, eq=False, init=False, repr=False)
class Demonstrations(FileFormats):
    """Recorded steps, one a row, in the order of the file.

    Attributes:
        obs: Observations, shape (N, d).
        acts: Continuous actions, shape (N, a), or ids of discrete actions, shape (N,).
        confidence: Probability that a row is optimal, in [0, 1], shape (N,); NaN where it was not rated.
        episode: Label of the episode of each row, shape (N,); None where all rows are one episode.
        next_obs: Observation after each step, shape (N, d), NaN where it is not known; or None.
        reward: True reward of each step, shape (N,), NaN where it is not known; or None.
        meta: What else is known. ``n_actions`` is the number of discrete actions; ``consecutive`` is False where steps
            were left out, so that the next row of an episode is not its next step.

    Example:
        >>> demos = Demonstrations(obs=np.zeros((4, 3)), acts=np.ones((4, 1)), confidence=[1.0, None, 0.1, None])
        >>> demos
        Demonstrations(4 rows, 1 episode, obs_dim=3, act_dim=1, 2 labelled)
        >>> demos.inputs().shape
        (4, 4)

    Source:
        PN-GAIL, ICLR 2025: a mixture of state-action pairs, a share of which carries a confidence.
    """

    obs: Float[np.ndarray, "n d"]
    acts: Shaped[np.ndarray, "n *a"]
    confidence: Float[np.ndarray, " n"]
    episode: Shaped[np.ndarray, " n"] | None
    next_obs: Float[np.ndarray, "n d"] | None
    reward: Float[np.ndarray, " n"] | None
    meta: dict[str, Any]

    def __init__(
        self,
        obs: Any,
        acts: Any,
        confidence: Any = None,
        episode: Any = None,
        next_obs: Any = None,
        reward: Any = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Check the arrays and bring them to their shapes.

        Args:
            obs: Observations, shape (N, d).
            acts: Floats of shape (N, a) or (N,); or whole numbers of shape (N,) or (N, 1), ids of discrete actions.
            confidence: Shape (N,), in [0, 1], NaN or None where not rated. Default: no row is rated.
            episode: N hashable labels. Default: all rows are one episode.
            next_obs: Shape (N, d).
            reward: Shape (N,).
            meta: What else is known of the data.

        Raises:
            ValueError: If shapes do not fit, there is no row, or a value is not finite or out of its range.
            TypeError: If a label of an episode is not hashable.
        """
        matrix = row_arrays.matrix_rows("obs", obs)
        n = len(matrix)
        values = {
            "obs": matrix,
            "acts": row_arrays.action_rows(acts, n),
            "confidence": row_arrays.confidence_rows(confidence, n),
            "episode": None if episode is None else row_arrays.episode_labels(episode, n),
            "next_obs": None if next_obs is None else row_arrays.matrix_rows("next_obs", next_obs, n, allow_nan=True),
            "reward": None if reward is None else row_arrays.reward_rows(reward, n),
        }
        for name, array in values.items():
            object.__setattr__(self, name, row_arrays.read_only(array))
        object.__setattr__(self, "meta", dict(meta or {}))
        if self.next_obs is not None and self.next_obs.shape != self.obs.shape:
            raise ValueError(f"next_obs has {self.next_obs.shape[1]} columns, obs has {self.obs_dim}")
        if self.discrete and self.n_actions <= self.acts.max():
            raise ValueError(f"acts has the id {self.acts.max()}, but meta says n_actions={self.n_actions}")

    def __len__(self) -> int:
        return len(self.obs)

    def __repr__(self) -> str:
        counts = [(len(self), "row"), (self.n_episodes, "episode")]
        rows, episodes = (f"{count} {noun}{'s' if count > 1 else ''}" for count, noun in counts)
        kind = f"n_actions={self.n_actions}" if self.discrete else f"act_dim={self.act_dim}"
        return f"Demonstrations({rows}, {episodes}, obs_dim={self.obs_dim}, {kind}, {self.n_labelled} labelled)"

    @property
    def n_rows(self) -> int:
        """Number of rows N."""
        return len(self)

    @property
    def discrete(self) -> bool:
        """Whether the actions are ids rather than vectors."""
        return self.acts.ndim == 1

    @property
    def obs_dim(self) -> int:
        """Number of observations d."""
        return self.obs.shape[1]

    @property
    def n_actions(self) -> int:
        """Number of discrete actions: what ``meta`` says, else the largest id and 1.

        Raises:
            ValueError: If the actions are continuous.
        """
        if not self.discrete:
            raise ValueError("the actions are continuous, there is no number of them")
        return int(self.meta.get("n_actions", self.acts.max() + 1))

    @property
    def act_dim(self) -> int:
        """Number of action columns a in ``inputs()``: of a continuous action, or the number of discrete actions."""
        return self.n_actions if self.discrete else self.acts.shape[1]

    @property
    def labelled(self) -> Bool[np.ndarray, " n"]:
        """Which rows carry a confidence, shape (N,)."""
        return ~np.isnan(self.confidence)

    @property
    def n_labelled(self) -> int:
        """Number of rows that carry a confidence."""
        return int(self.labelled.sum())

    @functools.cached_property
    def episode_codes(self) -> Int[np.ndarray, " n"]:
        """Number of the episode of each row, from 0 in order of appearance, shape (N,)."""
        if self.episode is None:
            return np.zeros(len(self), np.int64)
        return pd.factorize(self.episode)[0].astype(np.int64)

    @functools.cached_property
    def episode_names(self) -> list[Any]:
        """Label of each episode, in order of appearance."""
        return [0] if self.episode is None else pd.unique(self.episode).tolist()

    @property
    def n_episodes(self) -> int:
        """Number of episodes; 1 where no labels of episodes are known."""
        return len(self.episode_names)

    @property
    def consecutive(self) -> bool:
        """Whether the next row of an episode is its next step."""
        return bool(self.meta.get("consecutive", True))

    def inputs(self) -> Float[np.ndarray, "n k"]:
        """Return the rows as a discriminator or classifier sees them.

        Returns:
            Observations and actions side by side, shape (N, d + a); ids of discrete actions one-hot.

        Source:
            PN-GAIL, ICLR 2025: x = (s, a).
        """
        acts = np.eye(self.n_actions, dtype=self.obs.dtype)[self.acts] if self.discrete else self.acts
        return np.concatenate([self.obs, acts], axis=1)

    def summary(self) -> pd.DataFrame:
        """Return a table with a row for each episode.

        Returns:
            Columns ``rows``, ``labelled``, ``mean_confidence`` (of the labelled rows) and, where rewards are known,
            ``return`` (NaN where one is missing); the index holds the labels of the episodes.
        """
        columns = {"labelled": self.labelled, "confidence": self.confidence}
        groups = pd.DataFrame(columns).groupby(self.episode_codes)
        table = pd.DataFrame(
            {
                "rows": groups.size(),
                "labelled": groups["labelled"].sum(),
                "mean_confidence": groups["confidence"].mean(),
            }
        )
        if self.reward is not None:
            table["return"] = pd.Series(self.reward).groupby(self.episode_codes).sum(skipna=False)
        return table.set_index(pd.Index(self.episode_names, name="episode", tupleize_cols=False))

    def with_confidence(self, confidence: Any) -> Self:
        """Return the same rows with other confidences.

        Args:
            confidence: Shape (N,), in [0, 1], NaN where not rated; None for no labels.

        Returns:
            The demonstrations.

        Raises:
            ValueError: If there are not N, or one is outside [0, 1].
        """
        return dataclasses.replace(self, confidence=confidence)

    def select(self, rows: Any) -> Self:
        """Return some of the rows, in the order asked for.

        Args:
            rows: A mask of shape (N,), numbers of rows, or a slice.

        Returns:
            The demonstrations; ``meta`` says so where the rows of an episode no longer follow each other.

        Raises:
            ValueError: If no row is selected, a number is out of range, or a mask has another length.
        """
        index = row_arrays.row_numbers(rows, len(self))
        parts = {
            field.name: None if (value := getattr(self, field.name)) is None else value[index]
            for field in dataclasses.fields(self)
            if field.name != "meta"
        }
        meta = dict(self.meta)
        if self.discrete:
            meta["n_actions"] = self.n_actions
        if self.consecutive and not row_arrays.follow_each_other(self.episode_codes, index):
            meta["consecutive"] = False
        return type(self)(**parts, meta=meta)

    def subsample(self, n: int, seed: int = 0) -> Self:
        """Return some rows, drawn without replacement, in the order of the file.

        Args:
            n: How many, 1 to N.
            seed: Seed of the draw.

        Returns:
            The demonstrations.

        Raises:
            ValueError: If ``n`` is out of range.

        Source:
            PN-GAIL, ICLR 2025: experiments on a number of rows that its code calls the trajectory size.
        """
        if not 1 <= n <= len(self):
            raise ValueError(f"n must be from 1 to {len(self)}, the number of rows there are, found {n}")
        return self.select(np.sort(np.random.default_rng(seed).permutation(len(self))[:n]))

    def mask_labels(self, fraction: float, seed: int = 0, by: str = "row") -> Self:
        """Keep a share of the labels and forget the others; a smaller share is part of a larger one of the same seed.

        Args:
            fraction: Which share to keep, in (0, 1]; at least one label is kept.
            seed: Seed of the draw.
            by: Draw rows, or episodes whose labels are kept or forgotten together.

        Returns:
            The demonstrations.

        Raises:
            ValueError: If the share is out of range, there is no label, or no episodes are known.

        Source:
            PN-GAIL, ICLR 2025: experiments with a share of the confidences.
        """
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction must be in (0, 1], found {fraction}")
        if not self.n_labelled:
            raise ValueError("there are no labels to keep a share of")
        unit = self._units(by)
        drawn = np.random.default_rng(seed).permutation(np.unique(unit[self.labelled]))
        kept = np.isin(unit, drawn[: max(1, round(fraction * len(drawn)))])
        return self.with_confidence(np.where(kept, self.confidence, np.nan))

    def split(self, fraction: float, seed: int = 0, by: str = "episode") -> Split:
        """Split at random, each part in the order of the file.

        Args:
            fraction: Share of the first part, in (0, 1); each part gets at least one episode or row.
            seed: Seed of the draw.
            by: Draw episodes, or rows.

        Returns:
            The two parts.

        Raises:
            ValueError: If the share is out of range, no episodes are known, or there is only one to split.
        """
        if not 0 < fraction < 1:
            raise ValueError(f"fraction must be in (0, 1), found {fraction}")
        unit = self._units(by)
        n = int(unit.max()) + 1
        if n < 2:
            raise ValueError(f"there is one {by} only, which cannot be split")
        drawn = np.random.default_rng(seed).permutation(n)[: min(max(1, round(fraction * n)), n - 1)]
        first = np.isin(unit, drawn)
        return Split(self.select(first), self.select(~first))

    def check(self, env: Any = None) -> Report:
        """Look for what would make learning fail, such as actions of another scale; see ``checking.check``.

        Args:
            env: The environment, or its id. Default: only what needs none is checked.

        Returns:
            The findings.
        """
        from icl25_pn_gail.checking import check

        return check(self, env)

    def _units(self, by: str) -> Int[np.ndarray, " n"]:
        """Number of what is drawn together, for each row."""
        if by == "row":
            return np.arange(len(self))
        if by != "episode":
            raise ValueError(f'by must be "row" or "episode", found {by!r}')
        if self.episode is None:
            raise ValueError('no episodes are known; pass by="row", or give the labels of episodes')
        return self.episode_codes

    @classmethod
    def concatenate(cls, parts: Iterable[Demonstrations]) -> Demonstrations:
        """Put demonstrations one after the other; those of different parts are different episodes.

        Args:
            parts: The demonstrations. Labels of episodes stay what they are unless two parts share one; then all
                become text, the number of the part before them: "0:3". What some parts lack is NaN in their rows.

        Returns:
            All rows; of ``meta`` what all parts agree on.

        Raises:
            ValueError: If there is no part, or observations or actions differ in kind or number.
        """
        from icl25_pn_gail.joining import join

        return join(list(parts))
