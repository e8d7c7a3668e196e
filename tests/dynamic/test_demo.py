"""The demonstration keeps its promises: time, memory, results, pictures, and the same bytes for the same seed."""

import json
import time
from pathlib import Path

import psutil
import pytest
from PIL import Image

from icl25_shared.claims import read_claims

# A demo is written for two free cores; beside other jobs it has one numerical thread and half of the machine.
SLOWDOWN = 4

pytestmark = pytest.mark.slow


class Run:
    """A finished run of a verb, with what it took."""

    def __init__(self, installed, out, *arguments):
        self.folder = installed.folder / out
        start = time.monotonic()
        with (
            (installed.folder / f"{out}.err").open("w") as errors,
            (installed.folder / f"{out}.out").open("w") as output,
        ):
            process = installed.popen(*arguments, "--json", "--out", self.folder, stdout=output, stderr=errors)
            self.peak = peak_memory(process, limit=start + 1800)
        self.seconds = time.monotonic() - start
        self.status = process.returncode
        self.stdout = (installed.folder / f"{out}.out").read_text()
        self.stderr = (installed.folder / f"{out}.err").read_text()


def peak_memory(process, limit):
    """The largest resident memory of a process and its children together, in megabytes; ends it past the limit."""
    peak = 0
    watched = psutil.Process(process.pid)
    while process.poll() is None:
        total = 0
        try:
            family = [watched, *watched.children(recursive=True)]
        except psutil.NoSuchProcess:
            family = []
        for member in family:
            try:
                total += member.memory_info().rss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        peak = max(peak, total)
        if time.monotonic() > limit:
            process.kill()
        time.sleep(0.1)
    return peak / 1e6


@pytest.fixture(scope="module")
def demo(installed):
    run = Run(installed, "demo", "demo")
    assert run.status in (0, 1), f"exit status {run.status}\n{run.stderr[-3000:]}"
    return run


def test_exit_status_agrees_with_the_claims(demo):
    """A claim that does not hold is allowed, and said: exit status 1."""
    claims = read_claims(demo.folder / "claims.json")
    assert claims, "the demo makes no claim"
    failing = [f"{claim.id}: {claim.measured} against {claim.rule}" for claim in claims if not claim.holds]
    assert demo.status == (1 if failing else 0), f"exit status {demo.status}; claims that do not hold: {failing}"


def test_claims_come_out_as_in_the_evidence(demo, package):
    """What the README quotes is what happens: the same claims as in results/demo, each with the same verdict."""
    evidence = package.root / "results/demo/claims.json"
    assert evidence.is_file(), "no results/demo/claims.json; run `nox -s demo`, then `nox -s scoreboard`"
    now, kept = (
        {claim.id: claim.holds for claim in read_claims(path)} for path in (demo.folder / "claims.json", evidence)
    )
    assert now == kept


def test_time_and_memory_stay_within_the_promise(demo, package):
    seconds, megabytes = package.settings["demo-seconds"], package.settings["demo-memory-mb"]
    assert demo.seconds < SLOWDOWN * seconds, f"took {demo.seconds:.0f} s; {SLOWDOWN} x {seconds} s are allowed"
    assert demo.peak < megabytes, f"took {demo.peak:.0f} MB of memory, promised {megabytes}"


def test_json_stands_alone_on_standard_output(demo):
    assert isinstance(json.loads(demo.stdout), dict)


def test_result_is_json(demo):
    assert json.loads((demo.folder / "result.json").read_text(), parse_constant=not_json)


def not_json(constant):
    raise AssertionError(f"{constant} is no JSON")


def test_pictures_show_something(demo):
    pictures = [path for path in demo.folder.rglob("*") if path.suffix in {".png", ".jpg", ".jpeg", ".webp"}]
    assert pictures, "the demo leaves no picture"
    for path in pictures:
        with Image.open(path) as image:
            low_high = image.convert("L").getextrema()
            assert min(image.size) >= 100, f"{path.name} is tiny: {image.size}"
        assert low_high[1] - low_high[0] > 50, f"{path.name} is blank"


def test_run_is_recorded(demo, package):
    record = json.loads((demo.folder / "run.json").read_text())
    assert record["program"] == package.distribution
    assert record["status"] == "finished"
    assert record["seed"] == 0


def test_same_seed_gives_the_same_bytes(demo, installed, package):
    """Run the demo once more; a package whose demo is long may name a shorter command for this (`repeat-run`)."""
    arguments = package.settings.get("repeat-run")
    first = Run(installed, "first", *arguments) if arguments else demo
    second = Run(installed, "second", *(arguments or ["demo"]))
    for name in ("result.json", "claims.json"):
        files = [Path(run.folder / name) for run in (first, second)]
        assert files[0].read_bytes() == files[1].read_bytes(), f"{name} differs between two runs with one seed"
    assert first.stdout == second.stdout, "standard output differs between two runs with one seed"
