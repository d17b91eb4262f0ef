"""The common part of reads without a broker: all records come from segments, and from frames in the plan.

Source: docs/guides/spark.md#reading.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from pipeline.batches import Row, Shape
from pipeline.broker import Page
from pipeline.split_reader import SplitReader, fail_on_gap
from pipeline.splits import splits_of
from pipeline.view import LogView

#: Bytes that are read at a time.
CHUNK_BYTES = 8 << 20
_SILENT = ("delete", "consumed")


class LocalOrigin(ABC):
    @abstractmethod
    def view(self, topic: str, partition: int = 0) -> LogView: ...

    def reason(self, topic: str, view: LogView, seq: int) -> str:
        """Why `seq`, which is below evict_floor, is gone."""
        return view.evicted_by or "unknown"

    def is_ephemeral(self, topic: str) -> bool:
        """False: what was only in memory is gone."""
        return False

    def page(self, topic: str, view: LogView, after_seq: int, *, limit: int = 1, from_ts: int = 0) -> Page:
        """The first record after `after_seq` that is not older than `from_ts`, without its content."""
        full = self.view(topic, view.partition)
        for split in splits_of(topic, full, after_seq + 1, full.end):
            for batch in SplitReader(self, split, Shape(), fail_on_gap).batches():  # pyright: ignore[reportArgumentType]
                stamps = batch.column("timestamp").cast("int64").to_pylist()
                for seq, stamp in zip(batch.column("seq").to_pylist(), stamps, strict=True):
                    if stamp >= from_ts * 1000:
                        return Page([Row(seq, stamp // 1000, None, None, b"", None)], seq, None)
        return Page([], full.end - 1, None)


def evicted_by(floors: dict[str, int]) -> str:
    """The cause of all evictions that readers learn of."""
    causes = [cause for cause, floor in loud(floors).items() if floor > 1]
    return causes[0] if len(causes) == 1 else "mixed" if causes else ""


def loud(floors: dict[str, int]) -> dict[str, int]:
    """The floors whose records are missed by readers: not those that somebody deleted, or all consumers have read."""
    return {cause: floor for cause, floor in floors.items() if cause not in _SILENT}
