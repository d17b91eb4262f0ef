"""Over HTTP/2, a path with bytes that are not ASCII raised an exception in the server library, which ended all streams
of the connection.
"""

from __future__ import annotations

import h2.events

from tests.http.hot_server import HotServer
from tests.http.test_http2_attacks import get
from tests.http.test_slow_clients import Http2Client


async def test_an_http2_path_with_non_ascii_bytes_resets_only_its_stream() -> None:
    async with HotServer() as server:
        await server.topic("t")
        two = Http2Client(await server.connect())
        two.ask(1, "GET", "/v0/topics/t")
        await two.until(h2.events.StreamEnded, 1)
        two.http.send_headers(3, [*get("/v0/topics/t")[:1], (":path", "/v0/topics/é"), *get("/")[2:]], end_stream=True)
        two.flush()
        await two.until(h2.events.StreamReset, 3)
        two.ask(5, "GET", "/v0/topics/t")
        await two.until(h2.events.StreamEnded, 5)
