"""The work that `loadtest.guard` counts: one hot path, a number of times, in a separate process.

    python -m loadtest.guard_work append-100 200

The engine has no threads, uses memory-backed storage where there is some, and a durability class without syncs. Only
the work itself remains, and two runs differ by a few instructions in a thousand.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import xxhash

from broker.api import Pending, Request, Result
from broker.api.routes import append, claims
from broker.content import Answer, render
from broker.settings import Settings
from broker.wiring import Broker
from loadtest.scenario import append_body, numbered
from storage import Durability, Engine, Options, ReadQuery, TopicConfig, TopicType
from storage.platform import SystemClock

RECORD_BYTES: Final = 100
Work = Callable[[Engine, int], Awaitable[None]]


class _Record(msgspec.Struct, gc=False):
    data: msgspec.Raw


class _Body(msgspec.Struct, gc=False):
    records: list[_Record]


class StandingClock(SystemClock):
    """A clock that stands still: the engine's timed work never runs, however slow the run is."""

    def wall_ms(self) -> int:
        return 1_800_000_000_000

    def monotonic_ns(self) -> int:
        return 1

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


def body_of(batch: int) -> bytes:
    """The body of an append."""
    return numbered(append_body(batch, RECORD_BYTES), 0)


async def floor(_: Engine, times: int) -> None:
    """What every path is compared with: a body of 100 records decoded, each hashed, all joined."""
    decoder, body = msgspec.json.Decoder(_Body), body_of(100)
    for _number in range(times):
        datas = [each.data for each in decoder.decode(body).records]
        sums = [*map(xxhash.xxh3_64_digest, datas)]
        b"".join([b"".join(datas), *sums])


Handler = Callable[[Request], Answer | Awaitable[Answer]]


async def _called(handler: Handler, engine: Engine, topic: str, body: bytes) -> Answer:
    """As the HTTP/1.1 protocol does it."""
    request = Request(_broker(engine), {}, b"")
    request.values, request.body = [topic], body
    outcome = handler(request)
    if isinstance(outcome, Answer):
        return outcome
    if not isinstance(outcome, Pending):
        raise AssertionError("it has to wait for something")
    done: asyncio.Future[Result] = engine.loop.create_future()
    outcome.then(done.set_result)
    result = await done
    if not isinstance(result, Answer):
        raise AssertionError(f"it was not answered: {result!r}")
    return result


@cache
def _broker(engine: Engine) -> Broker:
    return Broker(engine, Settings.model_validate({"data_dir": Path("unused")}))


def appending(batch: int, **config: Any) -> Work:
    """Appends as they come over HTTP, from the body to the answer, to a topic with this configuration."""

    async def work(engine: Engine, times: int) -> None:
        await engine.put_topic("t", TopicConfig(durability=Durability.MEMORY, **config))
        body = body_of(batch)
        for _ in range(times):
            await _called(append.append, engine, "t", body)

    return work


async def reading(engine: Engine, times: int) -> None:
    """1000 records from the newest, as an answer has them."""
    await engine.put_topic("t", TopicConfig(durability=Durability.MEMORY))
    for _ in range(10):
        await _called(append.append, engine, "t", body_of(100))
    query, shape = ReadQuery(limit=1000, max_bytes=8 << 20), render.Shape()
    for _ in range(times):
        render.records((await engine.read("t", query)).records, shape)


async def working(engine: Engine, times: int) -> None:
    """100 jobs claimed and acked, from the bodies to the answers."""
    await engine.put_topic("q", TopicConfig(durability=Durability.MEMORY, type=TopicType.QUEUE))
    for _ in range(400):
        await _called(append.append, engine, "q", body_of(100))
    for number in range(times):
        await _called(claims.claim, engine, "q", b'{"node":"n","max":100}')
        seqs = [*range(number * 100 + 1, number * 100 + 101)]
        await _called(claims.ack, engine, "q", msgspec.json.encode({"node": "n", "seqs": seqs}))


#: By name: the work, and how many times it is done to be counted.
PATHS: Final[dict[str, tuple[Work, int]]] = {
    "floor": (floor, 200),
    "append-1": (appending(1), 200),
    "append-100": (appending(100), 60),
    # Behind both caps at once: each write evicts as much as it brings.
    "append-100-cap": (appending(100, cap_records=500, cap_bytes=50_000), 60),
    "diff-1000": (reading, 30),
    "claim-ack-100": (working, 60),
}


async def run(name: str, times: int) -> None:
    """Run once to import and create everything, then `count` times."""
    work, _ = PATHS[name]
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="topics-guard-", dir=parent) as folder:
        options = Options(wal_shards=1, wal_file_bytes=64 << 20)
        async with Engine.open(folder, options, clock=StandingClock(), threaded=False) as engine:
            gc.disable()
            await work(engine, times)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2])))
