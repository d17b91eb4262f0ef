"""Requests with a head that was seen before on the connection: same answers and limits as parsed requests.

Each test here needs `agains` to grow: it counts the requests that skipped the parser.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

import pytest

from broker.content.errors import PayloadTooLarge
from storage import TopicConfig
from storage.errors import InvalidRequest, LimitReached, TopicFull
from tests.http.auth_calls import bearer, configured, key
from tests.http.hot_server import ASGI, HotServer, post, records
from tests.http.known_heads import ONE, connection, raw, under_way, warm
from tests.http.test_hot_outcomes import ROUTE

# -- the same answers ------------------------------------------------------------------------------------------------


async def test_a_request_with_a_known_head_is_answered_and_counted_as_a_parsed_request(
    server: HotServer, agains: list[bytes]
) -> None:
    wire = await server.connect()
    answers: list[Any] = []
    for _ in range(3):
        wire.send(post("t", ONE))
        answers.append(await wire.answer())
    assert len(agains) == 2
    assert [each.body["first_seq"] for each in answers] == [1, 2, 3]
    assert len({tuple(name for name, _ in each.headers) for each in answers}) == 1
    assert len({each.header("x-request-id")[0] for each in answers}) == 3
    assert server.counted("topics_http_requests") == {(ROUTE, "POST", "2xx"): 3}
    assert server.server.server_state.total_requests == 3
    assert not server.server.server_state.tasks


@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_an_answer_equals_the_answer_to_a_parsed_request(
    server: HotServer, agains: list[bytes], version: str
) -> None:
    request = post("t", ONE, {"x-request-id": "mine", "connection": "keep-alive"}, version=version)
    wire = await server.connect()
    parsed = [await raw(wire, request), await raw(await server.connect(), request)]
    if version == "1.1":
        assert await raw(wire, request) == parsed[0] == parsed[1]
        assert len(agains) == 1


async def test_an_engine_error_is_answered_identically_for_a_known_head(
    server: HotServer, agains: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once or later, byte for byte, whatever it is."""
    loop = asyncio.get_running_loop()
    for error in (
        TopicFull("full"),
        InvalidRequest("no"),
        PayloadTooLarge(7),
        LimitReached("wait", limit="x", max=1),
        KeyError("a defect"),
    ):
        for is_late in (False, True):

            def refuse(*given: Any, node: str | None = None, error: Exception = error, is_late: bool = is_late) -> None:
                settled = given[2]
                loop.call_soon(settled, error) if is_late else settled(error)

            wire = await warm(server)
            with monkeypatch.context() as patch:
                patch.setattr(server.engine, "try_append_coalesced", refuse)
                known = await raw(wire, post("t", ONE, {"x-request-id": "mine"}))
                agains.clear()
                assert await raw(wire, post("t", ONE, {"x-request-id": "mine"})) == known
                assert len(agains) == 1
            wire.send(post("t", ONE))
            assert (await wire.answer()).status == 200


@pytest.mark.parametrize("body", [b"{", b"", b"[]", b"\xff", b'{"records":[]}', b'{"records":[{"data":1,"tag":"x"}]}'])
async def test_an_unusual_body_is_left_to_asgi_once(server: HotServer, agains: list[bytes], body: bytes) -> None:
    wire, other = await warm(server), await warm(server)
    wire.send(post("t", body))
    other.send(post("t", body, ASGI))
    answers = [await wire.answer(), await other.answer()]
    assert answers[0].status == answers[1].status
    assert [name for name, _ in answers[0].headers] == [name for name, _ in answers[1].headers]
    assert len(agains) == 1
    wire.send(post("t", ONE))
    assert (await wire.answer()).status == 200
    assert len(agains) == 2, "and the next is taken again"
    assert server.server.server_state.total_requests == 5


async def test_a_known_head_applies_its_headers(server: HotServer, agains: list[bytes]) -> None:
    wire = await warm(server)
    for number in (1, 2, 1, 2):
        wire.send(post("t", ONE, {"idempotency-key": f"k{number}", "x-request-id": f"r{number}"}))
        answer = await wire.answer()
        assert answer.header("x-request-id") == [f"r{number}"]
    assert (answer.body["deduped"], len(agains)) == (True, 0)
    for _ in range(2):
        wire.send(post("t", ONE, {"idempotency-key": "k2", "x-request-id": "r2"}))
        assert (await wire.answer()).body["deduped"] is True
    assert len(agains) == 2


