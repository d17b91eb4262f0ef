"""Measures a cell in a bucket: throughput and latency against a local disk, slots per second, size, and takeover time.

    python -m loadtest.bucket_cells
    python -m loadtest.bucket_cells --delay-ms 25 --seconds 10
    python -m loadtest.bucket_cells --store moto --delay-ms 0 --rounds 5
    python -m loadtest.bucket_cells --store http://127.0.0.1:7070 --rounds 5
    python -m loadtest.bucket_cells --megabytes 1000 --takeover

Engines run in this process. The store is one in a process of its own that answers each request after a delay, or moto,
or a server that runs already, whose credentials are in the environment; its bucket is made.
64 callers append 100 records of class fsync at a time: to an engine on a local disk, and to owners of cells that create
slots as fast as requests return, or every 100 ms. Compare within one run only. With --rounds these take turns, and each
ratio is the median of the ratios of all rounds, with the smallest and the largest one.

With --takeover, an owner writes so many megabytes, deletes half of them, and puts bases. Then it gives the cell to a
process that was waiting. That one writes a fifth more, up to 200 MB, and is killed, so that a third one, in a process
of its own, has to fetch everything.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import multiprocessing
import os
import socket
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median, quantiles
from typing import Any, cast

import msgspec

from broker.__main__ import SWITCH_INTERVAL_S
from loadtest.own_broker import ask
from loadtest.own_server import OwnServer
from loadtest.slow_s3 import BUCKET, SlowS3
from storage import Durability, Engine, NewRecord, Options, TopicConfig
from storage.bucket import Bucket, Candidate, open_bucket
from storage.cells.owner import CellOwner, begin

CELL = "cell-00"
CALLERS = 64
RECORDS = 100
#: Written behind the newest base before an owner is killed: a base is put at 256 MiB.
MOST_BEHIND_MB = 200
_nonces = itertools.count(1)


class Moto(OwnServer):
    """The S3 server of the tests, in a process of its own."""

    def __enter__(self) -> Moto:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "moto.server", "-p", str(self.port)]
        self._begin("moto", command, lambda: ask("127.0.0.1", self.port, "PUT", f"/{BUCKET}"))
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
        }


class Other:
    """A server that somebody has started."""

    def __init__(self, url: str) -> None:
        self.environment = {"AWS_ENDPOINT_URL": url, "AWS_REGION": os.environ.get("AWS_REGION", "us-east-1")}

    def __enter__(self) -> Other:
        return self

    def __exit__(self, *_: object) -> None:
        """It goes on."""

    def make_bucket(self) -> None:
        import boto3  # pyright: ignore[reportMissingTypeStubs]

        client: Any = cast("Any", boto3).client("s3")
        try:
            client.create_bucket(Bucket=BUCKET)
        except client.exceptions.BucketAlreadyOwnedByYou:
            print("The bucket is there already: cells of an earlier run would be used. Empty it.", file=sys.stderr)
            raise SystemExit(1) from None


class Load(msgspec.Struct, kw_only=True):
    """What callers got from one engine. Latencies in ms."""

    name: str
    records_s: float
    p50_ms: float
    p99_ms: float
    syncs_s: float
    sync_ms: float


async def load(name: str, engine: Engine, seconds: float) -> Load:
    await engine.put_topic("events", TopicConfig(durability=Durability.FSYNC))
    batch = [NewRecord(msgspec.Raw(b'{"n":%d,"text":"%s"}' % (n, b"x" * 80))) for n in range(RECORDS)]
    took: list[float] = []
    begun = time.monotonic()
    stats = engine.shards[0].log.stats
    before, before_s = stats.fsyncs, stats.fsync_seconds.sum

    async def call() -> None:
        while time.monotonic() - begun < seconds:
            at = time.monotonic()
            await engine.append("events", batch)
            took.append((time.monotonic() - at) * 1000)

    await asyncio.gather(*(call() for _ in range(CALLERS)))
    lasted = time.monotonic() - begun
    return Load(
        name=name,
        records_s=len(took) * RECORDS / lasted,
        p50_ms=median(took),
        p99_ms=quantiles(took, n=100)[-1],
        syncs_s=(stats.fsyncs - before) / lasted,
        sync_ms=(stats.fsync_seconds.sum - before_s) * 1000 / max(1, stats.fsyncs - before),
    )


def new_owner(bucket: Bucket, folder: Path, **options: int) -> CellOwner:
    number = next(_nonces)
    wanted = msgspec.structs.replace(Options(), **options)
    return CellOwner(bucket, CELL, str(folder / f"{number}"), Candidate("node", f"{number:032x}"), options=wanted)


def new_cell(prefix: str) -> Bucket:
    bucket = open_bucket("s3", BUCKET, prefix)
    begin(bucket, CELL, Candidate("init", "00" * 16))
    return bucket


async def throughput(seconds: float, rounds: int, folder: Path) -> None:
    found: dict[str, list[Load]] = {}

    def note(each: Load) -> None:
        found.setdefault(each.name, []).append(each)

    for number in range(rounds):
        async with Engine.open(folder / f"local-{number}", Options(wal_shards=1)) as engine:
            note(await load("local disk", engine, seconds))
        for interval_ms in (0, 100):
            owner = new_owner(new_cell(f"slots-{interval_ms}-{number}"), folder, put_interval_ms=interval_ms)
            await owner.start()
            note(await load(f"slots, {interval_ms} ms apart", owner.engine, seconds))
            await owner.close()
    print(f"{'':24}{'records/s':>12}{'p50 ms':>10}{'p99 ms':>10}{'syncs/s':>10}{'sync ms':>10}{'of local':>10}")
    local, *_ = found.values()
    for name, each in found.items():

        def middle(field: str, each: list[Load] = each) -> float:
            return median(getattr(one, field) for one in each)

        ratios = sorted(one.records_s / other.records_s for one, other in zip(each, local, strict=True))
        print(f"{name:24}{middle('records_s'):12,.0f}{middle('p50_ms'):10.1f}{middle('p99_ms'):10.1f}", end="")
        print(f"{middle('syncs_s'):10.1f}{middle('sync_ms'):10.1f}{median(ratios):10.2f}", end="")
        print(f"  ({ratios[0]:.2f} to {ratios[-1]:.2f})" if rounds > 1 else "")


async def takeover(megabytes: int, folder: Path) -> None:
    bucket = new_cell("takeover")
    first = new_owner(bucket, folder)
    await first.start()
    engine = first.engine
    batch = [NewRecord(msgspec.Raw(b'"' + os.urandom(5000).hex().encode() + b'"')) for _ in range(100)]
    for topic in ("stays", "goes"):
        await engine.put_topic(topic, TopicConfig(durability=Durability.FSYNC))
        for _ in range(megabytes // 2):
            await engine.append(topic, batch)
            if first.behind[1] > 64 << 20:
                await engine.segment_worker.flush_all()
                await first.put_base()
    await engine.delete_topic("goes")
    live = engine.state_of(engine.topic("stays")).bytes
    for _ in range(3):
        await engine.segment_worker.flush_all()
        await first.put_base()
    await first.trim()
    print(f"live {live / 1e6:,.0f} MB; in the store {_stored() / 1e6:,.0f} MB: {_stored() / live:.2f} times")
    second = new_owner(bucket, folder)
    waiting = asyncio.create_task(second.start())
    await asyncio.sleep(10 + megabytes / 50)  # it fetches the segments meanwhile
    silent = [0.0]

    async def drain() -> None:
        silent[0] = time.monotonic()

    await first.give(f"{next(_nonces) - 1:032x}", drain)
    await waiting
    print(f"given to a process that waits: nobody served for {time.monotonic() - silent[0]:.2f} s")
    for _ in range(min(megabytes // 5, MOST_BEHIND_MB)):
        await second.engine.append("stays", batch)
    live = second.engine.state_of(second.engine.topic("stays")).bytes
    behind = second.behind
    killed = time.monotonic()
    await second.abandon()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as another:
        before_mb, after_mb, found = await asyncio.wrap_future(another.submit(_take, str(folder / "third"), killed))
    seconds, there = found
    print(
        f"killed: another process with an empty directory served again after {seconds:.2f} s, of which TTL is 5 s;"
        f" {behind[0]:,} slots with {behind[1] / 1e6:,.0f} MB were behind the base; its memory grew from"
        f" {before_mb:,.0f} to {after_mb:,.0f} MB at most"
    )
    assert there == live


def _take(root: str, since: float) -> tuple[float, float, tuple[float, int]]:
    """In a process of its own: take the cell over. Its memory in MB before, and at most; the time on the monotonic
    clock of the machine, and the bytes of the topic."""

    async def run() -> tuple[float, int]:
        bucket = open_bucket("s3", BUCKET, "takeover")
        owner = CellOwner(bucket, CELL, root, Candidate("node", "ff" * 16), options=Options())
        await owner.start()
        seconds = time.monotonic() - since
        there = owner.engine.state_of(owner.engine.topic("stays")).bytes
        await owner.close()
        return seconds, there

    def most_mb() -> float:
        [line] = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM:")]
        return int(line.split()[1]) / 1024

    before_mb = most_mb()
    found = asyncio.run(run())
    return before_mb, most_mb(), found


def _stored() -> int:
    from obstore.store import S3Store

    store = S3Store(BUCKET, prefix="takeover", client_options={"allow_http": True})
    return sum(entry["size"] for page in store.list() for entry in page)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.bucket_cells",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--delay-ms", type=int, default=25, help="added to each request")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--megabytes", type=int, default=200, help="written for --takeover")
    parser.add_argument("--takeover", action="store_true", help="measure takeovers and sizes instead of a load")
    parser.add_argument("--rounds", type=int, default=1, help="how often each load is measured, in turns")
    parser.add_argument("--store", default="slow", help="slow, moto, or the address of a server (no delay)")
    given = parser.parse_args(arguments)
    sys.setswitchinterval(SWITCH_INTERVAL_S)  # as in a broker
    stores = {"slow": SlowS3, "moto": lambda: Moto("topics-moto-")}
    opened = stores.get(given.store, lambda: Other(given.store))
    with opened() as store, tempfile.TemporaryDirectory() as folder:
        os.environ.update(store.environment)
        if isinstance(store, Other):
            store.make_bucket()
        if isinstance(store, SlowS3):
            store.delay(given.delay_ms / 1000)
        asyncio.run(
            takeover(given.megabytes, Path(folder))
            if given.takeover
            else throughput(given.seconds, given.rounds, Path(folder))
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
