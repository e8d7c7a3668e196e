"""The console and Python examples of a README run, in the order in which they stand, in one folder."""

import re


def blocks(package, language):
    text = (package.root / "README.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(block):
    """The lines behind `$`, with their continuation lines."""
    return re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)


def test_examples_run(installed, package):
    """Console first: they write the files that the Python examples read."""
    console = [line for block in blocks(package, "console") for line in commands(block)]
    python = blocks(package, "python")
    assert console, "README.md has no ```console example"
    assert python, "README.md has no ```python example"
    for line in console:
        done = installed.run_shell(line)
        assert done.returncode == 0, f"$ {line}\n{done.stdout}{done.stderr}"
    done = installed.run_python("\n".join(python))
    assert done.returncode == 0, done.stderr
