from __future__ import annotations

import subprocess
import sys

import pytest

# Runs the command line and says which of the slow libraries it loaded.
CODE = """
import sys
from icl25_sava.cli import main
status = main(sys.argv[1:])
print([name for name in ("pandas", "sklearn", "pyarrow", "ot") if name in sys.modules])
sys.exit(status)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("value", "there.csv", "absent.csv"),
        ("value", "absent.csv", "there.csv"),
        ("add", "store", "absent.csv"),
        ("prune", "absent.csv"),
        ("evaluate", "there.csv", "--truth", "wrong", "--audit", "absent.csv"),
        ("distance", "there.csv", "absent.csv"),
        ("compare", "there.csv", "there.csv", "--truth", "wrong", "--audit", "absent.csv"),
        ("plot", "there.csv", "--train", "absent.csv", "--val", "there.csv"),
        ("reproduce", "--config", "cifar10", "--data", "absent.csv"),
    ],
)
def test_a_missing_path_is_named_before_slow_libraries_are_loaded(tmp_path, arguments):
    (tmp_path / "there.csv").touch()
    command = [sys.executable, "-c", CODE, *arguments]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.stderr == f"icl25-sava {arguments[0]}: error: absent.csv: no such file or folder\n"
    assert ran.returncode == 2
    assert ran.stdout == "[]\n"
