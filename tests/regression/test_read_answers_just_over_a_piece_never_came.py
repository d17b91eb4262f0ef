"""An answer just over the size of one piece is sent whole on the fast path, whatever encodings the client accepts."""

from __future__ import annotations

import pytest

from broker.api import hot
from broker.memory.memory import SMALL
from storage import Durability, TopicConfig
from tests.http.hot_server import HotServer, post, records

COUNT = 900


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_a_read_with_text_longer_than_its_records_is_answered(encoding: str) -> None:
    async with HotServer() as server:
        await server.topic("t", TopicConfig(durability=Durability.MEMORY))
        wire = await server.connect()
        wire.send(post("t", records(*["x" * 50] * COUNT)))
        assert (await wire.answer()).status == 200
        wire.send(post("t/diff", {"limit": COUNT}, {"accept-encoding": encoding}))
        answer = await wire.answer()
        assert len(answer.text) > SMALL
        assert [each["data"] for each in answer.body["records"]] == ["x" * 50] * COUNT


async def test_a_failed_compression_of_a_read_is_answered_with_500(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def failing(*_: object, **__: object) -> None:
        raise MemoryError

    async with HotServer() as server:
        await server.topic("t", TopicConfig(durability=Durability.MEMORY))
        wire = await server.connect()
        wire.send(post("t", records(*["x" * 50] * COUNT)))
        assert (await wire.answer()).status == 200
        monkeypatch.setattr(hot, "compress", failing)
        wire.send(post("t/diff", {"limit": COUNT}, {"accept-encoding": "gzip"}))
        assert (await wire.answer()).status == 500
        wire.send(post("t/diff", {"limit": 1}, {"accept-encoding": "gzip"}))
        assert (await wire.answer()).status == 200
