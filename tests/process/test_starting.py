"""The port opens before recovery, and requests are answered with its progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from storage import Engine, NewRecord, Options
from tests.support.broker_process import BrokerProcess

RECORDS = 300_000
BATCH = 5000
ATTEMPTS = 5


class StartSample(NamedTuple):
    """The answers of a starting broker at one moment."""

    ready_status: int
    ready: Any
    health_status: int
    read: tuple[int, str]


async def fill(data_dir: Path) -> int:
    """Add records to a directory's log until reading it takes a while."""
    options = Options(wal_shards=1, wal_file_bytes=16 << 20, wal_reserve_bytes=1 << 16)
    async with Engine.open(data_dir, options) as engine:
        engine.flusher.finish = _nothing  # records in segments need no replay
        batch = [NewRecord(msgspec.Raw(b'"%b"' % (b"x" * 98)))] * BATCH
        for _ in range(RECORDS // BATCH):
            await engine.append("large", batch)
    return RECORDS


async def _nothing() -> None:
    pass


def glimpses(broker: BrokerProcess) -> list[StartSample]:
    """Start it and poll until it is ready. Every answer but the last is of a broker that is not ready."""
    broker.launch()
    broker.wait_listening()
    seen: list[StartSample] = []
    while not seen or seen[-1].ready_status != 200:
        read = broker.call("POST", "/v0/topics/large/diff", {"limit": 1})
        health = broker.call("GET", "/v0/health")
        status, ready = broker.call("GET", "/v0/ready")
        code = read[1]["error"]["code"] if "error" in read[1] else ""
        seen.append(StartSample(status, ready, health[0], (read[0], code)))
    return seen


def progress(seen: list[StartSample]) -> list[float]:
    return [each.ready["error"]["detail"]["replay_progress"] for each in seen[:-1]]


async def test_a_recovering_broker_reports_progress_and_is_healthy(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        records = 0
        for _ in range(ATTEMPTS):
            records += await fill(broker.data_dir)
            seen = glimpses(broker)
            shown = progress(seen)
            assert all(each.health_status == 200 for each in seen)
            assert all(each.read == (503, "not_ready") for each in seen[:-1])
            assert all(each.ready_status in (200, 503) for each in seen)
            assert shown == sorted(shown)
            assert all(0 <= each <= 1 for each in shown)
            assert seen[-1].ready == {"status": "ready", "wal_replay_complete": True, "topics": 1}
            if any(0 < each < 1 for each in shown):
                break
            broker.kill()  # this process paused for a moment, and recovery was over: try again with more to read
        else:
            raise AssertionError(f"recovery was never seen under way: {shown}")
        state = broker.ok("GET", "/v0/topics/large")
        assert (state["count"], state["head_seq"]) == (records, records)
        assert broker.stop() == 0
