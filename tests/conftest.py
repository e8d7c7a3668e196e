"""The contract: what holds for every package alike. Packages are discovered; `--package SLUG` narrows them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.packages import select


def pytest_addoption(parser):
    group = parser.getgroup("icl25")
    group.addoption("--package", action="append", default=[], metavar="SLUG", help="check this package (repeatable)")
    group.addoption(
        "--package-python",
        default=sys.executable,
        metavar="PATH",
        help="the Python in whose environment the package is installed (default: the running one)",
    )


def pytest_generate_tests(metafunc):
    if "package" in metafunc.fixturenames:
        packages = select(metafunc.config.getoption("--package"), with_shared=False)
        metafunc.parametrize("package", packages, ids=lambda package: package.slug, scope="session")
