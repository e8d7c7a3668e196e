"""Build the documentation site."""

from tools.shell import Shell


def build(shell: Shell) -> str:
    """Build the site."""
    raise NotImplementedError
