"""Measures queues: claim and ack cycles a second, beside Redis Streams.

    python -m loadtest.queue                             1 and 16 connections, 1 and 100 jobs a call, 5 rounds
    python -m loadtest.queue --connections 16 --batch 100 --rounds 9 --json loadtest/results/queue.json

A queue of class fsync is filled, then worked off: every connection claims a number of jobs (--batch), acks them in one
call, and repeats. Redis does the same with XREADGROUP COUNT and XACK, its log synced before each answer. Every round
runs all sides one after the other, in a different order each round; the results are the ratios within a round and their
spread.

How the sides compare:

- leases-durable corresponds to Redis: XREADGROUP writes the delivered entries to its log, so Redis knows after a
  restart who holds which job. leases-in-memory syncs acks only; a crash of the broker delivers all un-acked jobs again.
- An ack of the broker removes the job for good. XACK alone (redis-xack) leaves the job in the stream, which grows until
  somebody trims it. redis-xack-xdel sends XDEL along with XACK, which corresponds to an ack.
- Acks to the broker carry the lease's tokens, so that a slow worker cannot ack a job that another worker has by now.
  Redis has no such check: XACK takes the job from whoever holds it.

Without a redis-server the broker is measured alone.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from itertools import product
from pathlib import Path
from statistics import median

import msgspec

from loadtest.compare import Ratio, ratio_of
from loadtest.measure import client
from loadtest.observed import busy_s, cpu_of
from loadtest.own_broker import BrokerFailed, OwnBroker, add_set, ask
from loadtest.own_redis import OwnRedis, is_there
from loadtest.queue_client import QueueLoadResult, Task
from loadtest.report import keep
from loadtest.scenario import append_body, encoded, numbered, record

_FILL_BATCH = 1000
_MOST_JOBS = 60_000
_JOBS_FOR_ONE = 4000
BROKER_SIDES = ("leases-in-memory", "leases-durable")
REDIS_SIDES = ("redis-xack", "redis-xack-xdel")


class Leg(msgspec.Struct, kw_only=True):
    """One side's part of a round. Processor time in µs per job; `cores`: processors that other programs used."""

    side: str
    connections: int
    batch: int
    cycles_per_s: float
    jobs_per_s: float
    p50_ms: float
    p99_ms: float
    server_us_per_job: float
    client_us_per_job: float
    other_cores: float


class Compared(msgspec.Struct, kw_only=True):
    """All rounds with one number of connections and jobs per call. `ratios`: jobs a second, the broker's to Redis's, by
    "side / side".
    """

    connections: int
    batch: int
    legs: list[Leg]
    ratios: dict[str, Ratio]


class Bench:
    """A broker and a Redis that live for the whole measurement, and a queue in one of them at a time."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._broker = OwnBroker(tree=options.tree, settings=dict(options.set), parent=options.dir)
        self._redis = OwnRedis(parent=options.dir) if is_there() else None
        there = (*BROKER_SIDES, *(REDIS_SIDES if self._redis is not None else ()))
        self.sides = tuple(side for side in there if side in options.sides)

    def start(self) -> None:
        self._broker.start()
        if self._redis is not None:
            self._redis.start()

    def close(self) -> None:
        self._broker.close()
        if self._redis is not None:
            self._redis.close()

    def leg(self, side: str, connections: int, batch: int, *, short: bool = False) -> Leg:
        """Fill a queue, work it off, remove it. `short`: one of no more jobs than a queue has unless told otherwise."""
        options = self._options
        task = Task(
            kind="redis" if side in REDIS_SIDES else "topics",
            host=self._broker.host,
            port=self._broker.port,
            queue=f"jobs-{side}",
            connections=connections,
            batch=batch,
            jobs=min(filter(None, (options.jobs, jobs_of(batch)))) if short else options.jobs or jobs_of(batch),
            tokens=not options.no_tokens,
            delete=side == "redis-xack-xdel",
        )
        if side in REDIS_SIDES:
            assert self._redis is not None
            task.port = self._redis.port
            fill_redis(self._redis, task, options.record_bytes)
            seen, server_s, other_s = _work_off(task, self._redis.pid)
            self._redis.ask([encoded(b"DEL", task.queue.encode())], 1)
        else:
            self._fill_broker(task, durable=side == "leases-durable")
            seen, server_s, other_s = _work_off(task, self._broker.pid)
            self._expect("DELETE", f"/v0/topics/{task.queue}")
        return Leg(
            side=side,
            connections=connections,
            batch=batch,
            cycles_per_s=seen.cycles / seen.seconds,
            jobs_per_s=seen.jobs / seen.seconds,
            p50_ms=seen.p50_ms,
            p99_ms=seen.p99_ms,
            server_us_per_job=1e6 * server_s / seen.jobs,
            client_us_per_job=1e6 * seen.cpu_s / seen.jobs,
            other_cores=max(0.0, other_s) / seen.seconds,
        )

    def _fill_broker(self, task: Task, *, durable: bool) -> None:
        config = {"type": "queue", "durability": "fsync", "leases_durable": durable}
        self._expect("PUT", f"/v0/topics/{task.queue}", msgspec.json.encode(config))
        body = numbered(append_body(_FILL_BATCH, self._options.record_bytes), 0)
        for _ in range(0, task.jobs, _FILL_BATCH):
            self._expect("POST", f"/v0/topics/{task.queue}?return_seqs=false", body)

    def _expect(self, method: str, path: str, body: bytes = b"") -> None:
        status, answer = ask(self._broker.host, self._broker.port, method, path, body)
        if not 200 <= status < 300:
            raise RuntimeError(f"{method} {path} was answered {status}: {answer[:300]!r}")


def jobs_of(batch: int) -> int:
    """Jobs a queue is filled with unless told otherwise, whole thousands: where few go at a time it takes long."""
    return min(_MOST_JOBS, _JOBS_FOR_ONE * batch)


def fill_redis(redis: OwnRedis, task: Task, record_bytes: int) -> None:
    """A stream with as many entries of the same bytes, and a group that has read none."""
    stream = task.queue.encode()
    add = encoded(b"XADD", stream, b"*", b"d", numbered(record(record_bytes, 0), 0))
    for _ in range(0, task.jobs, _FILL_BATCH):
        redis.ask([add] * _FILL_BATCH, _FILL_BATCH)
    redis.ask([encoded(b"XGROUP", b"CREATE", stream, b"workers", b"0")], 1)


def _work_off(task: Task, pid: int) -> tuple[QueueLoadResult, float, float]:
    """The client's result; processor seconds of the server, and of all processes but server and client."""
    with client("loadtest.queue_client", task) as under_way:
        assert under_way.stdout is not None
        under_way.stdout.readline()
        server, busy = cpu_of(pid), busy_s()
        under_way.stdout.readline()
        server_s, busy = cpu_of(pid).since(server).total_s, busy_s() - busy
        last = under_way.stdout.readline()
    if not last:
        raise RuntimeError("the client failed; see above")
    seen = msgspec.json.decode(last, type=QueueLoadResult)
    return seen, server_s, busy - server_s - seen.cpu_s


