"""The map phi from rows to the space in which they are compared, by name, by object or from a file of weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Num, Shaped
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

__all__ = ["KNOWN_EMBEDDERS", "Embedder", "make_embedder"]

KNOWN_EMBEDDERS = (
    "standardize",
    "pca:N",
    "lda",
    "logits",
    "mlp",
    "mlp:N",
    "torch:module.attribute[:weights]",
    "torch:model.pt",
    "timm:NAME:weights",
)
"""The spellings that `make_embedder` knows."""

_MLP_UNITS = 64
_ITERATIONS = 1000

Transform = Callable[[np.ndarray], Any]
Prepare = Callable[[np.ndarray, np.ndarray | None], Transform]


class Embedder:
    """Fits phi on validation rows and applies it to any rows, some at a time; `make_embedder` makes one.

    Args:
        name: What it is called in errors and in a saved configuration.
        prepare: Takes (X_val, y_val) and returns the fitted transform; None leaves rows as they are.
        batch_rows: Rows embedded at a time.
    """

    def __init__(self, name: str, prepare: Prepare | None, *, batch_rows: int = 4096) -> None:
        self.name = name
        self.batch_rows = batch_rows
        self._prepare = prepare
        self._transform: Transform | None = None

    def __repr__(self) -> str:
        return f"Embedder({self.name})"

    @property
    def is_identity(self) -> bool:
        """Whether rows pass unchanged."""
        return self._prepare is None

    def fit(self, X_val: Num[np.ndarray, "m d"], y_val: Shaped[np.ndarray, " k"] | None = None) -> Embedder:
        """Fit on the validation set alone; what is fitted already stays as it is.

        Args:
            X_val: (m, d) validation rows.
            y_val: (m,) their labels, needed by lda, logits and mlp.

        Returns:
            Itself.

        Raises:
            ValueError: If there are too few rows, features or classes for it.
        """
        if y_val is not None and len(X_val) != len(y_val):
            raise ValueError(f"X_val has {len(X_val)} rows, y_val has {len(y_val)}")
        if self._prepare is not None:
            self._transform = self._prepare(X_val, y_val)
        return self

    def transform(self, X: Num[np.ndarray, "n d"]) -> Num[np.ndarray, "n k"]:
        """Embed rows, ``batch_rows`` at a time.

        Args:
            X: (n, d) rows.

        Returns:
            (n, k) features; X itself where the embedder is the identity.

        Raises:
            NotFittedError: If `fit` was not called.
            ValueError: If the embedder returns something else than n finite rows of one width.
        """
        if self._prepare is None:
            return X
        if self._transform is None:
            raise NotFittedError(f"embedder {self.name} is not fitted: call fit(X_val, y_val) first")
        out: np.ndarray | None = None
        for start in range(0, len(X), self.batch_rows):
            rows = X[start : start + self.batch_rows]
            part = self._checked(self._transform(np.asarray(rows)), len(rows), start)
            if out is None:
                out = np.empty((len(X), part.shape[1]), part.dtype)
            elif part.shape[1] != out.shape[1]:
                raise ValueError(
                    f"embedder {self.name} returned {part.shape[1]} features at row {start}, {out.shape[1]} before"
                )
            out[start : start + len(rows)] = part
        if out is None:
            raise ValueError(f"embedder {self.name} was given no rows")
        return out

    def _checked(self, part: Any, n_rows: int, start: int) -> np.ndarray:
        part = np.asarray(part)
        if part.ndim != 2 or len(part) != n_rows:
            raise ValueError(
                f"embedder {self.name} returned an array of shape {part.shape} for {n_rows} rows, "
                f"expected ({n_rows}, k)"
            )
        if part.dtype.kind not in "biuf":
            raise ValueError(f"embedder {self.name} returned {part.dtype}, expected numbers")
        bad = ~np.isfinite(part).all(axis=1)
        if bad.any():
            first = start + int(bad.argmax())
            raise ValueError(
                f"embedder {self.name} returned non-finite numbers for {bad.sum()} rows, first at row {first}"
            )
        return part


def make_embedder(
    spec: Any = None,
    *,
    random_state: int | np.random.Generator | None = None,
    image_shape: tuple[int, ...] | None = None,
    device: str = "cpu",
    batch_rows: int | None = None,
) -> Embedder:
    """Make the embedder that a specification describes.

    ``"lda"``, ``"logits"`` and ``"mlp"`` learn from the validation labels. The first two suit the search for wrong
    labels, and hide noise in features; ``"mlp"`` is the compromise.

    Args:
        spec: None (features as they are); a scikit-learn transformer (a fitted one is used as it is, of another a clone
            is fitted on validation); a callable from (b, d) to (b, k); or a string: ``"standardize"``, ``"pca:32"``,
            ``"lda"`` (with shrinkage), ``"logits"`` (decision function of a logistic regression), ``"mlp"`` or
            ``"mlp:64"`` (hidden activations of a network; bring features to a scale of about 1 first), several of these
            in a row (``"standardize+mlp"``, ``"pca:32+mlp"``), ``"torch:module.attribute"`` (a
            module, or a function or class that makes one), perhaps with ``":w.safetensors"`` or ``":w.pt"`` behind,
            ``"torch:model.pt"`` (TorchScript), ``"timm:NAME:weights.safetensors"``.
        random_state: Seed of what is fitted.
        image_shape: (height, width) or (height, width, channels) of a row, for networks that take images: they
            get (b, channels, height, width).
        device: Device of torch and timm networks.
        batch_rows: Rows embedded at a time; default 4 096, or 256 for torch and timm.

    Returns:
        The embedder, not yet fitted.

    Raises:
        TypeError: If ``spec`` is none of these.
        ValueError: If a name, a number in it or its weights file is wrong.
        FileNotFoundError: If the weights file does not exist.
        ModuleNotFoundError: If torch, timm or safetensors is needed and not installed.

    Source: Kessler et al. (ICLR 2025) embed with a network trained on clean data; fitting on validation alone is ours.
    """
    if spec is None:
        return Embedder("none", None)
    if isinstance(spec, Embedder):
        return spec
    seed = int(np.random.default_rng(random_state).integers(2**31 - 1))
    if isinstance(spec, str):
        kind, _, rest = spec.partition(":")
        if kind in ("torch", "timm"):
            from icl25_sava.torch_embedders import load_network

            network = load_network(kind, rest, image_shape=image_shape, device=device)
            return Embedder(spec, partial(_as_given, network), batch_rows=batch_rows or 256)
        return Embedder(spec, _named(spec, kind, rest, seed), batch_rows=batch_rows or 4096)
    if hasattr(spec, "transform"):
        name = type(spec).__name__
        return Embedder(
            name, lambda X_val, y_val: _transformer(spec, name, X_val, y_val), batch_rows=batch_rows or 4096
        )
    if callable(spec):
        name = getattr(spec, "__name__", type(spec).__name__)
        return Embedder(name, partial(_as_given, spec), batch_rows=batch_rows or 4096)
    raise TypeError(
        f"embedder is {type(spec).__name__}, expected None, a transformer, a callable or one of "
        f"{', '.join(KNOWN_EMBEDDERS)}"
    )


def _named(spec: str, kind: str, rest: str, seed: int) -> Prepare:
    """What a plain name fits."""
    if "+" in spec:
        parts = [part.partition(":") for part in spec.split("+")]
        return partial(_fit_chain, [_named(f"{name}{colon}{more}", name, more, seed) for name, colon, more in parts])
    if kind == "standardize" and not rest:
        return _fit_scaler
    if kind == "pca" and rest:
        return partial(_fit_pca, _positive(spec, rest), seed)
    if kind == "lda" and not rest:
        return partial(_fit_lda, spec)
    if kind == "logits" and not rest:
        return partial(_fit_logits, spec, seed)
    if kind == "mlp":
        return partial(_fit_mlp, spec, _positive(spec, rest) if rest else _MLP_UNITS, seed)
    raise ValueError(f"unknown embedder {spec!r}, expected one of {', '.join(KNOWN_EMBEDDERS)}")


def _positive(spec: str, text: str) -> int:
    """The number after the colon."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"embedder {spec!r}: expected a number of 1 or more after the colon, found {text!r}")
    return int(text)


