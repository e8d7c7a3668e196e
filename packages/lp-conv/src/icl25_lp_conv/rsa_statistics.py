"""Statistics of representational similarity: matrices, their correlation, noise ceilings, tests and intervals."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Num
from joblib import Parallel, delayed
from scipy import stats

from icl25_lp_conv.rsa_matrices import check_recordings, check_rsm
from icl25_shared import spawn_generators

__all__ = ["METHODS", "Bootstrap", "PermutationTest", "bootstrap", "compare_rsm", "noise_ceiling", "permutation_test"]

METHODS = ("kendall", "kendall_a", "spearman", "pearson")
_CHUNK = 50  # draws in one task of a pool
_ROUNDING = 1e-12  # a shuffle that changes nothing must count as reaching the observed value


@dataclass(frozen=True)
class PermutationTest:
    """What a permutation test found.

    Attributes:
        observed: Similarity of the two RSMs as they are.
        p_value: (1 + number of shuffles that reach the observed similarity) / (1 + number of shuffles).
        null: (n_permutations,) similarities after each shuffle.
    """

    observed: float
    p_value: float
    null: Float[np.ndarray, " n_permutations"]


@dataclass(frozen=True)
class Bootstrap:
    """How far a similarity depends on which stimuli were shown.

    Attributes:
        observed: Similarity of the two RSMs as they are.
        low: Lower end of the percentile interval.
        high: Upper end.
        std: Standard deviation over the samples.
        samples: (n_samples,) similarities, NaN where a sample had too few different stimuli to define one.
        n_undefined: How many samples are NaN; they are left out of the interval.
    """

    observed: float
    low: float
    high: float
    std: float
    samples: Float[np.ndarray, " n_samples"]
    n_undefined: int


def compare_rsm(a: Num[np.ndarray, "..."], b: Num[np.ndarray, "..."], method: str = "kendall") -> float:
    """Similarity of two RSMs: the correlation of their entries below the diagonal.

    Args:
        a: (n, n) symmetric RSM of n >= 3 stimuli; its diagonal is not used.
        b: (n, n) RSM of the same stimuli.
        method: ``kendall`` (tau-b, the paper's choice), ``kendall_a`` (tau-a, which ties lower; of use where one RSM
            predicts ties), ``spearman`` or ``pearson``.

    Returns:
        The correlation, in [-1, 1].

    Raises:
        ValueError: If an RSM is not square, symmetric and finite below the diagonal, has fewer than 3 stimuli or equal
            entries only, if the two differ in size, or if the method is unknown.

    Source: similarity of a layer and a recording in the paper (the section on the visual cortex), Kendall's tau.

    Example:
        >>> a = np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.3], [0.1, 0.3, 1.0]])
        >>> compare_rsm(a, a**3)
        1.0
    """
    check_method(method)
    x, y = _pair(a, b)
    rows = np.tril_indices(len(x), -1)
    return score(prepare(x[rows], method, "a"), prepare(y[rows], method, "b"), method)


def noise_ceiling(
    rsm_sessions: Num[np.ndarray, "..."],
    method: str = "loo",
    compare: str = "kendall",
    seed: int | np.random.Generator = 0,
    n_splits: int = 100,
) -> Float[np.ndarray, " k"]:
    """How similar recordings are to each other: what a model can reach at best.

    Args:
        rsm_sessions: (n, n, sessions) RSMs of the same n stimuli, with at least 2 sessions.
        method: ``loo`` compares each session with the mean of the others; ``split-half`` compares the mean of a random
            half of the sessions with the mean of the other half (without a correction for the halved data).
        compare: Correlation, as in ``compare_rsm``.
        seed: Seed of the random halves.
        n_splits: How many random halves, >= 1.

    Returns:
        (sessions,) ceilings for ``loo``, (n_splits,) for ``split-half``.

    Raises:
        ValueError: If there are fewer than 2 sessions, an RSM is faulty, or an option is unknown.

    Source: the noise ceilings by which the paper divides (the section on the visual cortex); its file of them is not
    public, and these two definitions are the usual ones of the field.
    """
    check_method(compare)
    recordings = check_recordings(rsm_sessions, "rsm_sessions")
    n_sessions = recordings.shape[2]
    if n_sessions < 2:
        raise ValueError(f"a noise ceiling needs at least 2 sessions, found {n_sessions}")
    entries = recordings[np.tril_indices(len(recordings), -1)]
    if method == "loo":
        halves = [(np.array([k]), np.delete(np.arange(n_sessions), k)) for k in range(n_sessions)]
    elif method == "split-half":
        _check_positive("n_splits", n_splits)
        [generator] = spawn_generators(seed, 1)
        orders = [generator.permutation(n_sessions) for _ in range(n_splits)]
        halves = [(order[: n_sessions // 2], order[n_sessions // 2 :]) for order in orders]
    else:
        raise ValueError(f"unknown method {method!r} of a noise ceiling, expected 'loo' or 'split-half'")
    means = [[entries[:, part].mean(axis=1) for part in pair] for pair in halves]
    ready = [[prepare(x, compare, "the mean of some sessions") for x in pair] for pair in means]
    return np.array([score(x, y, compare) for x, y in ready])


def permutation_test(
    a: Num[np.ndarray, "..."],
    b: Num[np.ndarray, "..."],
    n_permutations: int = 1000,
    method: str = "kendall",
    seed: int | np.random.Generator = 0,
    n_jobs: int | None = 1,
) -> PermutationTest:
    """Test whether two RSMs are more similar than RSMs of unrelated stimuli would be.

    The labels of the stimuli of ``a`` are shuffled, that is its rows and columns together: entries of an RSM depend on
    each other, so that a test which took them for independent would find far too much.

    Args:
        a: (n, n) RSM.
        b: (n, n) RSM of the same stimuli.
        n_permutations: How many shuffles, >= 1; the p-value is never below 1 / (1 + n_permutations).
        method: Correlation, as in ``compare_rsm``.
        seed: Seed of the shuffles; the result does not depend on ``n_jobs``.
        n_jobs: Workers of joblib.

    Returns:
        The observed similarity, its one-sided p-value and the similarities after the shuffles.

    Raises:
        ValueError: As for ``compare_rsm``, or if ``n_permutations`` is below 1.

    Source: ours; the usual test of the field, Kriegeskorte, Mur and Bandettini (2008).
    """
    check_method(method)
    x, y = _pair(a, b)
    orders = draw_orders(len(x), n_permutations, seed)
    rows = np.tril_indices(len(x), -1)
    below, other = prepare(x[rows], method, "a"), prepare(y[rows], method, "b")
    chunks = np.array_split(orders, range(_CHUNK, n_permutations, _CHUNK))
    null = np.concatenate(Parallel(n_jobs=n_jobs)(delayed(_null)(below, other, chunk, method) for chunk in chunks))
    observed = score(below, other, method)
    return PermutationTest(observed, _p_value(observed, null), null)


def bootstrap(
    a: Num[np.ndarray, "..."],
    b: Num[np.ndarray, "..."],
    n_samples: int = 1000,
    method: str = "kendall",
    seed: int | np.random.Generator = 0,
    n_jobs: int | None = 1,
    confidence: float = 0.95,
) -> Bootstrap:
    """Interval of a similarity over the choice of stimuli, which are drawn anew with replacement.

    A stimulus that is drawn twice would be compared with itself; such pairs are left out of the sample.

    Args:
        a: (n, n) RSM.
        b: (n, n) RSM of the same stimuli.
        n_samples: How many samples, >= 1.
        method: Correlation, as in ``compare_rsm``.
        seed: Seed of the samples; the result does not depend on ``n_jobs``.
        n_jobs: Workers of joblib.
        confidence: Coverage of the interval, in (0, 1).

    Returns:
        The observed similarity, its percentile interval, and the samples. With few stimuli some samples define no
        similarity; they are counted, and a warning says so.

    Raises:
        ValueError: As for ``compare_rsm``, if ``n_samples`` or ``confidence`` is out of range, or if no sample defines
            a similarity.

    Source: ours; the usual bootstrap of the field, Nili et al. (2014).
    """
    check_method(method)
    _check_positive("n_samples", n_samples)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, found {confidence}")
    observed = compare_rsm(a, b, method)
    x, y = _pair(a, b)
    [generator] = spawn_generators(seed, 1)
    draws = generator.integers(len(x), size=(n_samples, len(x)))
    chunks = np.array_split(draws, range(_CHUNK, n_samples, _CHUNK))
    samples = np.concatenate(Parallel(n_jobs=n_jobs)(delayed(_resampled)(x, y, chunk, method) for chunk in chunks))
    defined = samples[~np.isnan(samples)]
    n_undefined = n_samples - len(defined)
    if not len(defined):
        raise ValueError(f"none of {n_samples} bootstrap samples of {len(x)} stimuli defines a similarity")
    if n_undefined:
        warnings.warn(
            f"{n_undefined} of {n_samples} bootstrap samples of {len(x)} stimuli define no similarity; left out",
            stacklevel=2,
        )
    low, high = np.quantile(defined, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Bootstrap(observed, float(low), float(high), float(defined.std()), samples, n_undefined)


def check_method(method: str) -> None:
    """Refuse an unknown correlation."""
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}, expected one of {', '.join(METHODS)}")


def draw_orders(n: int, n_permutations: int, seed: int | np.random.Generator) -> Int[np.ndarray, "k n"]:
    """Random orders of n stimuli, one a row."""
    _check_positive("n_permutations", n_permutations)
    [generator] = spawn_generators(seed, 1)
    return generator.permuted(np.tile(np.arange(n, dtype=np.int32), (n_permutations, 1)), axis=1)


def prepare(x: Num[np.ndarray, " pairs"], method: str, name: str) -> Num[np.ndarray, " pairs"]:
    """Turn entries into what ``score`` takes: ranks or z-scores, which shuffling the entries merely shuffles."""
    if x.min() == x.max():
        raise ValueError(f"{name}: all pairs of stimuli are equally similar, so no correlation is defined")
    if method.startswith("kendall"):
        return stats.rankdata(x, method="dense").astype(np.int64)
    centred = stats.rankdata(x) if method == "spearman" else x / np.abs(x).max()
    centred = centred - centred.mean()
    return centred / np.linalg.norm(centred)


def score(x: Num[np.ndarray, " pairs"], y: Num[np.ndarray, " pairs"], method: str) -> float:
    """Correlation of two vectors of entries that ``prepare`` has made ready."""
    if not method.startswith("kendall"):
        return float(np.clip(x @ y, -1, 1))
    tau_b = float(stats.kendalltau(x, y, method="asymptotic").statistic)
    if method == "kendall":
        return tau_b
    # Concordant minus discordant pairs is a whole number, so rounding takes the error of tau-b away.
    n_pairs = len(x) * (len(x) - 1) // 2
    balance = round(tau_b * np.sqrt(float(n_pairs - _n_ties(x))) * np.sqrt(float(n_pairs - _n_ties(y))))
    return balance / n_pairs


def score_sessions(
    x: Num[np.ndarray, " pairs"] | None,
    sessions: list[Num[np.ndarray, " pairs"]],
    method: str,
    orders: Int[np.ndarray, "k n"] | None,
) -> list[tuple[float, float]]:
    """Similarity and p-value (NaN without orders) of a layer and each session of an area; all NaN without a layer."""
    if x is None:
        return [(np.nan, np.nan)] * len(sessions)
    scores = [score(x, y, method) for y in sessions]
    if orders is None:
        return [(observed, np.nan) for observed in scores]
    return [(s, _p_value(s, _null(x, y, orders, method))) for s, y in zip(scores, sessions, strict=True)]


def _pair(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two RSMs, checked by themselves and against each other."""
    x, y = check_rsm(a, "a"), check_rsm(b, "b")
    if len(x) != len(y):
        raise ValueError(f"a has {len(x)} stimuli, but b has {len(y)}")
    return x, y


