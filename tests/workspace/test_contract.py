"""The contract passes a finished package and fails a broken one, for the reason that was broken."""

import re

import pytest


def failures(done):
    return set(re.findall(r"^FAILED \S+::(\w+)", done.stdout, re.MULTILINE))


def edit(path, old, new):
    text = path.read_text()
    assert old in text, f"{path.name} no longer holds {old!r}"
    path.write_text(text.replace(old, new, 1))


def test_finished_package_passes_the_static_contract(finished, folder):
    done = finished.pytest("tests/static", "--package", "my-paper")
    assert done.returncode == 0, done.stdout


STATIC = [
    (
        "src/icl25_my_paper/means.py",
        "import numpy as np",
        "import numpy as np\nimport scipy",
        "test_imports_are_declared",
    ),
    (
        "src/icl25_my_paper/means.py",
        "import numpy as np",
        "import numpy as np\nimport icl25_sava",
        "test_no_other_paper_is_imported",
    ),
    (
        "src/icl25_my_paper/means.py",
        "import numpy as np",
        "import numpy as np\nimport matplotlib",
        "test_method_knows_neither_command_line_nor_plots",
    ),
    (
        "src/icl25_my_paper/means.py",
        "import numpy as np",
        "import numpy as np\nfrom . import cli",
        "test_layers_import_one_way",
    ),
    ("src/icl25_my_paper/means.py", "of shape (n,), with n", "some numbers, n", "test_public_docstrings_are_complete"),
    ("src/icl25_my_paper/means.py", "    Raises:", "    Nothing:", "test_public_docstrings_are_complete"),
    ("src/icl25_my_paper/means.py", "    Source:", "    Thanks:", "test_public_docstrings_are_complete"),
    ("src/icl25_my_paper/__init__.py", "__all__", "names", "test_the_public_api_is_named"),
    (
        "pyproject.toml",
        '"matplotlib>=3.8"',
        '"matplotlib>=3.8",\n  "scipy>=1.11"',
        "test_declared_dependencies_are_imported",
    ),
    ("pyproject.toml", '"numpy>=1.26"', '"numpy==2.0"', "test_requirements_have_lower_bounds_and_pins"),
    ("pyproject.toml", 'name = "icl25-my-paper"', 'name = "my-paper"', "test_names_follow_the_folder"),
    ("pyproject.toml", 'license = "Apache-2.0"', 'license = "MIT"', "test_project_table_is_complete"),
    ("pyproject.toml", "demo-seconds = 60", "demo-seconds = 600", "test_settings_of_the_workspace_are_complete"),
    ("README.md", "## Limits", "## Borders", "test_sections_stand_in_order"),
    ("README.md", "docs/overview.png", "docs/nothing.png", "test_pictures_and_links_lead_somewhere"),
    ("README.md", "```console", "```sh", "test_quick_start_has_a_command_and_python"),
    ("LICENSE", "Apache", "Apache?", "test_licence_is_the_workspace_one"),
    ("tests/test_cli.py", "import json", "import json  # " + "TO" + "DO", "test_nothing_is_left_unfinished"),
    ("README.md", "## Limits", "## Limits\n\nSee /ro" + "ot/x.", "test_no_trace_of_one_machine"),
]


@pytest.mark.parametrize(("file", "old", "new", "test"), STATIC, ids=[f"{row[3]}-{row[0]}" for row in STATIC])
def test_static_contract_sees(finished, folder, file, old, new, test):
    edit(folder / file, old, new)
    done = finished.pytest("tests/static", "--package", "my-paper", "-k", test)
    assert failures(done) == {test}, done.stdout


@pytest.fixture
def dynamic(finished, folder, python):
    """Runs one test of the dynamic contract on the changed source."""

    def run(test):
        # The environment holds the package from the other copy: put the changed source in its place.
        site = next((python.parent.parent / "lib").glob("*/site-packages"))
        for link in site.glob("*my_paper*.pth"):
            link.write_text(str(folder / "src"))
        options = ["--package", "my-paper", "--package-python", python, "-k", test]
        return finished.pytest("tests/dynamic", *options)

    return run


def test_finished_package_passes_the_dynamic_contract(dynamic):
    done = dynamic("test")
    assert done.returncode == 0, done.stdout


CLI, DEMO = "src/icl25_my_paper/cli.py", "src/icl25_my_paper/demo.py"
DYNAMIC = [
    (CLI, '    """How many draws to average."""\n', "", "test_help_of_every_verb_is_quick_and_explains_every_flag"),
    (
        CLI,
        "from collections",
        "import sys, time\n\nwhile 'estimate' in sys.argv and time.process_time() < 2:\n    pass\nfrom collections",
        "test_help_of_every_verb_is_quick_and_explains_every_flag",
    ),
    (
        "src/icl25_my_paper/means.py",
        "import numpy as np",
        "import numpy as np\nimport matplotlib",
        "test_import_brings_in_nothing_heavy",
    ),
    (DEMO, "default_rng(flags.seed)", "default_rng()", "test_same_seed_gives_the_same_bytes"),
    (DEMO, "axes.plot(", "axes.set_axis_off(); (", "test_pictures_show_something"),
    (
        DEMO,
        "with RunFolder",
        "memory = np.ones(150_000_000)\n    with RunFolder",
        "test_time_and_memory_stay_within_the_promise",
    ),
    (DEMO, 'Rule("<=", 0.05)', 'Rule(">=", 0.05)', "test_claims_come_out_as_in_the_evidence"),
    (DEMO, "ok=all(claim.holds for claim in claims)", "ok=False", "test_exit_status_agrees_with_the_claims"),
    ("README.md", "estimate --n-samples 1000", "estimate --samples 1000", "test_examples_run"),
    ("README.md", "import running_mean", "import walking_mean", "test_examples_run"),
]


@pytest.mark.parametrize(("file", "old", "new", "test"), DYNAMIC, ids=[f"{row[3]}-{row[2][:12]}" for row in DYNAMIC])
def test_dynamic_contract_sees(folder, dynamic, file, old, new, test):
    edit(folder / file, old, new)
    done = dynamic(test)
    assert failures(done) == {test}, done.stdout
