"""Which requests a client sends to the cells of a set, and which to the gateway."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from topics_client import calls
from topics_client.cell_routes import (
    ASK_S,
    AVOID_S,
    MAX_PARTITIONS,
    REFRESH_S,
    UNREACHABLE_S,
    CellRoutes,
    Leg,
    is_as_safe,
)
from topics_client.wire import NoReply, Reply, Request

GATE = "http://10.0.0.1:4000"
CELL = "http://10.0.0.1:4101"
APPEND = calls.append("orders", [1], {}).request


def reply(status: int = 200, body: Any = None, cell: int | None = 1) -> Reply:
    headers = {} if cell is None else {"topics-cell": str(cell)}
    return Reply(status=status, headers=headers, body=msgspec.json.encode(body))


def cluster(*urls: str | None, set_id: str = "s") -> Reply:
    cells = [{"cell": number, "state": "ready", "http": url} for number, url in enumerate(urls)]
    return reply(body={"set_id": set_id, "home_cells": len(urls), "cells": cells}, cell=None)


def health(cell: int = 1, set_id: str = "s") -> Reply:
    return reply(body={"status": "ok", "version": "1", "uptime_ms": 1, "set_id": set_id, "cell": cell}, cell=cell)


LOST = NoReply(reason="lost", sent=True)
UNREACHED = NoReply(reason="refused", sent=False)


class Rig:
    """Routes, and the outcomes of the legs of a request, in order."""

    def __init__(self, base: str = GATE) -> None:
        self.now = 100.0
        self.routes = CellRoutes(base, lambda: self.now)
        self.legs: list[Leg] = []

    def send(self, *outcomes: Reply | NoReply, request: Request = APPEND) -> Reply | NoReply:
        """The outcome of the request, whose legs are in `legs`. Every outcome must be used."""
        self.legs = []
        left = list(outcomes)
        steps = self.routes.send(request)
        leg = next(steps)
        while True:
            self.legs.append(leg)
            try:
                leg = steps.send(left.pop(0))
            except StopIteration as done:
                assert not left
                return done.value

    @property
    def way(self) -> list[str]:
        return [leg.base + leg.request.target.partition("?")[0] for leg in self.legs]

    def known(self) -> Rig:
        """The routes after a first request and one that has found the cell."""
        self.send(reply())
        self.send(cluster(None, CELL), health(), reply())
        return self


def test_a_request_goes_to_the_cell_once_the_gateway_has_named_its_address() -> None:
    rig = Rig()
    rig.send(reply())
    assert rig.way == [f"{GATE}/v0/topics/orders"]
    rig.send(cluster(None, CELL), health(), reply())
    assert rig.way == [f"{GATE}/v0/cluster", f"{CELL}/v0/health", f"{CELL}/v0/topics/orders"]
    assert [leg.bare for leg in rig.legs] == [False, True, False]
    rig.send(reply())
    assert rig.way == [f"{CELL}/v0/topics/orders"]
    assert rig.legs[0].request is APPEND


def test_requests_about_a_whole_topic_or_none_go_to_the_gateway() -> None:
    rig = Rig().known()
    for request in (
        calls.health().request,
        calls.state("orders").request,
        calls.put_topic("orders", {}).request,
        calls.delete_topic("orders").request,
        calls.append("other", [1], {}).request,
        calls.append("orders", [1], {"partition": 3}).request,
    ):
        rig.send(reply(cell=None), request=request)
        assert rig.way == [GATE + request.target.partition("?")[0]]
    rig.send(reply(), request=calls.read("orders", 0, {}).request)
    assert rig.way == [f"{CELL}/v0/topics/orders/diff"]


def test_partitions_have_cells_of_their_own() -> None:
    rig = Rig()
    first, third = (calls.read("orders", 0, {"partition": number}).request for number in (1, 3))
    rig.send(reply(cell=0), request=first)
    rig.send(reply(cell=1), request=third)
    rig.send(cluster("http://10.0.0.1:4100", CELL), health(0), reply(cell=0), request=first)
    rig.send(health(1), reply(cell=1), request=third)
    assert rig.way[-1] == f"{CELL}/v0/topics/orders/diff"


def test_a_broker_without_cells_gets_no_extra_request() -> None:
    rig = Rig()
    for _ in range(3):
        rig.send(reply(cell=None))
        assert rig.way == [f"{GATE}/v0/topics/orders"]


@pytest.mark.parametrize("answer", [cluster(None, None), reply(403, {}, None), reply(200, [], None), LOST, UNREACHED])
def test_without_addresses_all_requests_go_to_the_gateway_and_addresses_are_rarely_requested(
    answer: Reply | NoReply,
) -> None:
    rig = Rig()
    rig.send(reply())
    rig.send(answer, reply())
    rig.now += REFRESH_S - 1
    rig.send(reply())
    assert rig.way == [f"{GATE}/v0/topics/orders"]
    rig.now += 1
    rig.send(cluster(None, CELL), health(), reply())
    assert rig.way[-1] == f"{CELL}/v0/topics/orders"


@pytest.mark.parametrize(
    "found", [health(cell=0), health(set_id="other"), reply(200, {}), reply(401, {}, None), reply(500, {}), LOST]
)
def test_the_key_is_not_sent_to_an_address_that_is_not_that_cell(found: Reply | NoReply) -> None:
    rig = Rig()
    rig.send(reply())
    rig.send(cluster(None, CELL), found, reply())
    assert [leg.base for leg in rig.legs if not leg.bare] == [GATE, GATE]
    rig.now += UNREACHABLE_S - 1
    rig.send(reply())
    assert rig.way == [f"{GATE}/v0/topics/orders"]


def test_a_cell_whose_probes_need_a_key_is_recognised_by_its_header() -> None:
    rig = Rig()
    rig.send(reply())
    rig.send(cluster(None, CELL), reply(401, {}), reply())
    assert rig.way[-1] == f"{CELL}/v0/topics/orders"


@pytest.mark.parametrize(
    ("url", "base", "expected"),
    [
        ("http://10.0.0.1:4101", "http://10.0.0.1:4000", True),
        ("http://10.0.0.2:4101", "http://10.0.0.1:4000", True),
        ("https://cells.example:4101", "https://topics.example", True),
        ("http://topics.example:4101", "https://topics.example", False),
        ("https://topics.example:4101", "http://topics.example", False),
        ("http://127.0.0.1:4101", "http://localhost:4000", True),
        ("http://[::1]:4101", "http://127.0.0.1:4000", True),
        ("http://10.0.0.1:4101", "http://127.0.0.1:4000", False),
        ("https://10.0.0.1:4101", "https://127.0.0.1:4000", True),
        ("http://user@10.0.0.1:4101", "http://10.0.0.1:4000", False),
        ("http://10.0.0.1:4101/path", "http://10.0.0.1:4000", False),
        ("http://10.0.0.1", "http://10.0.0.1:4000", False),
        ("http://10.0.0.1:port", "http://10.0.0.1:4000", False),
        ("ftp://10.0.0.1:21", "http://10.0.0.1:4000", False),
        ("", "http://10.0.0.1:4000", False),
    ],
)
def test_a_key_is_sent_only_over_equal_security(url: str, base: str, expected: bool) -> None:
    assert is_as_safe(url, base) is expected
    rig = Rig(base)
    rig.send(reply())
    answers = [cluster(None, url), *([health()] if expected else []), reply()]
    rig.send(*answers)
    assert (rig.legs[-1].base == url) is expected


@pytest.mark.parametrize("failed", [UNREACHED, reply(421, {"error": {"code": "not_mine"}})])
def test_a_request_that_did_nothing_is_sent_to_the_gateway(failed: Reply | NoReply) -> None:
    rig = Rig().known()
    done = reply(201)
    assert rig.send(failed, done) is done
    assert rig.way == [f"{CELL}/v0/topics/orders", f"{GATE}/v0/topics/orders"]
    rig.send(reply())
    assert rig.way == [f"{GATE}/v0/topics/orders"]
    rig.now += AVOID_S
    again = [reply()] if isinstance(failed, Reply) else [cluster(None, CELL), health(), reply()]
    rig.send(*again)
    assert rig.way[-1] == f"{CELL}/v0/topics/orders"


@pytest.mark.parametrize("failed", [LOST, reply(503, {}), reply(500, {}), reply(409, {})])
def test_a_request_that_may_have_done_something_is_not_sent_again(failed: Reply | NoReply) -> None:
    rig = Rig().known()
    assert rig.send(failed) is failed


def test_the_next_try_after_a_lost_connection_goes_to_the_gateway() -> None:
    rig = Rig().known()
    rig.send(LOST)
    rig.send(reply())
    assert rig.way == [f"{GATE}/v0/topics/orders"]


def test_a_cell_that_could_not_be_reached_is_looked_for_again_because_it_may_have_moved() -> None:
    rig = Rig().known()
    rig.send(UNREACHED, reply())
    rig.now += AVOID_S
    moved = "http://10.0.0.2:4101"
    rig.send(cluster(None, moved), health(), reply())
    assert rig.way == [f"{GATE}/v0/cluster", f"{moved}/v0/health", f"{moved}/v0/topics/orders"]


def test_an_address_of_another_set_is_checked_again() -> None:
    rig = Rig().known()
    rig.now += REFRESH_S
    rig.send(cluster(None, CELL, set_id="new"), health(set_id="new"), reply())
    assert rig.way[1] == f"{CELL}/v0/health"


def test_requests_for_addresses_count_for_the_deadline() -> None:
    rig = Rig()
    rig.send(reply())
    request = Request(method="POST", target=APPEND.target, limit_s=5.0)
    steps = rig.routes.send(request)
    assert next(steps).request.limit_s == ASK_S
    rig.now += 1
    assert steps.send(cluster(None, CELL)).request.limit_s == ASK_S
    rig.now += 1
    assert steps.send(health()).request.limit_s == 3.0
    rig.now += 7
    last = steps.send(UNREACHED)
    assert last.base == GATE
    assert last.request.limit_s is not None
    assert 0 < last.request.limit_s < 0.1


def test_memory_is_bounded_however_many_topics_there_are() -> None:
    rig = Rig().known()
    for number in range(MAX_PARTITIONS + 5):
        request = calls.read(f"t{number}", 0, {}).request
        rig.send(reply(cell=1), request=request)
        assert rig.way == [f"{GATE}/v0/topics/t{number}/diff"]
    rig.send(reply(), request=calls.read(f"t{MAX_PARTITIONS}", 0, {}).request)
    assert rig.legs[0].base == CELL
    rig.send(reply())
    assert rig.legs[0].base == GATE
