"""Requests with settings instead of records are parsed in one step, so their bodies have a limit of their own."""

from __future__ import annotations

import pytest

from broker.api.control import MAX_CONTROL_BODY_BYTES
from tests.http.hot_server import HotServer, Wire, post


def put(path: str, body: bytes, method: str = "PUT") -> bytes:
    head = f"{method} /v0/{path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def padded(size: int) -> bytes:
    return b"{" + b" " * (size - 2) + b"}"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "topics/t"),
        ("PATCH", "topics/t"),
        ("PUT", "routers/r"),
        ("PUT", "topics/t/consumers/c"),
        ("POST", "topics/t/consumers/c/seek"),
    ],
)
async def test_settings_over_the_bound_are_refused(method: str, path: str) -> None:
    async with HotServer() as server:
        wire: Wire = await server.connect()
        wire.send(put(path, padded(MAX_CONTROL_BODY_BYTES + 1), method))
        answer = await wire.answer()
        assert (answer.status, answer.code) == (413, "payload_too_large")
        assert answer.body["error"]["detail"]["max"] == MAX_CONTROL_BODY_BYTES


async def test_settings_at_the_bound_and_larger_records_are_taken() -> None:
    async with HotServer() as server:
        answer = await server.ask(put("topics/t", padded(MAX_CONTROL_BODY_BYTES)))
        assert answer.status == 201
        records = b'{"records":[{"data":1}]' + b" " * (2 * MAX_CONTROL_BODY_BYTES) + b"}"
        assert (await server.ask(post("t", records))).status == 200
