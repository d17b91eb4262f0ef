"""Measures exports: records a second, memory, and how much an export at nice 19 on one core slows down writes.

    python -m loadtest.exports --engine arrow
    python -m loadtest.exports --engine spark --format delta

A broker is started and filled. A session is warmed up with a small topic; then a topic with all records and one with a
quarter of them are exported by the same command. Memory is the largest resident set of all export processes together
during each of the two exports: it must not grow with the topic. Then (--rounds) a load writes as fast as the answers
come, in turn alone and beside an endless export: see `loadtest.cold_reads` for how phases are compared.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import mean

import msgspec

from loadtest.compare import METRICS, ratio_of
from loadtest.measure import Measured, Target, measure, prepare
from loadtest.own_broker import BrokerFailed, OwnBroker
from loadtest.scenario import Scenario

_ROOT = Path(__file__).resolve().parents[1]
_WARM_RECORDS = 20_000
_SAMPLE_S = 0.1
#: What is in the target when a topic is exported, by format. Version 0 of a Delta table has no records.
_ENDS = {"parquet": "_topics/{}/{:020}.json", "delta": "{}/_delta_log/{:020}.json"}
#: Names are exported in this order.
_WARM, _WHOLE, _QUARTER = "load-0", "load-1", "load-2"


def command(own: OwnBroker, to: str, topics: str, given: argparse.Namespace) -> list[str]:
    """One export."""
    url = f"http://{own.host}:{own.port}"
    return [
        sys.executable,
        "-m",
        "pipeline",
        "export",
        "--url",
        url,
        "--topics",
        topics,
        "--to",
        to,
        "--engine",
        given.engine,
        "--format",
        given.format,
    ]


class Used(msgspec.Struct):
    """By all processes of a session: memory at most, and processor time, while one topic was exported."""

    most_mb: float = 0.0
    first_s: float = -1.0
    last_s: float = 0.0

    def see(self, session: int) -> None:
        """Take a sample. Memory that processes share counts once per process."""
        resident = ticks = 0
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session:
                resident += int(fields[21]) * resource.getpagesize()
                ticks += sum(map(int, fields[11:15]))  # of itself, and of children that have ended
        self.most_mb = max(self.most_mb, resident / 1e6)
        self.last_s = max(self.last_s, ticks / os.sysconf("SC_CLK_TCK"))
        if self.first_s < 0:
            self.first_s = self.last_s


def export(own: OwnBroker, given: argparse.Namespace) -> list[str]:
    """Export the three topics; returns the lines with the figures."""
    to = tempfile.mkdtemp(prefix="topics-exports-", dir=given.dir or None)
    process: subprocess.Popen[str] | None = None
    used = {name: Used() for name in (_WARM, _WHOLE, _QUARTER)}
    try:
        line = command(own, to, ",".join(used), given)
        process = subprocess.Popen(line, cwd=_ROOT, stdout=subprocess.PIPE, start_new_session=True, text=True)
        while process.poll() is None:
            # Topics are exported by name.
            used[next((name for name in used if not _is_done(to, name, given.format)), _QUARTER)].see(process.pid)
            time.sleep(_SAMPLE_S)
        said = process.stdout.read() if process.stdout else ""
        if process.returncode:
            raise BrokerFailed(f"The export ended with {process.returncode}: {said}")
    finally:
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        shutil.rmtree(to, ignore_errors=True)
    whole, quarter = used[_WHOLE], used[_QUARTER]
    if min(whole.first_s, quarter.first_s) < 0:
        raise BrokerFailed("The export of a topic was too short to be seen: set --records higher.")
    took = whole.last_s - whole.first_s
    return [
        *said.splitlines(),
        f"{_WHOLE} took {took:.1f} s of processor beside the broker's: {given.records / took:,.0f} records/s a core",
        f"resident at most: {whole.most_mb:,.0f} MB, of a quarter {quarter.most_mb:,.0f} MB",
    ]


def _is_done(to: str, name: str, kind: str) -> bool:
    return Path(to, _ENDS[kind].format(name, 1)).exists()


@contextmanager
def exporting(own: OwnBroker, given: argparse.Namespace) -> Generator[list[int]]:
    """One export after the other, at nice 19 on the last core; gives how many have ended."""
    core = max(os.sched_getaffinity(0))
    prefix = ["nice", "-n", "19", "taskset", "-c", str(core)]
    ended: list[int] = []
    over = threading.Event()
    running: list[subprocess.Popen[bytes]] = []

    def again() -> None:
        while not over.is_set():
            to = tempfile.mkdtemp(prefix="topics-exports-", dir=given.dir or None)
            line = [*prefix, *command(own, to, _WHOLE, given)]
            process = subprocess.Popen(line, cwd=_ROOT, stdout=subprocess.DEVNULL, start_new_session=True)
            running[:] = [process]
            if process.wait() == 0:
                ended.append(1)
            shutil.rmtree(to, ignore_errors=True)

    thread = threading.Thread(target=again)
    thread.start()
    try:
        yield ended
    finally:
        over.set()
        for each in running:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
        thread.join()


def beside(own: OwnBroker, given: argparse.Namespace) -> list[str]:
    """Writers alone and beside exports, in turn."""
    target = Target(host=own.host, port=own.port, own=own)
    writing = Scenario(seconds=given.seconds, batch=given.batch, durability="fsync", first_topic=3)
    measure(target, writing)  # the first time everything is slower
    alone, both = [measure(target, writing)], list[Measured]()
    count = 0
    for _ in range(given.rounds):
        with exporting(own, given) as ended:
            both.append(measure(target, writing))
            count += len(ended)
        alone.append(measure(target, writing))
    lines = [f"{count} exports of {given.records:,} records ended meanwhile"]
    for name, pick in METRICS.items():
        pairs = [(mean(map(pick, around)), pick(b)) for around, b in zip(pairwise(alone), both, strict=True)]
        chance = [(pick(before), pick(after)) for before, after in pairwise(alone)]
        seen, luck = ratio_of(name, pairs), ratio_of(name, chance)
        lines.append(
            f"{name:15} alone {seen.old:11,.2f}, beside {seen.new:11,.2f}   x {seen.ratio:.3f}"
            f"   (from {seen.lowest:.3f} to {seen.highest:.3f}; alone / alone before x {luck.ratio:.3f})"
        )
    return lines


def run(given: argparse.Namespace) -> list[str]:
    """Fill, measure."""
    own = OwnBroker(parent=given.dir)
    try:
        own.start()
        target = Target(host=own.host, port=own.port, own=own)
        for number, records in enumerate((_WARM_RECORDS, given.records, given.records // 4)):
            prepare(target, Scenario(kind="read", preload=records, record_bytes=given.bytes, first_topic=number))
        lines = [] if given.only_beside else export(own, given)
        return lines + (beside(own, given) if given.rounds else [])
    finally:
        own.close()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.exports", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--engine", choices=["arrow", "spark"], default="arrow")
    add("--format", choices=[*_ENDS], default="parquet")
    add("--records", type=int, default=1_000_000)
    add("--bytes", type=int, default=100, help="of a record's data")
    add("--rounds", type=int, default=0, help="phases of writers beside exports; there is one alone more")
    add("--seconds", type=float, default=6.0, help="measured of each phase")
    add("--batch", type=int, default=100, help="records a write")
    add("--only-beside", action="store_true", help="leave the exports alone out")
    add("--dir", default="", help="where data and files are made (default: the temporary directory)")
    try:
        print("\n".join(run(parser.parse_args(arguments))))
    except BrokerFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