def _classes_needed(spec: str, y_val: np.ndarray | None) -> np.ndarray:
    """Validation labels of two classes or more."""
    if y_val is None:
        raise ValueError(f"embedder {spec!r} needs the validation labels")
    if len(np.unique(y_val)) < 2:
        raise ValueError(f"embedder {spec!r} needs two classes in the validation labels, they hold only {y_val[0]!r}")
    return y_val


# Plain functions, bound by `partial`, because workers get the embedder by pickle.


def _as_given(transform: Transform, X_val: np.ndarray, y_val: np.ndarray | None) -> Transform:
    return transform


def _fit_scaler(X_val: np.ndarray, y_val: np.ndarray | None) -> Transform:
    return StandardScaler().fit(X_val).transform


def _fit_pca(n_components: int, seed: int, X_val: np.ndarray, y_val: np.ndarray | None) -> Transform:
    most = min(X_val.shape)
    if n_components > most:
        raise ValueError(
            f"embedder 'pca:{n_components}' asks for {n_components} components, but {len(X_val)} validation rows of "
            f"{X_val.shape[1]} features have at most {most}"
        )
    return PCA(n_components, random_state=seed).fit(X_val).transform


def _fit_lda(spec: str, X_val: np.ndarray, y_val: np.ndarray | None) -> Transform:
    y_val = _classes_needed(spec, y_val)
    if len(y_val) <= len(np.unique(y_val)):
        raise ValueError(f"embedder {spec!r} needs more validation rows than classes, got {len(y_val)} rows")
    # Shrinkage, because validation sets are small: without it the within-class scatter is close to singular.
    return LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto").fit(X_val, y_val).transform


