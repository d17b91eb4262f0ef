"""Totals over the logs of an engine, and counters of writes and reads since the start. Each log has them.

Counting costs nothing per record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from storage.state.manifest import Access
from storage.telemetry import METRICS, Family, Sample

if TYPE_CHECKING:
    from storage.records import ReadResult


class Traffic:
    """The counters of all topics. Replayed writes do not count."""

    __slots__ = ("appended", "deleted", "evicted", "read", "reads", "tombstones", "writes")

    def __init__(self) -> None:
        #: Writes that were committed, and their records; counted by `storage.log.publisher`.
        self.writes = 0
        self.appended = 0
        self.reads = 0
        self.read = 0
        #: Answers that announced a gap, by reason.
        self.tombstones: dict[str, int] = {}
        #: Live records deleted by a cap, a ttl, ..., by cause.
        self.evicted: dict[str, int] = {}
        self.deleted = 0

    def answered(self, result: ReadResult) -> None:
        """A read was answered."""
        self.reads += 1
        self.read += len(result.records)
        if result.tombstone is not None:
            reason = result.tombstone.reason
            self.tombstones[reason] = self.tombstones.get(reason, 0) + 1

    def unanswered(self, result: ReadResult) -> None:
        """The answer of a read was dropped: the records will be read again."""
        self.reads -= 1
        self.read -= len(result.records)
        if result.tombstone is not None:
            self.tombstones[result.tombstone.reason] -= 1

    def lost(self, causes: Sequence[str], records: int) -> None:
        """This many live records were deleted, each for one of these causes."""
        names = causes if len(causes) == 1 else [*{str(cause) for cause in causes}]
        cause = str(names[0]) if len(names) == 1 else "mixed"
        self.evicted[cause] = self.evicted.get(cause, 0) + records

    def families(self) -> list[Family]:
        """The counters as metric families."""
        return [
            METRICS.whole("topics_appends", self.writes),
            METRICS.whole("topics_appended_records", self.appended),
            METRICS.whole("topics_reads", self.reads),
            METRICS.whole("topics_read_records", self.read),
            METRICS.whole("topics_deleted_records", self.deleted),
            METRICS.family("topics_tombstones", [Sample((("reason", key),), n) for key, n in self.tombstones.items()]),
            METRICS.family("topics_evicted_records", [Sample((("cause", key),), n) for key, n in self.evicted.items()]),
        ]


class Usage:
    """The usage of all logs of an engine; bytes and keys are those of the assigned view."""

    __slots__ = (
        "access",
        "bytes",
        "consumers",
        "corrupt_reads",
        "ephemeral_bytes",
        "keys",
        "producers",
        "producers_forgotten",
        "replaying",
        "traffic",
        "unreadable_reads",
    )

    def __init__(self) -> None:
        #: During a replay: segments named by frames may be gone by now, so nothing reads them before its end.
        self.replaying = False
        #: Blocking reads of segments, for logs.
        self.access: Access | None = None
        self.bytes = 0
        self.corrupt_reads = 0
        self.unreadable_reads = 0
        self.ephemeral_bytes = 0
        self.keys = 0
        #: Idempotent producers known, and producers forgotten early because there were too many.
        self.producers = 0
        self.producers_forgotten = 0
        self.traffic = Traffic()
        #: Consumers of all topics.
        self.consumers = 0
