"""Measures the three log backends (fd, mmap, io_uring) side by side and shows their ratios.

    python -m loadtest.backends
    python -m loadtest.backends --scenario "64 writers, batch 100" --rounds 5 --seconds 3

The engine runs without a server, in class fsync; each writer waits for its acknowledgement. Every round opens a fresh
directory with each backend, in an order that changes from round to round. A ratio compares two runs of one round; the
median of the rounds is shown.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time

import msgspec
import uvloop

from loadtest.in_process import Clocks, Figures, batch_of, collect_as_the_broker_does
from storage import MIB, Durability, Engine, IoBackend, Options, TopicConfig
from storage.platform.io import backend_of


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """The load: writers, batch size, topics and shards."""

    writers: int
    batch: int
    topics: int = 1
    shards: int = 2

    @property
    def name(self) -> str:
        spread = f", {self.topics} topics, {self.shards} shards" if self.topics > 1 else ""
        return f"{self.writers} writers, batch {self.batch}{spread}"


SCENARIOS = (
    Scenario(writers=1, batch=1),
    Scenario(writers=64, batch=1),
    Scenario(writers=64, batch=100),
    Scenario(writers=64, batch=10, topics=16, shards=8),
)


async def measure(scenario: Scenario, backend: IoBackend, options: argparse.Namespace) -> Figures:
    """One run in a fresh directory. Raises SystemExit where this machine refuses the backend."""
    with tempfile.TemporaryDirectory(prefix="topics-backends-", dir=options.dir or None) as folder:
        opened = Options(wal_shards=scenario.shards, wal_file_bytes=options.file_mib * MIB, io_backend=backend)
        async with Engine.open(folder, opened) as engine:
            if backend_of(engine.fs) is not backend:
                raise SystemExit(f"{backend} is refused here: see the warning above")
            for number in range(scenario.topics):
                await engine.put_topic(f"t{number}", TopicConfig(durability=Durability.FSYNC))
            collect_as_the_broker_does()
            await _write(engine, scenario, options, options.warmup)
            clocks = await _write(engine, scenario, options, options.seconds)
            return clocks.figures(scenario.name, options.record_bytes)


async def _write(engine: Engine, scenario: Scenario, options: argparse.Namespace, seconds: float) -> Clocks:
    records = batch_of(scenario.batch, options.record_bytes)
    clocks = Clocks()

    async def writer(topic: str) -> None:
        while clocks.wall_s < seconds:
            begin = time.perf_counter()
            await engine.append(topic, records)
            clocks.latencies.append(time.perf_counter() - begin)
            clocks.records += len(records)

    await asyncio.gather(*(writer(f"t{number % scenario.topics}") for number in range(scenario.writers)))
    return clocks


def compare(scenario: Scenario, options: argparse.Namespace) -> list[str]:
    """All backends, round after round; one row of a table for each."""
    runs: dict[IoBackend, list[Figures]] = {backend: [] for backend in IoBackend}
    for number in range(options.rounds):
        order = list(IoBackend)
        for backend in order[number % len(order) :] + order[: number % len(order)]:
            runs[backend].append(uvloop.run(measure(scenario, backend, options)))
    return [_row(scenario, backend, runs[backend], runs[IoBackend.FD]) for backend in IoBackend]


def _row(scenario: Scenario, backend: IoBackend, runs: list[Figures], plain: list[Figures]) -> str:
    ratios = [run.records_per_s / other.records_per_s for run, other in zip(runs, plain, strict=True)]
    spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    names = ("p50_ms", "p99_ms", "cpu_us_per_record")
    p50, p99, cpu = (statistics.median(getattr(run, name) for run in runs) for name in names)
    rate = statistics.median(run.records_per_s for run in runs)
    return f"| {scenario.name} | {backend} | {rate:,.0f} | {spread} | {p50:.2f} | {p99:.2f} | {cpu:.1f} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.backends", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [each.name for each in SCENARIOS]
    parser.add_argument("--scenario", nargs="+", default=names, choices=names)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--warmup", type=float, default=0.3)
    parser.add_argument("--record-bytes", type=int, default=100)
    parser.add_argument("--file-mib", type=int, default=64)
    parser.add_argument("--dir", default="")
    options = parser.parse_args()
    print("| scenario | backend | records/s | against fd | p50 ms | p99 ms | cpu µs/record |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for scenario in SCENARIOS:
        if scenario.name in options.scenario:
            print("\n".join(compare(scenario, options)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
