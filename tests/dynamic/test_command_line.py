"""The command explains itself, quickly, and refuses what is wrong in one line."""

import resource

from tools.help_pages import entries

HELP_SECONDS = 1.0


def processor_seconds():
    """Processor time of the commands that have ended: what runs beside them does not count."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def test_demo_and_reproduce_are_among_the_verbs(verbs):
    assert {"demo", "reproduce"} <= set(verbs)
    assert len(verbs) > 2, "the method has no verb of its own"


def test_help_of_every_verb_is_quick_and_explains_every_flag(installed, verbs):
    slow, unexplained = [], []
    for verb in verbs:
        best = float("inf")
        # The best of several: a loaded machine must not decide.
        for _ in range(5):
            start = processor_seconds()
            done = installed.command(*verb.split(), "--help")
            best = min(best, processor_seconds() - start)
            if best < HELP_SECONDS:
                break
        assert done.returncode == 0, done.stderr
        if best >= HELP_SECONDS:
            slow.append(f"{verb}: {best:.2f} s")
        unexplained += [f"{verb} {entry.name}" for entry in entries(done.stdout) if not entry.explained]
    assert not unexplained, f"flags without help (write a docstring below the field): {unexplained}"
    assert not slow, f"--help takes {slow}; import heavy libraries inside run()"


def assert_refused(done):
    assert done.returncode == 2, f"exit status {done.returncode}, expected 2\n{done.stdout}{done.stderr}"
    assert not done.stdout
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, f"expected one line on standard error, found {len(lines)}:\n{done.stderr}"
    assert "Traceback" not in done.stderr


def test_version_is_the_distribution_s(installed, package):
    done = installed.command("--version")
    assert done.returncode == 0
    assert package.project["version"] in done.stdout


def test_unknown_verb_is_refused_in_one_line(installed):
    assert_refused(installed.command("no-such-verb"))


def test_unknown_flag_is_refused_by_name(installed, verbs):
    for verb in verbs:
        done = installed.command(*verb.split(), *no_such_files(installed, verb), "--no-such-flag")
        assert_refused(done)
        assert "--no-such-flag" in done.stderr


def test_wrong_value_is_refused_in_one_line(installed):
    assert_refused(installed.command("demo", "--seed", "many"))


def test_unknown_device_is_refused_with_those_there_are(installed):
    # The verbs that every package has and that need no other flag.
    for verb in ("demo", "reproduce"):
        done = installed.command(*verb.split(), "--device", "abacus")
        assert_refused(done)
        assert all(name in done.stderr for name in ("abacus", "auto", "cpu", "cuda:N", "mps"))


def test_missing_files_are_refused_in_one_line(installed, verbs):
    for verb in verbs:
        if paths := no_such_files(installed, verb):
            assert_refused(installed.command(*verb.split(), *paths))


def no_such_files(installed, verb):
    """A path that leads nowhere, for every positional argument of a verb."""
    page = installed.command(*verb.split(), "--help").stdout
    return ["no-such-file.csv" for entry in entries(page) if entry.positional]
