"""An atomic unit of frames on its way from the event loop to a writer, and its outcome on the way back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import msgspec

from kernel import Batches
from storage.errors import StorageError
from storage.format import Batch
from storage.records import AppendedRecords


class ControlStep(NamedTuple):
    """A control frame, decoded. `node` is the frame's: of a Lease, the node that holds the jobs."""

    type: int
    topic_id: int
    ts: int
    value: Any
    node: str = ""


class AppendStep(msgspec.Struct, frozen=True):
    """Append frames, back to back. `offset`: of the first one, from the start of the unit's bytes."""

    topic_id: int
    appended: AppendedRecords
    offset: int


class PersistStep(NamedTuple):
    """Append frames of records that are published already and are now in the WAL too."""

    topic_id: int
    first_seq: int
    offset: int


class BatchesStep(NamedTuple):
    """In recovery: batches of a log that hold only data, applied as one."""

    topic_id: int
    batches: Batches


Step: TypeAlias = ControlStep | AppendStep | PersistStep | BatchesStep


class Unit(msgspec.Struct, frozen=True):
    """An atomic batch or a single frame: what `apply_unit` takes, live and in recovery."""

    batch: Batch | None
    steps: list[Step]


#: Is called once, on the loop, with the outcome of a submission: an exception, or what `publish` returned.
Outcome: TypeAlias = Callable[[Any], object]


def resolve(future: asyncio.Future[Any], outcome: Any, /) -> None:
    """As an Outcome, bound to its future: set the result or the exception, unless the future was cancelled."""
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


class _Bytes(msgspec.Struct):
    unit: Unit
    payload: bytes


class Submission(_Bytes, kw_only=True, eq=False):
    """A unit on its way into a shard's log.

    `generation` >= 0: its seqs build on those of the writes before it, so if one of a generation fails, all later
    ones fail too. `entry`: the reserved entry of its records in the log's tail; -1 without records. `frees`: a full
    disk still takes it. `needs_sync`: it is acked only after a sync. `hasten`: it is acked before its sync, which does
    not wait for the timer. `writers`: how many writes it is. `internal`: no client's write.

    The writer sets `lsn` (of its first byte) or `error`, and the times, which are monotonic ns. `posted`: the outcome
    was handed to the event loop; `resolved`: the loop has processed it.
    """

    frames: int
    topic_id: int
    ts: int
    needs_sync: bool
    hasten: bool = False
    frees: bool = False
    internal: bool = False
    generation: int = -1
    entry: int = -1
    writers: int = 1
    lsn: int = 0
    posted: bool = False
    resolved: bool = False
    error: StorageError | None = None
    done: Outcome | None = None
    enqueued_ns: int = 0
    written_ns: int = 0
    synced_ns: int = 0