def compare(bench: Bench, connections: int, batch: int, rounds: int) -> Compared:
    """All sides in every round, each round beginning with the next of them. One round before is thrown away."""
    legs: list[Leg] = []
    by_round: list[dict[str, float]] = []
    for number in range(-1, rounds):
        turn = max(0, number) % len(bench.sides)
        found: list[Leg] = []
        for side in (*bench.sides[turn:], *bench.sides[:turn]):
            found.append(bench.leg(side, connections, batch, short=number < 0))
            print(_progress(number, rounds, found[-1]), file=sys.stderr, flush=True)
        if number >= 0:
            legs += found
            by_round.append({leg.side: leg.jobs_per_s for leg in found})
    ratios = {
        f"{own} / {other}": ratio_of("jobs/s", [(each[other], each[own]) for each in by_round])
        for own in bench.sides
        if own in BROKER_SIDES
        for other in bench.sides
        if other in REDIS_SIDES
    }
    return Compared(connections=connections, batch=batch, legs=legs, ratios=ratios)


def _progress(number: int, rounds: int, leg: Leg) -> str:
    which = f"round {number + 1} of {rounds}" if number >= 0 else "to warm up"
    return f"{leg.connections:3} connections  {leg.batch:4} a call  {which}: {leg.side} {leg.jobs_per_s:,.0f} jobs/s"


def lines(compared: Compared) -> list[str]:
    """Medians of each side, then the ratios."""
    shown: list[str] = []
    title = f"{compared.connections:3} connections  {compared.batch:4} a call "
    for side in dict.fromkeys(leg.side for leg in compared.legs):
        legs = [leg for leg in compared.legs if leg.side == side]

        def mid(name: str, legs: list[Leg] = legs) -> float:
            return median(getattr(leg, name) for leg in legs)

        shown.append(
            f"{title} {side:17} {mid('cycles_per_s'):7,.0f} cycles/s"
            f" {mid('jobs_per_s'):10,.0f} jobs/s   cycle p50 {mid('p50_ms'):6.2f} p99 {mid('p99_ms'):6.2f} ms"
            f"   µs/job: server {mid('server_us_per_job'):5.2f}, client {mid('client_us_per_job'):5.2f}"
            f"   other cores {mid('other_cores'):4.2f}"
        )
    for name, each in compared.ratios.items():
        shown.append(f"{title} {name:36} x {each.ratio:.2f}   (from {each.lowest:.2f} to {each.highest:.2f})")
    return shown


def main(arguments: list[str] | None = None) -> int:
    """0; 1 when the broker failed."""
    options = _parser().parse_args(arguments)
    if not is_there():
        print("There is no redis-server here: the broker is measured alone.", file=sys.stderr)
    bench = Bench(options)
    results: list[Compared] = []
    try:
        bench.start()
        for connections, batch in product(options.connections, options.batch):
            results.append(compare(bench, connections, batch, options.rounds))
            print("\n".join(lines(results[-1])), flush=True)
    except BrokerFailed as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        bench.close()
    if options.json:
        command = shlex.join(["python", "-m", "loadtest.queue", *(arguments or sys.argv[1:])])
        print(f"kept in {keep(options.json.stem, command, results, options.json.parent)}", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.queue", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--connections", type=int, nargs="+", default=[1, 16])
    add("--batch", type=int, nargs="+", default=[1, 100], help="jobs a call")
    add("--jobs", type=int, default=0, help="jobs a queue is filled with; whole thousands (default: by --batch)")
    add("--record-bytes", type=int, default=100, help="size of the data of a job")
    sides = (*BROKER_SIDES, *REDIS_SIDES)
    add("--sides", nargs="+", default=sides, choices=sides, metavar="SIDE", help=f"of {', '.join(sides)} (all)")
    add("--rounds", type=int, default=5)
    add("--no-tokens", action="store_true", help="acks without lease_ids")
    add("--tree", type=Path, default=None, help="folder whose broker package is run (default: this checkout)")
    add_set(parser)
    add("--dir", default="", help="where the data directories are made (default: the temporary directory)")
    add("--json", type=Path, default=None, metavar="PATH", help="keep the outcome there, ending in .json")
    return parser


if __name__ == "__main__":
    sys.exit(main())
