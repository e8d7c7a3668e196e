"""A package imports what it declares, and its layers import one way."""

import sys

from tools.imports import import_names, imports, layer_of, role


def extras(package):
    requirements = package.project.get("optional-dependencies", {}).values()
    return set().union(*(import_names(line) for extra in requirements for line in extra))


def core(package):
    return set().union(*(import_names(line) for line in package.project["dependencies"]))


def test_imports_are_declared(package):
    known = {*sys.stdlib_module_names, package.module, *core(package), *extras(package)}
    undeclared = [str(found) for found in imports(package) if found.top not in known]
    assert not undeclared, f"imported, but not among the dependencies of {package.distribution}: {undeclared}"


def test_declared_dependencies_are_imported(package):
    used = {found.top for found in imports(package)}
    idle = [line for line in package.project["dependencies"] if not import_names(line) & used]
    assert not idle, f"declared, but imported nowhere: {idle}"


def test_no_other_paper_is_imported(package):
    ours = {package.module, "icl25_shared"}
    foreign = [str(found) for found in imports(package) if found.top.startswith("icl25_") and found.top not in ours]
    assert not foreign, f"another paper's package is imported: {foreign}"


def test_extras_are_imported_where_they_are_needed(package):
    optional = extras(package) - core(package)
    early = [str(found) for found in imports(package) if found.at_import and found.top in optional]
    assert not early, f"an extra is imported at the top of a file; move it into the function that needs it: {early}"


def test_method_knows_neither_command_line_nor_plots(package):
    outer = {"tyro", "rich", "matplotlib"}
    wrong = [str(found) for found in imports(package) if role(found.path, package) == "method" and found.top in outer]
    assert not wrong, f"the method imports the command line or plots: {wrong}"


def test_layers_import_one_way(package):
    def inner(found):
        return found.module.removeprefix(f"{package.module}.").partition(".")[0]

    runs = [
        (found, inner(found), role(found.path, package))
        for found in imports(package)
        if found.module.startswith(f"{package.module}.")
    ]
    # `demo` may name the dataclass of its verb for type checkers.
    wrong = [str(f) for f, name, layer in runs if layer_of(name) == "cli" and f.at_import and layer != "cli"]
    wrong += [str(f) for f, name, layer in runs if layer_of(name) == "story" and layer not in {"cli", "story"}]
    assert not wrong, f"only cli imports cli, only cli, demo and reproduce import demo and reproduce: {wrong}"
