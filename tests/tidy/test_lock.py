"""pyproject.toml names what the code imports. requirements.lock pins it, and does not name a source."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from typing import Any

import pytest

from tests.tidy.rules_imports import OURS, imports, within
from tests.tidy.tree import CLIENT, ROOT, Source, python_files

PIN = re.compile(r"([A-Za-z0-9._-]+)==([0-9][A-Za-z0-9.+!]*)")
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?(?:>=([\d.]+))?(?:,<([\d.]+))?")
#: Installed with the project alone. demo/, loadtest/ and tests/ have the extras too.
INSTALLED = ("broker", "schemas", "storage", "topics_client")
#: Modules that use an extra, and report if it is not installed.
OPTIONAL = {
    "broker.cluster.link": "cluster",
    "storage.bucket.driver": "cold",
    "storage.bucket.location": "cold",
    "storage.segments.tiering.object_store": "cold",
    "broker.tracing.spans": "otel",
    "broker.tracing.provider": "otel",
    "broker.kafka.records.header": "kafka",
    "broker.kafka.records.batch_reader": "kafka",
    "broker.kafka.records.compression": "kafka",
}
#: The parts of the client that need its extra `cli`.
COMMAND_LINE = ("topics_client.cli", "topics_client.commands")
TRACES = "topics_client.otel"
#: Names for annotations, which type checkers know without an installed package.
FOR_TYPES = {"typing_extensions"}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def parts(requirement: str) -> tuple[str, str, str]:
    """Name, lowest version, and first version that is too high ('' = none)."""
    match = REQUIREMENT.fullmatch(requirement)
    assert match, f"not of the form name[extra]>=low,<high: {requirement!r}"
    return canonical(match[1]), match[2] or "", match[3] or ""


def pins() -> dict[str, str]:
    """Package to version; fails on any line that is neither a comment nor one exact pin."""
    found: dict[str, str] = {}
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        if not line.startswith("#"):
            match = PIN.fullmatch(line)
            assert match, f"not an exact pin: {line!r}"
            found[canonical(match[1])] = match[2]
    return found


def project(folder: str = ".") -> dict[str, Any]:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text())


def wanted() -> list[str]:
    """Every requirement of the project, its extras and its build."""
    requirements: list[str] = []
    for found in (project(), project(CLIENT)):
        extras = found["project"]["optional-dependencies"].values()
        requirements += found["build-system"]["requires"] + found["project"]["dependencies"]
        requirements += [requirement for extra in extras for requirement in extra]
    return sorted({each for each in requirements if parts(each)[0] != project(CLIENT)["project"]["name"]})


def release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def used(source: Source) -> set[str]:
    """Top-level modules that a file imports or reads files from, without ours and the standard library."""
    names = {name for _, name in imports(source)}
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "files" and node.args:
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                names.add(argument.value)
    return {name.partition(".")[0] for name in names} - set(OURS) - sys.stdlib_module_names - FOR_TYPES


def names(requirements: Iterable[str]) -> set[str]:
    return {parts(requirement)[0] for requirement in requirements}


def of_broker(module: str) -> set[str]:
    """What is installed with the broker for this module."""
    found = project()["project"]
    extra = [found["optional-dependencies"][OPTIONAL[module]]] if module in OPTIONAL else []
    return names([*found["dependencies"], *(requirement for each in extra for requirement in each)])


def of_client(module: str) -> set[str]:
    """What is installed with the client for this module."""
    found = project(CLIENT)["project"]
    extras = found["optional-dependencies"]
    extra = extras["cli"] if any(within(module, each) for each in COMMAND_LINE) else []
    return names([*found["dependencies"], *extra, *(extras["otel"] if module == TRACES else [])])


def test_every_imported_package_is_required() -> None:
    distributions = packages_distributions()
    missing = {
        f"{source.path} uses {module}"
        for source in python_files()
        if source.folder in INSTALLED
        for module in used(source)
        if not {canonical(name) for name in distributions.get(module, [module])}
        & (of_client if source.folder == "topics_client" else of_broker)(source.module)
    }
    assert missing == set()


@pytest.mark.parametrize("text", ["import numpy", "from numpy.linalg import norm", "files('numpy').joinpath('x')"])
def test_imports_and_resources_of_a_file_are_found(text: str) -> None:
    assert used(Source("broker/x.py", f"import os\nfrom storage import Engine\n{text}")) == {"numpy"}


@pytest.mark.parametrize("requirement", wanted())
def test_every_requirement_is_pinned_within_its_range(requirement: str) -> None:
    name, low, high = parts(requirement)
    locked = pins()
    assert name in locked, f"{requirement} is not in requirements.lock: run `make lock`"
    assert release(locked[name]) >= release(low)
    assert not high or release(locked[name]) < release(high)


def test_the_lock_also_pins_indirect_requirements() -> None:
    assert len(pins()) > len(wanted())
