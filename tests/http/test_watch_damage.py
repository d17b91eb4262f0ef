"""A damaged record in a watched topic: earlier records are delivered, the damaged one never is, and the loss is
announced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from storage.log import split
from tests.http.calls import append
from tests.http.hot_server import HotServer
from tests.http.test_websocket import socket
from tests.http.test_work_stream import PATIENCE_S
from tests.http.watch_calls import session, soon, stream, watching
from tests.unit.storage.machine import DATA, WAL, options

Damage = Callable[[HotServer, int], None]


@pytest.fixture
async def server() -> AsyncIterator[HotServer]:
    async with HotServer(limits=options(tail_cache_bytes=0)) as server:
        yield server


@pytest.fixture
async def http(server: HotServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.server.url, timeout=PATIENCE_S) as client:
        yield client


async def written(server: HotServer, http: httpx.AsyncClient, count: int = 10) -> None:
    for number in range(1, count + 1):
        await append(http, "t", {"data": f"number {number}"})


def damage_log(server: HotServer, seq: int) -> None:
    """Flip a bit in the data of this record, in the log."""
    (span,) = server.engine.topic("t").log.tail.slices(seq, seq + 1)
    file, offset = split(span.lsn)
    flip(server, f"{WAL}/wal-{file:016d}.log", b"number %d" % seq, offset + span.offset)


def damage_segment(server: HotServer, seq: int) -> None:
    """The same, in a segment."""
    [path] = [path for path in server.disk.content() if path.startswith(f"{DATA}/topics/") and path.endswith(".data")]
    flip(server, path, b"number %d" % seq, 0)


def flip(server: HotServer, path: str, text: bytes, begin: int) -> None:
    server.disk.flip_byte(path, server.disk.content()[path].index(text, begin) + 2, 1)


@pytest.fixture(params=["log", "segment"])
def damage(request: pytest.FixtureRequest) -> Damage:
    return damage_log if request.param == "log" else damage_segment


async def damaged(server: HotServer, http: httpx.AsyncClient, damage: Damage, *seqs: int) -> None:
    """Ten records, of which these are damaged."""
    await written(server, http)
    if damage is damage_segment:
        await server.engine.segment_worker.flush_all()
    for seq in seqs:
        damage(server, seq)


def data_of(records: list[dict[str, Any]]) -> list[str]:
    return [record["data"] for record in records]


def numbers(*seqs: int) -> list[str]:
    return [f"number {seq}" for seq in seqs]


async def test_a_watch_sends_records_before_a_corrupt_record_and_ends_with_an_error(
    server: HotServer, http: httpx.AsyncClient, damage: Damage
) -> None:
    await damaged(server, http, damage, 4)
    path = await session(http, "t")
    async with stream(http, path) as watch:
        record, error = await watch.next(), await watch.next()
        assert (record.name, record.data["to_seq"]) == ("record", 3)
        assert data_of(record.data["records"]) == numbers(1, 2, 3)
        assert (error.name, error.id, error.data["code"], error.data["reason"]) == (
            "error",
            None,
            500,
            "segment_corrupt",
        )
        assert (error.data["detail"]["topic"], error.data["detail"]["seq"]) == ("t", 4)
        with pytest.raises(StopAsyncIteration):
            await watch.next()
    async with stream(http, path, record.id) as watch:  # reconnecting does not skip it
        assert (await watch.next()).data["reason"] == "segment_corrupt"
    async with watching(http, topics={"t": {"from_seq": 4}}) as watch:
        assert data_of(await watch.records(6)) == numbers(5, 6, 7, 8, 9, 10)


async def test_the_other_topics_of_a_stream_continue(
    server: HotServer, http: httpx.AsyncClient, damage: Damage
) -> None:
    await damaged(server, http, damage, 4)
    await append(http, "u", {"data": "u 1"})
    path = await session(http, "t", "u")
    async with stream(http, path) as watch:
        events = [await watch.next() for _ in range(4)]
        assert sorted(event.name for event in events) == ["caught-up", "error", "record", "record"]
        [error] = [event for event in events if event.name == "error"]
        assert (error.data["code"], error.data["topic"], error.data["detail"]["seq"]) == (500, "t", 4)
        await append(http, "u", {"data": "u 2"})
        await append(http, "t", {"data": "number 11"})  # no more of it arrives
        await append(http, "u", {"data": "u 3"})
        found: list[str] = []
        last = events[-1]
        while len(found) < 2:
            last = await watch.next()
            assert last.data["topic"] == "u"
            found += data_of(last.data["records"])
        assert found == ["u 2", "u 3"]
        assert {name: each["seq"] for name, each in last.cursor.items()} == {"t": 3, "u": 3}
    for again in (last.id, None):  # from the id, or from the position of the session
        await append(http, "u", {"data": "u 4"})
        async with stream(http, path, again) as watch:
            events = [await watch.next() for _ in range(3)]
            assert sorted(event.name for event in events) == ["caught-up", "error", "record"]
            assert [event.data["topic"] for event in events if event.name == "error"] == ["t"]
            assert [data_of(event.data["records"]) for event in events if event.name == "record"] == [["u 4"]]
    async with stream(http, await session(http, "t", "u", skip_corrupt=True), last.id) as watch:
        assert len(await watch.records(7 + 2)) == 9


async def test_a_watch_ends_when_its_last_topic_ends(server: HotServer, http: httpx.AsyncClient) -> None:
    await damaged(server, http, damage_log, 1)
    await append(http, "u", {"data": 1})
    async with watching(http, topics={"t": {"from_seq": 0}, "u": {}}) as watch:
        assert sorted(await watch.names(2)) == ["caught-up", "error"]
        assert (await http.delete("/v0/topics/u")).status_code == 200
        assert (await watch.next()).name == "topic-deleted"
        with pytest.raises(StopAsyncIteration):
            await watch.next()
    await soon(lambda: not server.broker.live.watchers)


async def test_on_a_websocket_only_the_subscription_of_the_topic_ends(
    server: HotServer, http: httpx.AsyncClient, damage: Damage
) -> None:
    await damaged(server, http, damage, 4)
    await append(http, "u", {"data": "u 1"})
    async with socket(server) as ws:
        await ws.ask("subscribe", topic="t", from_seq=0)
        assert data_of((await ws.next())["records"]) == numbers(1, 2, 3)
        error = await ws.next()
        assert (error["type"], error["code"], error["topic"]) == ("error", "segment_corrupt", "t")
        assert (error["detail"]["topic"], error["detail"]["seq"]) == ("t", 4)
        await append(http, "t", {"data": "number 11"})
        await ws.ask("subscribe", topic="u", from_seq=0)
        assert data_of((await ws.next())["records"]) == ["u 1"]
        assert (await ws.next())["type"] == "caught_up"
        assert (await ws.ask("unsubscribe", topic="t"))["topics"] == []
        await ws.ask("subscribe", topic="t", from_seq=4)
        assert data_of((await ws.next())["records"]) == numbers(5, 6, 7, 8, 9, 10, 11)


async def test_skip_corrupt_continues_after_a_corrupt_record_and_reports_its_seq(
    server: HotServer, http: httpx.AsyncClient, damage: Damage
) -> None:
    await damaged(server, http, damage, 1, 4, 10)
    async with watching(http, "t", skip_corrupt=True) as watch:
        record, caught_up = await watch.next(), await watch.next()
    assert data_of(record.data["records"]) == numbers(2, 3, 5, 6, 7, 8, 9)
    assert (record.data["corrupt_seqs"], record.data["to_seq"]) == ([1, 4, 10], 10)
    assert (caught_up.name, caught_up.cursor["t"]["seq"]) == ("caught-up", 10)
    async with socket(server) as ws:
        await ws.ask("subscribe", topic="t", from_seq=8, skip_corrupt=True)
        record = await ws.next()
        assert (data_of(record["records"]), record["corrupt_seqs"]) == (numbers(9), [10])
        assert (await ws.next())["type"] == "caught_up"


async def test_corrupt_seqs_at_the_head_are_reported_without_records(
    server: HotServer, http: httpx.AsyncClient, damage: Damage
) -> None:
    await damaged(server, http, damage, 9, 10)
    async with watching(http, topics={"t": {"from_seq": 8}}, skip_corrupt=True) as watch:
        record = await watch.next()
        assert (record.data["records"], record.data["corrupt_seqs"]) == ([], [9, 10])
        assert (await watch.next()).name == "caught-up"
        await append(http, "t", {"data": "number 11"})
        event = await watch.next()
        assert (event.seqs, "corrupt_seqs" in event.data) == ([11], False)


async def test_every_watcher_at_the_head_is_told_of_a_corrupt_record(
    server: HotServer, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damaged between its commit and the read that is made for all of them."""
    await written(server, http, 1)
    path, passing = await session(http, "t"), await session(http, "t", skip_corrupt=True)
    async with stream(http, path) as one, stream(http, path) as other, stream(http, passing) as third:
        for watch in (one, other, third):
            await watch.caught_up()
        turns = server.broker.live.scheduler
        real, hold = turns.take, asyncio.Event()

        async def take_late(cost: int, priority: Callable[[], int]) -> None:
            await hold.wait()
            await real(cost, priority)

        monkeypatch.setattr(turns, "take", take_late)
        await append(http, "t", {"data": "number 2"}, {"data": "number 3"})
        damage_log(server, 3)
        hold.set()
        for watch in (one, other):
            assert data_of(await watch.records(1)) == numbers(2)
            error = await watch.next()
            assert (error.name, error.data["detail"]["seq"]) == ("error", 3)
        event = await third.next()
        assert (event.seqs, event.data["corrupt_seqs"]) == ([2], [3])
    await soon(lambda: not server.broker.live.watchers)


