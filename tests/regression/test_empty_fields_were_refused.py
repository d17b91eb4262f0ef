"""Empty `node`, `tag`, `idempotency_key`, `cursor` and `seqs` were refused, and so was `tail` together with
`from_seq`."""

from __future__ import annotations

from typing import Any

import pytest

from storage import TopicConfig, TopicType
from tests.http.hot_server import ASGI, HotServer, post, records


@pytest.mark.parametrize("kind", [{}, ASGI])
async def test_an_empty_field_counts_as_absent(kind: dict[str, str]) -> None:
    async with HotServer() as server:
        await server.topic("t")
        for number in (1, 2):
            written = await server.ask(post("t", records(1, node="", idempotency_key=""), kind))
            assert (written.body["first_seq"], written.body["deduped"]) == (number, False)
        written = await server.ask(post("t", {"records": [{"data": 1, "tag": "", "node": ""}]}, kind))
        assert written.status == 200
        read = await server.ask(post("t/diff", {"include_tags": True}, kind))
        assert [set(each) for each in read.body["records"]] == [{"$seq", "$ts", "data"}] * 3


@pytest.mark.parametrize("kind", [{}, ASGI])
@pytest.mark.parametrize(
    ("call", "more", "word"), [("ack", {}, "acked"), ("nack", {}, "nacked"), ("extend", {"lease_ms": 1000}, "extended")]
)
async def test_an_empty_list_of_seqs_settles_no_job(
    kind: dict[str, str], call: str, more: dict[str, Any], word: str
) -> None:
    async with HotServer() as server:
        await server.topic("q", TopicConfig(type=TopicType.QUEUE))
        answer = await server.ask(post(f"q/{call}", {"node": "n", "seqs": [], **more}, kind))
        assert (answer.status, answer.body[word], answer.body["skipped"]) == (200, 0, [])
        twice = await server.ask(post(f"q/{call}", {"node": "n", "seqs": [1, 1], **more}, kind))
        assert twice.body["skipped"] == [1]


@pytest.mark.parametrize("path", ["topics", "routers", "topics/q/leases", "topics/t/consumers"])
async def test_an_empty_cursor_is_the_beginning(path: str) -> None:
    async with HotServer() as server:
        await server.topic("t")
        await server.topic("q", TopicConfig(type=TopicType.QUEUE))
        answer = await server.ask(f"GET /v0/{path}?cursor= HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        assert answer.status == 200


async def test_a_tail_wins_over_a_from_seq() -> None:
    async with HotServer() as server:
        await server.topic("t")
        await server.ask(post("t", records(1, 2, 3)))
        request = post("t", {"topics": {"t": {"from_seq": 0, "tail": 1}}}).replace(b"/v0/topics/t", b"/v0/watch", 1)
        assert (await server.ask(request)).body["topics"]["t"]["from_seq"] == 2
        state = await server.ask(b"GET /v0/topics/t HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert state.body["last_read_ts"] is not None
