"""Compares the ways to a cell: through the gateway of its set, and to the cell's own port.

One topic, one set, one run: the ways take turns, and each round begins with the other one. The result is the ratio
within a round. On a machine with fewer cores than processes, the gateway takes processor time from the cell.

The Python client, one request after the other, is compared with itself: given the address of the cell; given that of
the gateway, from which it finds the cell; and sending everything through the gateway.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from broker.cells import home_cell
from loadtest.compare import Ratio, ratio_of
from loadtest.generator import Task
from loadtest.measure import Target, generate, prepare, seen_in
from loadtest.own_broker import OwnBroker, ask
from loadtest.scenario import Scenario
from topics_client import Client

AT_CELL: Final = "to the cell"
GATEWAY: Final = "through the gateway"
DIRECT: Final = "direct by itself"


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """Ports of a set on this machine, and a topic of cell 0: the number in its name."""

    gateway: int
    cell: int
    topic: int


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """Requests a second by one way, compared with those of the same program to the cell's own port."""

    name: str
    #: generator (64 connections) or client (one request after the other).
    program: str
    ratio: Ratio


class _Cell(msgspec.Struct):
    http: str


class _Cluster(msgspec.Struct):
    cells: list[_Cell]


def settings(cells: int) -> dict[str, str]:
    """The settings of a broker whose cells have ports."""
    return {"CELLS": str(cells), "GATEWAYS": "1", "WAL_SHARDS": "1", "CELL_PORTS": "0"}


def addresses(own: OwnBroker, cells: int) -> Addresses:
    """The addresses of a running set, and a topic whose home is cell 0."""
    _, body = ask(own.host, own.port, "GET", "/v0/cluster")
    url = msgspec.json.decode(body, type=_Cluster).cells[0].http
    topic = next(number for number in range(10_000) if home_cell(f"load-{number}", cells) == 0)
    return Addresses(gateway=own.port, cell=int(url.rpartition(":")[2]), topic=topic)


def measure(scenario: Scenario, cells: int, rounds: int) -> list[Way]:
    """All ways in turns. A first short round is not counted."""
    own = OwnBroker(settings=settings(cells))
    try:
        own.start()
        found = addresses(own, cells)
        scenario = msgspec.structs.replace(scenario, topics=1, first_topic=found.topic)
        prepare(Target(host=own.host, port=own.port), scenario)
        topic = scenario.topic_names[0]
        records = [{"number": number, "text": "x" * scenario.record_bytes} for number in range(scenario.batch)]

        def client(port: int, direct: bool) -> Callable[[float], float]:
            return lambda seconds: _client_rate(f"http://{own.host}:{port}", topic, records, seconds, direct=direct)

        def generator(port: int) -> Callable[[float], float]:
            return lambda seconds: _rate(own, port, msgspec.structs.replace(scenario, seconds=seconds))

        runs = {(AT_CELL, "generator"): generator(found.cell), (GATEWAY, "generator"): generator(found.gateway)}
        if scenario.kind == "append":
            runs[AT_CELL, "client"] = client(found.cell, False)
            runs[DIRECT, "client"] = client(found.gateway, True)
            runs[GATEWAY, "client"] = client(found.gateway, False)
        for run in runs.values():
            run(1.0)
        order = list(runs)
        seen: dict[tuple[str, str], list[float]] = {each: [] for each in runs}
        for number in range(rounds):
            for each in order if number % 2 else order[::-1]:
                seen[each].append(runs[each](scenario.seconds))
    finally:
        own.close()
    return [
        Way(
            name=way,
            program=program,
            ratio=ratio_of("requests/s", list(zip(seen[AT_CELL, program], rates, strict=True))),
        )
        for (way, program), rates in seen.items()
        if way != AT_CELL
    ]


def _client_rate(url: str, topic: str, records: list[Any], seconds: float, *, direct: bool) -> float:
    with Client(url, direct=direct) as client:
        for _ in range(3):
            client.append(topic, records)
        begin, requests = time.monotonic(), 0
        while time.monotonic() < begin + seconds:
            client.append(topic, records)
            requests += 1
        return requests / (time.monotonic() - begin)


def _rate(own: OwnBroker, port: int, scenario: Scenario) -> float:
    with generate(Task(scenario=scenario, host=own.host, port=port)) as generator:
        assert generator.stdout is not None
        seen = seen_in(generator.stdout.read().splitlines()[-1])
    if seen.failed:
        raise RuntimeError(f"requests failed: {seen.failed}")
    return seen.requests / seen.seconds


def lines(name: str, ways: list[Way]) -> list[str]:
    """The report of one load."""
    found: list[str] = []
    for program in dict.fromkeys(way.program for way in ways):
        here = [way for way in ways if way.program == program]
        found.append(f"{name}, one topic, {program}, beside the cell's own port ({here[0].ratio.old:,.0f} requests/s):")
        for way in here:
            ratio = way.ratio
            found.append(
                f"  {way.name:<22} {ratio.new:>9,.0f} requests/s: x {ratio.ratio:.2f} "
                f"({ratio.lowest:.2f} to {ratio.highest:.2f})"
            )
    return found
