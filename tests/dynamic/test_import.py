"""Importing a package is quick and brings in nothing heavy that it does not need."""

import json

import pytest

_LOADED = """
import json, sys, time
start = time.perf_counter()
__import__(sys.argv[1])
seconds = time.perf_counter() - start
print(json.dumps([seconds, [name for name in ("torch", "jax", "matplotlib") if name in sys.modules]]))
"""
# An import of numpy, scipy and scikit-learn takes about one second on a slow machine.
SECONDS = 4.0


@pytest.fixture(scope="module")
def imported(installed):
    runs = [installed.run_python(_LOADED, installed.package.module) for _ in range(3)]
    assert all(run.returncode == 0 for run in runs), runs[-1].stderr
    return [json.loads(run.stdout) for run in runs]


def test_import_brings_in_nothing_heavy(package, imported):
    heavy = set(imported[-1][1]) - set(package.settings["heavy-imports"])
    assert not heavy, f"`import {package.module}` imports {sorted(heavy)}; import them where they are needed"


def test_import_is_quick(package, imported):
    limit = 4 * SECONDS if package.settings["heavy-imports"] else SECONDS
    assert min(seconds for seconds, _ in imported) < limit
