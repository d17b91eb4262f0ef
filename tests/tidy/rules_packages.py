"""A package is imported through its `__init__`: other packages use the names in its `__all__`, and no inner file.

Files of one package import one another, and so do those of packages below it. Imports in functions are allowed, because
they are lazy for some reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tests.tidy.rules_imports import within
from tests.tidy.tree import Source

FOLDERS: Final = ("broker", "demo", "loadtest", "pipeline", "schemas", "storage", "topics_client")
#: Programs. The files directly in their folders are not one package: `import broker` must not load the broker.
PROGRAMS: Final = ("broker", "demo", "loadtest", "pipeline", "topics_client")
#: Written for other programs: `__all__` has names that nothing in this repository uses.
PUBLIC: Final = ("schemas", "storage", "topics_client")
CIRCLE: Final = "it imports packages that import its own"
#: Files and whole packages that others may import even so, each with its reason. Not for imports of type checkers.
EXCEPTIONS: Final[dict[str, str]] = {
    "broker.kafka.codec.fetch": "without the port nothing loads it",
    "broker.kafka.codec.produce": "without the port nothing loads it",
    "broker.kafka.messages": "each area of the port loads its own messages, and without the port nothing does",
    "broker.kafka.records.batch_reader": "it needs the extra kafka, and the rest of the package does not",
    "broker.kafka.share.acquiring": "without the port nothing loads it",
    "broker.kafka.share.cell_shares": CIRCLE,
    "broker.kafka.share.shares": CIRCLE,
    "storage.backup.bases": "only an owner of a cell in a bucket needs it, and it needs storage.backup.restoring",
    "storage.backup.copies": "only reads without an engine need it",
    "storage.backup.restoring": "only the command line restores, and it needs all of storage.inspect",
    "storage.backup.source": "only restores and reads without an engine need it",
    "storage.offline.commands": "only the command line needs it, and programs import storage",
    "storage.cells.adopting": CIRCLE,
    "storage.cells.backing_up": CIRCLE,
    "storage.cells.exporting": CIRCLE,
    "storage.cells.founding": "only the owner of a cell in a bucket and the command line need it",
    "storage.cells.importing": CIRCLE,
    "storage.cells.making": CIRCLE,
    "storage.cells.owner": CIRCLE,
    "storage.segments.tiering.relocation": CIRCLE,
    "storage.segments.tiering.relocator": CIRCLE,
    "storage.state.consumers.offset": CIRCLE,
    "storage.state.consumers.progress": CIRCLE,
    "topics_client.commands": "the command line loads the module of the command that is called, and no other",
}


class Import(NamedTuple):
    """One name that a file imports. `name` is None for `import module`."""

    line: int
    module: str
    name: str | None
    typing: bool


@dataclass(frozen=True, slots=True)
class Packages:
    """The modules of a tree, and for each package the names in its `__all__`."""

    modules: frozenset[str]
    exports: Mapping[str, tuple[str, ...]]


def packages_of(sources: Iterable[Source]) -> Packages:
    """The parts of the tree that the rule needs."""
    ours = [source for source in sources if source.folder in FOLDERS]
    inits = [source for source in ours if source.path.endswith("/__init__.py")]
    return Packages(frozenset(source.module for source in ours), {init.module: exported(init) for init in inits})


def exported(init: Source) -> tuple[str, ...]:
    """The names in `__all__`; none if there is no such list."""
    for node in ast.parse(init.text).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            return tuple(ast.literal_eval(node.value))
    return ()


def eager_imports(source: Source) -> Iterator[Import]:
    """What a file imports when it is imported, and what it imports for type checkers."""

    def visit(node: ast.AST, typing: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            alone = typing or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test))
            if isinstance(child, ast.ImportFrom) and child.module:
                for alias in child.names:
                    yield Import(child.lineno, child.module, alias.name, alone)
            elif isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(child.lineno, alias.name, None, alone)
            yield from visit(child, alone)

    yield from visit(ast.parse(source.text), False)


def package_problems(source: Source, packages: Packages) -> list[str]:
    """Imports of files of other packages, and of names that the package does not export."""
    if source.folder not in FOLDERS:
        return []
    problems: list[str] = []
    for line, module, name, typing in eager_imports(source):
        if module in packages.exports:
            if name is None or module in PROGRAMS or module in EXCEPTIONS or within(source.module, module):
                continue
            inner = f"{module}.{name}"
            if name not in packages.exports[module] and inner not in packages.exports:
                problems.append(f"{source.path}:{line} imports {inner}, which is not in __all__ of {module}")
        elif module in packages.modules:
            package = module.rpartition(".")[0]
            excepted = package in EXCEPTIONS or (module in EXCEPTIONS and not typing)
            if excepted or package in PROGRAMS or within(source.module, package):
                continue
            problems.append(f"{source.path}:{line} imports from {module}: import it from {package}")
    return problems


def used_from_outside(sources: Iterable[Source]) -> set[tuple[str, str]]:
    """(module, name) of everything that a file imports by name from other packages and modules."""
    return {
        (found.module, found.name)
        for source in sources
        for found in all_imports(source)
        if found.name is not None and not within(source.module, found.module)
    }


def all_imports(source: Source) -> Iterator[Import]:
    """Every `from module import name` of a file, including those in functions."""
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield Import(node.lineno, node.module, alias.name, False)


def needless_exports(packages: Packages, used: set[tuple[str, str]]) -> list[str]:
    """Names in an `__all__` that nothing outside the package imports."""
    return [
        f"{package} exports {name}, which nothing outside it imports"
        for package, names in packages.exports.items()
        if package not in (*PUBLIC, *PROGRAMS)
        for name in names
        if (package, name) not in used
    ]


def needless_exceptions(sources: Iterable[Source]) -> list[str]:
    """Exceptions that no file of another package uses."""
    taken = {
        module
        for source in sources
        if source.folder in FOLDERS
        for found in eager_imports(source)
        if not found.typing and not within(source.module, found.module.rpartition(".")[0])
        for module in (found.module, found.module.rpartition(".")[0])
    }
    return [f"no other package imports from {module}" for module in EXCEPTIONS if module not in taken]
