"""The ways to a cell beside one another: through the gateway of its set, and to the cell's own port.

One topic, one set, one run: the ways take turns, each round from the other one on, and the result is the ratio within a
round. On a machine with fewer cores than processes the gateway takes its processor time from the cell.
"""

from __future__ import annotations

import msgspec

from broker.cells import home_cell
from loadtest.compare import Ratio, ratio_of
from loadtest.generator import Task
from loadtest.measure import Target, generate, prepare, seen_in
from loadtest.own_broker import OwnBroker, ask
from loadtest.scenario import Scenario


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """Ports of a set on this machine, and a topic of cell 0: the number in its name."""

    gateway: int
    cell: int
    topic: int


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """Requests a second by one way, beside those to the cell's own port."""

    name: str
    ratio: Ratio


class _Cell(msgspec.Struct):
    http: str


class _Cluster(msgspec.Struct):
    cells: list[_Cell]


def settings(cells: int) -> dict[str, str]:
    """The settings of a broker whose cells have ports."""
    return {"CELLS": str(cells), "GATEWAYS": "1", "WAL_SHARDS": "1", "CELL_PORTS": "0"}


def addresses(own: OwnBroker, cells: int) -> Addresses:
    """Where a running set is, and a topic whose home is cell 0."""
    _, body = ask(own.host, own.port, "GET", "/v0/cluster")
    url = msgspec.json.decode(body, type=_Cluster).cells[0].http
    topic = next(number for number in range(10_000) if home_cell(f"load-{number}", cells) == 0)
    return Addresses(gateway=own.port, cell=int(url.rpartition(":")[2]), topic=topic)


def measure(scenario: Scenario, cells: int, rounds: int) -> list[Way]:
    """Both ways in turns. A first short round is not counted."""
    own = OwnBroker(settings=settings(cells))
    try:
        own.start()
        found = addresses(own, cells)
        scenario = msgspec.structs.replace(scenario, topics=1, first_topic=found.topic)
        prepare(Target(host=own.host, port=own.port), scenario)
        ports = (found.cell, found.gateway)
        for port in ports:
            _rate(own, port, msgspec.structs.replace(scenario, seconds=1.0))
        pairs: list[tuple[float, float]] = []
        for number in range(rounds):
            seen = {port: _rate(own, port, scenario) for port in (ports if number % 2 else ports[::-1])}
            pairs.append((seen[found.cell], seen[found.gateway]))
    finally:
        own.close()
    return [Way(name="through the gateway", ratio=ratio_of("requests/s", pairs))]


def _rate(own: OwnBroker, port: int, scenario: Scenario) -> float:
    with generate(Task(scenario=scenario, host=own.host, port=port)) as generator:
        assert generator.stdout is not None
        seen = seen_in(generator.stdout.read().splitlines()[-1])
    if seen.failed:
        raise RuntimeError(f"requests failed: {seen.failed}")
    return seen.requests / seen.seconds


def lines(name: str, ways: list[Way]) -> list[str]:
    """The report of one load."""
    found = [f"{name}, one topic, beside the cell's own port ({ways[0].ratio.old:,.0f} requests/s):"]
    for way in ways:
        ratio = way.ratio
        found.append(
            f"  {way.name:<22} {ratio.new:>9,.0f} requests/s: x {ratio.ratio:.2f} "
            f"({ratio.lowest:.2f} to {ratio.highest:.2f})"
        )
    return found
