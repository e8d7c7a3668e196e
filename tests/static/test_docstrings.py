"""Whoever reads the help of a public name learns shapes, errors and where in the paper it stands."""

from tools.docstrings import complaints, public_definitions, public_names


def test_the_public_api_is_named(package):
    assert public_names(package), "__init__.py has no __all__"
    assert public_definitions(package), "__all__ names no function or class of the package"


def test_public_docstrings_are_complete(package):
    found = [
        f"{definition.file}: {definition.name} {complaint}"
        for definition in public_definitions(package)
        for complaint in complaints(definition)
    ]
    assert not found, "docstrings leave something out:\n" + "\n".join(found)
