"""A new package stands at once, and its author is told what is missing."""

import re

import pytest

from tools.template import instantiate


def test_new_package_passes_lint_and_types(workspace, skeleton):
    done = workspace.nox("-s", "lint", "types", "--", skeleton.name)
    assert done.returncode == 0, done.stdout + done.stderr


def test_site_shows_the_new_package(workspace, skeleton):
    done = workspace.nox("-s", "docs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "running_mean" in (workspace.root / "site/my-paper/api.html").read_text()
    assert 'href="my-paper/index.html"' in (workspace.root / "site/gallery.html").read_text()


def test_new_package_passes_its_own_tests_and_its_author_is_told_what_is_missing(workspace, skeleton):
    done = workspace.nox("-s", "tests", "--", skeleton.name, "--fast")
    assert done.returncode != 0
    assert re.search(r"^my-paper +ok ", done.stdout, re.MULTILINE), done.stdout
    for words in ("status is still 'skeleton'", "still to be filled in: ", "the picture docs/overview.png is missing"):
        assert words in done.stdout
    assert re.fullmatch(r"\d+ passed, [1-9]\d* failed", done.stdout.strip().splitlines()[-1])


@pytest.mark.parametrize("name", ["My-Paper", "my_paper", "-x", "x-", "", "class", "shared", "a b", "../x"])
def test_unusable_names_are_refused(name, tmp_path):
    with pytest.raises(ValueError, match="no package name"):
        instantiate(name, root=tmp_path)


def test_existing_package_is_left_alone(workspace, skeleton):
    with pytest.raises(ValueError, match="packages/my-paper exists"):
        instantiate("my-paper", root=workspace.root)
