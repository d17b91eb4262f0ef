"""Measures a router: records a second from an append until they can be read in the destination.

    python -m loadtest.router                                      batches of 100 by 16 connections, class disk, 5 s
    python -m loadtest.router --batch 1000 --durability fsync
    python -m loadtest.router --rate 100                           open loop: does it keep up with so many?

One load appends to a topic, and a router copies all records to another one. The output is the rate of copies during the
load, the router's lag at its end (in records), the time it took to catch up, and the rate of the whole path: copies
from the beginning of the window until the last written record can be read, over that time. A copy counts when the
broker reports it as forwarded, that is, when it is committed in the destination. At the end the destination is read: a
run that has lost or doubled a record gives no figure.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time

import msgspec

from loadtest.generator import Task
from loadtest.measure import Target, generate, prepare, seen_in
from loadtest.observed import busy_s, cpu_of
from loadtest.own_broker import BrokerFailed, OwnBroker, add_set, ask
from loadtest.report import keep
from loadtest.scenario import Scenario

_ROUTER = "/v0/routers/copies"
_DEST = "load-copies"
_CAUGHT_UP_WITHIN_S = 120.0
_AGAIN_S = 0.01


class State(msgspec.Struct):
    """The broker's report about the router; `lag` in seqs of the source."""

    lag: int
    forwarded_total: int


class Topic(msgspec.Struct):
    """The broker's report about a topic."""

    count: int
    head_seq: int


class Diff(msgspec.Struct):
    """The answer to a read."""

    records: list[msgspec.Raw]


class Outcome(msgspec.Struct, kw_only=True):
    """Rates per second: of the load and of the copies within the window, and of the copies over window and catching up
    together. Processor time in µs per copy: all of the broker's, including the appends. `lag_peak`: the larger lag of
    those at the window's beginning and end.
    """

    scenario: Scenario
    appended_per_s: float
    forwarded_per_s: float
    readable_per_s: float
    lag: int
    lag_peak: int
    caught_up_s: float
    records: int
    append_p50_ms: float
    append_p99_ms: float
    cpu_us_per_copy: float
    generator_cores: float
    other_cores: float


def run(scenario: Scenario, *, settings: dict[str, str] | None = None, parent: str = "") -> Outcome:
    """One load through one router. Raises BrokerFailed when the router does not catch up or the copies are wrong."""
    own = OwnBroker(settings=settings, parent=parent)
    try:
        own.start()
        target = Target(host=own.host, port=own.port, own=own)
        prepare(target, scenario)
        made = {"source": scenario.topic_names[0], "dest": _DEST}
        _ask(own, "PUT", f"/v0/topics/{_DEST}", {"durability": scenario.durability})
        _ask(own, "PUT", _ROUTER, made)
        return _measure(own, scenario)
    finally:
        own.close()


def _measure(own: OwnBroker, scenario: Scenario) -> Outcome:
    with generate(Task(scenario=scenario, host=own.host, port=own.port)) as generator:
        assert generator.stdout is not None
        generator.stdout.readline()
        cpu, busy = cpu_of(own.pid), busy_s()
        at_first, begin = _state(own), time.monotonic()
        generator.stdout.readline()
        at_last, end = _state(own), time.monotonic()
        busy = busy_s() - busy
        in_window_s = cpu_of(own.pid).since(cpu).total_s
        seen = seen_in(generator.stdout.readline())
    if seen.failed:
        raise BrokerFailed(f"The broker did not take everything: {seen.failed}")
    state, caught_up = _caught_up(own)
    cpu_s = cpu_of(own.pid).since(cpu).total_s
    verify(own, scenario.topic_names[0])
    copies = state.forwarded_total - at_first.forwarded_total
    return Outcome(
        scenario=scenario,
        appended_per_s=seen.requests * scenario.batch / seen.seconds,
        forwarded_per_s=(at_last.forwarded_total - at_first.forwarded_total) / (end - begin),
        readable_per_s=copies / (caught_up - begin),
        lag=at_last.lag,
        lag_peak=max(at_first.lag, at_last.lag),
        caught_up_s=caught_up - end,
        records=copies,
        append_p50_ms=1000 * seen.latencies.get("p50", 0.0),
        append_p99_ms=1000 * seen.latencies.get("p99", 0.0),
        cpu_us_per_copy=1e6 * cpu_s / max(1, copies),
        generator_cores=seen.cpu_s / seen.seconds,
        other_cores=max(0.0, busy - in_window_s - seen.cpu_s) / seen.seconds,
    )


