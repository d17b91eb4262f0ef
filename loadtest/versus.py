"""Measures appends beside those of other servers and beside the fastest possible server, in one run.

    python -m loadtest.versus                                        all pairs, 3 rounds of 5 s a side
    python -m loadtest.versus --pairs fsync-100 --rounds 7 --save versus

Each round runs both sides of a pair one after the other, in reversed order every other round; the results are the
ratios within a round and their spread. The sides:

- broker: appends over HTTP/1.1 to one topic of class fsync or disk, with a new broker.
- redis: the same records with XADD, one stream, a number of commands at once (pipeline); its log is synced before each
  answer (always), or once a second (everysec).
- nats: the same records as messages to a JetStream with file storage, one stream, as many in flight as Redis has
  commands, each acknowledged; each synced before that (sync_interval always), or every two minutes (the default). NATS
  has no group commit.
- floor: the same requests to a server that throws them away.

The run also measures the disk's floor: how often this machine can write 4 KiB and wait until they are durable. All
sides have the same generator, one process that parses as little of an answer as possible. Its share of a core is shown:
at 1, the generator was the limit, not the server. Pairs with Redis or NATS are left out without a redis-server, or a
nats-server of 2.10 or newer.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import msgspec

from loadtest import own_nats, own_redis
from loadtest.compare import Ratio, ratio_of
from loadtest.floor import OwnFloor
from loadtest.generator import Task
from loadtest.machine import fdatasync_us
from loadtest.measure import Target, generate, measure, seen_in
from loadtest.observed import busy_s, cpu_of
from loadtest.own_broker import BrokerFailed, OwnBroker
from loadtest.own_nats import OwnNats
from loadtest.own_redis import OwnRedis
from loadtest.report import keep
from loadtest.scenario import Scenario, encoded


class Pair(NamedTuple):
    """The two sides of a comparison. `other`: always or everysec of a Redis; nats-always or nats-default; floor."""

    durability: str
    batch: int
    connections: int
    other: str
    other_connections: int

    @property
    def name(self) -> str:
        return f"{self.durability}-{self.batch}" + ("-nats" if self.needs == "nats" else "")

    @property
    def needs(self) -> str:
        """The server that must be installed: redis, nats, or "" for none."""
        return {"floor": "", "always": "redis", "everysec": "redis"}.get(self.other, "nats")


PAIRS = {
    pair.name: pair
    for pair in (
        Pair("fsync", 100, 64, "always", 16),
        Pair("disk", 100, 64, "everysec", 16),
        Pair("disk", 1000, 16, "floor", 16),
        Pair("fsync", 1, 64, "always", 64),
        Pair("fsync", 100, 64, "nats-always", 16),
        Pair("disk", 100, 64, "nats-default", 16),
        Pair("fsync", 1, 64, "nats-always", 64),
    )
}


ABSENT = {
    "redis": "There is no redis-server here",
    "nats": f"There is no nats-server of {'.'.join(map(str, own_nats.OLDEST))} or newer here",
}


class Side(msgspec.Struct, kw_only=True):
    """One side's part of a round. Processor time in µs a record; cores are of everything else on the machine."""

    side: str
    records_per_s: float
    p50_ms: float
    p99_ms: float
    server_us_per_record: float
    generator_cores: float
    other_cores: float


class Outcome(msgspec.Struct, kw_only=True):
    """All rounds of a pair, and the ratio of records a second: the broker's to the other's."""

    pair: str
    sides: list[Side]
    ratio: Ratio


def started(kind: str, parent: str) -> OwnFloor | OwnRedis | OwnNats:
    """The server of a Pair's `other`, ready."""
    if kind == "floor":
        server = OwnFloor()
    elif kind.startswith("nats-"):
        server = OwnNats(parent=parent, sync=kind.removeprefix("nats-"))
    else:
        server = OwnRedis(parent=parent, sync=kind)
    server.start()
    return server


class Rival:
    """Something else that takes the same records."""

    def __init__(self, kind: str, parent: str) -> None:
        self.kind = kind
        self._server = started(kind, parent)

    def run(self, scenario: Scenario) -> Side:
        """Both are asked by the generator of the broker; a stream is emptied beforehand."""
        server = self._server
        if isinstance(server, OwnRedis):
            server.ask([encoded(b"DEL", name.encode()) for name in scenario.topic_names], len(scenario.topic_names))
            scenario = msgspec.structs.replace(scenario, kind="redis")
        elif isinstance(server, OwnNats):
            server.make_anew(scenario.topic_names)
            scenario = msgspec.structs.replace(scenario, kind="nats")
        with generate(Task(scenario=scenario, host=server.host, port=server.port)) as generator:
            assert generator.stdout is not None
            generator.stdout.readline()
            cpu, busy = cpu_of(server.pid), busy_s()
            generator.stdout.readline()
            server_s, busy = cpu_of(server.pid).since(cpu).total_s, busy_s() - busy
            seen = seen_in(generator.stdout.readline())
        if seen.failed:
            raise RuntimeError(f"{self.kind} did not take everything: {seen.failed}")
        if not seen.requests:
            raise RuntimeError(f"{self.kind} answered nothing within the window: it takes more --seconds")
        records = seen.requests * scenario.batch
        if isinstance(server, OwnNats) and sum(map(server.count, scenario.topic_names)) < records:
            raise RuntimeError(f"{self.kind} does not have all that it acknowledged")
        return Side(
            side=self.kind,
            records_per_s=records / seen.seconds,
            p50_ms=1000 * seen.latencies.get("p50", 0.0),
            p99_ms=1000 * seen.latencies.get("p99", 0.0),
            server_us_per_record=1e6 * server_s / max(1, records),
            generator_cores=seen.cpu_s / seen.seconds,
            other_cores=max(0.0, busy - server_s - seen.cpu_s) / seen.seconds,
        )

    def close(self) -> None:
        self._server.close()


