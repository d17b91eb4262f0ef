"""Reads on the fast path have the same answers as on the slow one, in order. Reads that may have to wait take the slow
path."""

from __future__ import annotations

import asyncio
import gc
import re
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.api.dispatch import Dispatcher
from storage import Durability, TopicConfig, TopicType
from storage.state.routers.router import Definition
from tests.http.hot_server import ASGI, HotServer, post, records
from tests.http.test_hot_equivalence import as_bytes, comparable
from tests.unit.storage.machine import options

WAYS: list[dict[str, str]] = [{}, ASGI]
_OF_NOW = re.compile(rb'"\$ts":\d+|[0-9a-f]{8}-[0-9a-f]+')


@pytest.fixture
def long_ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the requests that went through ASGI, from the beginning or because they had to wait."""
    paths: list[str] = []
    answered = Dispatcher._answered  # pyright: ignore[reportPrivateUsage]
    go_on = Dispatcher.go_on

    async def counted(self: Dispatcher, request: Any, send: Any) -> None:
        paths.append(request.scope["path"])
        await answered(self, request, send)

    async def went_on(self: Dispatcher, request: Any, work: Any, scope: Any, receive: Any, send: Any) -> None:
        paths.append(scope["path"])
        await go_on(self, request, work, scope, receive, send)

    monkeypatch.setattr(Dispatcher, "_answered", counted)
    monkeypatch.setattr(Dispatcher, "go_on", went_on)
    return paths


@pytest.fixture
async def server() -> AsyncIterator[HotServer]:
    async with HotServer() as server:
        yield server


def diff(topic: str, body: Any = None, headers: dict[str, str] | None = None, query: str = "") -> bytes:
    return post(f"{topic}/diff", {} if body is None else body, headers, query=query)


async def filled(server: HotServer, topic: str, **settings: Any) -> None:
    """Eight records, all of different kinds. All records before them are gone."""
    await server.topic(topic, TopicConfig(durability=Durability.FSYNC, cap_records=8, **settings))
    for body in (
        records(*range(20)),
        records({"a": 1.10, "b": "ä\U0001f600"}, node="n"),
        records("x" * 300, node="m"),
        {"records": [{"data": 1, "tag": "t/1", "meta": {"k": [1]}}, {"data": None, "meta": None}]},
        records("", 1e300),
    ):
        assert (await server.ask(post(topic, body))).status == 200


TAKEN: dict[str, Any] = {
    "from the start": {},
    "from a seq": {"from_seq": 20},
    "what is evicted": {"from_seq": 1, "limit": 5},
    "a few": {"from_seq": 18, "limit": 2},
    "limit 0": {"from_seq": 18, "limit": 0},
    "limit too large": {"from_seq": 18, "limit": 1 << 40},
    "few bytes": {"from_seq": 18, "max_batch_bytes": 1},
    "few bytes, by the other name": {"from_seq": 18, "max_bytes": 1},
    "bytes by both names": {"from_seq": 18, "max_bytes": 1, "max_batch_bytes": 1 << 20},
    "without a node": {"node": "n"},
    "without several": {"node": ["n", "m"]},
    "without nobody": {"node": []},
    "with tags": {"include_tags": True},
    "without meta": {"include_meta": False},
    "without data": {"include_data": False},
    "seqs only": {"include_data": False, "include_meta": False},
    "tags only": {"include_data": False, "include_meta": False, "include_tags": True},
    "another epoch": {"epoch": 77, "from_seq": 20},
    "behind the head": {"from_seq": 1 << 50},
    "at the head": {"from_seq": 26},
    "damaged ones too": {"skip_corrupt": True},
    "waiting, if need be": {"from_seq": 20, "wait_ms": 1000},
    "spaced": b' {"from_seq" :20 , "limit": 2} \n',
    "a field twice": b'{"limit":1,"limit":2}',
}

ODD: dict[str, Any] = {
    "nothing": b"",
    "null": {"limit": None},
    "a predicate": {"tag": ["tag", "Glob", "t*"]},
    "a tag": {"tag": "t/1"},
    "a time": {"from_ts": 1},
    "at the head, waiting": {"from_seq": 26, "wait_ms": 1},
    "unknown field": {"colour": 1},
    "negative": {"from_seq": -1},
    "a fraction": {"limit": 1.5},
    "a string": {"limit": "1"},
    "too large": {"from_seq": 1 << 64},
    "largest": {"from_seq": (1 << 64) - 1},
    "a node of another kind": {"node": 5},
    "no JSON": b"{",
    "not UTF-8": b'{"node":"\xff"}',
    "a list": [],
    "deep": b'{"node":' + b"[" * 100_000,
}


async def both_ways(server: HotServer, body: Any, headers: dict[str, str], query: str = "") -> list[Any]:
    wire = await server.connect()
    outcomes: list[Any] = []
    for topic, kind in (("short-way", {}), ("other-way", ASGI)):
        for _ in range(2):  # the second time the head is known
            wire.send(diff(topic, as_bytes(body), {**headers, **kind}, query))
            outcomes.append(comparable(await wire.answer(), topic))
    return outcomes


def alike(outcomes: list[Any]) -> bool:
    first = without_times(outcomes[0])
    return all(without_times(each) == first for each in outcomes[1:])


def without_times(outcome: tuple[Any, ...]) -> tuple[Any, ...]:
    """The two topics were written one after the other."""
    return *outcome[:-1], _OF_NOW.sub(b"", outcome[-1])


@pytest.mark.parametrize("headers", [{}, {"accept-encoding": "gzip"}], ids=["plain", "gzip"])
@pytest.mark.parametrize("body", TAKEN.values(), ids=TAKEN)
async def test_reads_on_the_short_way_are_answered_as_by_asgi(
    server: HotServer, long_ways: list[str], body: Any, headers: dict[str, str]
) -> None:
    for topic in ("short-way", "other-way"):
        await filled(server, topic)
    long_ways.clear()
    outcomes = await both_ways(server, body, headers)
    assert alike(outcomes)
    assert outcomes[0][0] == 200
    assert long_ways == ["/v0/topics/other-way/diff"] * 2


@pytest.mark.parametrize("body", ODD.values(), ids=ODD)
async def test_unusual_bodies_are_answered_as_by_asgi(server: HotServer, long_ways: list[str], body: Any) -> None:
    for topic in ("short-way", "other-way"):
        await filled(server, topic)
    long_ways.clear()
    assert alike(await both_ways(server, body, {}))
    assert long_ways.count("/v0/topics/other-way/diff") == 2


@pytest.mark.parametrize("query", ["?partition=0", "?partition=7", "?limit=1", "?x"])
async def test_a_query_is_parsed_as_by_asgi(server: HotServer, query: str) -> None:
    for topic in ("short-way", "other-way"):
        await filled(server, topic)
    assert alike(await both_ways(server, b"{}", {}, query))


async def test_a_read_with_the_current_epoch_gets_no_tombstone(server: HotServer, long_ways: list[str]) -> None:
    await filled(server, "t")
    long_ways.clear()
    epoch = server.engine.topic("t").log.epoch
    answers = [(await server.ask(diff("t", {"from_seq": 20, "epoch": epoch}, kind))).body for kind in WAYS]
    assert [each["tombstone"] for each in answers] == [None, None]
    assert answers[0]["records"] == answers[1]["records"]
    assert len(answers[0]["records"]) == 6
    assert len(long_ways) == 1


@pytest.mark.parametrize("name", ["none", "a%20b", "A B", "x" * 300])
async def test_reads_of_absent_topics_are_refused_as_by_asgi(server: HotServer, name: str) -> None:
    answers = [await server.ask(diff(name, {}, kind)) for kind in WAYS]
    assert [(each.status, each.code) for each in answers] == [(answers[0].status, answers[0].code)] * 2
    assert answers[0].status in (400, 404)


async def test_jobs_and_kafka_records_are_shown_as_by_asgi(server: HotServer, long_ways: list[str]) -> None:
    await server.topic("jobs", TopicConfig(type=TopicType.QUEUE, durability=Durability.FSYNC))
    body = {"records": [{"data": 1, "delay_ms": 60_000}, {"data": {"deliver": ',"ct":1}'}}]}
    assert (await server.ask(post("jobs", body))).status == 200
    long_ways.clear()
    answers = [(await server.ask(diff("jobs", {}, kind))).body for kind in WAYS]
    assert [each.pop("performance")["records_scanned"] for each in answers] == [2, 2]
    assert answers[0] == answers[1]
    assert [record["data"] for record in answers[0]["records"]] == [1, {"deliver": ',"ct":1}'}]
    assert long_ways == ["/v0/topics/jobs/diff"]


async def test_a_read_of_a_routed_topic_waits_for_its_copies(server: HotServer, long_ways: list[str]) -> None:
    await server.topic("source", TopicConfig(durability=Durability.FSYNC))
    await server.engine.routers.put("r", Definition(source="source", dest="dest"))
    await server.ask(post("source", records(1, 2)))
    long_ways.clear()
    answer = await server.ask(diff("dest"))
    assert [each["data"] for each in answer.body["records"]] == [1, 2]
    assert "router_wait_ms" in answer.body["performance"]
    assert long_ways == ["/v0/topics/dest/diff"]


async def test_a_waiting_read_ignores_records_of_the_same_node(server: HotServer, long_ways: list[str]) -> None:
    await server.topic("t", TopicConfig(durability=Durability.FSYNC))
    await server.ask(post("t", records(1, node="me")))
    wire = await server.connect()
    long_ways.clear()
    wire.send(diff("t", {"node": "me", "wait_ms": 20_000}))
    async with asyncio.timeout(20):
        while not long_ways:
            await asyncio.sleep(0.001)
    await server.ask(post("t", records("news", node="you")))
    answer = await wire.answer()
    assert [each["data"] for each in answer.body["records"]] == ["news"]


async def test_a_corrupt_record_is_reported_as_by_asgi() -> None:
    async with HotServer(limits=options(tail_cache_bytes=0)) as server:
        await absorbed(server, "t", *range(40), "number 41", 42)
        content = server.disk.content()
        [path] = [path for path in content if path.endswith(".data")]
        server.disk.flip_byte(path, content[path].index(b"number 41"), 1)
        told = [await server.ask(diff("t", {"from_seq": 40}, kind)) for kind in WAYS]
        assert [(each.status, each.code) for each in told] == [(500, "segment_corrupt")] * 2
        assert told[0].body["error"]["detail"] == told[1].body["error"]["detail"]
        passed = [(await server.ask(diff("t", {"from_seq": 39, "skip_corrupt": True}, kind))).body for kind in WAYS]
        assert [each["corrupt_seqs"] for each in passed] == [[41]] * 2
        assert [[record["$seq"] for record in each["records"]] for each in passed] == [[40, 42]] * 2


async def test_reads_and_writes_sent_at_once_are_answered_in_order(server: HotServer) -> None:
    await server.topic("t", TopicConfig(durability=Durability.FSYNC))
    wire = await server.connect()
    requests = [post("t", records(number)) + diff("t", {"from_seq": number, "limit": 1}) for number in range(100)]
    wire.send(*requests)
    for number in range(100):
        assert (await wire.answer()).body["first_seq"] == number + 1
        read = (await wire.answer()).body
        assert [(each["$seq"], each["data"]) for each in read["records"]] == [(number + 1, number)]


async def test_many_pipelined_reads_in_one_chunk_are_answered(server: HotServer) -> None:
    await filled(server, "t")
    wire = await server.connect()
    one = diff("t", {"from_seq": 25, "limit": 1})
    wire.send(one * 300)
    answers = [(await wire.answer()).body["records"][0]["$seq"] for _ in range(300)]
    assert answers == [26] * 300


async def test_a_read_of_a_disconnected_client_leaves_no_task(server: HotServer, long_ways: list[str]) -> None:
    await server.topic("t", TopicConfig(durability=Durability.FSYNC))
    await server.ask(post("t", records(*range(10))))
    wire = await server.connect()
    wire.send(diff("t"))
    await wire.answer()
    long_ways.clear()
    wire.send(diff("t"))
    await wire.close()
    [*_] = [await server.ask(diff("t")) for _ in range(3)]
    assert not server.server.server_state.tasks
    assert long_ways == []


async def test_the_task_of_a_finished_read_is_freed(server: HotServer, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[weakref.ref[Any]] = []
    made = server.engine.reader.read

    async def noted(*arguments: Any) -> Any:
        found = await made(*arguments)
        seen.append(weakref.ref(asyncio.current_task()))  # pyright: ignore[reportArgumentType]
        return found

    monkeypatch.setattr(server.engine.reader, "read", noted)
    await filled(server, "t")
    assert (await server.ask(diff("t"))).status == 200
    await asyncio.sleep(0)
    gc.collect()
    assert len(seen) == 1
    assert seen[0]() is None


@pytest.mark.parametrize("kind", WAYS, ids=["hot", "asgi"])
async def test_a_hanging_read_ends_with_shutting_down_after_the_grace(kind: dict[str, str]) -> None:
    async with HotServer(limits=options(tail_cache_bytes=0), grace_s=0.2) as server:
        await absorbed(server, "t", 1, 2)
        wire = await server.connect()
        with server.disk.hold("pread", "*.data", times=1) as gate:
            wire.send(diff("t", {}, kind))
            await asyncio.to_thread(gate.wait_held)
            stopped = server.stop()
            answer = await wire.answer()
            assert (answer.status, answer.code) == (503, "shutting_down")
            await wire.ended()
            await stopped
        await server.engine.close()
        assert server.counted("topics_http_requests")["/v0/topics/{topic}/diff", "POST", "5xx"] == 1


async def test_a_slow_disk_read_does_not_delay_other_connections(long_ways: list[str]) -> None:
    async with HotServer(limits=options(tail_cache_bytes=0)) as server:
        await absorbed(server, "t", 1, 2)
        await server.topic("other", TopicConfig(durability=Durability.FSYNC))
        slow, quick = await server.connect(), await server.connect()
        with server.disk.hold("pread", "*.data", times=1) as gate:
            slow.send(diff("t"), diff("other"))
            await asyncio.to_thread(gate.wait_held)
            quick.send(diff("other"))
            assert (await quick.answer()).body["records"] == []
        assert [record["data"] for record in (await slow.answer()).body["records"]] == [1, 2]
        assert (await slow.answer()).body["topic"] == "other"
        assert long_ways == []


async def test_a_cancelled_read_is_answered_with_shutting_down(
    server: HotServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(server, "t")

    async def cancelled(*_: Any) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(server.engine.reader, "read", cancelled)
    answer = await server.ask(diff("t"))
    assert (answer.status, answer.code) == (503, "shutting_down")


async def absorbed(server: HotServer, topic: str, *values: Any) -> None:
    """These are in a segment and nowhere else."""
    await server.topic(topic, TopicConfig(durability=Durability.FSYNC))
    await server.ask(post(topic, records(*values)))
    await server.engine.segment_worker.flush_all()
    assert server.engine.topic(topic).log.held.flushed == len(values)
