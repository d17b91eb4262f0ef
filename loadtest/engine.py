"""Measures the storage engine alone, in-process, without HTTP: so that its cost and the server's are seen apart.

    python -m loadtest.engine --tasks 64 --batch 100

N tasks append batch after batch to one topic, each waiting for its acknowledgement, for every class of durability asked
for; then the records are read back at limit 1000. The records are made beforehand.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import sys
import tempfile
import time

import msgspec
import uvloop

from loadtest.scenario import numbered, record
from storage import Durability, Engine, NewRecord, Options, ReadQuery, TopicConfig


class Result(msgspec.Struct, kw_only=True):
    """Rates per second; processor time in µs a record, of the whole process and of the event loop's thread."""

    name: str
    records_per_s: float
    calls_per_s: float
    cpu_us_per_record: float
    loop_us_per_record: float
    p50_ms: float
    p99_ms: float
    fsyncs: int = 0
    writes_per_group: float = 0.0


class _Clocks:
    """Wall, process and thread time since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu, self._loop = time.perf_counter(), _process_s(), time.thread_time()

    def result(self, name: str, batch: int, latencies: list[float]) -> Result:
        wall, cpu, loop = time.perf_counter() - self._wall, _process_s() - self._cpu, time.thread_time() - self._loop
        calls, records = len(latencies), batch * len(latencies)
        ordered = sorted(latencies) or [0.0]
        return Result(
            name=name,
            records_per_s=records / wall,
            calls_per_s=calls / wall,
            cpu_us_per_record=1e6 * cpu / max(1, records),
            loop_us_per_record=1e6 * loop / max(1, records),
            p50_ms=1000 * ordered[len(ordered) // 2],
            p99_ms=1000 * ordered[int(0.99 * len(ordered))],
        )


def _process_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def batch_of(size: int, record_bytes: int) -> list[NewRecord]:
    """Records as the HTTP layer makes them."""
    return [NewRecord(msgspec.Raw(numbered(record(record_bytes, index), 0))) for index in range(size)]


def _wal_counts(engine: Engine) -> tuple[float, float, float]:
    """(groups, writes in them, syncs) so far, of all shards."""
    stats = [shard.log.stats for shard in engine.shards]
    return sum(s.groups for s in stats), sum(s.group_size.sum for s in stats), sum(s.fsyncs for s in stats)


async def append(engine: Engine, durability: Durability, options: argparse.Namespace) -> Result:
    """`tasks` writers for `seconds`."""
    topic = f"engine-{durability}"
    await engine.put_topic(topic, TopicConfig(durability=durability))
    records = batch_of(options.batch, options.record_bytes)
    latencies: list[float] = []
    until = 0.0

    async def write() -> None:
        while (begin := time.perf_counter()) < until:
            await engine.append(topic, records)
            latencies.append(time.perf_counter() - begin)

    until = time.perf_counter() + min(0.5, options.seconds)
    await asyncio.gather(*(write() for _ in range(options.tasks)))
    latencies.clear()
    before = _wal_counts(engine)
    clocks = _Clocks()
    until = time.perf_counter() + options.seconds
    await asyncio.gather(*(write() for _ in range(options.tasks)))
    result = clocks.result(f"append {durability} x {options.batch}", options.batch, latencies)
    groups, writes, fsyncs = (after - earlier for after, earlier in zip(_wal_counts(engine), before, strict=True))
    result.writes_per_group = writes / groups if groups else 0.0
    result.fsyncs = int(fsyncs)
    return result


async def read(engine: Engine, topic: str, options: argparse.Namespace, limit: int = 1000) -> Result:
    """One reader that walks through the newest records, `limit` at a time."""
    head = engine.state(topic).head_seq
    first = max(0, head - 100_000)
    latencies: list[float] = []
    clocks = _Clocks()
    until, seq = time.perf_counter() + min(2.0, options.seconds), first
    while (begin := time.perf_counter()) < until:
        result = await engine.read(topic, ReadQuery(from_seq=seq, limit=limit, max_bytes=8 << 20))
        latencies.append(time.perf_counter() - begin)
        seq = result.next_from_seq if result.next_from_seq + limit <= head else first
    return clocks.result(f"read at limit {limit}", limit, latencies)


async def run(options: argparse.Namespace) -> list[Result]:
    """All classes asked for, then a read."""
    with tempfile.TemporaryDirectory(prefix="topics-engine-", dir=options.dir or None) as folder:
        async with Engine.open(folder, Options(wal_shards=options.shards)) as engine:
            gc.collect()
            gc.freeze()
            gc.set_threshold(50_000, 20, 100)  # as the broker does
            appends = [await append(engine, Durability(name), options) for name in options.durability]
            return [*appends, await read(engine, f"engine-{options.durability[-1]}", options)]


def _line(each: Result) -> str:
    return (
        f"{each.name:22} {each.records_per_s:12,.0f} records/s {each.calls_per_s:10,.0f} calls/s"
        f"   cpu {each.cpu_us_per_record:5.2f} (loop {each.loop_us_per_record:5.2f}) µs/record"
        f"   p50 {each.p50_ms:7.2f} p99 {each.p99_ms:7.2f} ms"
        f"   {each.fsyncs} fsyncs, {each.writes_per_group:.1f} writes a group"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.engine", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--record-bytes", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--shards", type=int, default=0, help="0 = as the engine chooses")
    parser.add_argument("--durability", nargs="+", default=["ephemeral", "disk", "fsync"], choices=list(Durability))
    parser.add_argument("--dir", default="")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = uvloop.run(run(options))
    if options.json:
        print(msgspec.json.encode(results).decode())
        return 0
    for each in results:
        print(_line(each))
    return 0


if __name__ == "__main__":
    sys.exit(main())
