"""Run commands, one after the other or job beside job, and say which."""

import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from tools.packages import ROOT

_PRINTING = threading.Lock()
_SINGLE_THREAD = dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"], "1")


class CommandError(RuntimeError):
    """A command ended with a status that its caller did not expect."""


def say(text: str) -> None:
    """Print whole lines, also when several threads do."""
    with _PRINTING:
        sys.stdout.write(text.rstrip("\n") + "\n")
        sys.stdout.flush()


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def base_environment() -> dict[str, str]:
    """The variables for child processes: this process's own, without its virtual environment."""
    env = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH"}}
    # uv reads its own variable only, so a person who told pip where wheels lie need not say it twice.
    if "PIP_FIND_LINKS" in env:
        env.setdefault("UV_FIND_LINKS", env["PIP_FIND_LINKS"])
    return env


@dataclass
class Shell:
    """Runs the commands of one job.

    Args:
        name: Stands before each printed command.
        live: Pass the commands' output on as it comes; otherwise it is kept in `output`.
        env: Variables on top of this process's own.
    """

    name: str
    live: bool = True
    env: Mapping[str, str] = field(default_factory=dict)
    output: str = ""

    def run(
        self,
        *command: str | Path,
        accept: Sequence[int] = (0,),
        cwd: Path = ROOT,
        quiet: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> int:
        """Run one command and return its exit status.

        Args:
            command: The program and its arguments.
            accept: The exit statuses that are no failure.
            cwd: Where it runs.
            quiet: Keep its output back unless it fails.
            env: Variables for this command alone.

        Raises:
            CommandError: If it ends with another status.
        """
        arguments = [str(part) for part in command]
        shown = shlex.join(part.removeprefix(f"{ROOT}/") for part in arguments)
        say(f"[{self.name}] $ {shown}")
        keep = quiet or not self.live
        done = subprocess.run(
            arguments,
            cwd=cwd,
            env={**base_environment(), **self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if keep else None,
            stderr=subprocess.STDOUT if keep else None,
            text=True,
            errors="replace",
            check=False,
        )
        failed = done.returncode not in accept
        if keep and (failed or not quiet):
            self.output += done.stdout
            if self.live:
                say(done.stdout)
        if failed:
            raise CommandError(f"exit status {done.returncode}: {shown}")
        return done.returncode


@dataclass
class Job:
    """A named piece of work that runs beside others.

    Args:
        name: What the summary calls it.
        work: Called with the job's shell; what it returns is a note for the summary.
    """

    name: str
    work: Callable[[Shell], str | None]


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    name: str
    ok: bool
    seconds: float
    note: str


def run_job(job: Job, *, live: bool = True, env: Mapping[str, str] | None = None) -> Outcome:
    """Run one job; a command that fails ends it and stands in the outcome."""
    shell = Shell(job.name, live=live, env=env or {})
    start = time.monotonic()
    try:
        note, ok = job.work(shell) or "", True
    except CommandError as error:
        note, ok = str(error), False
    seconds = time.monotonic() - start
    if shell.output and not live:
        say(f"\n──── {job.name} ────\n{shell.output}")
    say(f"[{job.name}] {'done' if ok else 'FAILED'} in {seconds:.1f} s")
    return Outcome(job.name, ok, seconds, note)


def run_jobs(jobs: Sequence[Job], *, workers: int | None = None) -> list[Outcome]:
    """Run jobs beside each other, each with one numerical thread, and return their outcomes in the jobs' order."""
    workers = min(workers or cores(), len(jobs))
    if workers <= 1:
        return [run_job(job) for job in jobs]
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(run_job, job, live=False, env=_SINGLE_THREAD) for job in jobs]
        for future in as_completed(futures):
            future.result()
    return [future.result() for future in futures]


def summary(outcomes: Sequence[Outcome]) -> str:
    """A table of outcomes: name, state, time, note."""
    width = max((len(outcome.name) for outcome in outcomes), default=4)
    lines = []
    for outcome in outcomes:
        state = "ok" if outcome.ok else "FAILED"
        lines.append(f"{outcome.name:<{width}}  {state:<6}  {outcome.seconds:7.1f} s  {outcome.note}".rstrip())
    return "\n".join(["", *lines])
