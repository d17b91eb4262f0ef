"""The commands of the documents are run in order, and their output is compared with the documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.console import Step, fits, section, steps
from tests.support.terminal import CURL, ROOT, START, Terminal


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    opened.close()


def quick_start() -> list[Step]:
    return steps(section((ROOT / "README.md").read_text(), "quickstart"))


def api_examples() -> list[Step]:
    return steps(section((ROOT / "docs/reference/api.md").read_text(), "examples"))


def run(terminal: Terminal, step: Step) -> None:
    printed = terminal.do(step)
    if step.shown is not None:
        assert fits(step.shown, printed), f"{step.text}\nshown:\n{step.shown}\nprinted:\n{printed}"


def test_the_commands_of_the_quick_start_print_the_shown_output(terminal: Terminal) -> None:
    for step in quick_start():
        run(terminal, step)
    assert terminal.close() == 0


def test_the_quick_start_kills_and_restarts_the_server() -> None:
    commands = [step.text for step in quick_start()]
    assert commands[0] == START
    assert commands.count(START) == 2
    assert any(command.startswith("kill -9") for command in commands)


def test_the_examples_of_the_api_print_the_shown_output(terminal: Terminal) -> None:
    examples = api_examples()
    assert len(examples) > 10
    for step in examples:
        run(terminal, step)


@pytest.mark.parametrize(
    "page", ["quickstart.md", "guides/python.md", "guides/workers.md", "guides/rest-proxy.md"], ids=lambda page: page
)
def test_the_examples_of_a_page_print_the_shown_output(terminal: Terminal, page: str) -> None:
    examples = steps(section((ROOT / "docs" / page).read_text(), "examples"))
    assert len(examples) > 5
    for step in examples:
        run(terminal, step)


def test_the_stand_in_for_curl_prints_the_output_of_curl(terminal: Terminal) -> None:
    for step in api_examples():
        with_stand_in = step.text.replace("curl ", f"{CURL} ", 1) if step.text.startswith("curl ") else step.text
        run(terminal, Step(kind=step.kind, text=with_stand_in, shown=step.shown))
