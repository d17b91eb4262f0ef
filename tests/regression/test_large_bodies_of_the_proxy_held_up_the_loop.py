"""A large Base64 body was decoded in one round of the event loop, in every part of the REST Proxy. Now other work has
rounds in between.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from broker.content.slices import EACH_BYTES, SLICE_BYTES
from broker.proxy import formats, json_stream, records
from broker.proxy.json_stream import Splitter
from broker.proxy.media import Format
from tests.http.hot_server import HotServer

VALUE = b64encode(bytes(60_000)).decode()
COUNT = 120  # 9.6 MB of text
V2 = "application/vnd.kafka.binary.v2+json"
#: How much one round may process: a slice and a record that extends beyond it, or two slices at the border of a round.
MOST_BYTES = 2 * (SLICE_BYTES + len(VALUE))


def _request(path: str, body: bytes, content_type: str, coding: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n"
    return (head + (f"content-encoding: {coding}\r\n" if coding else "") + "\r\n").encode() + body


def _v2(_: str) -> bytes:
    return _request("/topics/t", json.dumps({"records": [{"value": VALUE}] * COUNT}).encode(), V2)


def _v3_stream(cluster: str) -> bytes:
    body = json.dumps({"value": {"type": "BINARY", "data": VALUE}}).encode() * COUNT
    path = f"/v3/clusters/{cluster}/topics/t/records"
    return _request(path, gzip.compress(body), "application/json", "gzip")


def _v3_batch(cluster: str) -> bytes:
    entries = [{"id": str(number), "value": {"type": "BINARY", "data": VALUE}} for number in range(COUNT)]
    path = f"/v3/clusters/{cluster}/topics/t/records:batch"
    return _request(path, json.dumps({"entries": entries}).encode(), "application/json")


@pytest.mark.parametrize("made", [_v2, _v3_stream, _v3_batch])
async def test_the_loop_has_rounds_while_a_large_body_is_decoded(
    monkeypatch: pytest.MonkeyPatch, made: Callable[[str], bytes]
) -> None:
    loop = asyncio.get_running_loop()
    rounds = 0
    decoded: dict[int, int] = {}

    def count() -> None:
        nonlocal rounds
        rounds += 1
        loop.call_soon(count)

    from_base64 = formats.from_base64

    def counted(text: str, field: str) -> bytes:
        decoded[rounds] = decoded.get(rounds, 0) + len(text)
        return from_base64(text, field)

    monkeypatch.setattr(formats, "from_base64", counted)
    async with HotServer() as server:
        await server.topic("t")
        clusters: Any = (await server.ask(b"GET /v3/clusters HTTP/1.1\r\nhost: localhost\r\n\r\n")).body
        wire = await server.connect()
        loop.call_soon(count)
        wire.send(made(clusters["data"][0]["cluster_id"]))
        got = b""
        async with asyncio.timeout(60):
            while server.engine.topic("t").log.head < COUNT or not got:
                got += await wire.read()
        assert got.split(b" ", 2)[1] in (b"200", b"207")
    assert sum(decoded.values()) == COUNT * len(VALUE)
    assert max(decoded.values()) <= MOST_BYTES


async def test_the_loop_has_rounds_while_many_small_records_are_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    rounds = 0
    decoded: dict[int, int] = {}

    def count() -> None:
        nonlocal rounds
        rounds += 1
        loop.call_soon(count)

    from_base64 = formats.from_base64

    def counted(text: str, field: str) -> bytes:
        decoded[rounds] = decoded.get(rounds, 0) + 1
        return from_base64(text, field)

    monkeypatch.setattr(formats, "from_base64", counted)
    loop.call_soon(count)
    batch = await records.parse(json.dumps({"records": [{"value": "QQ=="}] * 2000}).encode(), Format.BINARY)
    assert batch.values == [b"A"] * 2000
    assert max(decoded.values()) <= SLICE_BYTES / EACH_BYTES


def test_a_string_in_many_pieces_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0

    class Counting:
        """Counts how much text the expression for the inside of strings scans."""

        def __init__(self, expression: Any) -> None:
            self._expression = expression

        def match(self, text: bytearray, at: int) -> Any:
            nonlocal seen
            found = self._expression.match(text, at)
            seen += found.end() - at
            return found

    monkeypatch.setattr(json_stream, "_INSIDE", Counting(json_stream._INSIDE))  # pyright: ignore[reportPrivateUsage]
    text = json.dumps({"a": 'x\\"' * 20_000}).encode()
    splitter = Splitter(1 << 20)
    found = [each for at in range(0, len(text), 50) for each in splitter.feed(text[at : at + 50])]
    assert found == [text]
    assert seen <= len(text)
