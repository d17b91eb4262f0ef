"""Short functions that drive a log: the steps of writer, publisher and recovery, one call each."""

from __future__ import annotations

from array import array

from storage.records.batches import AppendedRecords
from storage.state.log import Log
from storage.state.usage import Usage

FRAME = 60


def new_log(usage: Usage | None = None) -> Log:
    return Log(1, shard=0, epoch=1, usage=usage or Usage())


def run_at(
    first_seq: int, payloads: list[int], ts: int = 1000, tags: dict[int, bytes] | None = None
) -> AppendedRecords:
    """Consecutive records of these payload sizes; `tags` by seq."""
    tagged = [(tag, seq) for seq, tag in sorted((tags or {}).items())]
    return AppendedRecords(first_seq, ts, array("I", [size + FRAME for size in payloads]), array("I", payloads), tagged)


def reserve(log: Log, payloads: list[int], **more) -> tuple[AppendedRecords, int]:
    """Assign the next seqs to these records."""
    run = run_at(log.assigned_head + 1, payloads, **more)
    return run, log.reserve(run)


def write(log: Log, payloads: list[int], *, place: int = 1 << 40, **more) -> AppendedRecords:
    """Reserve and commit at once."""
    run, row = reserve(log, payloads, **more)
    log.commit(run, row, place, 0)
    return run


def published(log: Log) -> tuple[int, int, int]:
    return log.head, log.count, log.bytes


def assigned(log: Log) -> tuple[int, int, int]:
    return log.assigned_head, log.assigned_count, log.assigned_bytes
