"""Measures the storage engine alone, in-process, without HTTP: so that its cost and the server's are seen apart.

    python -m loadtest.engine --tasks 64 --batch 100

N tasks append batch after batch to one topic, each waiting for its acknowledgement, for every class of durability asked
for; then the records are read back at limit 1000. The records are made beforehand.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time

import msgspec
import uvloop

from loadtest.in_process import Clocks, Figures, add_common_options, batch_of, collect_as_the_broker_does, line
from storage import Durability, Engine, Options, ReadQuery, TopicConfig


class Result(Figures, kw_only=True):
    """Figures of the writers, and the log's state after them."""

    fsyncs: int = 0
    writes_per_group: float = 0.0


def _wal_counts(engine: Engine) -> tuple[float, float, float]:
    """(groups, writes in them, syncs) so far, of all shards."""
    stats = [shard.log.stats for shard in engine.shards]
    return sum(s.groups for s in stats), sum(s.group_size.sum for s in stats), sum(s.fsyncs for s in stats)


async def append(engine: Engine, durability: Durability, options: argparse.Namespace) -> Result:
    """`tasks` writers for `seconds`."""
    topic = f"engine-{durability}"
    await engine.put_topic(topic, TopicConfig(durability=durability))
    records = batch_of(options.batch, options.record_bytes)

    async def write(clocks: Clocks, seconds: float) -> None:
        while clocks.wall_s < seconds:
            begin = time.perf_counter()
            await engine.append(topic, records)
            clocks.latencies.append(time.perf_counter() - begin)
            clocks.records += len(records)

    async def write_all(seconds: float) -> Clocks:
        clocks = Clocks()
        await asyncio.gather(*(write(clocks, seconds) for _ in range(options.tasks)))
        return clocks

    await write_all(min(0.5, options.seconds))
    before = _wal_counts(engine)
    figures = (await write_all(options.seconds)).figures(f"append {durability} x {options.batch}", options.record_bytes)
    groups, writes, fsyncs = (after - earlier for after, earlier in zip(_wal_counts(engine), before, strict=True))
    return Result(
        **msgspec.structs.asdict(figures), fsyncs=int(fsyncs), writes_per_group=writes / groups if groups else 0.0
    )


async def read(engine: Engine, topic: str, options: argparse.Namespace, limit: int = 1000) -> Result:
    """One reader that walks through the newest records, `limit` at a time."""
    head = engine.state(topic).head_seq
    seq = first = max(0, head - 100_000)
    clocks = Clocks()
    while clocks.wall_s < min(2.0, options.seconds):
        begin = time.perf_counter()
        result = await engine.read(topic, ReadQuery(from_seq=seq, limit=limit, max_bytes=8 << 20))
        clocks.records += sum(1 for record in result.records if record.body)  # as an answer is made of them
        clocks.latencies.append(time.perf_counter() - begin)
        seq = result.next_from_seq if result.next_from_seq + limit <= head else first
    return Result(**msgspec.structs.asdict(clocks.figures(f"read at limit {limit}", options.record_bytes)))


async def run(options: argparse.Namespace) -> list[Result]:
    """All classes asked for, then a read."""
    with tempfile.TemporaryDirectory(prefix="topics-engine-", dir=options.dir or None) as folder:
        async with Engine.open(folder, Options(wal_shards=options.shards)) as engine:
            collect_as_the_broker_does()
            appends = [await append(engine, Durability(name), options) for name in options.durability]
            return [*appends, await read(engine, f"engine-{options.durability[-1]}", options)]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.engine", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=64)
    add_common_options(parser, batch=100, record_bytes=100, seconds=5.0)
    parser.add_argument("--durability", nargs="+", default=["ephemeral", "disk", "fsync"], choices=list(Durability))
    options = parser.parse_args()
    results = uvloop.run(run(options))
    if options.json:
        print(msgspec.json.encode(results).decode())
        return 0
    for each in results:
        print(f"{line(each)}   {each.fsyncs} fsyncs, {each.writes_per_group:.1f} writes a group")
    return 0


if __name__ == "__main__":
    sys.exit(main())