async def test_a_recreated_topic_is_noticed(server: HotServer, agains: list[bytes]) -> None:
    request = post("t", records(1, create=False))
    wire = await warm(server, request)
    await server.engine.delete_topic("t")
    wire.send(request)
    assert (await wire.answer()).code == "topic_not_found"
    await server.topic("t", TopicConfig(partitions=3))
    wire.send(request)
    answer = await wire.answer()
    assert (answer.status, "partition" in answer.body, len(agains)) == (200, True, 2)


# -- limits ----------------------------------------------------------------------------------------------------------


async def test_a_known_head_may_not_grow_over_the_limits(agains: list[bytes]) -> None:
    async with HotServer(max_body_bytes=2000, max_header_bytes=256) as server:
        await server.topic("t")
        wire = await warm(server)
        wire.send(post("t", records("x" * 2000)))
        assert (await wire.answer()).code == "payload_too_large"
        assert not agains
        status, padding = 0, 100
        while True:
            wire, request = await server.connect(), {"x": "y" * padding}
            wire.send(post("t", b'{"records":[]}', request))
            status = (await wire.answer()).status
            if status == 431:
                break
            wire.send(post("t", records("x" * 1500), request))
            other = await server.connect()
            other.send(post("t", records("x" * 1500), request))
            assert (await wire.answer()).status == (await other.answer()).status, padding
            padding += 1
        assert agains


def revoked(*_: object) -> None:
    """No client has this key."""


async def test_a_key_is_checked_for_each_request(agains: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    async with HotServer(api_keys=configured("alpha", "beta"), max_inflight_per_key=1) as server:
        await server.topic("t")
        request = post("t", ONE, bearer(key("rwda")))
        wire, other = await warm(server, request), await warm(server, request)
        async with under_way(server, wire, request):
            assert len(agains) == 1
            other.send(request)
            assert (await other.answer()).code == "throttled"
            assert len(agains) == 1, "no place for it"
        assert (await wire.answer()).status == 200
        other.send(post("t", b"{", bearer(key("rwda"))))
        assert (await other.answer()).code == "invalid_request"
        other.send(request)
        assert (await other.answer()).status == 200, "a place that was handed over is given back"
        taken = len(agains)
        monkeypatch.setattr(type(server.broker.gate), "of_bearer", revoked)
        wire.send(request)
        assert (await wire.answer()).status == 200, "left to those who refuse, who are asked otherwise"
        assert len(agains) == taken


async def test_the_body_of_an_answered_request_is_freed(server: HotServer, agains: list[bytes]) -> None:
    wire = await server.connect()
    for count in (0, 1):
        wire.send(post("t", records("x" * 60_000)))
        assert (await wire.answer()).status == 200
        cycle = connection(server).cycle
        assert (len(cycle.body), len(getattr(cycle, "data", b""))) == (0, 0)
        assert len(agains) == count


# -- idle connections ------------------------------------------------------------------------------------------------


async def test_an_idle_connection_ends_at_the_keep_alive_timeout(agains: list[bytes]) -> None:
    async with HotServer(keep_alive_s=2) as server:
        await server.topic("t")
        wire = await warm(server)
        for _ in range(4):  # longer in total than it may be idle
            await asyncio.sleep(0.6)
            last = monotonic()
            wire.send(post("t", ONE))
            assert (await wire.answer()).status == 200
        assert len(agains) == 4
        await wire.ended()
        assert monotonic() - last > 1.9


async def test_a_connection_that_waits_for_an_answer_is_not_idle(agains: list[bytes]) -> None:
    async with HotServer(keep_alive_s=1) as server:
        await server.topic("t")
        wire = await warm(server)
        async with under_way(server, wire, post("t", ONE)):
            await asyncio.sleep(2.2)
            last = monotonic()
        assert (await wire.answer()).status == 200
        assert len(agains) == 1
        await wire.ended()
        assert monotonic() - last > 0.9


@pytest.mark.parametrize("begun", [b"P", post("t", ONE)[:-1], post("t", ONE)[:30]])
async def test_an_incomplete_request_behind_a_known_head_is_closed_at_its_timeout(
    agains: list[bytes], begun: bytes
) -> None:
    async with HotServer(keep_alive_s=1000, header_timeout_s=0.4, body_timeout_s=0.4) as server:
        await server.topic("t")
        for is_held in (False, True):
            wire = await warm(server, post("t", ONE), post("t", ONE))
            if is_held:
                async with under_way(server, wire, post("t", ONE)):
                    wire.send(begun)
                    await asyncio.sleep(0.02)
                assert (await wire.answer()).status == 200
            else:
                wire.send(begun)
            async with asyncio.timeout(5):
                while await wire.read():
                    pass
        assert len(agains) == 3
