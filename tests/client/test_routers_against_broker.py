"""Routers with the client and on the command line, against a real broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from tests.client.real_broker import RealBroker
from topics_client import AsyncClient, Client, Conflict, InvalidRequest, RouterCycle, RouterNotFound

Topics = Callable[..., Result]


def test_a_router_copies(client: Client) -> None:
    put = client.put_router("r", "a", "b", filter=["tag", "Glob", "x*"], preserve_tag=False, start="earliest")
    assert (put.created, put.filter, put.preserve_tag, put.start) == (True, ["tag", "Glob", "x*"], False, "earliest")
    assert client.put_router("r", "a", "b").filter is None
    client.append("a", [1, 2])
    assert [record.data for record in client.read("b").records] == [1, 2]
    found = client.get_router("r")
    assert (found.source, found.dest, found.lag, found.forwarded_total, found.blocked) == ("a", "b", 0, 2, None)


def test_routers_are_listed_over_pages(client: Client) -> None:
    for number in range(5):
        client.put_router(f"r>{number}", "a", f"b{number % 2}")
    assert [each.router for each in client.list_routers(page_size=2)] == [f"r>{number}" for number in range(5)]
    assert [each.router for each in client.list_routers(dest="b1")] == ["r>1", "r>3"]
    assert list(client.list_routers("x")) == []
    assert list(client.list_routers(source="b0")) == []
    assert client.delete_topic("a").routers_removed == [f"r>{number}" for number in range(5)]


def test_router_errors_have_classes_and_details(client: Client) -> None:
    client.put_router("r", "a", "b")
    with pytest.raises(RouterCycle) as caught:
        client.put_router("back", "b", "a")
    assert caught.value.detail["cycle"] == ["b", "a", "b"]
    with pytest.raises(Conflict):
        client.put_router("r", "a", "c")
    with pytest.raises(RouterNotFound):
        client.get_router("nobody")
    with pytest.raises(InvalidRequest):
        client.get_router("a/b")
    assert client.delete_router("r").deleted
    assert not client.delete_router("r").deleted


def test_the_asynchronous_client_has_the_same(broker: RealBroker, client: Client) -> None:
    async def use() -> list[Any]:
        async with AsyncClient(broker.url) as other:
            made = await other.put_router("r", "a", "b")
            found = await other.get_router("r")
            listed = [each.router async for each in other.list_routers()]
            gone = await other.delete_router("r")
        return [made.created, found.router, listed, gone.deleted]

    assert asyncio.run(use()) == [True, "r", ["r"], True]


def test_the_commands_print_the_changes(client: Client, topics: Topics) -> None:
    assert topics("routers", "put", "r", "a", "b", "--tag", "x*", "--no-node").output == "Made r: a → b.\n"
    assert client.get_router("r").filter == ["tag", "Glob", "x*"]
    assert not client.get_router("r").preserve_node
    assert topics("routers", "put", "r", "a", "b", "--tag", "x", "--from", "earliest").output == "Changed r: a → b.\n"
    assert client.get_router("r").filter == ["tag", "Eq", "x"]
    client.append("a", [{"n": 1}])
    assert json.loads(topics("routers", "get", "r", "--json").stdout)["router"] == "r"
    shown = topics("routers", "get", "r").output
    assert "copies keep" in shown
    assert shown.splitlines()[4].split() == ["copies", "keep", "tag"]
    listed = topics("routers", "list").output
    assert listed.splitlines()[1].split() == ["r", "a", "b", "x", "0", "0", "-"]
    (line,) = topics("routers", "list", "--json").stdout.splitlines()
    assert "blocked" not in json.loads(line)
    assert topics("routers", "delete", "r").output == "Deleted r.\n"
    assert "no router" in topics("routers", "delete", "r").output
    assert "There are no routers yet." in topics("routers", "list").output


def test_a_circle_ends_with_a_message(client: Client, topics: Topics) -> None:
    client.put_router("r", "a", "b")
    refused = topics("routers", "put", "back", "b", "a", status=1)
    assert "--allow-cycle" in refused.output
    topics("routers", "put", "back", "b", "a", "--allow-cycle")
