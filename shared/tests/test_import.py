"""Importing the package is quick, and light."""

import importlib
import subprocess
import sys

import pytest

import icl25_shared

LIGHT_IMPORT = """
import sys, time
import numpy  # which every package loads anyway; its own import time is not ours
started = time.perf_counter()
import icl25_shared
elapsed = time.perf_counter() - started
heavy = {"torch", "jax", "rich", "tyro", "matplotlib", "pandas", "scipy"} & set(sys.modules)
assert not heavy, heavy
print(elapsed)
"""


def test_import_is_light_and_takes_less_than_300_ms():
    done = subprocess.run([sys.executable, "-c", LIGHT_IMPORT], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.3


@pytest.mark.parametrize("module", ["claims", "devices", "files", "logs", "runs", "seeding"])
def test_no_module_but_the_command_line_loads_rich_or_tyro(module):
    code = f"import sys, icl25_shared.{module}; sys.exit(bool({{'torch', 'jax', 'rich', 'tyro'}} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", icl25_shared.__all__)
def test_every_public_name_is_that_of_its_module(name):
    value = getattr(icl25_shared, name)
    home = importlib.import_module(value.__module__)
    assert home.__name__.startswith("icl25_shared.")
    assert getattr(home, name) is value
    assert name in dir(icl25_shared)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = icl25_shared.nonsense
