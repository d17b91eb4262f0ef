"""`topics bench`: measures how fast a broker answers this program."""

from __future__ import annotations

import enum
import math
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from topics_client.blocking import Client
from topics_client.commands.connection import JsonOption, broker, connect
from topics_client.commands.declaring import Argument, Option
from topics_client.commands.put import Durability
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.terminal import emit, note, say

#: Records that readers begin with, in appends of _FILL.
_FILL, _FILLS = 1000, 10
#: How often the main thread checks whether a worker has failed.
_LOOK_S = 0.05


class Load(str, enum.Enum):
    """The kinds of load."""

    APPEND = "append"
    READ = "read"
    JOBS = "jobs"


@dataclass
class Share:
    """The work of one thread: calls of `batch` records each, and the seconds that each took."""

    records: int = 0
    took_s: list[float] = field(default_factory=list[float])


def bench(
    load: Annotated[Load, Argument(metavar="LOAD", help="append, read, or jobs (append, claim and ack).")],
    seconds: Annotated[float, Option("--seconds", "-s", min=0.1, max=300, help="For how long.")] = 5.0,
    batch: Annotated[int, Option("--batch", "-b", min=1, max=1000, help="Records or jobs in a call.")] = 100,
    concurrency: Annotated[int, Option("--concurrency", "-c", min=1, max=64, help="Calls at a time.")] = 4,
    record_bytes: Annotated[int, Option("--size", min=2, max=100_000, help="Bytes of a record's data.")] = 100,
    durability: Annotated[Durability, Option("--durability", help="Class of the topic.")] = Durability.DISK,
    name: Annotated[
        str, Option("--name", help="Beginning of the topic's name, for keys with prefixes.")
    ] = "topics-bench-",
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Measure a broker by appends, reads, or jobs that are appended, claimed and acked.

    The records go to a new topic, which is deleted at the end, also after Ctrl-C. The times include this program, which
    is one process: a fast broker can do more. With --json: one object, {"load", "seconds", "batch", "concurrency",
    "size", "durability", "calls", "records", "records_per_s", "p50_ms", "p99_ms"}.
    """
    topic = name + uuid.uuid4().hex[:12]
    with broker(reach, as_json) as client:
        client.put_topic(topic, type="queue" if load is Load.JOBS else "log", durability=durability.value)
        try:
            records = ["x" * (record_bytes - 2)] * batch
            if load is Load.READ:
                for _ in range(_FILLS):
                    client.append(topic, records[:1] * _FILL)
            if not as_json:
                note(f"{load.value} for {seconds:g} s: {concurrency} at a time, {batch} records in a call ...")
            began = time.perf_counter()
            shares = _measured(
                [_work(load, topic, records, number) for number in range(concurrency)], seconds, reach, as_json
            )
            elapsed_s = time.perf_counter() - began
        finally:
            client.delete_topic(topic)
    asked: dict[str, Any] = {"load": load, "batch": batch, "concurrency": concurrency, "size": record_bytes}
    _report(asked | {"durability": durability}, shares, elapsed_s, as_json=as_json)


Work = Callable[[Client, Share], None]


def _work(load: Load, topic: str, records: list[Any], number: int) -> Work:
    """The call that the thread with this number repeats."""
    batch, node = len(records), f"bench-{number}"

    def append(client: Client, share: Share) -> None:
        began = time.perf_counter()
        client.append(topic, records)
        share.took_s.append(time.perf_counter() - began)
        share.records += batch

    def read(client: Client, share: Share) -> None:
        from_seq = share.records % (_FILL * _FILLS - batch + 1)
        began = time.perf_counter()
        found = client.read(topic, from_seq, limit=batch, max_batch_bytes=8 << 20)
        share.took_s.append(time.perf_counter() - began)
        share.records += len(found.records)

    def jobs(client: Client, share: Share) -> None:
        began = time.perf_counter()
        client.append(topic, records)
        claimed = client.claim(topic, node, max=batch).jobs
        if claimed:
            client.ack(topic, node, claimed)
        share.took_s.append(time.perf_counter() - began)
        share.records += len(claimed)

    return {Load.APPEND: append, Load.READ: read, Load.JOBS: jobs}[load]


def _measured(work: list[Work], seconds: float, reach: Reach, as_json: bool) -> list[Share]:
    """Run each in a thread with its own connection until the time is over. Raises the first error of a thread."""
    over, errors = threading.Event(), list[Exception]()
    shares = [Share() for _ in work]

    def run(step: Work, share: Share) -> None:
        try:
            with connect(reach, as_json) as client:
                while not over.is_set():
                    step(client, share)
        except Exception as error:
            errors.append(error)
            over.set()

    threads = [threading.Thread(target=run, args=each) for each in zip(work, shares, strict=True)]
    until = time.monotonic() + seconds
    try:
        for thread in threads:
            thread.start()
        while not over.wait(_LOOK_S) and time.monotonic() < until:
            pass
    finally:
        over.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    if errors:
        raise errors[0]
    return shares


def percentile(ordered: list[float], share: float) -> float:
    """The smallest value that at least this share of the values do not exceed; 0 without values."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def _report(asked: dict[str, Any], shares: list[Share], elapsed_s: float, *, as_json: bool) -> None:
    took_ms = sorted(each * 1000 for share in shares for each in share.took_s)
    records = sum(share.records for share in shares)
    p50, p99 = percentile(took_ms, 0.5), percentile(took_ms, 0.99)
    if as_json:
        found = {"calls": len(took_ms), "records": records, "records_per_s": round(records / elapsed_s, 1)}
        emit(msgspec.json.encode({**asked, "seconds": round(elapsed_s, 3), **found, "p50_ms": p50, "p99_ms": p99}))
        return
    noun = "jobs" if asked["load"] is Load.JOBS else "records"
    timed = "append, claim and ack" if asked["load"] is Load.JOBS else "a call"
    say(f"{records:,} {noun} in {elapsed_s:.1f} s: {records / elapsed_s:,.0f} {noun}/s")
    say(f"{timed}: p50 {p50:.2f} ms, p99 {p99:.2f} ms ({len(took_ms):,} times)")
