"""Read the public functions and classes of a package from its source, and what their docstrings leave unsaid."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tools.packages import Package

ARRAY = re.compile(
    r"\b(Float|Int|Num|Bool|Shaped|Complex|Real|UInt|Inexact|Integer)\w*\[|ndarray|ArrayLike|Array\b|Tensor\b"
)
SHAPE = re.compile(r"\([^()\s]+(?: ?, ?[^()]*)\)|\bshapes?\b|\bscalars?\b")
SOURCE = re.compile(
    r"\bSources?:|\barXiv|\bdoi\b|\(\d{4}\)|, \d{4}\b|\b(Sec(tion|\.)|Eq(uation|\.|s\.)|Fig(ure|\.)|Algorithm|Theorem"
    r"|Lemma|Proposition|Table|Appendix|Definition) \(?[A-Z0-9]"
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Definition:
    """A public name: the function or class that it stands for, and the file that holds it."""

    name: str
    node: Function | ast.ClassDef
    file: str

    @property
    def docstring(self) -> str:
        """The docstring, or nothing."""
        return ast.get_docstring(self.node) or ""


def public_names(package: Package) -> list[str]:
    """The names in `__all__` of the package."""
    tree = ast.parse((package.source / "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            return list(ast.literal_eval(node.value))
    return []


def public_definitions(package: Package) -> list[Definition]:
    """The functions and classes of the package that `__all__` names, in its order, wherever their files are."""
    names = public_names(package)
    found = [
        Definition(node.name, node, str(path.relative_to(package.root)))
        for path in sorted(package.source.rglob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, Function | ast.ClassDef) and node.name in names
    ]
    return sorted(found, key=lambda definition: names.index(definition.name))


def complaints(definition: Definition) -> Iterator[str]:
    """What the docstring of a public name leaves out, each as a sentence."""
    node, text = definition.node, definition.docstring
    if not text:
        yield "has no docstring"
        return
    if role := re.search(r":\w+:`[^`]*`", text):
        yield f"has the Sphinx role {role[0]}, which `help()` and the site show as it stands; plain backticks do"
    if isinstance(node, ast.ClassDef):
        methods = [child for child in node.body if isinstance(child, Function) and not child.name.startswith("_")]
        for method in methods:
            for complaint in _unsaid_of_function(method, ast.get_docstring(method) or "", text):
                yield f".{method.name} {complaint}"
        if not _is_record(node) and not SOURCE.search(text):
            yield "names no source (`Source:` with the paper's section, equation or algorithm)"
        return
    yield from _unsaid_of_function(node, text, "")
    if not SOURCE.search(text):
        yield "names no source (`Source:` with the paper's section, equation or algorithm)"


def _unsaid_of_function(node: Function, text: str, class_text: str) -> Iterator[str]:
    """What a function's docstring leaves out about its arguments and errors."""
    if not text:
        # A property or an override that its name explains still needs one line.
        yield "has no docstring"
        return
    said = {**argument_lines(class_text), **argument_lines(text)}
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    arrays = []
    for argument in given:
        annotation = ast.unparse(argument.annotation) if argument.annotation else ""
        if ARRAY.search(annotation):
            arrays.append(argument.arg)
    for name in arrays:
        if name not in said:
            yield f"does not describe its array argument `{name}`"
        elif not SHAPE.search(said[name]):
            yield f"does not state the shape of `{name}`"
    raises = any(isinstance(child, ast.Raise) and child.exc is not None for child in ast.walk(node))
    if (raises or arrays) and "Raises:" not in text + class_text:
        yield "does not say what it raises (`Raises:`)"


def argument_lines(text: str) -> dict[str, str]:
    r"""The description of each argument in the `Args:` section of a Google-style docstring.

    >>> argument_lines("Sum.\n\nArgs:\n    x, y: Points,\n        of shape (n, d).\n    p: Power.\n\nReturns:\n    It.")
    {'x': 'Points, of shape (n, d).', 'y': 'Points, of shape (n, d).', 'p': 'Power.'}
    """
    section = re.search(r"^(?:Args|Attributes|Parameters):\n((?:[ \t]+.*\n?|\n)*)", text, re.MULTILINE)
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section[1].splitlines() if section else []:
        start = re.match(r"(?: {4}|\t)(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: \([^)]*\))?: *(.*)", line)
        if start:
            names = [name.strip(" *") for name in start[1].split(",")]
            found.update(dict.fromkeys(names, start[2]))
        else:
            found.update({name: f"{found[name]} {line.strip()}".strip() for name in names})
    return found


def _is_record(node: ast.ClassDef) -> bool:
    """Whether a class only holds results or is an error: such need no source of their own."""
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    decorators = {ast.unparse(line).partition("(")[0].rpartition(".")[2] for line in node.decorator_list}
    return (
        "dataclass" in decorators
        or bool(bases & {"NamedTuple", "TypedDict", "Protocol"})
        or any(base.endswith(("Error", "Warning", "Exception", "Enum")) for base in bases)
    )
