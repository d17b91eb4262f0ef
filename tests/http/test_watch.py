"""Watching topics with event streams, over real connections."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator

import httpx
import pytest

from storage import Durability, TopicConfig
from tests.http.calls import JSON, append, fill, state
from tests.http.conftest import Serve
from tests.http.hot_server import HotServer
from tests.http.test_work_stream import PATIENCE_S
from tests.http.watch_calls import session, soon, stream, watching


@pytest.fixture
async def server(serve: Serve) -> AsyncIterator[HotServer]:
    async with serve() as server:
        yield server


@pytest.fixture
async def http(server: HotServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.server.url, timeout=PATIENCE_S) as client:
        yield client


async def test_a_watch_stream_has_headers_against_caching_and_buffering(http: httpx.AsyncClient) -> None:
    await fill(http, "t", 1)
    async with watching(http, "t") as watch:
        headers = watch.answer.headers
        assert headers["content-type"] == "text/event-stream"
        assert headers["cache-control"] == "no-store"
        assert headers["x-accel-buffering"] == "no"
        assert await watch.frame() == "retry: 2000"


@pytest.mark.one_cell("looks into the engine")
async def test_a_watch_gets_the_backlog_and_then_new_records(server: HotServer, http: httpx.AsyncClient) -> None:
    await fill(http, "t", 2)
    async with watching(http, "t", include_tags=True) as watch:
        [backlog, caught_up] = await watch.caught_up()
        assert backlog.seqs == [1, 2]
        assert {name: backlog.data[name] for name in ("topic", "from_seq", "to_seq", "head_seq")} == {
            "topic": "t", "from_seq": 0, "to_seq": 2, "head_seq": 2
        }  # fmt: skip
        assert caught_up.data == {"topic": "t", "head_seq": 2}
        for number in range(3, 20):
            await append(http, "t", {"data": {"n": number}, "tag": "x", "node": "p", "meta": [1]})
            live = await watch.next()
            assert live.seqs == [number]
            [record] = live.data["records"]
            assert {key: record[key] for key in ("$tag", "$node", "data", "meta")} == {
                "$tag": "x", "$node": "p", "data": {"n": number}, "meta": [1]
            }  # fmt: skip
            assert live.cursor["t"]["seq"] == number
    assert server.broker.live.figures.pushed > 0


async def test_a_watch_without_from_seq_starts_at_the_head_of_its_creation(http: httpx.AsyncClient) -> None:
    await fill(http, "t", 3)
    path = await session(http, topics={"t": {}})
    await append(http, "t", {"data": 4})
    async with stream(http, path) as watch:
        assert (await watch.next()).seqs == [4]


@pytest.mark.parametrize(("tail", "seqs"), [(0, []), (True, []), (2, [4, 5]), (99, [1, 2, 3, 4, 5])])
async def test_a_watch_with_a_tail_gets_the_last_records(
    http: httpx.AsyncClient, tail: int | bool, seqs: list[int]
) -> None:
    await fill(http, "t", 5)
    async with watching(http, topics={"t": {"tail": tail}}) as watch:
        events = await watch.caught_up()
        assert [seq for event in events[:-1] for seq in event.seqs] == seqs


async def test_a_watch_with_a_tail_gets_no_tombstone_for_evicted_records(http: httpx.AsyncClient) -> None:
    await http.put("/v0/topics/t", json={"cap_records": 2})
    await fill(http, "t", 9)
    async with watching(http, topics={"t": {"tail": 5}}) as watch:
        assert (await watch.next()).seqs == [8, 9]


async def test_batches_are_cut_at_the_limit(http: httpx.AsyncClient) -> None:
    await fill(http, "t", 10)
    async with watching(http, "t", limit=4) as watch:
        *batches, _ = await watch.caught_up()
        assert [event.seqs for event in batches] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
        await fill(http, "t", 9)
        *live, _ = await watch.caught_up()
        assert [len(event.seqs) for event in live] == [4, 4, 1]


async def test_records_of_the_own_node_are_skipped_and_the_position_advances(http: httpx.AsyncClient) -> None:
    await append(http, "t", {"data": 1, "node": "me"}, {"data": 2, "node": "other"}, {"data": 3, "node": "me"})
    async with watching(http, "t", node="me") as watch:
        [only, caught_up] = await watch.caught_up()
        assert only.seqs == [2]
        assert caught_up.cursor["t"]["seq"] == 3
        await append(http, "t", {"data": 4, "node": "me"})
        await append(http, "t", {"data": 5})
        event = await watch.next()
        assert (event.seqs, event.data["from_seq"] >= 3) == ([5], True)


async def test_line_breaks_in_a_record_become_spaces(http: httpx.AsyncClient) -> None:
    await fill(http, "t", 1)
    async with watching(http, topics={"t": {}}) as watch:
        await watch.caught_up()
        await http.post("/v0/topics/t", content=b'{"records":[{"data":{\r\n"a":\n1 },"meta":[\r1]}]}', headers=JSON)
        frame = await watch.frame()
        assert '"data":{  "a": 1 },"meta":[ 1]}' in frame
        assert "\r" not in frame
        assert len(frame.split("\n")) == 3


async def test_event_ids_hold_the_positions_of_all_watched_topics(http: httpx.AsyncClient) -> None:
    await fill(http, "a", 1)
    await fill(http, "b", 2)
    async with watching(http, "a", "b") as watch:
        await watch.caught_up()
        assert (await watch.caught_up())[-1].cursor.keys() == {"a", "b"}
        await append(http, "b", {"data": 3})
        event = await watch.next()
        assert event.data["topic"] == "b"
        assert {name: each["seq"] for name, each in event.cursor.items()} == {"a": 1, "b": 3}


async def test_a_watch_resumes_at_its_last_event_id(http: httpx.AsyncClient) -> None:
    await fill(http, "t", 5)
    path = await session(http, "t", limit=2)
    async with stream(http, path) as watch:
        first = await watch.next()
        await watch.caught_up()
    async with stream(http, path, first.id) as watch:
        assert (await watch.next()).seqs == [3, 4]


@pytest.mark.one_cell("looks into the engine")
async def test_a_watch_without_a_last_event_id_resumes_after_the_sent_records(
    server: HotServer, http: httpx.AsyncClient
) -> None:
    await fill(http, "t", 3)
    path = await session(http, "t")
    async with stream(http, path) as watch:
        await watch.caught_up()
        await append(http, "t", {"data": 4})
        await watch.next()
    await soon(lambda: not server.broker.live.watchers)
    await append(http, "t", {"data": 5})
    async with stream(http, path) as watch:
        assert (await watch.next()).seqs == [5]


@pytest.mark.parametrize("last", ["", "x", "e30", urlsafe_b64encode(b'{"other":{"epoch":1,"seq":1},"t":7}').decode()])
async def test_an_invalid_last_event_id_is_ignored(http: httpx.AsyncClient, last: str) -> None:
    await fill(http, "t", 2)
    async with stream(http, await session(http, "t"), last) as watch:
        assert (await watch.next()).seqs == [1, 2]


async def test_two_streams_of_a_session_each_get_all_records(http: httpx.AsyncClient) -> None:
    await fill(http, "t", 1)
    path = await session(http, topics={"t": {}})
    async with stream(http, path) as one, stream(http, path) as two:
        await one.caught_up()
        await two.caught_up()
        for number in range(20):
            await append(http, "t", {"data": number})
        for watch in (one, two):
            assert [record["data"] for record in await watch.records(20)] == list(range(20))


async def test_a_gap_at_the_start_is_sent_as_a_tombstone(http: httpx.AsyncClient) -> None:
    await http.put("/v0/topics/t", json={"cap_records": 2})
    await fill(http, "t", 9)
    async with watching(http, "t") as watch:
        gap = await watch.next()
        assert gap.name == "tombstone"
        assert gap.data == {
            "topic": "t", "reason": "from_seq_too_old", "gap_from": 1, "gap_to": 7, "earliest_seq": 8, "head_seq": 9
        }  # fmt: skip
        assert gap.cursor["t"]["seq"] == 7
        assert (await watch.next()).seqs == [8, 9]


async def test_a_recreated_topic_gives_a_tombstone_and_is_watched_from_its_beginning(http: httpx.AsyncClient) -> None:
    await fill(http, "t", 3)
    path = await session(http, "t")
    async with stream(http, path) as watch:
        last = (await watch.caught_up())[-1].id
    await http.delete("/v0/topics/t")
    await fill(http, "t", 5)
    for id in (last, None):
        async with stream(http, path, id) as watch:
            gap = await watch.next()
            assert (gap.name, gap.data["reason"]) == ("tombstone", "recreated")
            event = await watch.next()
            assert event.seqs == [1, 2, 3, 4, 5]
            assert event.cursor["t"]["epoch"] == (await state(http, "t"))["epoch"]
        path = await session(http, topics={"t": {"from_seq": 99}})


async def test_a_deleted_topic_is_announced_at_once(http: httpx.AsyncClient) -> None:
    await fill(http, "t", 3)
    await fill(http, "u", 1)
    path = await session(http, "t", "u")
    async with stream(http, path) as watch:
        for _ in range(2):
            await watch.caught_up()
        await http.delete("/v0/topics/t")
        event = await watch.next()
        assert (event.name, event.data) == ("topic-deleted", {"topic": "t", "head_seq": 3, "reason": "deleted"})
        await append(http, "u", {"data": 2})
        assert (await watch.next()).data["topic"] == "u"
    async with stream(http, path) as watch:
        assert (await watch.next()).name == "topic-deleted"


async def test_a_topic_made_again_is_left_to_the_next_stream(http: httpx.AsyncClient) -> None:
    await fill(http, "t", 3)
    await fill(http, "u", 1)
    path = await session(http, "t", "u")
    async with stream(http, path) as watch:
        for _ in range(2):
            await watch.caught_up()
        await http.delete("/v0/topics/t")
        assert (await watch.next()).name == "topic-deleted"
        await fill(http, "t", 5)
        await append(http, "u", {"data": 2})
        event = await watch.next()
        assert (event.data["topic"], event.cursor["t"]["seq"]) == ("u", 3)
    async with stream(http, path, event.id) as watch:
        gap = await watch.next()
        assert (gap.name, gap.data["topic"], gap.data["reason"]) == ("tombstone", "t", "recreated")
        assert (await watch.next()).seqs == [1, 2, 3, 4, 5]


@pytest.mark.one_cell("looks into the engine")
async def test_a_failing_watcher_does_not_affect_a_deletion_or_other_watchers(
    server: HotServer, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(name: str, head_seq: int) -> None:
        raise RuntimeError(f"{name} at {head_seq}")

    await fill(http, "t", 1)
    path = await session(http, "t")
    async with stream(http, path) as troubled:
        await troubled.caught_up()
        [watcher] = server.broker.live.watchers
        monkeypatch.setattr(watcher, "lost", lost)
        async with stream(http, path, "") as watch:
            await watch.caught_up()
            answer = await http.delete("/v0/topics/t")
            assert (answer.status_code, answer.json()["deleted"]) == (200, True)
            assert (await watch.next()).name == "topic-deleted"
            assert (await append(http, "t", {"data": 1}))["first_seq"] == 1


async def test_an_idle_watch_sends_heartbeats(http: httpx.AsyncClient) -> None:
    await fill(http, "t", 1)
    async with watching(http, "t", heartbeat_ms=1) as watch:
        await watch.caught_up()
        begin = asyncio.get_running_loop().time()
        comment, name, moment = (await watch.frame()).split(" ")
        assert (comment, name) == (":", "hb")
        assert int(moment) > 1_700_000_000_000
        assert asyncio.get_running_loop().time() - begin > 0.8  # clamped to a second
        await append(http, "t", {"data": 2})
        assert (await watch.next()).seqs == [2]


@pytest.mark.one_cell("looks into the engine")
async def test_a_watch_ends_with_server_shutting_down_at_shutdown(server: HotServer, http: httpx.AsyncClient) -> None:
    await fill(http, "t", 1)
    path = await session(http, "t")
    async with stream(http, path) as watch:
        await watch.caught_up()
        server.broker.live.shut_down()
        event = await watch.next()
        assert (event.name, event.data["code"]) == ("error", "server_shutting_down")
        with pytest.raises(StopAsyncIteration):
            await watch.frame()
    assert (await http.get(path)).status_code == 503


@pytest.mark.one_cell("looks into the engine")
async def test_feeds_and_listeners_are_removed_with_the_last_watcher(
    server: HotServer, http: httpx.AsyncClient
) -> None:
    await fill(http, "t", 1)
    async with watching(http, "t", consistency="strong") as watch:
        await watch.next()
        assert server.broker.streams.parked == 1
    await soon(lambda: server.broker.streams.parked == 0)
    live = server.broker.live
    assert (list(live.feeds()), list(live.watchers)) == ([], [])
    assert server.engine.publisher.listeners == {}
    assert server.engine.shards[0].on_synced is None


@pytest.mark.one_cell("looks into the engine")
async def test_a_strong_watch_sends_only_synced_records(server: HotServer, http: httpx.AsyncClient) -> None:
    shard = server.engine.shards[0]
    await server.topic("t", TopicConfig(durability=Durability.DISK))
    async with (
        watching(http, topics={"t": {}}, consistency="strong") as strong,
        watching(http, topics={"t": {}}) as eventual,
    ):
        await strong.caught_up()
        await eventual.caught_up()
        sync = shard.log.sync
        shard.log.sync = lambda: False  # type: ignore[method-assign]
        await append(http, "t", {"data": 1})
        assert (await eventual.next()).seqs == [1]
        waiting = asyncio.create_task(strong.next())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        shard.log.sync = sync  # type: ignore[method-assign]
        async with asyncio.timeout(PATIENCE_S):
            assert (await waiting).seqs == [1]


@pytest.mark.one_cell("looks into the engine")
async def test_a_strong_watch_stops_the_backlog_at_the_last_synced_record(
    server: HotServer, http: httpx.AsyncClient
) -> None:
    shard = server.engine.shards[0]
    await server.topic("t", TopicConfig(durability=Durability.DISK))
    await append(http, "t", {"data": 1})
    topic = server.engine.topic("t")
    await soon(lambda: server.broker.live.durable_seq(topic) == 1)
    sync = shard.log.sync
    shard.log.sync = lambda: False  # type: ignore[method-assign]
    await append(http, "t", {"data": 2})
    async with watching(http, "t", consistency="strong") as watch:
        first, caught_up = await watch.caught_up()
        assert (first.seqs, first.data["to_seq"], caught_up.data["head_seq"]) == ([1], 1, 1)
        shard.log.sync = sync  # type: ignore[method-assign]
        assert (await watch.next()).seqs == [2]


@pytest.mark.one_cell("looks into the engine")
async def test_many_watchers_of_a_topic_share_a_single_read(server: HotServer, http: httpx.AsyncClient) -> None:
    await fill(http, "t", 1)
    paths = [await session(http, topics={"t": {}}) for _ in range(20)]
    async with httpx.AsyncClient(base_url=server.server.url, timeout=PATIENCE_S) as other:
        opened = [stream(other, path) for path in paths]
        watches = [await each.__aenter__() for each in opened]
        for watch in watches:
            await watch.caught_up()
        reads = server.broker.live.figures.reads
        await append(http, "t", {"data": 2})
        frames = {await watch.frame() for watch in watches}
        assert len(frames) == 1
        assert server.broker.live.figures.reads == reads + 1
        for each in opened:
            await each.__aexit__(None, None, None)


async def test_every_watcher_gets_every_record_in_order(http: httpx.AsyncClient) -> None:
    await http.put("/v0/topics/t")
    async with watching(http, "t") as one, watching(http, "t", limit=3) as two, watching(http, "t") as three:
        for begin in range(0, 300, 10):
            await asyncio.gather(*(append(http, "t", {"data": begin + number}) for number in range(10)))
        for watch in (one, two, three):
            assert [record["$seq"] for record in await watch.records(300)] == list(range(1, 301))


@pytest.mark.one_cell("looks into the engine")
async def test_head_opens_no_stream(server: HotServer, http: httpx.AsyncClient) -> None:
    await fill(http, "t", 1)
    answer = await http.head(await session(http, "t"))
    assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, "text/event-stream", b"")
    assert list(server.broker.live.watchers) == []


async def test_a_watch_streams_over_http_2(server: HotServer) -> None:
    async with httpx.AsyncClient(base_url=server.server.url, http1=False, http2=True, timeout=PATIENCE_S) as http:
        await fill(http, "t", 2)
        async with watching(http, "t") as watch:
            await watch.caught_up()
            for number in range(3, 10):
                await append(http, "t", {"data": number})
                assert (await watch.next()).seqs == [number]
