"""Measures how reads of the oldest data slow down writes: phases of one run, in turn, compared as ratios.

    python -m loadtest.cold_reads

The oldest data is in the cold tier, in a store that answers each request after 200 ms (`slow_s3`). One load writes as
fast as the answers come: alone in the phases A, beside readers of the oldest data in the phases B, in the order A B A B
… A. Each B is compared with the mean of the A before and the A after it. The difference between two neighbouring A
shows how much is chance: on a shared machine the ratio means nothing without it. Goal: p99 of the writes moves by at
most 10 %.

Segments move only before the phases, so that all phases have the same conditions; with --moving the writer's segments
move in all phases. A read takes processor time wherever the data is. For comparison, `--hot --read-rate R` reads the
same from the local disk at the rate R, which should be the rate that the readers of the cold store reach.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from statistics import mean

import msgspec

from loadtest.compare import METRICS, Ratio, ratio_of
from loadtest.generator import LoadResult, Task
from loadtest.measure import Measured, Target, generate, measure, prepare, seen_in
from loadtest.observed import counters
from loadtest.own_broker import BrokerFailed, OwnBroker, add_set
from loadtest.report import keep
from loadtest.scenario import Scenario
from loadtest.slow_s3 import SlowS3

_SEGMENT_RECORDS = 10_000
_MOVED_WITHIN_S = 300.0
_NEVER = "1000000000"


class Outcome(msgspec.Struct, kw_only=True):
    """`beside` are the B against the A around them, `chance` the A against the A before."""

    alone: list[Measured]
    beside_readers: list[Measured]
    readers: list[LoadResult]
    beside: list[Ratio]
    chance: list[Ratio]


def run(given: argparse.Namespace) -> Outcome:
    """Fill, move, measure."""
    alone: list[Measured] = []
    beside: list[Measured] = []
    readers: list[LoadResult] = []
    with SlowS3() as store:
        settings = {"COLD_DIR": store.url} | dict(given.set)
        own = OwnBroker(settings=settings, parent=given.dir, environment=store.environment)
        try:
            _fill(own, given)
            if not given.moving:
                own.kill()
                own.settings |= {"HOT_RETAIN_SEGMENTS": _NEVER}
                own.start()
            store.delay(given.delay_ms / 1000)
            target = Target(host=own.host, port=own.port, own=own)
            measure(target, _writing(given))  # the first time everything is slower
            for _ in range(given.rounds):
                alone.append(measure(target, _writing(given)))
                _say("alone", alone[-1])
                measured, seen = _beside(target, given)
                beside.append(measured)
                readers.append(seen)
                _say("beside readers", measured)
            alone.append(measure(target, _writing(given)))
            _say("alone", alone[-1])
        finally:
            own.close()
    return Outcome(
        alone=alone,
        beside_readers=beside,
        readers=readers,
        beside=[ratio_of(name, _around(alone, beside, pick)) for name, pick in METRICS.items()],
        chance=[ratio_of(name, _following(alone, pick)) for name, pick in METRICS.items()],
    )


def _around(
    alone: list[Measured], beside: list[Measured], pick: Callable[[Measured], float]
) -> list[tuple[float, float]]:
    return [(mean(map(pick, both)), pick(b)) for both, b in zip(pairwise(alone), beside, strict=True)]


def _following(phases: list[Measured], pick: Callable[[Measured], float]) -> list[tuple[float, float]]:
    return [(pick(before), pick(after)) for before, after in pairwise(phases)]


def _writing(given: argparse.Namespace) -> Scenario:
    return Scenario(
        connections=given.connections,
        seconds=given.seconds,
        warmup_s=given.warmup,
        batch=given.batch,
        rate=given.rate,
        durability=given.durability,
        first_topic=1,
    )


def _reading(given: argparse.Namespace) -> Scenario:
    # The newest two segments may still be here.
    return Scenario(
        kind="read",
        connections=given.readers,
        seconds=given.seconds,
        warmup_s=given.warmup,
        batch=given.limit,
        preload=given.records - 2 * _SEGMENT_RECORDS,
        rate=given.read_rate,
    )


def _fill(own: OwnBroker, given: argparse.Namespace) -> None:
    """Write the oldest data and wait until it is in the cold store."""
    own.settings |= {
        "HOT_RETAIN_SEGMENTS": _NEVER if given.hot else "1",
        "SEGMENT_MAX_EVENTS": str(_SEGMENT_RECORDS),
        "CHECKPOINT_RECORDS": str(_SEGMENT_RECORDS),
    } | dict(given.set)
    own.start()
    prepare(Target(host=own.host, port=own.port), Scenario(kind="read", preload=given.records))
    due, until = given.records // _SEGMENT_RECORDS - 2, time.monotonic() + _MOVED_WITHIN_S
    while counters(own.host, own.port)["topics_segments" if given.hot else "topics_segments_cold"] < due:
        if time.monotonic() > until:
            raise BrokerFailed(f"Not all of {due} segments moved to the cold store within {_MOVED_WITHIN_S:g} s.")
        time.sleep(0.2)


def _beside(target: Target, given: argparse.Namespace) -> tuple[Measured, LoadResult]:
    """A phase B: the readers begin to warm up with the writers."""
    reads = counters(target.host, target.port)["topics_cold_reads_total"]
    with generate(Task(scenario=_reading(given), host=target.host, port=target.port)) as readers:
        assert readers.stdout is not None
        measured = measure(target, _writing(given))
        *_, last = readers.stdout.readlines()
    seen = seen_in(last)
    asked = counters(target.host, target.port)["topics_cold_reads_total"] - reads
    if seen.failed or (not given.hot and (seen.latencies["p50"] < given.delay_ms / 1000 or asked < seen.requests)):
        raise BrokerFailed(f"The readers did not read from the cold store: {seen}, which was asked {asked:g} times.")
    return measured, seen


def _say(name: str, each: Measured) -> None:
    latency = each.latency_ms
    print(
        f"{name:15} {each.records_per_s:11,.0f} records/s   p50 {latency['p50']:7.1f} ms   p99 {latency['p99']:7.1f} ms"
        f"   broker {each.broker_cores:.2f}, others {each.other_cores:.2f} cores",
        flush=True,
    )


def _lines(given: argparse.Namespace, outcome: Outcome) -> list[str]:
    rate = mean(seen.requests / seen.seconds for seen in outcome.readers)
    p50_ms = 1000 * mean(seen.latencies["p50"] for seen in outcome.readers)
    found = [f"readers: {rate:,.1f} reads/s of {given.limit} records, p50 {p50_ms:,.0f} ms"]
    for title, ratios in (("beside readers / alone", outcome.beside), ("alone / alone before", outcome.chance)):
        found += [
            f"{title:23} {each.metric:15} {each.old:11,.2f} → {each.new:11,.2f}   x {each.ratio:.3f}"
            f"   (from {each.lowest:.3f} to {each.highest:.3f})"
            for each in ratios
        ]
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.cold_reads", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rounds", type=int, default=6, help="phases B; there is one A more")
    add("--seconds", type=float, default=6.0, help="measured of each phase")
    add("--warmup", type=float, default=1.0, help="of each phase, before")
    add("--readers", type=int, default=16, help="that read the oldest data all at once")
    add("--limit", type=int, default=1000, help="records a read")
    add("--records", type=int, default=200_000, help="that are written first, nearly all of them cold")
    add("--delay-ms", type=float, default=200.0, help="of the store, a request")
    add("--connections", type=int, default=64, help="that write")
    add("--batch", type=int, default=100, help="records a write")
    add("--rate", type=float, default=0.0, help="writes a second; 0 = as fast as the answers come")
    add("--durability", choices=["memory", "disk", "fsync"], default="fsync")
    add("--moving", action="store_true", help="segments move to the store during all phases, too")
    add("--hot", action="store_true", help="nothing is cold: what reading costs as such")
    add("--read-rate", type=float, default=0.0, help="reads a second; 0 = as fast as the answers come")
    add_set(parser)
    add("--dir", default="", help="where the data directory is made (default: the temporary directory)")
    add("--save", default="", metavar="NAME", help="keep the outcome in loadtest/results/NAME.json")
    return parser


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    try:
        outcome = run(given)
    except BrokerFailed as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(_lines(given, outcome)))
    if given.save:
        keep(given.save, f"python -m loadtest.cold_reads {' '.join(arguments or sys.argv[1:])}", outcome)
    return 0


if __name__ == "__main__":
    sys.exit(main())
