"""What went in and out since the start: plain counters, once a write or read, never once a record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from storage.metrics import Family, Sample

if TYPE_CHECKING:
    from storage.records import ReadResult


class Traffic:
    """Of all topics together. Nothing that recovery replays is counted."""

    __slots__ = ("appended", "deleted", "evicted", "read", "reads", "tombstones", "writes")

    def __init__(self) -> None:
        self.writes = 0
        self.appended = 0
        self.reads = 0
        self.read = 0
        #: Answers that announced a gap, by reason.
        self.tombstones: dict[str, int] = {}
        #: Live records that went to a cap, a ttl, ..., by cause.
        self.evicted: dict[str, int] = {}
        self.deleted = 0

    def wrote(self, records: int) -> None:
        """A write was committed."""
        self.writes += 1
        self.appended += records

    def answered(self, result: ReadResult) -> None:
        """A read gave this."""
        self.reads += 1
        self.read += len(result.records)
        if result.tombstone is not None:
            reason = result.tombstone.reason
            self.tombstones[reason] = self.tombstones.get(reason, 0) + 1

    def lost(self, causes: Iterable[str], records: int) -> None:
        """So many live records went, for one of these causes."""
        names = {str(cause) for cause in causes}
        cause = names.pop() if len(names) == 1 else "mixed"
        self.evicted[cause] = self.evicted.get(cause, 0) + records

    def families(self) -> list[Family]:
        """As metrics."""
        counters = [
            ("topics_appends", "Writes committed.", self.writes),
            ("topics_appended_records", "Records in them.", self.appended),
            ("topics_reads", "Reads answered, those of routers not counted.", self.reads),
            ("topics_read_records", "Records in them.", self.read),
            ("topics_deleted_records", "Live records deleted or acked.", self.deleted),
        ]
        by_label = [
            ("topics_tombstones", "Reads that announced a gap.", "reason", self.tombstones),
            ("topics_evicted_records", "Live records that went to a cap, a ttl or a crash.", "cause", self.evicted),
        ]
        return [
            *(Family(name, "counter", help, [Sample((), value)]) for name, help, value in counters),
            *(
                Family(name, "counter", help, [Sample(((label, key),), value) for key, value in counts.items()])
                for name, help, label, counts in by_label
            ),
        ]
