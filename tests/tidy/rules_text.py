"""Sizes, names, docstrings, and words that must not be in the tree."""

from __future__ import annotations

import ast
import re

from tests.tidy.tree import Source

MAX_FUNCTION_LINES = 120
MAX_README_LINES = 200
SIZE_FREE_FOLDERS = ("tests", "loadtest")
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "common", "manager", "managers", "misc"}
EMPTY_CLASS = re.compile(r"(Manager|Helpers?|Utils?|Common)$")

# Written with brackets so that this file does not contain what it looks for.
UNFINISHED = re.compile(
    r"\b(TOD[O]|FIXM[E]|XX[X])\b|NotImplemente[d]Error|pytest\.mark\.(ski[p]|xfai[l])|pytest\.(ski[p]|xfai[l])\("
    r"|^(?:<{7}|>{7}) "  # a merge that was not completed
)
MACHINE = re.compile(
    r"(?<![\w.$}])/(?:wor[k]|far[m]|hom[e]|roo[t]|tm[p]|User[s])/\w"
    r"|pyp[i]\.org|pythonhoste[d]|npmj[s]\.(?:org|com)|registry\.npm|crate[s]\.io|prox[y]\.golang|repo1?\.mave[n]|--index-ur[l]"
)


def size_problems(source: Source) -> list[str]:
    """Functions that are too long. A file holds one concept and may be as long as that needs."""
    if source.folder in SIZE_FREE_FOLDERS:
        return []
    problems: list[str] = []
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                problems.append(
                    f"{source.path}:{node.lineno} {node.name} has {length} lines, more than {MAX_FUNCTION_LINES}"
                )
    return problems


def docstring_problems(source: Source) -> list[str]:
    """A module without a docstring. Empty package markers may stay empty."""
    if not source.text.strip() or ast.get_docstring(ast.parse(source.text)):
        return []
    return [f"{source.path} has no docstring: say in a sentence what it is for"]


def name_problems(source: Source) -> list[str]:
    """A path that does not say what is inside, or a class with a meaningless name."""
    problems = [
        f"{source.path}: {part!r} is no name for anything"
        for part in source.path.removesuffix(".py").split("/")
        if EMPTY_NAMES & set(part.lower().split("_"))
    ]
    problems += [
        f"{source.path}:{node.lineno} class {node.name}: say what it is"
        for node in ast.walk(ast.parse(source.text))
        if isinstance(node, ast.ClassDef) and EMPTY_CLASS.search(node.name)
    ]
    return problems


def marker_problems(source: Source) -> list[str]:
    """Signs of unfinished work, or of tests that do not run."""
    return lines_with(UNFINISHED, source, "unfinished work")


def machine_problems(source: Source) -> list[str]:
    """Paths of a particular machine, or hosts that packages come from."""
    return lines_with(MACHINE, source, "of one machine or registry")


def lines_with(pattern: re.Pattern[str], source: Source, what: str) -> list[str]:
    """One problem for every line in which the pattern is found."""
    return [
        f"{source.path}:{number} {found.group(0)!r}: {what}"
        for number, line in enumerate(source.text.splitlines(), 1)
        if (found := pattern.search(line))
    ]
