"""Measures loads with a cap, a ttl, deletions or dead letters: are they as fast as without?

    python -m loadtest.steady                                  all cases
    python -m loadtest.steady cap-records dead-letters --seconds 16 --rounds 3
    python -m loadtest.steady --least 0.8                      1 when a case falls short

Each case has two topics on one broker, one with the setting and one without, and writes to them in turn; the ratios
within a round are the result, because other users of the machine affect both. The topic with the setting is filled
beforehand, so that its whole window lies beyond the cap. No window begins before the records of the previous one are in
segments, else it would pay for them too. The order changes with each round.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from loadtest.generator import Task
from loadtest.measure import generate, seen_in
from loadtest.observed import counters, cpu_of
from loadtest.own_broker import BrokerFailed, OwnBroker, add_set, ask
from loadtest.scenario import PRELOAD_BATCH, Scenario, append_body, numbered, tag

_T = TypeVar("_T")
_PLAIN, _BEHIND = 0, 1
_RECORD_BYTES = 100
_DELETED_EVERY_S, _KEPT_RECORDS = 0.2, 200_000
_CAUGHT_UP_WITHIN_S = 120.0
_FLUSHED_LOOK_S = 1.0


class Case(NamedTuple):
    """`config`: of the topic, in addition to its class. `fill`: records in it before the window begins. `routers`:
    number of routers from it, each filtering for its tag; records have these tags also without routers.
    """

    config: dict[str, Any]
    fill: int = 0
    batch: int = 100
    deletes: bool = False
    routers: int = 0


CASES = {
    # So large that the floor is in segments, as it is behind any cap that is written to for long.
    "cap-records": Case({"cap_records": 2_000_000}, fill=2_100_000),
    "cap-bytes": Case({"cap_bytes": 150_000_000}, fill=1_600_000),
    "cap-queue": Case({"cap_records": 1_000_000, "type": "queue"}, fill=1_100_000),
    # The floor is still in the log's tail.
    "cap-small-writes": Case({"cap_records": 200_000}, fill=300_000, batch=1),
    "ttl": Case({"ttl_ms": 2000}),
    "deletes": Case({}, fill=300_000, deletes=True),
    "fan-out": Case({}, routers=20),
}
DEAD_LETTERS = "dead-letters"


class Window(msgspec.Struct, frozen=True):
    """The figures of one topic in one window."""

    records_per_s: float
    p99_ms: float
    loop_us_per_record: float
    cpu_us_per_record: float
    failed: int
    #: How far behind the router is that is furthest behind, as the window ends.
    lag: int = 0


class Round(msgspec.Struct, frozen=True):
    """The same load without the setting and with it."""

    plain: Window
    behind: Window

    @property
    def pace(self) -> float:
        return self.behind.records_per_s / max(1e-9, self.plain.records_per_s)

    @property
    def p99(self) -> float:
        return self.behind.p99_ms / max(1e-9, self.plain.p99_ms)

    @property
    def loop(self) -> float:
        return self.behind.loop_us_per_record / max(1e-9, self.plain.loop_us_per_record)

    @property
    def cpu(self) -> float:
        return self.behind.cpu_us_per_record / max(1e-9, self.plain.cpu_us_per_record)


class Moved(msgspec.Struct, frozen=True):
    """Jobs a second: claimed and given up; from there to the dead letter topic; back again, and the longest request.
    µs of the event loop a job: from the first claim to the dead letter topic; back again."""

    given_up: float
    dead_lettered: float
    redriven: float
    longest_redrive_s: float
    dead_loop_us: float
    redrive_loop_us: float


def main(arguments: list[str] | None = None) -> int:
    given = parser()
    options = given.parse_args(arguments)
    names: list[str] = options.cases or [*CASES, DEAD_LETTERS]
    if unknown := [name for name in names if name not in CASES and name != DEAD_LETTERS]:
        given.error(f"no case {unknown[0]!r}: {', '.join([*CASES, DEAD_LETTERS])}")
    try:
        fell_short = False
        for name in names:
            if name == DEAD_LETTERS:
                print(_told_of_moves(_with_broker(options, lambda own: dead_letters(own, options.jobs))), flush=True)
                continue
            rounds = _with_broker(options, lambda own, case=CASES[name]: alternate(own, case, options))
            print(told(name, rounds), flush=True)
            fell_short = fell_short or statistics.median(each.pace for each in rounds) < options.least
    except BrokerFailed as error:
        print(error, file=sys.stderr)
        return 1
    return int(fell_short)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m loadtest.steady", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = made.add_argument
    add("cases", nargs="*", metavar="CASE", help=f"{', '.join([*CASES, DEAD_LETTERS])} (default: all)")
    add("--connections", type=int, default=64)
    add("--seconds", type=float, default=8.0, help="of each window")
    add("--rounds", type=int, default=3)
    add("--durability", choices=["ephemeral", "memory", "disk", "fsync"], default="disk")
    add("--jobs", type=int, default=100_000, help="that die at once")
    add(
        "--least",
        type=float,
        default=0.0,
        help="fail when the pace behind a setting is less than this part of that without",
    )
    add("--tree", type=Path, default=None, help="a checkout whose broker is run (default: this one)")
    add("--dir", default="", help="where the data directory is made (default: the temporary directory)")
    add_set(made)
    return made


def _with_broker(options: argparse.Namespace, work: Callable[[OwnBroker], _T]) -> _T:
    own = OwnBroker(parent=options.dir, settings=dict(options.set), tree=options.tree)
    try:
        own.start()
        return work(own)
    finally:
        own.close()


def alternate(own: OwnBroker, case: Case, options: argparse.Namespace) -> list[Round]:
    """The rounds of a case."""
    scenario = Scenario(
        connections=options.connections,
        seconds=options.seconds,
        warmup_s=0.5,
        batch=case.batch,
        durability=options.durability,
        record_bytes=_RECORD_BYTES,
        seqs=False,
        tags=case.routers,
    )
    plain = {name: value for name, value in case.config.items() if name == "type"}
    for topic, config in ((_PLAIN, plain), (_BEHIND, case.config)):
        _put(own, f"load-{topic}", {"durability": options.durability, **config})
    _fill(own, f"load-{_BEHIND}", case.fill)
    _route(own, f"load-{_BEHIND}", case.routers, options.durability)
    rounds: list[Round] = []
    for number in range(options.rounds):
        _expect(own, "DELETE", f"/v0/topics/load-{_PLAIN}")  # else it grows without end, as the other does not
        _put(own, f"load-{_PLAIN}", {"durability": options.durability, **plain})
        _fill(own, f"load-{_PLAIN}", case.fill)
        windows: dict[int, Window] = {}
        for topic in (_PLAIN, _BEHIND) if number % 2 == 0 else (_BEHIND, _PLAIN):
            _flushed(own)
            windows[topic] = _window(own, scenario, topic, deletes=case.deletes and topic == _BEHIND)
            _caught_up(own)
        rounds.append(Round(windows[_PLAIN], windows[_BEHIND]))
    return rounds


def _window(own: OwnBroker, scenario: Scenario, topic: int, *, deletes: bool) -> Window:
    task = Task(scenario=msgspec.structs.replace(scenario, first_topic=topic), host=own.host, port=own.port, ledger="")
    with _Deletions(own, f"load-{topic}") if deletes else nullcontext(), generate(task) as generator:
        assert generator.stdout is not None
        generator.stdout.readline()
        before = cpu_of(own.pid)
        generator.stdout.readline()
        cpu = cpu_of(own.pid).since(before)
        lag = _lag(own)
        seen = seen_in(generator.stdout.readline())
    records = seen.requests * scenario.batch
    return Window(
        records_per_s=records / seen.seconds,
        p99_ms=1000 * seen.latencies.get("p99", 0.0),
        loop_us_per_record=1e6 * cpu.main_s / max(1, records),
        cpu_us_per_record=1e6 * cpu.total_s / max(1, records),
        failed=sum(seen.failed.values()),
        lag=lag,
    )


class _Deletions:
    """Deletes all but the newest records again and again during the load."""

    def __init__(self, own: OwnBroker, topic: str) -> None:
        self._own, self._topic = own, topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_DELETED_EVERY_S):
            head: int = msgspec.json.decode(_expect(self._own, "GET", f"/v0/topics/{self._topic}"))["head_seq"]
            body = msgspec.json.encode({"before_seq": max(1, head - _KEPT_RECORDS)})
            _expect(self._own, "POST", f"/v0/topics/{self._topic}/delete", body)


def dead_letters(own: OwnBroker, jobs: int) -> Moved:
    """A number of jobs die, 1000 a claim, and are redriven."""
    _put(own, "load-0", {"type": "queue", "durability": "disk", "max_deliveries": 1, "dead_letter": "dead"})
    _fill(own, "load-0", jobs)
    began, cpu = time.monotonic(), cpu_of(own.pid)
    for _ in range(0, jobs, PRELOAD_BATCH):
        claimed = msgspec.json.decode(
            _expect(own, "POST", "/v0/topics/load-0/claim", b'{"node":"load","max":%d}' % PRELOAD_BATCH)
        )
        seqs = [each["$seq"] for each in claimed["claimed"]]
        _expect(own, "POST", "/v0/topics/load-0/nack", msgspec.json.encode({"node": "load", "seqs": seqs}))
    given_up = time.monotonic()
    while (moved := counters(own.host, own.port)["topics_dead_lettered_total"]) < jobs:
        if time.monotonic() - given_up > 300:
            raise BrokerFailed(f"{DEAD_LETTERS}: {moved:,.0f} of {jobs:,} were moved in 5 minutes")
        time.sleep(0.05)
    dead, cpu_then = time.monotonic(), cpu_of(own.pid)
    longest, left = 0.0, jobs
    while left:
        at = time.monotonic()
        answer = msgspec.json.decode(_expect(own, "POST", "/v0/topics/load-0/redrive", b'{"max":10000}'))
        longest = max(longest, time.monotonic() - at)
        left -= answer["moved"]
        if not answer["moved"]:
            raise BrokerFailed(f"{DEAD_LETTERS}: {left:,} were not redriven")
    back, cpu_at_last = time.monotonic(), cpu_of(own.pid)
    return Moved(
        given_up=jobs / (given_up - began),
        dead_lettered=jobs / (dead - began),
        redriven=jobs / (back - dead),
        longest_redrive_s=longest,
        dead_loop_us=1e6 * cpu_then.since(cpu).main_s / jobs,
        redrive_loop_us=1e6 * cpu_at_last.since(cpu_then).main_s / jobs,
    )


def told(name: str, rounds: list[Round]) -> str:
    """A line: the median of the ratios, and their range; then the figures."""
    paces = [each.pace for each in rounds]
    behind = statistics.median(each.behind.records_per_s for each in rounds)
    plain = statistics.median(each.plain.records_per_s for each in rounds)
    failed = sum(each.behind.failed + each.plain.failed for each in rounds)
    lag = max(each.behind.lag for each in rounds)
    return (
        f"{name}: x {statistics.median(paces):.2f} ({min(paces):.2f} to {max(paces):.2f}) of the pace without it"
        f" ({behind:,.0f} of {plain:,.0f} records/s); p99 x {statistics.median(each.p99 for each in rounds):.2f};"
        f" loop x {statistics.median(each.loop for each in rounds):.2f} a record"
        f" ({statistics.median(each.behind.loop_us_per_record for each in rounds):.1f} µs),"
        f" all its threads and processes x {statistics.median(each.cpu for each in rounds):.2f}"
        + (f"; routers are up to {lag:,} records behind as a window ends" if lag else "")
        + (f"; {failed:,} requests were refused" if failed else "")
    )


def _told_of_moves(moved: Moved) -> str:
    return (
        f"{DEAD_LETTERS}: {moved.given_up:,.0f} jobs/s claimed and given up, {moved.dead_lettered:,.0f}/s of them dead"
        f" lettered from the first claim on (loop {moved.dead_loop_us:.1f} µs a job); {moved.redriven:,.0f}/s redriven"
        f" ({moved.redrive_loop_us:.1f} µs), the longest request {moved.longest_redrive_s:.2f} s"
    )


def _put(own: OwnBroker, topic: str, config: dict[str, Any]) -> None:
    _expect(own, "PUT", f"/v0/topics/{topic}", msgspec.json.encode(config))


def _route(own: OwnBroker, source: str, routers: int, durability: str) -> None:
    for number in range(routers):
        dest = f"{source}-{tag(number)}"
        _put(own, dest, {"durability": durability})
        router = {"source": source, "dest": dest, "filter": ["tag", "Eq", tag(number)]}
        _expect(own, "PUT", f"/v0/routers/to-{dest}", msgspec.json.encode(router))


def _lag(own: OwnBroker) -> int:
    """The largest lag of all routers."""
    routers = msgspec.json.decode(_expect(own, "GET", "/v0/routers?limit=1000"))["routers"]
    return max([each["lag"] for each in routers], default=0)


def _caught_up(own: OwnBroker) -> None:
    deadline = time.monotonic() + _CAUGHT_UP_WITHIN_S
    while lag := _lag(own):
        if time.monotonic() > deadline:
            raise BrokerFailed(f"the routers are {lag:,} records behind after {_CAUGHT_UP_WITHIN_S:.0f} s")
        time.sleep(0.05)


def _flushed(own: OwnBroker) -> None:
    """Wait until no more records are moved to segments: a small number of records is not flushed at once."""
    deadline, before = time.monotonic() + _CAUGHT_UP_WITHIN_S, float("inf")
    while (left := counters(own.host, own.port)["topics_unflushed_records"]) < before:
        if time.monotonic() > deadline:
            raise BrokerFailed(f"{left:,.0f} records are not in segments after {_CAUGHT_UP_WITHIN_S:.0f} s")
        before = left
        time.sleep(_FLUSHED_LOOK_S)


def _fill(own: OwnBroker, topic: str, records: int) -> None:
    body = numbered(append_body(PRELOAD_BATCH, _RECORD_BYTES), 0)
    for _ in range(0, records, PRELOAD_BATCH):
        _expect(own, "POST", f"/v0/topics/{topic}?return_seqs=false", body)


def _expect(own: OwnBroker, method: str, path: str, body: bytes = b"") -> bytes:
    status, answer = ask(own.host, own.port, method, path, body)
    if not 200 <= status < 300:
        raise BrokerFailed(f"{method} {path} was answered {status}: {answer[:300]!r}")
    return answer


if __name__ == "__main__":
    sys.exit(main())