def _fit_logits(spec: str, seed: int, X_val: np.ndarray, y_val: np.ndarray | None) -> Transform:
    y_val = _classes_needed(spec, y_val)
    return partial(_logits, LogisticRegression(max_iter=_ITERATIONS, random_state=seed).fit(X_val, y_val))


def _logits(model: Any, X: np.ndarray) -> np.ndarray:
    # Two classes have one logit, which scikit-learn returns without an axis for it.
    return model.decision_function(X).reshape(len(X), -1)


def _fit_mlp(spec: str, units: int, seed: int, X_val: np.ndarray, y_val: np.ndarray | None) -> Transform:
    y_val = _classes_needed(spec, y_val)
    model = MLPClassifier((units,), max_iter=_ITERATIONS, random_state=seed).fit(X_val, y_val)
    return partial(_hidden, model.coefs_[0], model.intercepts_[0])


def _hidden(weights: np.ndarray, bias: np.ndarray, X: np.ndarray) -> np.ndarray:
    return np.maximum(X @ weights + bias, 0)


def _fit_chain(
    parts: list[Callable[[np.ndarray, np.ndarray | None], Transform]], X_val: np.ndarray, y_val: np.ndarray | None
) -> Transform:
    """Each part is fitted on what the parts before it make of the validation rows."""
    transforms = []
    for part in parts:
        transforms.append(part(X_val, y_val))
        X_val = transforms[-1](X_val)
    return partial(_apply_chain, transforms)


def _apply_chain(transforms: list[Transform], X: np.ndarray) -> np.ndarray:
    for transform in transforms:
        X = transform(X)
    return X


def _transformer(spec: Any, name: str, X_val: np.ndarray, y_val: np.ndarray | None) -> Transform:
    """A transformer of the user: as it is when fitted (or when it has nothing to fit), else a clone fitted here."""
    if not isinstance(spec, BaseEstimator):
        if not hasattr(spec, "fit"):
            return spec.transform
        raise TypeError(f"embedder {name} has fit and transform but is no scikit-learn estimator: pass its transform")
    try:
        check_is_fitted(spec)
    except NotFittedError:
        return clone(spec).fit(X_val, y_val).transform
    return spec.transform
