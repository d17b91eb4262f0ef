"""Sizes, names, docstrings and words, over the whole tree. Each rule notices a violation."""

from __future__ import annotations

import pytest

from tests.tidy.rules_text import (
    MAX_README_LINES,
    docstring_problems,
    machine_problems,
    marker_problems,
    name_problems,
    size_problems,
)
from tests.tidy.tree import ROOT, Source, python_files, text_files


def test_functions_stay_readable() -> None:
    assert [problem for source in python_files() for problem in size_problems(source)] == []


def test_every_module_has_a_docstring() -> None:
    assert [problem for source in python_files() for problem in docstring_problems(source)] == []


def test_no_module_or_class_has_a_generic_name() -> None:
    assert [problem for source in python_files() for problem in name_problems(source)] == []


def test_no_file_has_marks_of_unfinished_or_untested_work() -> None:
    assert [problem for source in text_files() for problem in marker_problems(source)] == []


def test_no_file_names_a_machine_or_a_registry() -> None:
    assert [problem for source in text_files() for problem in machine_problems(source)] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MAX_README_LINES


def test_a_long_function_is_reported_outside_the_tests() -> None:
    text = "def f():\n" + "    x = 1\n" * 120
    assert len(size_problems(Source("storage/engine.py", text))) == 1
    assert size_problems(Source("tests/unit/test_engine.py", text)) == []


@pytest.mark.parametrize(("lines", "problems"), [(119, 0), (120, 1)])
def test_a_long_function_is_reported(lines: int, problems: int) -> None:
    text = "class A:\n    async def f(self):\n" + "        x = 1\n" * lines
    assert len(size_problems(Source("storage/engine.py", text))) == problems


@pytest.mark.parametrize(("text", "problems"), [("x = 1", 1), ("", 0), ('"""Says it."""', 0), ("# only this", 1)])
def test_a_module_without_docstring_is_reported(text: str, problems: int) -> None:
    assert len(docstring_problems(Source("storage/engine.py", text))) == problems


@pytest.mark.parametrize(
    "path", ["storage/utils.py", "broker/common/x.py", "clients/python/topics_client/topic_manager.py"]
)
def test_a_generic_module_name_is_reported(path: str) -> None:
    assert len(name_problems(Source(path, ""))) == 1


def test_a_generic_class_name_is_reported() -> None:
    assert len(name_problems(Source("storage/state/tail.py", "class TailManager: ..."))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "# TOD" + "O later",
        "raise NotImplemented" + "Error",
        "@pytest.mark.sk" + "ip",
        "pytest.xf" + "ail('why')",
        "# FIX" + "ME",
        "<" * 7 + " HEAD",
        ">" * 7 + " a branch",
    ],
)
def test_a_sign_of_unfinished_work_is_reported(text: str) -> None:
    assert len(marker_problems(Source("storage/state/tail.py", text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "cd /wo" + "rk/main",
        "'/ho" + "me/me/data'",
        "--data /tm" + "p/x",
        "https://py" + "pi.org/simple",
        "--index-" + "url x",
    ],
)
def test_a_path_or_host_of_a_machine_is_reported(text: str) -> None:
    assert len(machine_problems(Source("docs/testing.md", text))) == 1


@pytest.mark.parametrize(
    "text", ["docs/work/flow", "see https://example.org/home/page", "$HOME/data", "/var/lib/topics"]
)
def test_other_paths_are_accepted(text: str) -> None:
    assert machine_problems(Source("docs/testing.md", text)) == []
