"""The workloads of the crash sweep of producers, states and offsets: short, the same in every run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from storage import Options, TopicConfig
from storage.records.values import ProducerBatch
from storage.state.producer_table import MAX_SEQUENCE
from tests.crash.workloads import DISK, FSYNC, SMALL, TINY
from tests.support.kept_run import KeptWorkload
from tests.support.kept_session import Session

WORKLOADS: dict[str, KeptWorkload] = {}

Body = Callable[[Session], Awaitable[None]]

SHARDED = msgspec.structs.replace(SMALL, wal_shards=2)
SEGMENTS = msgspec.structs.replace(SHARDED, segment_max_events=4, checkpoint_records=1)


def workload(options: Options = SHARDED) -> Callable[[Body], Body]:
    """Register a function under its own name."""

    def enter(body: Body) -> Body:
        WORKLOADS[body.__name__] = KeptWorkload(body.__name__, body, options)
        return body

    return enter


def _batches(producer_id: int, base: int, sizes: list[int], epoch: int = 0) -> list[tuple[ProducerBatch, int]]:
    """Batches with consecutive sequences."""
    made: list[tuple[ProducerBatch, int]] = []
    for size in sizes:
        made.append((ProducerBatch(producer_id, epoch, base), size))
        base = (base + size) & MAX_SEQUENCE
    return made


async def _produce(s: Session, config: TopicConfig) -> None:
    certain = config is FSYNC
    await s.put("a", config)
    for batch, size in _batches(7, 0, [1, 3]):
        await s.send("a", batch, size, certain=certain)
    await s.resend(0)
    await s.together(*[s.send("a", batch, size, certain=certain) for batch, size in _batches(7, 4, [2, 1, 1, 2, 1, 3])])
    await s.together(
        s.resend(4), *[s.send("a", *each, certain=certain) for each in _batches(8, MAX_SEQUENCE - 1, [1, 3, 1])]
    )
    await s.snapshot()
    await s.together(*[s.send("a", *each, certain=certain) for each in _batches(7, 0, [2, 2], epoch=1)])
    await s.mark_flushed()
    await s.snapshot()
    await s.send("a", *_batches(7, 4, [1], epoch=1)[0], certain=certain)


@workload()
async def batches_of_producers_fsync(s: Session) -> None:
    await _produce(s, FSYNC)


@workload(SEGMENTS)
async def batches_of_producers_disk(s: Session) -> None:
    await _produce(s, DISK)


@workload(TINY)
async def batches_over_many_files(s: Session) -> None:
    await s.put("a", FSYNC)
    for index in range(12):
        await s.send("a", ProducerBatch(7, 0, index * 9), 9)
        if index % 4 == 1:
            await s.snapshot()
            await s.mark_flushed()
    await s.resend(9)


@workload()
async def states_put_and_deleted(s: Session) -> None:
    await s.keep("group", "a", b"1")
    await s.together(s.keep("group", "a", b"2"), s.keep("group", "b", b""), s.claim())
    await s.snapshot()
    await s.together(s.keep("group", "a", None), s.keep("group", "b", b"3"), s.keep("group", "b", b"4"))
    await s.keep("group", "c", b"x" * 300)
    await s.snapshot()
    await s.together(s.claim(), s.claim(), s.keep("group", "a", b"5"))
    await s.keep("group", "b", None)
    await s.close()
    await s.start()
    await s.claim()
    await s.keep("group", "c", b"6")


@workload(TINY)
async def states_over_many_files(s: Session) -> None:
    for index in range(24):
        await s.keep("group", f"{index % 5}", None if index % 7 == 3 else b"%d" % index * 80)
        if index % 6 == 5:
            await s.snapshot()
    await s.claim()


@workload(SEGMENTS)
async def offsets_with_metadata(s: Session) -> None:
    await s.put("a", DISK)
    await s.send("a", ProducerBatch(7, 0, 0), 9, certain=False)
    await s.engine.shards[0].wait_room(1, 1)
    await s.commit("a", "g", 3, b"first")
    await s.together(s.commit("a", "g", 5, b"second"), s.commit("a", "h", 2))
    await s.snapshot()
    await s.commit("a", "g", 4, b"back")
    await s.commit("a", "g", 6)
    await s.commit("a", "h", 2, b"said")
    await s.snapshot()
    await s.together(s.commit("a", "h", 7, b""), s.commit("a", "i", 1, b"x" * 100))
    await s.mark_flushed()
    await s.commit("a", "i", 9, b"y")


@workload(SEGMENTS)
async def offsets_that_no_record_has(s: Session) -> None:
    await s.put("a", DISK)
    await s.send("a", ProducerBatch(7, 0, 0), 9, certain=False)
    await s.engine.shards[0].wait_room(1, 1)
    await s.commit("a", "g", 40, b"beyond", 0)
    await s.together(s.commit("a", "h", -2), s.commit("a", "g", 3, None, 0), s.commit("a", "i", 1 << 62))
    await s.snapshot()
    await s.commit("a", "g", -1001, b"\0,\0")
    await s.commit("a", "h", 12, None, 7)
    await s.mark_flushed()
    await s.snapshot()
    await s.send("a", ProducerBatch(7, 0, 9), 9, certain=False)
    await s.together(s.commit("a", "h", 12, None, 7), s.commit("a", "i", 18, b"y", 2))
