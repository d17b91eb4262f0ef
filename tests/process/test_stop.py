"""SIGTERM: requests in flight are answered, acknowledged writes are kept, and the process ends soon."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.http.watch_calls import session, stream
from tests.support.broker_process import BrokerProcess, verify
from tests.support.kill_connection import Connection, call
from tests.support.kill_ledger import Outcome
from tests.support.kill_load import Ledger, Load
from tests.support.kill_settle import check, settle
from tests.support.kill_view import views
from tests.support.stop_jobs import TOPIC, Jobs

ROUNDS, SOAK_ROUNDS = 3, 20
PARKED = 8
WATCHED = ("fsync-0", "disk-0")
#: Longer than a stop may take: a request that waited for this long was not answered by the stop.
WAIT_MS = 30_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, wal_shards=2) as process:
        yield process


async def park(broker: BrokerProcess, count: int) -> list[asyncio.Task[tuple[int, object]]]:
    """Readers that wait for a record that is never written."""
    body = {"from_seq": 0, "wait_ms": WAIT_MS}
    waiting = [asyncio.create_task(call(broker.port, "POST", "/v0/topics/quiet/diff", body)) for _ in range(count)]
    await asyncio.to_thread(broker.until, lambda: broker.metric("topics_parked_requests") >= count)
    return waiting


async def watch(port: int, ledger: Ledger, opened: asyncio.Event) -> str:
    """Collect a watcher's records until the stream ends; returns the reason."""
    books = {book.topic: book for book in ledger.fixed if book.topic in WATCHED}
    starts = {name: {"from_seq": book.base} for name, book in books.items()}
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=WAIT_MS / 1000) as http,
        stream(http, await session(http, topics=starts)) as watching,
    ):
        opened.set()
        while True:
            event = await watching.next()
            assert event.name in ("record", "caught-up", "error"), event
            if event.name == "error":
                return event.data["code"]
            if event.name == "record":
                seen = books[event.data["topic"]].seen
                for record in event.data["records"]:
                    seen[record["$seq"]] = (record["data"]["write"], record["data"]["index"])


def stopping(broker: BrokerProcess, jobs: Jobs) -> Callable[[], None]:
    """Ends a round: at once, or as soon as a job was acked in it."""
    before = len(jobs.done)

    def stop() -> None:
        if len(jobs.done) > before:
            broker.signal(signal.SIGTERM)
        else:
            asyncio.get_running_loop().call_later(0.01, stop)

    return stop


async def test_a_stop_under_load_answers_all_requests_and_keeps_acked_writes(
    broker: BrokerProcess, dice: random.Random, soak_mode: bool
) -> None:
    """Writers of every class, workers of a queue, a watcher, and waiting readers."""
    ledger, jobs = Ledger(dice), Jobs(dice)
    rounds = SOAK_ROUNDS if soak_mode else ROUNDS
    broker.start()
    await ledger.create(broker.port)
    await jobs.create(broker.port)
    for _ in range(rounds):
        await call(broker.port, "PUT", "/v0/topics/quiet")
        waiting = await park(broker, PARKED)
        async with asyncio.TaskGroup() as tasks:
            opened = asyncio.Event()
            watcher = tasks.create_task(watch(broker.port, ledger, opened))
            await opened.wait()
            tasks.create_task(jobs.run(broker.port))
            load = Load(ledger, broker.port, dice.randrange(50, 600), stopping(broker, jobs))
            tasks.create_task(load.run())
        assert watcher.result() == "server_shutting_down"
        for status, answer in await asyncio.gather(*waiting):
            assert isinstance(answer, dict)
            nothing = status == 200 and answer["records"] == []
            assert nothing or (status == 503 and answer["error"]["code"] == "shutting_down"), answer
        assert await asyncio.to_thread(broker.wait) == 0
        broker.start()
        async with Connection(broker.port) as connection:
            found = await views(connection)
            del found["quiet"], found[TOPIC]
            check(ledger, found)
            await jobs.check(connection)
            await settle(ledger, connection)
    assert broker.stop() == 0
    assert broker.complaints() == []
    verify(broker.data_dir)
    assert ledger.counts[Outcome.OK] >= 50 * rounds
    assert len(jobs.done) >= rounds


def test_seqs_continue_without_a_gap_after_a_clean_stop(broker: BrokerProcess) -> None:
    broker.start()
    for durability in ("fsync", "disk", "memory"):
        broker.ok("PUT", f"/v0/topics/{durability}", {"durability": durability})
        broker.ok("POST", f"/v0/topics/{durability}", {"records": [{"data": 1}, {"data": 2}]})
    assert broker.stop() == 0
    # As after a move to another machine: nothing guarantees the page cache.
    broker.start(trust_page_cache=0)
    for durability in ("fsync", "disk", "memory"):
        assert broker.ok("POST", f"/v0/topics/{durability}", {"records": [{"data": 3}]})["first_seq"] == 3
        answer = broker.ok("POST", f"/v0/topics/{durability}/diff", {})
        assert [record["$seq"] for record in answer["records"]] == [1, 2, 3]
        assert answer["tombstone"] is None


def test_a_sigterm_during_recovery_stops_the_broker_cleanly(broker: BrokerProcess) -> None:
    broker.launch()
    broker.wait_listening()
    broker.signal(signal.SIGTERM)
    assert broker.wait() == 0
    assert broker.complaints() == []
