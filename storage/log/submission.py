"""What travels from the event loop to a writer and back: one atomic unit of frames and its fate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from storage.errors import StorageError
from storage.format.control import Batch
from storage.records.batches import AppendedRecords, LoneAppends

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class ControlStep(NamedTuple):
    """A control frame, decoded. `node` is the frame's: of a Lease who holds the jobs."""

    type: int
    topic_id: int
    ts: int
    value: Any
    node: str = ""


class AppendStep(NamedTuple):
    """Append frames, back to back. `offset` of the first from the start of the unit's bytes."""

    topic_id: int
    appended: AppendedRecords
    offset: int


class PersistStep(NamedTuple):
    """Append frames of records that are published already: from now on they are in the WAL, too."""

    topic_id: int
    first_seq: int
    offset: int


class LoneAppendsStep(NamedTuple):
    """Append frames of a log that stand alone, in recovery: a unit each, taken together."""

    topic_id: int
    lone: LoneAppends


Step: TypeAlias = ControlStep | AppendStep | PersistStep | LoneAppendsStep


class Unit(NamedTuple):
    """An atomic batch, or a single frame: what `apply` takes, live and in recovery."""

    batch: Batch | None
    steps: list[Step]


class Outcome(Protocol):
    """Who is told what became of a submission: a future, or something that is called the same way."""

    def done(self) -> bool: ...

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: Any, /) -> None: ...


class Both:
    """Tells `first`, then `second`, whom nobody may be waiting for; `before` is called ahead of both."""

    __slots__ = ("_before", "_first", "_second")

    def __init__(self, first: Outcome, second: asyncio.Future[Any], before: Callable[[], object]) -> None:
        self._first = first
        self._second = second
        self._before = before

    def done(self) -> bool:
        return False  # whoever waits for the second has to be told, too

    def set_result(self, result: Any, /) -> None:
        self._before()
        if not self._second.done():
            self._second.set_result(result)
        if not self._first.done():
            self._first.set_result(result)

    def set_exception(self, exception: Any, /) -> None:
        self._before()
        if not self._second.done():
            self._second.set_exception(exception)
            self._second.exception()  # looked at: it may be that nobody waits
        if not self._first.done():
            self._first.set_exception(exception)


class Submission:
    """A unit on its way into a shard's log.

    `generation` >= 0 marks a write whose seqs build on those before it: when one fails, so do all later ones of
    that generation. `frees` marks one that a full disk still takes, `needs_sync` one acked only after a sync, `hasten`
    one whose sync, though it is acked before, is not to wait for the timer. `writers`: how many wait for it.
    The writer sets `lsn` (where its first byte lies) or `error`; times are monotonic ns.
    """

    __slots__ = (
        "done",
        "enqueued_ns",
        "entry",
        "error",
        "frames",
        "frees",
        "generation",
        "hasten",
        "internal",
        "lsn",
        "needs_sync",
        "payload",
        "posted",
        "resolved",
        "synced_ns",
        "topic_id",
        "ts",
        "unit",
        "writers",
        "written_ns",
    )

    def __init__(
        self,
        unit: Unit,
        payload: bytes,
        *,
        frames: int,
        topic_id: int,
        ts: int,
        needs_sync: bool,
        hasten: bool = False,
        frees: bool = False,
        internal: bool = False,
        generation: int = -1,
        entry: int = -1,
        writers: int = 1,
    ) -> None:
        self.unit = unit
        self.payload = payload
        self.frames = frames
        self.topic_id = topic_id
        self.ts = ts
        self.needs_sync = needs_sync
        self.hasten = hasten
        self.frees = frees
        self.internal = internal
        self.generation = generation
        self.entry = entry
        self.writers = writers
        self.lsn = 0
        self.posted = False
        self.resolved = False
        self.error: StorageError | None = None
        self.done: Outcome | None = None
        self.enqueued_ns = 0
        self.written_ns = 0
        self.synced_ns = 0