@pytest.mark.parametrize("ext", [".data", ".idx"])
async def test_a_missing_segment_is_reported_with_its_range_of_seqs(
    server: HotServer, http: httpx.AsyncClient, ext: str
) -> None:
    await damaged(server, http, damage_segment)
    [path] = [path for path in server.disk.content() if path.startswith(f"{DATA}/topics/") and path.endswith(ext)]
    server.disk.unlink(path)
    await append(http, "t", {"data": "number 11"})
    refusal = (await http.post("/v0/topics/t/diff", json={})).json()["error"]
    async with watching(http, "t") as watch:
        error = (await watch.next()).data
    for code, detail in ((refusal["code"], refusal["detail"]), (error["reason"], error["detail"])):
        assert code == "segment_corrupt"
        assert (detail["topic"], detail["seq"], detail["from_seq"], detail["to_seq"]) == ("t", 1, 1, 10)
    passed = (await http.post("/v0/topics/t/diff", json={"skip_corrupt": True})).json()
    async with watching(http, "t", skip_corrupt=True) as watch:
        record = (await watch.next()).data
    for answer in (passed, record):
        assert (data_of(answer["records"]), answer["corrupt_seqs"]) == (numbers(11), [*range(1, 11)])


async def test_a_failing_disk_ends_the_watch_and_a_new_watch_works_after_a_repair(
    server: HotServer, http: httpx.AsyncClient
) -> None:
    await written(server, http)
    path = await session(http, "t")
    server.disk.fail("pread", f"{WAL}/*", sticky=True)
    answer = await http.post("/v0/topics/t/diff", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "storage_failed")
    assert answer.json()["error"]["detail"]["seq"] == 1
    assert "retry-after" in answer.headers
    assert (await http.get("/v0/topics/t/records/3")).status_code == 503
    async with stream(http, path) as watch:
        error = await watch.next()
        assert (error.name, error.data["code"], error.data["topic"]) == ("error", 503, "t")
        with pytest.raises(StopAsyncIteration):
            await watch.next()
    async with socket(server) as ws:
        await ws.ask("subscribe", topic="t", from_seq=0)
        error = await ws.next()
        assert (error["type"], error["code"], error["topic"]) == ("error", "storage_failed", "t")
        server.disk.clear_faults()
        await ws.ask("subscribe", topic="t", from_seq=0)
        assert len((await ws.next())["records"]) == 10
    async with stream(http, path) as watch:
        assert len(await watch.records(10)) == 10


async def test_consumers_and_claims_are_refused_with_503(server: HotServer, http: httpx.AsyncClient) -> None:
    await written(server, http, 2)
    assert (await http.put("/v0/topics/t/consumers/c", json={})).status_code == 201
    assert (await http.put("/v0/topics/q", json={"type": "queue"})).status_code == 201
    await append(http, "q", {"data": 1})
    server.disk.fail("pread", f"{WAL}/*", sticky=True)
    for path, body in (("t/consumers/c/read", {}), ("q/claim", {"node": "n"})):
        answer = await http.post(f"/v0/topics/{path}", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "storage_failed"), answer.text
    server.disk.clear_faults()
    assert len((await http.post("/v0/topics/t/consumers/c/read", json={})).json()["records"]) == 2
    queue = (await http.get("/v0/topics/q")).json()["queue"]
    assert (queue["ready"], queue["delayed"]) == (0, 1), "it is put off, not lost"
    await append(http, "q", {"data": 2})
    assert (await http.post("/v0/topics/q/claim", json={"node": "n"})).json()["claimed"][0]["$seq"] == 2