def run_broker(scenario: Scenario, parent: str) -> Side:
    """Measure a new broker, so that no side is slowed down by the data of another."""
    own = OwnBroker(parent=parent)
    try:
        own.start()
        found = measure(Target(host=own.host, port=own.port, own=own), scenario)
    finally:
        own.close()
    if found.failed:
        raise RuntimeError(f"the broker did not take everything: {found.failed}")
    return Side(
        side="broker",
        records_per_s=found.records_per_s,
        p50_ms=found.latency_ms.get("p50", 0.0),
        p99_ms=found.latency_ms.get("p99", 0.0),
        server_us_per_record=found.cpu_us_per_record,
        generator_cores=found.generator_cores,
        other_cores=found.other_cores,
    )


def compare(pair: Pair, rounds: int, seconds: float, parent: str) -> Outcome:
    """Run all rounds of both sides."""
    ours = Scenario(
        connections=pair.connections, seconds=seconds, batch=pair.batch, durability=pair.durability, seqs=False
    )
    theirs = msgspec.structs.replace(ours, connections=pair.other_connections)
    rival = Rival(pair.other, parent)
    both: list[Callable[[], Side]] = [lambda: run_broker(ours, parent), lambda: rival.run(theirs)]
    sides: list[Side] = []
    try:
        for number in range(rounds):
            found = [each() for each in (reversed(both) if number % 2 else both)]
            sides += reversed(found) if number % 2 else found
    finally:
        rival.close()
    pairs = [(b.records_per_s, a.records_per_s) for a, b in zip(sides[::2], sides[1::2], strict=True)]
    return Outcome(pair=pair.name, sides=sides, ratio=ratio_of("records/s", pairs))


def lines(outcome: Outcome) -> list[str]:
    """Medians of each side, then the ratio."""
    shown: list[str] = []
    for sides in (outcome.sides[::2], outcome.sides[1::2]):

        def mid(name: str, sides: list[Side] = sides) -> float:
            return median(getattr(side, name) for side in sides)

        shown.append(
            f"{outcome.pair:14} {sides[0].side:12} {mid('records_per_s'):12,.0f} records/s"
            f"   p50 {mid('p50_ms'):7.2f}  p99 {mid('p99_ms'):7.2f} ms   {mid('server_us_per_record'):7.2f} µs/record"
            f"   cores: generator {mid('generator_cores'):4.2f}, others {mid('other_cores'):4.2f}"
        )
    each = outcome.ratio
    shown.append(f"{outcome.pair:14} x {each.ratio:.2f}   (from {each.lowest:.2f} to {each.highest:.2f})")
    return shown


def main(arguments: list[str] | None = None) -> int:
    """0; 1 when the broker failed."""
    options = _parser().parse_args(arguments)
    wanted = [PAIRS[name] for name in options.pairs]
    for server, is_there in (("redis", own_redis.is_there()), ("nats", own_nats.is_there())):
        if not is_there and any(pair.needs == server for pair in wanted):
            print(f"{ABSENT[server]}: its pairs are left out.", file=sys.stderr)
            wanted = [pair for pair in wanted if pair.needs != server]
    outcomes: list[Outcome] = []
    try:
        for pair in wanted:
            outcomes.append(compare(pair, options.rounds, options.seconds, options.dir))
            print("\n".join(lines(outcomes[-1])), flush=True)
    except BrokerFailed as error:
        print(error, file=sys.stderr)
        return 1
    print(f"disk: 4 KiB are written and durable in {fdatasync_us(4096, options.dir):.0f} µs (median)")
    if options.save:
        command = shlex.join(["python", "-m", "loadtest.versus", *(arguments or sys.argv[1:])])
        print(f"kept in {keep(options.save, command, outcomes)}", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.versus", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--pairs", nargs="+", choices=[*PAIRS], default=[*PAIRS])
    add("--rounds", type=int, default=3)
    add("--seconds", type=float, default=5.0, help="length of a measured window")
    add("--dir", default="", help="where the data directories are made (default: the temporary directory)")
    add("--save", default="", metavar="NAME", help="keep the outcome in loadtest/results/NAME.json")
    return parser


if __name__ == "__main__":
    sys.exit(main())
