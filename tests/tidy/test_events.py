"""Every event that can be in the log is declared as it is logged, and every declared event is logged."""

from __future__ import annotations

import pytest

from broker.telemetry import log_events as of_broker
from storage import Event
from storage.telemetry import log_events as of_storage
from tests.tidy.rules_events import Call, calls, differences
from tests.tidy.tree import Source, python_files


def program(*folders: str) -> list[Source]:
    return [source for source in python_files() if source.folder in folders]


def logged(*folders: str) -> list[Call]:
    return [call for source in program(*folders) for call in calls(source)[0]]


def test_every_log_call_has_a_literal_name_and_fields() -> None:
    sources = program("broker", "storage", "schemas")
    assert [problem for source in sources for problem in calls(source)[1]] == []


def test_the_logged_events_are_the_declared_events() -> None:
    assert differences(logged("storage"), of_storage.LOGGED) == []
    assert differences(logged("broker"), of_broker.LOGGED) == []
    assert logged("schemas") == []


def test_every_event_name_has_one_meaning() -> None:
    names = [event.name for event in of_broker.ALL]
    assert len(names) == len(set(names)) > 50


def test_every_event_has_an_explanation_and_advice() -> None:
    for event in of_broker.ALL:
        assert event.means.endswith("."), event.name
        assert event.advice.endswith("."), event.name


@pytest.mark.parametrize(
    "text",
    [
        "_log.info(name, a=1)",
        "_log.info(f'a{b}')",
        "_log.info('a %s', 1)",
        "_log.info('a', **fields)",
        "_log.log(20, 'a')",
        "say = _log.info",
        "tell(_log)",
        "_log.info",
        "import logging",
        "other = structlog.get_logger('x')",
        "structlog.get_logger('x').info('a')",
        "_log.bind(a=1).info('b')",
    ],
)
def test_a_log_call_with_a_computed_name_is_reported(text: str) -> None:
    assert calls(Source("storage/x.py", text))[1]


def test_a_plain_call_is_read() -> None:
    text = "_log = structlog.get_logger('x')\n_log.exception('a', b=1, exc_info=error)"
    assert calls(Source("storage/x.py", text)) == ([Call("storage/x.py:2", "a", "error", frozenset({"b"}))], [])


DECLARED = Event("a", "info, warning", "x [y]", "It is.", "Nothing.")
CALLS = [Call("f:1", "a", "info", frozenset("xy")), Call("f:2", "a", "warning", frozenset("x"))]


def test_equal_events_are_no_difference() -> None:
    assert differences(CALLS, [DECLARED]) == []


@pytest.mark.parametrize(
    ("logs", "declared"),
    [
        ([*CALLS, Call("f:3", "b", "info", frozenset())], [DECLARED]),
        ([], [DECLARED]),
        (CALLS[:1], [DECLARED]),
        (CALLS, [DECLARED._replace(level="info")]),
        (CALLS, [DECLARED._replace(fields="x y")]),
        (CALLS, [DECLARED._replace(fields="[x] [y]")]),
        (CALLS, [DECLARED._replace(fields="x")]),
        (CALLS, [DECLARED._replace(fields="x [y] z")]),
    ],
)
def test_any_difference_is_reported(logs: list[Call], declared: list[Event]) -> None:
    assert differences(logs, declared)
