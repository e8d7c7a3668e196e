"""One session per thing a person does: `uv run nox -l` lists them, `uv run nox -s tests -- sava` narrows to a package.

Packages are discovered, never listed. Every environment is made by uv under the pins of uv.toml, lies in .nox/envs and
stays until a declaration changes. `ICL25_PYTHON` chooses another Python for them.
"""

import atexit
import sys
import tempfile
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).parent))

from tools import environments, lock, site, template, testing, wheels
from tools.packages import ROOT, Package, select
from tools.shell import CommandError, Job, Outcome, Shell, run_job, run_jobs, say, summary

nox.options.default_venv_backend = "none"
nox.options.sessions = ["tests"]


@nox.session
def tests(session: nox.Session) -> None:
    """Run every package's tests and the contract (`-- SLUG ...` for some, `--fast` without the slow checks)."""
    flags, names = _flags(session, "--fast")
    packages = _packages(session, names)
    papers = [package for package in packages if package.slug != "shared"]
    # Long jobs first, so that none is left running alone at the end.
    jobs = [] if names else [testing.workspace_job()]
    jobs += [testing.contract_job(package, fast="--fast" in flags) for package in papers]
    jobs += [testing.unit_job(package) for package in packages]
    jobs += [testing.extras_job(package) for package in packages if package.test_extras]
    jobs += [testing.static_job(papers)] if papers else []
    for job in jobs:
        testing.report_path(job.name).unlink(missing_ok=True)
    outcomes = run_jobs(jobs)
    counts = sum((testing.read_counts(testing.report_path(job.name)) for job in jobs), testing.Counts())
    # A run that broke outside of any test, such as one whose environment could not be made, counts as one failure.
    broken = sum(not outcome.ok for outcome in outcomes)
    counts = testing.Counts(counts.passed, max(counts.failed, broken))
    testing.REPORTS.mkdir(parents=True, exist_ok=True)
    (testing.REPORTS / "counts.txt").write_text(f"{counts}\n")
    # Said at exit, after nox's own closing words, so that it is the last line whatever happened.
    atexit.register(say, str(counts))
    _finish(session, outcomes)


@nox.session
def demo(session: nox.Session) -> None:
    """Run the demonstrations into runs/demo and end in the scoreboard."""
    _run_verb(session, "demo")


@nox.session
def reproduce(session: nox.Session) -> None:
    """Run the papers' experiments into runs/reproduce and end in the scoreboard."""
    _run_verb(session, "reproduce")


@nox.session
def scoreboard(session: nox.Session) -> None:
    """Keep the claims of runs/ as evidence and write the tables of README.md (`-- --check` only compares)."""
    flags, _ = _flags(session, "--check")
    _scoreboard(session, "check" if flags else "update")


@nox.session
def bench(session: nox.Session) -> None:
    """Time the packages against what a person would use instead: packages/*/benchmarks/bench_*.py."""
    outcomes = []
    for package in _packages(session, session.posargs):
        for script in sorted(package.root.glob("benchmarks/bench_*.py")):

            def work(shell: Shell, package: Package = package, script: Path = script) -> None:
                shell.run(environments.package_environment(shell, package, "bench"), script)

            outcomes.append(run_job(Job(f"{package.slug} {script.stem}", work)))
    _finish(session, outcomes)


@nox.session
def lint(session: nox.Session) -> None:
    """Check format and style with ruff (`-- --fix` mends what it can)."""
    flags, names = _flags(session, "--fix")
    paths = [package.root for package in _packages(session, names)] if names else [ROOT]

    def work(shell: Shell) -> None:
        ruff = environments.workspace_environment(shell, "lint").with_name("ruff")
        shell.run(ruff, "format", *([] if flags else ["--check"]), *paths)
        shell.run(ruff, "check", *(["--fix"] if flags else []), *paths)

    _finish(session, [run_job(Job("lint", work))])


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of each package with ty, in an environment that holds its optional dependencies too."""

    def job(package: Package) -> Job:
        def work(shell: Shell) -> None:
            ty = environments.workspace_environment(shell, "types").with_name("ty")
            python = environments.package_environment(shell, package, "extras")
            shell.run(ty, "check", "--output-format", "concise", "--python", python.parent.parent, package.source)

        return Job(package.slug, work)

    def own(shell: Shell) -> None:
        ty = environments.workspace_environment(shell, "types").with_name("ty")
        python = environments.workspace_environment(shell, "dev", "test")
        shell.run(ty, "check", "--output-format", "concise", "--python", python.parent.parent, "noxfile.py", "tools")

    jobs = [job(package) for package in _packages(session, session.posargs)]
    _finish(session, run_jobs(jobs if session.posargs else [*jobs, Job("workspace", own)]))


@nox.session
def build(session: nox.Session) -> None:
    """Build sdists and wheels, check them, and try each wheel alone, outside the checkout."""
    packages = _packages(session, session.posargs)
    with tempfile.TemporaryDirectory(prefix="icl25-") as scratch:
        built = run_job(Job("build", lambda shell: wheels.build(shell, packages)))
        tried = run_jobs([wheels.trial(package, Path(scratch)) for package in packages]) if built.ok else []
        _finish(session, [built, *tried])


@nox.session(name="lock")
def lock_pins(session: nox.Session) -> None:
    """Write uv.toml: the exact version of every third-party package (`-- --upgrade` takes the newest)."""
    flags, _ = _flags(session, "--upgrade")
    _finish(session, [run_job(Job("lock", lambda shell: lock.write_pins(shell, upgrade=bool(flags))))])


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site under site/ from the READMEs and docstrings."""
    _finish(session, [run_job(Job("docs", site.build))])


