"""Claims and acks that bypass ASGI have the same answers as others, and none is lost if they end early."""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from storage import Durability, TopicConfig, TopicType
from tests.http.hot_server import ASGI, HotServer, Reply, post, records
from tests.http.test_hot_equivalence import comparable
from tests.http.test_hot_outcomes import FAILED, envelope

WAYS: list[dict[str, str]] = [{}, ASGI]
BOTH = pytest.mark.parametrize("kind", WAYS, ids=["hot", "asgi"])
DURABLE = pytest.mark.parametrize("leases_durable", [False, True])
_OF_NOW = re.compile(rb"lease_[0-9a-f]{16}|\b1[0-9]{12}\b")


class Counted(HotServer):
    """`went` counts the claims and acks that bypassed ASGI and were accepted at once by the engine, `stayed` the
    others."""

    went = stayed = 0

    async def __aenter__(self) -> Counted:
        await super().__aenter__()
        queues = self.engine.queues
        for name in ("try_claim", "try_ack"):
            setattr(queues, name, self.counting(getattr(queues, name)))
        return self

    def counting(self, call: Callable[..., bool]) -> Callable[..., bool]:
        def counted(*arguments: Any) -> bool:
            taken = call(*arguments)
            self.went += self.is_direct and taken
            self.stayed += self.is_direct and not taken
            return taken

        return counted

    async def queue(self, jobs: int, name: str = "q", **settings: Any) -> None:
        config: dict[str, Any] = {"type": TopicType.QUEUE, "durability": Durability.FSYNC, **settings}
        await self.topic(name, TopicConfig(**config))
        if jobs:
            answer = await self.ask(post(name, records(*({"n": number} for number in range(jobs)))))
            assert answer.status == 200

    async def absorbed(self, jobs: int, **settings: Any) -> None:
        """Their records are in segments."""
        await self.queue(jobs, **settings)
        await self.engine.segment_worker.flush_all()
        assert self.engine.topic("q").log.held.flushed == jobs

    def deliveries(self) -> list[int]:
        return [view.deliveries for view in self.engine.queues.leases("q", limit=1000)]


@pytest.fixture
async def server() -> AsyncIterator[Counted]:
    async with Counted() as server:
        yield server


def claim(most: int = 1, kind: dict[str, str] | None = None, **fields: Any) -> bytes:
    return post("q/claim", {"node": "n", "max": most, **fields}, kind)


def ack(given: Reply, kind: dict[str, str] | None = None) -> bytes:
    jobs = given.body["claimed"]
    body = {"node": "n", "seqs": [job["$seq"] for job in jobs], "lease_ids": [job["lease_id"] for job in jobs]}
    return post("q/ack", body, kind)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.001)


# -- the same answers ------------------------------------------------------------------------------------------------


def same(answer: Reply, topic: str) -> tuple[Any, ...]:
    status, headers, text = comparable(answer, topic)
    return status, headers, _OF_NOW.sub(b"of now", text)


