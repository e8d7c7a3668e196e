"""What the imports of a package are, read from its source without running it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.packages import Package, dependency_name

# Distributions whose import names differ from their own.
IMPORT_NAMES = {
    "beautifulsoup4": {"bs4"},
    "biopython": {"Bio"},
    "faiss-cpu": {"faiss"},
    "hydra-core": {"hydra"},
    "opencv-python": {"cv2"},
    "opencv-python-headless": {"cv2"},
    "orbax-checkpoint": {"orbax"},
    "pillow": {"PIL"},
    "pot": {"ot"},
    "protobuf": {"google"},
    "pyyaml": {"yaml"},
    "python-dateutil": {"dateutil"},
    "scikit-image": {"skimage"},
    "scikit-learn": {"sklearn"},
    "sentence-transformers": {"sentence_transformers"},
    "umap-learn": {"umap"},
}
# Words of the file names of each layer but the method: `demo_table` tells a story, `demonstrations` does not.
LAYERS = {
    "cli": {"cli", "verbs", "main"},
    "story": {"demo", "reproduce"},
    "plots": {"plots", "plotting", "figures"},
    "api": {"init"},
}


@dataclass(frozen=True)
class Import:
    """One imported module: where, what, and whether the import runs when its file is imported."""

    path: Path
    line: int
    module: str
    at_import: bool

    @property
    def top(self) -> str:
        """The first part of the module's name."""
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.path.name}:{self.line} {self.module}"


def import_names(requirement: str) -> set[str]:
    """The modules that a requirement brings."""
    name = dependency_name(requirement)
    return IMPORT_NAMES.get(name, {name.replace("-", "_")})


def imports(package: Package) -> list[Import]:
    """Every import statement of a package's source; those for type checkers alone count as not running."""
    return [
        found
        for path in sorted(package.source.rglob("*.py"))
        for found in _imports_in(ast.parse(path.read_text()), path, package, at_import=True)
    ]


def role(path: Path, package: Package) -> str:
    """Which layer a file belongs to, by its name: `cli`, `story`, `plots`, `api`, else `method`."""
    return layer_of(path.relative_to(package.source).parts[0].removesuffix(".py"))


def layer_of(module: str) -> str:
    """As ``role``, of the first part of a module's name within its package."""
    words = [word for word in module.split("_") if word]
    for name, telling in LAYERS.items():
        if words and (words[0] in telling or words[-1] in telling):
            return name
    return "method"


def _imports_in(node: ast.AST, path: Path, package: Package, *, at_import: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(path, child.lineno, alias.name, at_import)
        elif isinstance(child, ast.ImportFrom):
            base = _absolute(child, path, package)
            yield Import(path, child.lineno, base, at_import)
            if base == package.module:
                for alias in child.names:
                    yield Import(path, child.lineno, f"{base}.{alias.name}", at_import)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for statement in child.body:
                yield from _imports_in(_wrap(statement), path, package, at_import=False)
            for statement in child.orelse:
                yield from _imports_in(_wrap(statement), path, package, at_import=at_import)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imports_in(child, path, package, at_import=at_import and not inside)


def _wrap(statement: ast.stmt) -> ast.Module:
    return ast.Module(body=[statement], type_ignores=[])


def _absolute(node: ast.ImportFrom, path: Path, package: Package) -> str:
    """The full name of the module that a `from` statement names."""
    if node.level == 0:
        return node.module or ""
    parts = [package.module, *path.relative_to(package.source).parent.parts]
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])
