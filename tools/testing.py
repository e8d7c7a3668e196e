"""The jobs of the `tests` session: which pytest runs there are, and what they found."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.environments import package_environment, workspace_environment
from tools.packages import ROOT, Package
from tools.shell import CommandError, Job, Shell

REPORTS = ROOT / ".nox" / "reports"
NOTHING_COLLECTED = 5


@dataclass(frozen=True)
class Counts:
    """How many tests passed, and how many failed or broke."""

    passed: int = 0
    failed: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        """Add up two runs."""
        return Counts(self.passed + other.passed, self.failed + other.failed)

    def __str__(self) -> str:
        """The closing line."""
        return f"{self.passed} passed, {self.failed} failed"


def read_counts(report: Path) -> Counts:
    """The counts of one junit report; a run that left none has failed once."""
    if not report.exists():
        return Counts(failed=1)
    suites = list(ET.parse(report).getroot().iter("testsuite"))
    tests, bad, skipped = (
        sum(int(suite.get(key, 0)) for suite in suites for key in keys)
        for keys in (["tests"], ["failures", "errors"], ["skipped"])
    )
    return Counts(tests - bad - skipped, bad)


def run_pytest(shell: Shell, python: Path, *arguments: str | Path, accept: Sequence[int] = (0,)) -> str:
    """Run pytest, leave its report under the job's name and return the counts.

    Raises:
        CommandError: If a test failed, with the counts, or if pytest did not get as far as running any.
    """
    report = report_path(shell.name)
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    try:
        shell.run(python, "-m", "pytest", "-q", "--tb=short", f"--junitxml={report}", *arguments, accept=accept)
    except CommandError as error:
        if report.exists():
            raise CommandError(str(read_counts(report))) from error
        raise
    return str(read_counts(report))


def report_path(job: str) -> Path:
    """Where the junit report of a job lies."""
    return REPORTS / f"{job.replace(' ', '-')}.xml"


def unit_job(package: Package) -> Job:
    """The package's own tests and doctests, on its declared dependencies."""

    def work(shell: Shell) -> str:
        python = package_environment(shell, package, "tests")
        paths = [package.root / "tests", package.source]
        return run_pytest(shell, python, *_checked(package), "--doctest-modules", "-m", "not extra", *paths)

    return Job(package.slug, work)


def extras_job(package: Package) -> Job:
    """The tests that need an optional dependency."""

    def work(shell: Shell) -> str:
        python = package_environment(shell, package, "extras")
        arguments = [*_checked(package), "-m", "extra", package.root / "tests"]
        return run_pytest(shell, python, *arguments, accept=(0, NOTHING_COLLECTED))

    return Job(f"{package.slug} extras", work)


def contract_job(package: Package, *, fast: bool) -> Job:
    """The part of the contract that runs the package, on its declared dependencies and nothing else."""

    def work(shell: Shell) -> str:
        python = package_environment(shell, package, "core")
        contract = workspace_environment(shell, "test")
        marks = ["-m", "not slow"] if fast else []
        return run_pytest(
            shell, contract, "tests/dynamic", "--package", package.slug, "--package-python", python, *marks
        )

    return Job(f"{package.slug} contract", work)


def static_job(packages: Sequence[Package]) -> Job:
    """The part of the contract that reads files, for all packages at once."""

    def work(shell: Shell) -> str:
        python = workspace_environment(shell, "test")
        names = [part for package in packages for part in ("--package", package.slug)]
        return run_pytest(shell, python, "tests/static", *names)

    return Job("files", work)


def workspace_job() -> Job:
    """The tests of the sessions, the template and the contract itself."""

    def work(shell: Shell) -> str:
        python = workspace_environment(shell, "test")
        return run_pytest(shell, python, "--doctest-modules", "tests/workspace", "tools")

    return Job("workspace", work)


def _checked(package: Package) -> list[str]:
    """Check array shapes and types at run time where the package annotates them."""
    if package.depends_on("jaxtyping"):
        return ["-o", f"pythonpath={ROOT}/tools/plugins", f"--jaxtyping-packages={package.module},typechecking.check"]
    return []
