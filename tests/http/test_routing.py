"""The route table, without a server."""

from __future__ import annotations

import pytest

from broker.api.operation import Handler, Operation
from broker.api.request import Request
from broker.api.routing import RouteTable
from broker.auth.rules import Rule
from broker.auth.scopes import NOTHING
from broker.content.answers import Answer

RULE = Rule(NOTHING)


async def here(request: Request) -> Answer:
    return Answer(b"")


async def there(request: Request) -> Answer:
    return Answer(b"")


def operation(method: str, path: str, handler: Handler, *, always: bool = False) -> Operation:
    return Operation(method=method, path=path, handler=handler, rule=RULE, always=always)


@pytest.fixture
def table() -> RouteTable:
    return RouteTable(
        [
            operation("GET", "/a", here),
            operation("POST", "/a", there),
            operation("GET", "/a/{x}", here),
            operation("GET", "/a/{x}/b/{y}", here),
            operation("GET", "/a/fixed", there, always=True),
        ]
    )


@pytest.mark.parametrize(
    ("path", "template", "values"),
    [
        ("/a", "/a", []),
        ("/a/1", "/a/{x}", ["1"]),
        ("/a/1/b/2", "/a/{x}/b/{y}", ["1", "2"]),
        ("/a/fixed", "/a/fixed", []),
        ("/a/{}", "/a/{x}", ["{}"]),
    ],
)
def test_a_path_is_matched_to_its_template(table: RouteTable, path: str, template: str, values: list[str]) -> None:
    found = table.match(path)
    assert found is not None
    assert (found[0].template, found[1]) == (template, values)


@pytest.mark.parametrize("path", ["", "/", "/b", "/a/", "/a//b/2", "/a/1/b", "/a/1/b/", "/a/1/b/2/", "a"])
def test_other_paths_match_no_template(table: RouteTable, path: str) -> None:
    assert table.match(path) is None


def test_head_is_served_by_the_get_operation(table: RouteTable) -> None:
    found = table.match("/a")
    assert found is not None
    served = {method: found[0].operation(method) for method in ("HEAD", "POST", "PUT")}
    assert {method: None if each is None else each.handler for method, each in served.items()} == {
        "HEAD": here,
        "POST": there,
        "PUT": None,
    }
    assert found[0].allow == "GET, HEAD, OPTIONS, POST"


def test_two_operations_for_a_method_and_path_are_refused(table: RouteTable) -> None:
    with pytest.raises(ValueError, match="GET /a occurs twice"):
        table.add(operation("GET", "/a", there))
