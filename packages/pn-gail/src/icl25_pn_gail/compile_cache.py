"""Compiled programs on disk, so that a second run begins at once."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder", "use_compile_cache"]

SHORTEST_COMPILATION = 0.02  # seconds that are worth a file; a start compiles some eighty small programs


def cache_folder() -> Path:
    """Return the folder of compiled programs: below ``XDG_CACHE_HOME``, else below ``.cache`` in the home folder."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "icl25-pn-gail" / "jax"


def use_compile_cache() -> Path | None:
    """Have jax keep compiled programs in the user's cache folder, unless jax was told of another one.

    Returns:
        The folder, None where it cannot be written: then there is no cache, and nothing else changes.
    """
    import jax

    configured = getattr(jax.config, "jax_compilation_cache_dir", None)
    if configured:
        return Path(configured)
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no permission, or no home folder
        return None
    if not os.access(folder, os.W_OK | os.X_OK):
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", SHORTEST_COMPILATION)
    return folder