#: Operation and body; `seqs` and `lease_ids` stand for those of the claim before. Then whether it bypasses ASGI.
STEPS: dict[str, list[tuple[str, Any, bool]]] = {
    "whole": [("claim", {"node": "n", "max": 10}, True), ("ack", {"node": "n", "seqs": "=", "lease_ids": "="}, True)],
    "no tokens": [("claim", {"node": "ö", "max": 10}, True), ("ack", {"node": "ö", "seqs": "="}, True)],
    "one by one": [("claim", {"node": "n"}, True), ("ack", {"node": "n", "seqs": "="}, True)] * 3,
    "more than there are": [("claim", {"node": "n", "max": 5000, "lease_ms": 5000, "wait_ms": 100}, True)],
    "none left": [("claim", {"node": "n", "max": 1000}, True), ("claim", {"node": "n", "wait_ms": 1}, False)],
    "max 0": [("claim", {"node": "n", "max": 0}, True)],
    "no lease": [("claim", {"node": "n", "lease_ms": 0}, True)],
    "a lease too long": [("claim", {"node": "n", "lease_ms": 1 << 50}, True)],
    "an attempt": [("claim", {"node": "n", "attempt_key": "k", "max": 3}, False)] * 2,
    "acked twice": [
        ("claim", {"node": "n", "max": 3}, True),
        ("ack", {"node": "n", "seqs": [1, 2, 3]}, True),
        ("ack", {"node": "n", "seqs": [1, 2, 3]}, False),
    ],
    "a part": [
        ("claim", {"node": "n", "max": 5}, True),
        ("ack", {"node": "n", "seqs": [2, 3]}, False),
        ("ack", {"node": "n", "seqs": [1, 4, 5]}, False),
    ],
    "another order": [("claim", {"node": "n", "max": 3}, True), ("ack", {"node": "n", "seqs": [3, 1, 2]}, False)],
    "the same twice": [("claim", {"node": "n", "max": 2}, True), ("ack", {"node": "n", "seqs": [1, 2, 2]}, False)],
    "of another": [("claim", {"node": "n", "max": 3}, True), ("ack", {"node": "m", "seqs": "="}, False)],
    "strict": [("claim", {"node": "n"}, True), ("ack", {"node": "m", "seqs": "=", "strict": True}, False)],
    "wrong tokens": [
        ("claim", {"node": "n"}, True),
        ("ack", {"node": "n", "seqs": [1], "lease_ids": ["lease_" + "0f" * 8]}, False),
    ],
    "odd tokens": [("ack", {"node": "n", "seqs": [1], "lease_ids": ["x"]}, False)],
    "too few tokens": [("ack", {"node": "n", "seqs": [1, 2], "lease_ids": ["lease_" + "0f" * 8]}, False)],
    "no seqs": [("ack", {"node": "n", "seqs": []}, False)],
    "nothing in it": [("claim", {}, False), ("ack", {}, False)],
    "no node": [("claim", {"node": ""}, False), ("ack", {"node": "", "seqs": [1]}, False)],
    "node too long": [("claim", {"node": "n" * 129}, False), ("ack", {"node": "n" * 129, "seqs": [1]}, False)],
    "negative": [("claim", {"node": "n", "max": -1}, False), ("claim", {"node": "n", "wait_ms": -1}, False)],
    "of another kind": [("claim", {"node": 5}, False), ("claim", {"node": "n", "max": "1"}, False)],
    "unknown field": [("claim", {"node": "n", "colour": 1}, True)],
    "no JSON": [("claim", b"{", False), ("ack", b"\xff", False)],
}


def filled(body: Any, jobs: list[Any]) -> Any:
    """With the jobs of the claim before filled in."""
    if isinstance(body, bytes):
        return body
    fields: dict[str, Any] = {**body}
    for field, name in (("seqs", "$seq"), ("lease_ids", "lease_id")):
        if fields.get(field) == "=":
            fields[field] = [job[name] for job in jobs]
    return fields


@pytest.mark.parametrize("headers", [{}, {"accept-encoding": "gzip"}], ids=["plain", "gzip"])
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
@DURABLE
async def test_claims_on_the_short_way_are_answered_as_by_asgi(
    server: Counted, steps: list[tuple[str, Any, bool]], headers: dict[str, str], leases_durable: bool
) -> None:
    wire = await server.connect()
    answers: list[list[Any]] = []
    for topic, kind in (("short-way", {}), ("other-way", ASGI)):
        await server.queue(40, topic, leases_durable=leases_durable)
        before = server.went
        jobs: list[Any] = []
        answers.append([])
        for operation, body, _ in steps:
            wire.send(post(f"{topic}/{operation}", filled(body, jobs), {**headers, **kind}))
            answer = await wire.answer()
            jobs = answer.body.get("claimed", jobs)
            answers[-1].append(same(answer, topic))
        assert server.went - before == (0 if kind else sum(hot for _, _, hot in steps))
        figures = server.engine.queues.figures(topic)
        answers[-1].append((figures.ready, figures.in_flight, figures.lost, server.engine.state(topic).count))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("name", ["plain", "none"])
async def test_claims_of_absent_topics_and_plain_logs_are_refused_as_by_asgi(server: Counted, name: str) -> None:
    await server.topic("plain")
    for operation, fields in (("claim", {"node": "n"}), ("ack", {"node": "n", "seqs": [1]})):
        one, other = [envelope(await server.ask(post(f"{name}/{operation}", fields, kind))) for kind in WAYS]
        assert one == other
        assert one[0] >= 400
    assert server.went == 0