def _null(x: np.ndarray, y: np.ndarray, orders: np.ndarray, method: str) -> np.ndarray:
    """Similarity after the stimuli of x were put in each of the orders."""
    rows, columns = np.tril_indices(orders.shape[1], -1)
    square = np.zeros((orders.shape[1],) * 2, dtype=x.dtype)
    square[rows, columns] = square[columns, rows] = x
    return np.array([score(square[order[rows], order[columns]], y, method) for order in orders])


def _resampled(x: np.ndarray, y: np.ndarray, draws: np.ndarray, method: str) -> np.ndarray:
    """Similarity over the stimuli of each draw, NaN where there is none."""
    rows, columns = np.tril_indices(draws.shape[1], -1)
    found = np.full(len(draws), np.nan)
    for k, draw in enumerate(draws):
        i, j = draw[rows], draw[columns]
        different = i != j
        i, j = i[different], j[different]
        if len(i) and np.ptp(x[i, j]) > 0 and np.ptp(y[i, j]) > 0:
            found[k] = score(prepare(x[i, j], method, "a"), prepare(y[i, j], method, "b"), method)
    return found


def _p_value(observed: float, null: np.ndarray) -> float:
    return (1 + int((null >= observed - _ROUNDING).sum())) / (1 + len(null))


def _n_ties(ranks: np.ndarray) -> int:
    """Pairs of equal entries."""
    counts = np.unique(ranks, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be >= 1, found {value}")
