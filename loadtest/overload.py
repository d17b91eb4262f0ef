"""Offers a broker twice its capacity and measures what happens.

    python -m loadtest.overload --seconds 120

The first phase finds the capacity: as many writes as the broker takes (closed loop). The second offers a multiple of it
in an open loop, with clients that give up on a request after a while; 429 answers are final. The third measures how
long it takes until single writes are as quick as before, and checks that every acknowledged record is there. Latencies
of admitted writes count from when they were due, so they include waiting for a free connection.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread

import msgspec

from loadtest import ledger
from loadtest.generator import LoadResult, Task
from loadtest.measure import Target, generate, measure, prepare, seen_in
from loadtest.own_broker import OwnBroker, add_set, ask
from loadtest.scenario import Scenario

_SAMPLE_S = 0.1
_PROBES = 20
_PROBE = b'{"records":[{"data":"probe"}]}'
_PROBED = "/v0/topics/probed"
#: Single writes count as quick when a number of them in a row each took at most this, or a multiple of the usual.
_QUICK_S = 0.05
_QUICK_FACTOR = 3
_NORMAL_WITHIN_S = 60.0
THROTTLED = 429


class Overload(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters. `factor` times the capacity is offered for `seconds`."""

    seconds: float = 120.0
    capacity_s: float = 5.0
    factor: float = 2.0
    connections: int = 1024
    give_up_s: float = 1.0
    batch: int = 1
    durability: str = "fsync"
    record_bytes: int = 100


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The results. Rates are requests a second; `failed` counts answers by status except 429, 0 = connection lost.

    `normal_after_s` None: not within a minute.
    """

    capacity_per_s: float
    offered_per_s: float
    admitted_per_s: float
    refused: int
    given_up: int
    failed: dict[int, int]
    admitted_ms: dict[str, float]
    resident_mib: dict[str, float]
    normal_after_s: float | None
    verdict: ledger.Verdict

    @property
    def holds(self) -> bool:
        """Whether the results are correct, at any speed."""
        return self.verdict.holds and not self.failed and self.normal_after_s is not None


def run(wanted: Overload, *, settings: dict[str, str] | None = None, parent: str = "") -> Outcome:
    """Measure a broker started here. Raises BrokerFailed when it does not start."""
    own = OwnBroker(settings=settings, parent=parent)
    try:
        own.start()
        return _overload(Target(host=own.host, port=own.port, own=own), own, wanted)
    finally:
        own.close()


def _overload(target: Target, own: OwnBroker, wanted: Overload) -> Outcome:
    common = {"batch": wanted.batch, "durability": wanted.durability, "record_bytes": wanted.record_bytes}
    usual_s = _usual_s(target)
    closed = Scenario(seconds=wanted.capacity_s, connections=64, **common)
    capacity = measure(target, closed).requests_per_s
    rate = capacity * wanted.factor
    scenario = Scenario(
        seconds=wanted.seconds, rate=rate, connections=wanted.connections, give_up_s=wanted.give_up_s, **common
    )
    prepare(target, scenario)
    with tempfile.TemporaryDirectory(prefix="topics-ledger-") as folder:
        path = os.path.join(folder, "ledger")
        before = resident_mib(own.pid)
        seen, peak = _load(Task(scenario=scenario, host=target.host, port=target.port, ledger=path), own.pid)
        ended = time.monotonic()
        quick = _until_quick(target, max(_QUICK_S, _QUICK_FACTOR * usual_s), ended + _NORMAL_WITHIN_S)
        after = resident_mib(own.pid)
        verdict = ledger.verify(target.host, target.port, path, scenario.topic_names, scenario.batch)
    return Outcome(
        capacity_per_s=capacity,
        offered_per_s=rate,
        admitted_per_s=seen.requests / seen.seconds,
        refused=seen.failed.get(THROTTLED, 0),
        given_up=seen.given_up,
        failed={status: count for status, count in seen.failed.items() if status != THROTTLED},
        admitted_ms={name: 1000 * value for name, value in seen.latencies.items()},
        resident_mib={"before": before, "peak": peak, "after": after},
        normal_after_s=None if quick is None else quick - ended,
        verdict=verdict,
    )


def _load(task: Task, pid: int) -> tuple[LoadResult, float]:
    """The generator's result, and the broker's largest memory meanwhile."""
    peak, over = 0.0, Event()

    def sample() -> None:
        nonlocal peak
        while not over.wait(_SAMPLE_S):
            peak = max(peak, resident_mib(pid))

    sampler = Thread(target=sample)
    sampler.start()
    try:
        with generate(task) as generator:
            assert generator.stdout is not None
            last = generator.stdout.readlines()[-1]
        return seen_in(last), peak
    finally:
        over.set()
        sampler.join()


def resident_mib(pid: int) -> float:
    """Memory of a process; 0 when it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _probe_s(target: Target) -> float | None:
    """How long a single write takes; None when it is refused."""
    begin = time.monotonic()
    status, _ = ask(target.host, target.port, "POST", _PROBED, _PROBE)
    return time.monotonic() - begin if status in (200, 201) else None


def _usual_s(target: Target) -> float:
    """The slowest of a few single writes without other load."""
    _probe_s(target)
    return max(_probe_s(target) or 0.0 for _ in range(_PROBES))


def _until_quick(target: Target, quick_s: float, deadline: float) -> float | None:
    """The time when single writes became quick again: the first of a number of quick ones in a row."""
    since, found = time.monotonic(), 0
    while found < _PROBES:
        begin = time.monotonic()
        if begin > deadline:
            return None
        took = _probe_s(target)
        if took is not None and took <= quick_s:
            found += 1
        else:
            since, found = time.monotonic(), 0
    return since


def lines(wanted: Overload, found: Outcome) -> list[str]:
    """To be read."""
    normal = "not within a minute" if found.normal_after_s is None else f"{found.normal_after_s:.1f} s after"
    latencies = ", ".join(f"{name} {found.admitted_ms.get(name, 0):,.0f}" for name in ("p50", "p99", "max"))
    memory = ", ".join(f"{name} {value:,.0f}" for name, value in found.resident_mib.items())
    return [
        f"writes of {wanted.batch} of class {wanted.durability}, {wanted.connections} connections, "
        f"{wanted.seconds:g} s at {wanted.factor:g} times the capacity",
        f"capacity   {found.capacity_per_s:,.0f}/s",
        f"offered    {found.offered_per_s:,.0f}/s",
        f"admitted   {found.admitted_per_s:,.0f}/s: {latencies} ms since they were due",
        f"refused    {found.refused:,} with 429; {found.given_up:,} given up after {wanted.give_up_s:g} s, unsent",
        f"failed     {found.failed or 'none'}",
        f"memory     {memory} MiB",
        f"normal     {normal}",
        f"there      {found.verdict.found:,} records, {found.verdict.acknowledged:,} of them acknowledged",
        *found.verdict.problems,
    ]


def main(arguments: list[str] | None = None) -> int:
    """0; 1 when something acknowledged is missing, a request failed, or it does not recover."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.overload", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usual = Overload()
    for name in Overload.__struct_fields__:
        value = getattr(usual, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    add_set(parser)
    parser.add_argument("--dir", default="", help="where the data directory is made")
    given = vars(parser.parse_args(arguments))
    settings = dict(given.pop("set"))
    parent = given.pop("dir")
    wanted = Overload(**given)
    found = run(wanted, settings=settings, parent=parent)
    print("\n".join(lines(wanted, found)))
    return 0 if found.holds else 1


if __name__ == "__main__":
    sys.exit(main())
