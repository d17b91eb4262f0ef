"""Compares the ways to a cell: through the gateway of its set, and to the cell's own port.

One topic, one set, one run: the ways take turns, and each round begins with the other one. The result is the ratio
within a round. On a machine with fewer cores than processes, the gateway takes processor time from the cell.

The Python client, one request after the other, is compared with itself: given the address of the cell; given that of
the gateway, from which it finds the cell; and sending everything through the gateway. Its rate is 1 / the
median time of a request.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Final

import msgspec

from broker.cells import home_cell
from loadtest.compare import Ratio, ratio_of
from loadtest.generator import Task
from loadtest.measure import Target, generate, prepare, seen_in
from loadtest.observed import used_s
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
    #: The same of requests for each second of processor time: of the set if the program is the generator, and of the
    #: program if it is the client.
    work: Ratio


class _Cell(msgspec.Struct):
    http: str


class _Cluster(msgspec.Struct):
    cells: list[_Cell]


def settings(cells: int, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The settings of a broker whose cells have ports, beside those given."""
    return {**(given or {}), "CELLS": str(cells), "GATEWAYS": "1", "WAL_SHARDS": "1", "CELL_PORTS": "0"}


def addresses(own: OwnBroker, cells: int) -> Addresses:
    """The addresses of a running set, and a topic whose home is cell 0."""
    _, body = ask(own.host, own.port, "GET", "/v0/cluster")
    url = msgspec.json.decode(body, type=_Cluster).cells[0].http
    topic = next(number for number in range(10_000) if home_cell(f"load-{number}", cells) == 0)
    return Addresses(gateway=own.port, cell=int(url.rpartition(":")[2]), topic=topic)


def measure(scenario: Scenario, cells: int, rounds: int, given: Mapping[str, str] | None = None) -> list[Way]:
    """All ways in turns. A first short round is not counted. `given`: settings of the broker."""
    own = OwnBroker(settings=settings(cells, given))
    try:
        own.start()
        found = addresses(own, cells)
        scenario = msgspec.structs.replace(scenario, topics=1, first_topic=found.topic)
        prepare(Target(host=own.host, port=own.port), scenario)
        ports = {AT_CELL: found.cell, GATEWAY: found.gateway}
        rounds_seen: list[dict[tuple[str, str], tuple[float, float]]] = []
        for number in range(rounds + 1):
            seconds = scenario.seconds if number else min(1.0, scenario.seconds)
            load = msgspec.structs.replace(scenario, seconds=seconds)
            seen: dict[tuple[str, str], tuple[float, float]] = {}
            for way in list(ports) if number % 2 else reversed(ports):
                seen["generator", way] = _rate(own, ports[way], load)
            if scenario.kind == "append":
                rates = _client_rates(own, found, scenario, seconds)
                seen |= {("client", way): rate for way, rate in rates.items()}
            if number:
                rounds_seen.append(seen)
    finally:
        own.close()
    return [
        Way(
            name=way,
            program=program,
            ratio=_ratio(rounds_seen, program, way, 0),
            work=_ratio(rounds_seen, program, way, 1),
        )
        for program, way in rounds_seen[0]
        if way != AT_CELL
    ]


def _ratio(rounds: list[dict[tuple[str, str], tuple[float, float]]], program: str, way: str, which: int) -> Ratio:
    return ratio_of("requests/s", [(seen[program, AT_CELL][which], seen[program, way][which]) for seen in rounds])


def _client_rates(
    own: OwnBroker, found: Addresses, scenario: Scenario, seconds: float
) -> dict[str, tuple[float, float]]:
    """1 / the median time of an append, and 1 / the processor time of the client for one, by way. The ways take turns
    request by request: what else runs on the machine delays all of them alike."""
    topic = scenario.topic_names[0]
    records = [{"number": number, "text": "x" * scenario.record_bytes} for number in range(scenario.batch)]
    cell, gateway = (f"http://{own.host}:{port}" for port in (found.cell, found.gateway))
    with (
        Client(cell, direct=False) as at_cell,
        Client(gateway) as direct,
        Client(gateway, direct=False) as through,
    ):
        clients = {AT_CELL: at_cell, DIRECT: direct, GATEWAY: through}
        took: dict[str, list[float]] = {way: [] for way in clients}
        worked = dict.fromkeys(clients, 0.0)
        for client in clients.values():
            for _ in range(3):  # so that the second has found the cell
                client.append(topic, records)
        order, end = list(clients), time.monotonic() + seconds
        while time.monotonic() < end:
            for way in order:
                begin, before = time.perf_counter(), time.thread_time()
                clients[way].append(topic, records)
                took[way].append(time.perf_counter() - begin)
                worked[way] += time.thread_time() - before
            order.reverse()
    return {way: (1 / statistics.median(times), len(times) / worked[way]) for way, times in took.items()}


def _rate(own: OwnBroker, port: int, scenario: Scenario) -> tuple[float, float]:
    """Requests a second, and for each second of processor time of cells and gateway."""
    with generate(Task(scenario=scenario, host=own.host, port=port)) as generator:
        assert generator.stdout is not None
        generator.stdout.readline()
        before = sum(used_s(own.pid).values())
        generator.stdout.readline()
        used = sum(used_s(own.pid).values()) - before
        seen = seen_in(generator.stdout.readline())
    if seen.failed:
        raise RuntimeError(f"requests failed: {seen.failed}")
    return seen.requests / seen.seconds, seen.requests / max(used, 1e-9)


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
                f"({ratio.lowest:.2f} to {ratio.highest:.2f}); by processor time of "
                f"{'the set' if program == 'generator' else 'the client'} x {way.work.ratio:.2f} "
                f"({way.work.lowest:.2f} to {way.work.highest:.2f})"
            )
    return found