# -- who is not there any more ---------------------------------------------------------------------------------------


@BOTH
@DURABLE
@pytest.mark.parametrize("resets", [False, True])
async def test_jobs_of_a_disconnected_client_are_ready_at_once_without_a_delivery(
    server: Counted, kind: dict[str, str], leases_durable: bool, resets: bool
) -> None:
    await server.absorbed(3, leases_durable=leases_durable, max_deliveries=1, dead_letter="dead")
    wire = await server.connect()
    held = ("datasync", "*/wal-*") if leases_durable else ("pread", "*.data")
    with server.disk.hold(*held, times=1) as gate:
        wire.send(claim(3, kind))
        await asyncio.to_thread(gate.wait_held)
        assert server.engine.queues.figures("q").ready == 0
        await (wire.reset() if resets else wire.close())
        await asyncio.sleep(0.02)
    await until(lambda: server.engine.queues.figures("q").ready == 3)
    assert server.went == (0 if kind else 1)
    assert server.engine.queues.figures("q").dead_pending == 0
    answer = await server.ask(claim(3, kind))
    assert [job["$seq"] for job in answer.body["claimed"]] == [1, 2, 3]


@BOTH
async def test_a_claim_whose_jobs_are_deleted_during_its_read_keeps_waiting(
    server: Counted, kind: dict[str, str]
) -> None:
    await server.absorbed(2)
    wire = await server.connect()
    with server.disk.hold("pread", "*.data", times=1) as gate:
        wire.send(claim(2, kind, wait_ms=15_000))
        await asyncio.to_thread(gate.wait_held)
        await server.engine.delete_records("q", before_seq=3)
    await until(lambda: server.engine.queues.figures("q").waiting_claims == 1)
    assert server.went == (0 if kind else 1)
    await server.ask(post("q", records("later")))
    assert [(job["$seq"], job["data"]) for job in (await wire.answer()).body["claimed"]] == [(3, "later")]
    wire.send(claim(1, kind))
    assert (await wire.answer()).body["count"] == 0


async def test_the_body_of_a_waiting_claim_is_counted() -> None:
    async with Counted(max_body_memory_bytes=1 << 20) as server:
        await server.queue(0)
        wires = [await server.connect() for _ in range(7)]
        for number, wire in enumerate(wires[:5], 1):  # one exceeds the limit that all bodies have
            wire.send(claim(wait_ms=30_000, unknown="x" * 250_000))
            await until(lambda expected=number: server.engine.queues.figures("q").waiting_claims == expected)
        assert server.broker.memory.bodies.held > 1_000_000
        wires[5].send(claim(wait_ms=30_000, unknown="x" * 250_000))
        refused = await wires[5].answer()
        assert (refused.status, refused.code) == (503, "overloaded")
        wires[6].send(claim(wait_ms=30_000))
        await until(lambda: server.engine.queues.figures("q").waiting_claims == 6)
        for wire in wires:
            await wire.close()
        await until(lambda: server.broker.memory.bodies.held == 0)


# -- the end ---------------------------------------------------------------------------------------------------------


@BOTH
async def test_a_hanging_claim_ends_with_shutting_down_after_the_grace_and_its_jobs_are_ready(
    kind: dict[str, str],
) -> None:
    async with Counted(grace_s=0.2) as server:
        await server.queue(3, leases_durable=True)
        with server.disk.hold("datasync", "*/wal-*", times=1) as gate:
            wire = await server.connect()
            wire.send(claim(2, kind))
            await asyncio.to_thread(gate.wait_held)
            stopped = server.stop()
            answer = await wire.answer()
            assert envelope(answer) == (503, "shutting_down", ["1"])
            assert server.went == (0 if kind else 1)
            await wire.ended()
            await stopped
        await until(lambda: server.engine.queues.figures("q").ready == 3)


