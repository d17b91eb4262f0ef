"""Measures one source with many filtered routers, in the process: what writing costs, what carrying over costs.

    python -m loadtest.fanout                       20 routers, batches of 100 tagged records by 16 writers, class disk
    python -m loadtest.fanout --routers 20 --writers 64 --meta --rounds 3

Each round has three phases: writers alone, with routers that do not hear of it; routers alone, which catch up with what
was written; and both at the same time, until the routers have caught up. "Source records/s" counts records of the
source, whichever router they are for. In the end the destinations are counted: a record that is lost or doubled makes
no figure.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time

import msgspec
import uvloop

from loadtest.in_process import Clocks, add_common_options, collect_as_the_broker_does
from loadtest.scenario import record, tag
from storage import Durability, Engine, NewRecord, Options, TopicConfig
from storage.state.routers import Definition

_CAUGHT_UP_WITHIN_S = 120.0


class Round(msgspec.Struct, frozen=True):
    """Source records a second, and µs of the event loop a source record; `lag` is the most that was seen."""

    written_per_s: float
    write_loop_us: float
    forwarded_per_s: float
    forward_loop_us: float
    together_per_s: float
    together_loop_us: float
    lag: int


class FanOut:
    """One source, its routers, and the batches that are written to it."""

    def __init__(self, engine: Engine, name: str, options: argparse.Namespace) -> None:
        self.engine = engine
        self.name = name
        self.options = options
        self.written = 0
        meta = msgspec.Raw(b'{"source":"load"}') if options.meta else None
        self.batch = [
            NewRecord(
                msgspec.Raw(record(options.record_bytes, number)),
                meta=meta,
                tag=tag(number % options.routers),
            )
            for number in range(options.batch)
        ]

    async def begin(self) -> None:
        await self.engine.put_topic(self.name, TopicConfig(durability=Durability(self.options.durability)))

    async def make_routers(self) -> None:
        for number in range(self.options.routers):
            dest = f"{self.name}-{number}"
            await self.engine.put_topic(dest, TopicConfig(durability=Durability(self.options.durability)))
            match = ["tag", "Eq", tag(number)]
            definition = Definition(source=self.name, dest=dest, filter=match)
            await self.engine.routers.put(f"to-{dest}", definition)

    async def write(self, seconds: float, most: int = 1 << 62) -> Clocks:
        clocks = Clocks()

        async def writer() -> None:
            while clocks.wall_s < seconds and clocks.records < most:
                await self.engine.append(self.name, self.batch)
                clocks.records += len(self.batch)

        await asyncio.gather(*(writer() for _ in range(self.options.writers)))
        self.written += clocks.records
        return clocks

    @property
    def lag(self) -> int:
        return max(self.engine.routers.state(f"to-{self.name}-{n}").lag for n in range(self.options.routers))

    async def caught_up(self) -> None:
        deadline = time.monotonic() + _CAUGHT_UP_WITHIN_S
        while self.lag:
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.lag:,} records behind after {_CAUGHT_UP_WITHIN_S:.0f} s")
            await asyncio.sleep(0.005)

    def check(self) -> None:
        for number in range(self.options.routers):
            fitting = sum(each.tag == tag(number) for each in self.batch)
            wanted = self.written // len(self.batch) * fitting
            count = self.engine.state(f"{self.name}-{number}").count
            if count != wanted:
                raise SystemExit(f"{self.name}-{number} has {count:,} records, not {wanted:,}")


async def one_round(engine: Engine, number: int, options: argparse.Namespace) -> Round:
    apart = FanOut(engine, f"apart-{number}", options)
    await apart.begin()
    await apart.make_routers()
    publisher, carry_on = engine.publisher, engine.publisher.on_routed
    assert carry_on is not None
    publisher.on_routed = None  # the routers hear of nothing
    alone = (await apart.write(options.seconds)).figures("", options.record_bytes)
    publisher.on_routed = carry_on
    clocks = Clocks()
    carry_on(engine.topic(apart.name).log)
    await apart.caught_up()
    clocks.records = apart.written
    forwarding = clocks.figures("", options.record_bytes)
    apart.check()
    both = FanOut(engine, f"both-{number}", options)
    await both.begin()
    await both.make_routers()
    clocks = Clocks()
    lag = 0
    writing = asyncio.ensure_future(both.write(options.seconds))
    while not writing.done():
        await asyncio.sleep(0.1)
        lag = max(lag, both.lag)
    await writing
    await both.caught_up()
    clocks.records = both.written
    together = clocks.figures("", options.record_bytes)
    both.check()
    for name in [*engine.catalog.topics]:
        await engine.delete_topic(name)
    return Round(
        written_per_s=alone.records_per_s,
        write_loop_us=alone.loop_us_per_record,
        forwarded_per_s=forwarding.records_per_s,
        forward_loop_us=forwarding.loop_us_per_record,
        together_per_s=together.records_per_s,
        together_loop_us=together.loop_us_per_record,
        lag=lag,
    )


async def run(options: argparse.Namespace) -> list[Round]:
    with tempfile.TemporaryDirectory(prefix="topics-fanout-", dir=options.dir or None) as folder:
        async with Engine.open(folder, Options(wal_shards=options.shards)) as engine:
            collect_as_the_broker_does()
            return [await one_round(engine, number, options) for number in range(options.rounds)]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.fanout", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser, batch=100, record_bytes=100, seconds=3.0)
    parser.add_argument("--routers", type=int, default=20)
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--meta", action="store_true", help="every record has a meta")
    parser.add_argument("--durability", default="disk", choices=["memory", "disk", "fsync"])
    options = parser.parse_args()
    rounds = uvloop.run(run(options))
    if options.json:
        print(msgspec.json.encode(rounds).decode())
        return 0
    for phase, what in (("write", "written alone"), ("forward", "forwarded alone"), ("together", "both together")):
        rate = {"write": "written_per_s", "forward": "forwarded_per_s", "together": "together_per_s"}[phase]
        paces = [getattr(each, rate) for each in rounds]
        loops = [getattr(each, f"{phase}_loop_us") for each in rounds]
        print(
            f"{what:16} {statistics.median(paces):9,.0f} source records/s ({min(paces):,.0f} to {max(paces):,.0f}),"
            f" loop {statistics.median(loops):.2f} µs a source record ({min(loops):.2f} to {max(loops):.2f})"
        )
    print(f"most lag         {max(each.lag for each in rounds):9,} records")
    return 0


if __name__ == "__main__":
    sys.exit(main())
