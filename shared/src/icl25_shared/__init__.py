"""Plumbing of the icl25 packages: seeding, logging, devices, command lines, run folders and claims.

Every name below is imported from its module on first use, so that ``import icl25_shared`` costs nothing and
brings in neither torch, jax, rich nor tyro.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icl25_shared.claims import (
        Claim,
        Estimate,
        Rule,
        claims_markdown,
        claims_table,
        read_claims,
        write_claims,
    )
    from icl25_shared.cli import CommonFlags, InputError, Output, run_cli
    from icl25_shared.devices import select_device
    from icl25_shared.files import atomic_path, read_json, to_jsonable, write_json
    from icl25_shared.logs import configure_logging, get_logger, progress, track
    from icl25_shared.runs import RunFolder
    from icl25_shared.seeding import seed_everything, spawn_generators

__all__ = [
    "Claim",
    "CommonFlags",
    "Estimate",
    "InputError",
    "Output",
    "Rule",
    "RunFolder",
    "atomic_path",
    "claims_markdown",
    "claims_table",
    "configure_logging",
    "get_logger",
    "progress",
    "read_claims",
    "read_json",
    "run_cli",
    "seed_everything",
    "select_device",
    "spawn_generators",
    "to_jsonable",
    "track",
    "write_claims",
    "write_json",
]

_HOMES = {
    "claims": ("Claim", "Estimate", "Rule", "claims_markdown", "claims_table", "read_claims", "write_claims"),
    "cli": ("CommonFlags", "InputError", "Output", "run_cli"),
    "devices": ("select_device",),
    "files": ("atomic_path", "read_json", "to_jsonable", "write_json"),
    "logs": ("configure_logging", "get_logger", "progress", "track"),
    "runs": ("RunFolder",),
    "seeding": ("seed_everything", "spawn_generators"),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
