"""Fixtures that run a package's command and code in the environment in which it is installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_INSPECT = """
import importlib, json, sys
module = importlib.import_module(sys.argv[1] + ".cli")
print(json.dumps(list(module.VERBS)))
"""


class Installation:
    """A package as it is installed: runs its command and its Python in a folder that is empty at first."""

    def __init__(self, package, python, folder):
        self.package, self.python, self.folder = package, Path(python).absolute(), folder
        self.program = str(self.python.with_name(package.distribution))
        self.env = {
            **{name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}},
            "PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}",
            "NO_COLOR": "1",
            "COLUMNS": "200",
            "MPLBACKEND": "agg",
            "PYTHONIOENCODING": "utf-8",
        }

    def command(self, *arguments, **options):
        return self._run([self.program, *map(str, arguments)], **options)

    def run_python(self, code, *arguments, **options):
        return self._run([str(self.python), "-c", code, *map(str, arguments)], **options)

    def run_shell(self, line, **options):
        return self._run(["bash", "-c", line], **options)

    def popen(self, *arguments, **options):
        return subprocess.Popen([self.program, *map(str, arguments)], cwd=self.folder, env=self.env, **options)

    def _run(self, command, timeout=600):
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            encoding="utf-8",
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture(scope="session")
def installed(package, request, tmp_path_factory):
    """The package in its environment."""
    python = request.config.getoption("--package-python") or sys.executable
    return Installation(package, python, tmp_path_factory.mktemp(package.slug))


@pytest.fixture(scope="session")
def verbs(installed):
    """The verbs of the package's command."""
    done = installed.run_python(_INSPECT, installed.package.module)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