@nox.session
def new(session: nox.Session) -> None:
    """Write the skeleton of a package: `-- my-paper`."""
    if len(session.posargs) != 1:
        session.error("name the package: `uv run nox -s new -- my-paper`")
    try:
        folder = template.instantiate(session.posargs[0])
    except ValueError as error:
        session.error(str(error))

    def tidy(shell: Shell) -> None:
        # Where an import sorts, and where a line breaks, depends on the package's name.
        ruff = environments.workspace_environment(shell, "lint").with_name("ruff")
        shell.run(ruff, "check", "--fix", "--select", "I", folder, quiet=True)
        shell.run(ruff, "format", folder, quiet=True)

    _finish(session, [run_job(Job("new", tidy))])
    say(f"wrote {folder.relative_to(ROOT)}; `uv run nox -s tests -- {folder.name}` says what is missing")


@nox.session
def dev(session: nox.Session) -> None:
    """Install every package and every development tool into .venv, for editors."""
    groups = [part for group in ("dev", "lint", "types", "test") for part in ("--group", f"pyproject.toml:{group}")]
    packages = [part for package in select([]) for part in ("-e", f"./{package.root.relative_to(ROOT)}")]
    python = ROOT / ".venv/bin/python"

    def work(shell: Shell) -> None:
        shell.run(environments.uv(), "pip", "install", "--python", python, *groups, *packages)

    _finish(session, [run_job(Job("dev", work))])


def _flags(session: nox.Session, *known: str) -> tuple[list[str], list[str]]:
    """Split what follows `--` into the session's own flags and package names."""
    flags = [argument for argument in session.posargs if argument.startswith("-")]
    for flag in flags:
        if flag not in known:
            session.error(f"unknown flag {flag}; this session knows: {', '.join(known)}")
    return flags, [argument for argument in session.posargs if not argument.startswith("-")]


def _packages(session: nox.Session, names: list[str], *, with_shared: bool = True) -> list[Package]:
    """The packages that a session was asked for."""
    try:
        return select(names, with_shared=with_shared)
    except ValueError as error:
        session.error(str(error))


def _run_verb(session: nox.Session, verb: str) -> None:
    """Run one verb of every package, in turn so that each has all cores, and show all claims."""
    outcomes = []
    for package in _packages(session, session.posargs, with_shared=False):

        def work(shell: Shell, package: Package = package) -> None:
            python = environments.package_environment(shell, package, "core")
            out = ROOT / "runs" / verb / package.slug
            (out / "claims.json").unlink(missing_ok=True)
            # 1 says that a claim does not hold, which the scoreboard shows.
            shell.run(python.with_name(package.distribution), verb, "--out", out, "--force", accept=(0, 1))
            if not (out / "claims.json").exists():
                raise CommandError(f"{package.distribution} {verb} left no claims.json")

        outcomes.append(run_job(Job(package.slug, work)))
    _scoreboard(session, "show", verb)
    if not all(outcome.ok for outcome in outcomes):
        _finish(session, outcomes)


def _scoreboard(session: nox.Session, *arguments: str) -> None:
    """Run tools.scoreboard, which needs `shared`."""

    def work(shell: Shell) -> None:
        shell.run(environments.workspace_environment(shell, "test"), "-m", "tools.scoreboard", *arguments)

    outcome = run_job(Job("scoreboard", work))
    if not outcome.ok:
        session.error(outcome.note)


def _finish(session: nox.Session, outcomes: list[Outcome]) -> None:
    """Print the summary and fail if anything did."""
    if len(outcomes) > 1 or not all(outcome.ok for outcome in outcomes):
        say(summary(outcomes))
    if not all(outcome.ok for outcome in outcomes):
        session.error("failed: " + ", ".join(outcome.name for outcome in outcomes if not outcome.ok))
