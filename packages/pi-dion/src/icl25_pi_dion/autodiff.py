"""Derivatives of a trunk network at many points, all in one forward pass and none of them per sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["axes_of", "trunk_jet"]


def trunk_jet(
    trunk: Callable[[Float[Array, "P d"]], Float[Array, "P p"]],
    y: Float[Array, "P d"],
    spec: Iterable[str],
    coords: Sequence[str] | None = None,
) -> dict[str, Float[Array, "P p"]]:
    """Evaluate a trunk and the named derivatives at all points by nested forward mode.

    The coefficients that a measurement gives to the trunk's functions do not depend on the point, so a derivative of
    u_hat(y; m) = sum_k R_k(m) T_k(y) is R times the same derivative of T: it is computed once for each point, whatever
    the number of measurements. Names that begin alike (``u``, ``u_x``, ``u_xx``) share one nest of ``jax.jvp``.

    Args:
        trunk: The function from points (P, d) to values (P, p), on all points at once; row i of its result depends on
            row i of ``y`` alone.
        y: Points, shape (P, d).
        spec: Names of derivatives: a letter for the function, then ``_`` and one coordinate for each differentiation,
            such as ``"u"``, ``"u_t"``, ``"u_xx"`` or ``"u_xy"``. Any order.
        coords: The letter of each column of ``y``. Default: ``x``, ``y``, ``z`` in this order, the last of them ``t``
            where ``spec`` differentiates by ``t``.

    Returns:
        The arrays by name. The function itself is always among them.

    Raises:
        ValueError: If a name is malformed or holds an unknown coordinate.

    Source:
        Cho and Son (ICLR 2025): two branches share a trunk; forward mode over points is this package's.

    Example:
        >>> jet = trunk_jet(lambda y: y[:, :1] ** 2 * y[:, 1:], jnp.array([[3.0, 2.0]]), ["u_x", "u_xt"])
        >>> {name: float(values[0, 0]) for name, values in sorted(jet.items())}
        {'u': 18.0, 'u_x': 12.0, 'u_xt': 6.0}
    """
    names = tuple(spec)
    letters = _default_coords(names, y.shape[-1]) if coords is None else tuple(coords)
    wanted = {name: axes_of(name, letters) for name in names}
    function = names[0].partition("_")[0] if names else "u"
    found: dict[tuple[int, ...], Float[Array, "P p"]] = {}
    for axes in sorted(set(wanted.values()), key=lambda axes: (-len(axes), axes)):
        if axes not in found:
            values = _along(trunk, axes)(y)
            found.update({axes[:order]: value for order, value in enumerate(values)})
    found.setdefault((), trunk(y) if () not in found else found[()])
    return {function: found[()]} | {name: found[axes] for name, axes in wanted.items()}


def axes_of(name: str, coords: Sequence[str]) -> tuple[int, ...]:
    """Read a name such as ``u_xt`` as the columns to differentiate by, in ascending order.

    Args:
        name: Name of a derivative, or of the function itself.
        coords: The letter of each column.

    Returns:
        The columns; none for the function itself.

    Raises:
        ValueError: If the name is malformed or holds an unknown coordinate.
    """
    function, bar, letters = name.partition("_")
    if not function.isidentifier() or (bar and not letters):
        raise ValueError(f"{name!r} names no derivative, expected for instance u, u_t or u_xx")
    unknown = sorted(set(letters) - set(coords))
    if unknown:
        raise ValueError(f"derivative {name!r} is by {', '.join(unknown)}, but the coordinates are {', '.join(coords)}")
    return tuple(sorted(tuple(coords).index(letter) for letter in letters))


def _default_coords(names: Sequence[str], d: int) -> tuple[str, ...]:
    in_time = any("t" in name.partition("_")[2] for name in names)
    return (*"xyz"[: d - 1], "t") if in_time else tuple("xyzw"[:d])


def _along(trunk: Callable, axes: Sequence[int]) -> Callable[[Float[Array, "P d"]], tuple[Float[Array, "P p"], ...]]:
    """The function together with its derivatives by the first, the first two, ... of some axes."""

    def plain(y: Float[Array, "P d"]) -> tuple[Float[Array, "P p"], ...]:
        return (trunk(y),)

    def differentiated(inner: Callable, axis: int) -> Callable:
        def outer(y: Float[Array, "P d"]) -> tuple[Float[Array, "P p"], ...]:
            direction = jnp.zeros_like(y).at[:, axis].set(1)
            values, slopes = jax.jvp(inner, (y,), (direction,))
            return (*values, slopes[-1])

        return outer

    function = plain
    for axis in axes:
        function = differentiated(function, axis)
    return function
