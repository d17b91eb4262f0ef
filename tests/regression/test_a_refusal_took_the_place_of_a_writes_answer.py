"""With TOPICS_HTTP=httptools, malformed data after a write was refused before the write was answered. The client took
the refusal for the answer to the write, which had been carried out.
"""

from __future__ import annotations

from tests.http.hot_server import HotServer, post, records


async def test_the_write_is_answered_first() -> None:
    async with HotServer(http="httptools") as server:
        await server.topic("t")
        wire = await server.connect()
        wire.send(post("t", records(1)) + b"rubbish\r\n\r\n")
        answer = await wire.answer()
        assert (answer.status, answer.body["seqs"]) == (200, [1])
        await wire.ended()
