"""Of several Authorization headers the last one was used, even if a proxy in front of the broker had checked
another."""

from __future__ import annotations

import pytest

from tests.http.hot_server import HotServer


@pytest.mark.parametrize("http", ["zttp", "httptools"])
async def test_a_request_with_two_keys_is_unauthorized(http: str) -> None:
    async with HotServer(http=http, api_keys="right") as server:
        head = b"GET /v0/topics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer wrong\r\n"
        answer = await server.ask(head + b"authorization: Bearer right\r\n\r\n")
        assert (answer.status, answer.code) == (401, "unauthorized")
