"""What a set of cells costs: processor time of cells and gateway per request, and the rates that follow for more cores.

    python -m loadtest.cells                              append-1, append-100 and diff-1000 with 2 cells
    python -m loadtest.cells --cells 3 --only append-100 --seconds 10 --json loadtest/results/cells.json

Each load runs against one broker without cells, and then through the gateway of a set, on the same machine. The load
generator runs there too, so with fewer cores than processes the set is slower than it would be elsewhere. The model
divides the cores between cells and gateways in the best way; each core gives 1 / (time per request) of what runs on it.
It ignores disks, and assumes that all topics are equally busy.

Then one topic with a partition in each cell is compared with one topic of one partition, for appends, and the ways to a
cell with each other (`loadtest.cell_ways`).
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from loadtest import cell_ways
from loadtest.cell_ways import Way
from loadtest.generator import Task
from loadtest.measure import Target, generate, prepare, seen_in
from loadtest.observed import used_s
from loadtest.own_broker import OwnBroker, add_set
from loadtest.report import keep
from loadtest.scenario import Scenario

CORES: Final = (4, 8, 16)
#: Topics of a load: enough for every cell to have some.
_TOPICS: Final = 12
SCENARIOS: Final = {
    "append-1": Scenario(batch=1, topics=_TOPICS),
    "append-100": Scenario(batch=100, topics=_TOPICS),
    "diff-1000": Scenario(kind="read", batch=1000, topics=_TOPICS, preload=20_000, connections=16),
}


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Requests a second, and processor seconds per request in the broker or the cells, and in the gateway."""

    rate: float
    cell_s: float
    gateway_s: float = 0.0


class Found(msgspec.Struct, kw_only=True):
    """One load: on one broker, through the gateway of a set, and by the ways to a cell."""

    alone: Seen
    cells: Seen
    ways: list[Way]
    #: One topic of a set: with one partition, and with one in each cell.
    narrow: Seen | None = None
    wide: Seen | None = None


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """A division of the cores, and the requests a second that it gives."""

    cells: int
    gateways: int
    rate: float


def best_split(seen: Seen, cores: int) -> Split:
    """The division of this many cores, at least 2, that gives the most requests a second."""
    splits: list[Split] = []
    for gateways in range(1, cores):
        rate = min((cores - gateways) / seen.cell_s, gateways / seen.gateway_s)
        splits.append(Split(cells=cores - gateways, gateways=gateways, rate=rate))
    return max(splits, key=lambda split: split.rate)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--cells", type=int, default=2, help="number of cells (2)")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds for each load (5)")
    parser.add_argument("--only", default="", metavar="NAMES", help=f"of {', '.join(SCENARIOS)}: a comma list")
    parser.add_argument(
        "--rounds", type=int, default=3, help="in which the ways to a cell take turns (3); 0: not at all"
    )
    parser.add_argument("--json", type=Path, help="keep the results there")
    add_set(parser)
    options = parser.parse_args(arguments)
    chosen = options.only.split(",") if options.only else list(SCENARIOS)
    if unknown := set(chosen) - set(SCENARIOS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} cores, {options.cells} cells and 1 gateway beside the load generator")
    found: dict[str, Found] = {}
    given = dict(options.set)
    settings = {**given, "CELLS": str(options.cells), "GATEWAYS": "1"}
    for name in chosen:
        scenario = lasting(SCENARIOS[name], options.seconds)
        alone = run(scenario, given)
        cells = run(scenario, settings)
        print("\n".join(lines(name, alone, cells)), flush=True)
        narrow = wide = None
        if scenario.kind == "append":
            one = msgspec.structs.replace(scenario, topics=1)
            narrow = run(one, settings)
            wide = run(msgspec.structs.replace(one, partitions=options.cells), settings)
            print("\n".join(spread_lines(name, options.cells, narrow, wide)), flush=True)
        ways = cell_ways.measure(scenario, options.cells, options.rounds, given) if options.rounds else []
        if ways:
            print("\n".join(cell_ways.lines(name, ways)), flush=True)
        found[name] = Found(alone=alone, cells=cells, ways=ways, narrow=narrow, wide=wide)
    if options.json is not None:
        command = shlex.join(["python", "-m", "loadtest.cells", *(sys.argv[1:] if arguments is None else arguments)])
        print(f"kept in {keep(options.json.stem, command, found, options.json.parent)}", file=sys.stderr)
    return 0


def lasting(scenario: Scenario, seconds: float) -> Scenario:
    """The scenario for so many seconds. Before a short one there is a short warm-up."""
    return msgspec.structs.replace(scenario, seconds=seconds, warmup_s=min(scenario.warmup_s, seconds))


def run(scenario: Scenario, settings: Mapping[str, str]) -> Seen:
    """Run one load on a broker of its own, with these settings."""
    own = OwnBroker(settings={"WAL_SHARDS": "1", **settings})
    try:
        own.start()
        prepare(Target(host=own.host, port=own.port), scenario)
        with generate(Task(scenario=scenario, host=own.host, port=own.port)) as generator:
            assert generator.stdout is not None
            generator.stdout.readline()
            before = used_s(own.pid)
            generator.stdout.readline()
            after = used_s(own.pid)
            seen = seen_in(generator.stdout.readline())
    finally:
        own.close()
    if seen.failed:
        raise RuntimeError(f"requests failed: {seen.failed}")
    spent = {role: (after[role] - before[role]) / max(1, seen.requests) for role in after}
    rate = seen.requests / seen.seconds
    return Seen(rate=rate, cell_s=spent["cell"], gateway_s=spent["gateway"])


def lines(name: str, alone: Seen, cells: Seen) -> list[str]:
    """The report of one load."""
    found = [
        f"{name}:",
        f"  one broker        {alone.rate:>9,.0f} requests/s, {1e6 * alone.cell_s:,.0f} us of processor each",
        f"  through a gateway {cells.rate:>9,.0f} requests/s (x {cells.rate / alone.rate:.2f}), "
        f"{1e6 * cells.cell_s:,.0f} us in a cell and {1e6 * cells.gateway_s:,.0f} us in the gateway each",
        f"  by processor time, through the gateway: x {alone.cell_s / (cells.cell_s + cells.gateway_s):.2f}",
    ]
    for cores in CORES:
        split = best_split(cells, cores)
        found.append(
            f"  {cores:>2} cores: {split.rate:>9,.0f} requests/s with {split.cells} cells, {split.gateways} gateways: "
            f"x {split.rate * alone.cell_s:.1f} of one broker on one core"
        )
    return found


def spread_lines(name: str, cells: int, narrow: Seen, wide: Seen) -> list[str]:
    """The report of one topic whose partitions are in several cells. The model: a cell has one core, and more of them
    share the work of a topic only if it has partitions there."""
    found = [
        f"{name}, one topic, through the gateway:",
        f"  1 partition           {narrow.rate:>9,.0f} requests/s",
        f"  {cells:>2} partitions, 1 a cell {wide.rate:>7,.0f} requests/s (x {wide.rate / narrow.rate:.2f})",
    ]
    for cores in CORES:
        split = best_split(wide, cores)
        found.append(
            f"  {cores:>2} cores: {split.rate:>9,.0f} requests/s with a partition in each of {split.cells} cells: "
            f"x {split.rate * narrow.cell_s:.1f} of one partition"
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