@BOTH
async def test_a_hanging_ack_ends_with_shutting_down_and_unknown_outcome_after_the_grace(kind: dict[str, str]) -> None:
    async with Counted(grace_s=0.2) as server:
        await server.queue(3)
        wire = await server.connect()
        wire.send(claim(2, kind))
        given = await wire.answer()
        with server.disk.hold("datasync", "*/wal-*", times=1) as gate:
            wire.send(ack(given, kind))
            await asyncio.to_thread(gate.wait_held)
            stopped = server.stop()
            answer = await wire.answer()
            assert envelope(answer) == (503, "shutting_down", ["1"])
            assert answer.body["error"]["detail"] == {"outcome": "unknown"}
            await wire.ended()
            await stopped
        await until(lambda: server.engine.state("q").count == 1)
        assert server.went == (0 if kind else 2)


# -- one behind the other, and the disk ------------------------------------------------------------------------------


@BOTH
async def test_requests_sent_at_once_are_answered_in_order(server: Counted, kind: dict[str, str]) -> None:
    await server.queue(6)
    wire = await server.connect()
    acks = post("q/ack", {"node": "n", "seqs": [1, 2]}, kind)
    wire.send(claim(2, kind), claim(3, ASGI), acks, post("q", records(7), kind), claim(9, kind))
    answers = [(await wire.answer()).body for _ in range(5)]
    given = [[job["$seq"] for job in answers[at]["claimed"]] for at in (0, 1, 4)]
    assert given == [[1, 2], [3, 4, 5], [6, 7]]
    assert (answers[2]["acked"], answers[3]["seqs"]) == (2, [7])
    assert server.went == (0 if kind else 3)


@BOTH
async def test_durable_leases_are_synced_before_the_answer_and_outlast_the_process(kind: dict[str, str]) -> None:
    async with Counted() as server:
        await server.queue(5, leases_durable=True)
        wire = await server.connect()
        with server.disk.hold("datasync", "*/wal-*", times=1) as gate:
            wire.send(claim(3, kind))
            await asyncio.to_thread(gate.wait_held)
            asked = asyncio.create_task(wire.answer())
            await asyncio.sleep(0.05)
            assert not asked.done()
        given = await asked
        assert (await server.ask(ack(await server.ask(claim(1, kind)), kind))).body["acked"] == 1
        assert server.went == (0 if kind else 3)
    async with Counted(disk=server.disk) as again:
        figures = again.engine.queues.figures("q")
        assert (figures.in_flight, figures.ready) == (3, 1)
        assert (await again.ask(ack(given, kind))).body["acked"] == 3


@BOTH
@DURABLE
async def test_leases_stay_valid_when_their_ack_fails_on_disk(kind: dict[str, str], leases_durable: bool) -> None:
    async with Counted() as server:
        await server.queue(3, leases_durable=leases_durable)
        given = await server.ask(claim(2, kind))
        server.disk.fail("pwritev", "*/wal-*", errno=errno.EIO, sticky=True)
        for _ in range(2):
            assert envelope(await server.ask(ack(given, kind))) == FAILED
            figures = server.engine.queues.figures("q")
            assert (figures.in_flight, figures.ready, server.engine.state("q").count) == (2, 1, 3)
        assert sorted(server.deliveries()) == [0, 1, 1]
        assert server.went == (0 if kind else 3)
        server.disk.clear_faults()


@BOTH
@DURABLE
async def test_an_ack_frees_space_on_a_full_disk(kind: dict[str, str], leases_durable: bool) -> None:
    async with Counted() as server:
        await server.queue(3, leases_durable=leases_durable)
        given = await server.ask(claim(2, kind))
        server.disk.fail("pwritev", "*/wal-*", errno=errno.ENOSPC, times=1)
        assert (await server.ask(ack(given, kind))).body["acked"] == 2
        assert server.engine.state("q").count == 1
        assert server.went == (0 if kind else 2)


async def test_a_failed_rendering_of_a_claim_leaves_no_leases(server: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> bytes:
        raise RuntimeError("a defect")

    await server.queue(3)
    with monkeypatch.context() as patch:
        patch.setattr("broker.api.routes.claims.rendered_claim", broken)
        answer = await server.ask(post("q/claim", {"node": "n", "max": 2}))
    assert (answer.status, answer.code) == (500, "internal")
    assert server.went == 1
    assert server.engine.queues.figures("q").in_flight == 0
