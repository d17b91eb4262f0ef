"""Shared parts of the measurements without a server: clocks, figures, and the records to write."""

from __future__ import annotations

import argparse
import gc
import os
import resource
import time

import msgspec

from loadtest.observed import children_s
from loadtest.scenario import numbered, record
from storage import NewRecord


class Figures(msgspec.Struct, kw_only=True):
    """Rates per second of wall time; latencies of calls; processor time in µs per record.

    `cpu_us_per_record` includes processes that were started, `loop_us_per_record` is the event loop's thread alone.
    `cores`: processors used on average.
    """

    name: str
    records_per_s: float
    mb_per_s: float
    calls_per_s: float
    cpu_us_per_record: float
    loop_us_per_record: float
    cores: float
    p50_ms: float
    p99_ms: float


class Clocks:
    """One measurement, started when it is created. Writers add to `records`, and to `latencies` (s) for each call."""

    def __init__(self) -> None:
        self.records = 0
        self.latencies: list[float] = []
        self._wall, self._cpu, self._loop = time.perf_counter(), _process_s(), time.thread_time()

    @property
    def wall_s(self) -> float:
        """How long it has lasted."""
        return time.perf_counter() - self._wall

    def figures(self, name: str, record_bytes: int) -> Figures:
        """It ends now."""
        wall, cpu, loop = self.wall_s, _process_s() - self._cpu, time.thread_time() - self._loop
        records, ordered = max(1, self.records), sorted(self.latencies) or [0.0]
        return Figures(
            name=name,
            records_per_s=self.records / wall,
            mb_per_s=self.records * record_bytes / wall / 1e6,
            calls_per_s=len(self.latencies) / wall,
            cpu_us_per_record=1e6 * cpu / records,
            loop_us_per_record=1e6 * loop / records,
            cores=cpu / wall,
            p50_ms=1000 * ordered[len(ordered) // 2],
            p99_ms=1000 * ordered[int(0.99 * len(ordered))],
        )


def _process_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime + children_s(os.getpid())


def line(each: Figures) -> str:
    """One line of a table for people."""
    return (
        f"{each.name:34} {each.records_per_s:11,.0f} records/s {each.mb_per_s:7,.0f} MB/s"
        f" {each.calls_per_s:8,.0f} calls/s"
        f"   cpu {each.cpu_us_per_record:6.2f} (loop {each.loop_us_per_record:6.2f}) µs/record, {each.cores:4.2f} cores"
        f"   p50 {each.p50_ms:7.2f} p99 {each.p99_ms:7.2f} ms"
    )


def batch_of(size: int, record_bytes: int) -> list[NewRecord]:
    """Records as the HTTP layer makes them."""
    return [NewRecord(msgspec.Raw(numbered(record(record_bytes, index), 0))) for index in range(size)]


def collect_as_the_broker_does() -> None:
    """Garbage, seldom: a library leaves that to its program."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def add_common_options(parser: argparse.ArgumentParser, *, batch: int, record_bytes: int, seconds: float) -> None:
    """Options of every such measurement, with their defaults."""
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--record-bytes", type=int, default=record_bytes)
    parser.add_argument("--seconds", type=float, default=seconds)
    parser.add_argument("--shards", type=int, default=0, help="0 = as the engine chooses")
    parser.add_argument("--dir", default="")
    parser.add_argument("--json", action="store_true")