def _caught_up(own: OwnBroker) -> tuple[State, float]:
    """The router's state when it had copied everything, and the time of that."""
    until = time.monotonic() + _CAUGHT_UP_WITHIN_S
    while (state := _state(own)).lag:
        if time.monotonic() > until:
            raise BrokerFailed(f"The router is still {state.lag:,} records behind after {_CAUGHT_UP_WITHIN_S:g} s.")
        time.sleep(_AGAIN_S)
    return state, time.monotonic()


def verify(own: OwnBroker, source: str) -> None:
    """As many copies as records, without gaps, and the last of both is the same."""
    ends: list[tuple[Topic, list[bytes]]] = []
    for name in (source, _DEST):
        topic = msgspec.json.decode(_ask(own, "GET", f"/v0/topics/{name}"), type=Topic)
        wanted = {"from_seq": max(0, topic.head_seq - 1), "limit": 2}
        diff = msgspec.json.decode(_ask(own, "POST", f"/v0/topics/{name}/diff", wanted), type=Diff)
        ends.append((topic, [_data(each) for each in diff.records]))
    (written, last), (copied, copy) = ends
    if written != copied or last != copy or not last:
        raise BrokerFailed(f"The copies are not what was written: {written}, {last[:1]} and {copied}, {copy[:1]}")


def _data(record: msgspec.Raw) -> bytes:
    return bytes(msgspec.json.decode(record, type=dict[str, msgspec.Raw])["data"])


def _state(own: OwnBroker) -> State:
    return msgspec.json.decode(_ask(own, "GET", _ROUTER), type=State)


def _ask(own: OwnBroker, method: str, path: str, body: object = None) -> bytes:
    status, answer = ask(own.host, own.port, method, path, b"" if body is None else msgspec.json.encode(body))
    if not 200 <= status < 300:
        raise BrokerFailed(f"{method} {path} was answered {status}: {answer[:300]!r}")
    return answer


def line(each: Outcome) -> str:
    """For people."""
    wanted = each.scenario
    return (
        f"router-{wanted.durability}-{wanted.batch}-{wanted.connections}c:"
        f" {each.readable_per_s:,.0f} records/s readable,"
        f" {each.forwarded_per_s:,.0f}/s forwarded while {each.appended_per_s:,.0f}/s were appended"
        f" (p50 {each.append_p50_ms:.1f}, p99 {each.append_p99_ms:.1f} ms);"
        f" lag {each.lag:,} at the end, gone after {each.caught_up_s:.2f} s;"
        f" {each.records:,} copies, all there; {each.cpu_us_per_copy:.2f} µs/copy of the broker"
        f"   cores: generator {each.generator_cores:.2f}, others {each.other_cores:.2f}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.router", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--connections", type=int, default=16)
    add("--batch", type=int, nargs="+", default=[100], help="records a write; several: one after the other")
    add("--durability", choices=["ephemeral", "memory", "disk", "fsync"], default="disk", help="of both topics")
    add("--record-bytes", type=int, default=100)
    add("--rate", type=float, default=0.0, help="writes a second; 0 = as fast as the answers come")
    add("--seconds", type=float, default=5.0)
    add("--warmup", type=float, default=1.0)
    add_set(parser)
    add("--dir", default="", help="where the data directory is made (default: the temporary directory)")
    add("--save", default="", metavar="NAME", help="keep the outcome in loadtest/results/NAME.json")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """0; 1 when the broker failed or a copy is missing."""
    given = _parser().parse_args(arguments)
    settings = dict(given.set)
    found: list[Outcome] = []
    try:
        for batch in given.batch:
            scenario = Scenario(
                connections=given.connections,
                seconds=given.seconds,
                warmup_s=given.warmup,
                batch=batch,
                durability=given.durability,
                record_bytes=given.record_bytes,
                rate=given.rate,
                seqs=False,
            )
            found.append(run(scenario, settings=settings, parent=given.dir))
            print(line(found[-1]), flush=True)
    except BrokerFailed as error:
        print(error, file=sys.stderr)
        return 1
    if given.save:
        command = shlex.join(["python", "-m", "loadtest.router", *(arguments or sys.argv[1:])])
        print(f"kept in {keep(given.save, command, found)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
