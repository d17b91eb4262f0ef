"""The unfinished work in the cold store for one log, and how a start finds it again.

Source: docs/reference/format.md#cold-tier.
"""

from __future__ import annotations

import structlog

from storage.segments import names
from storage.segments.names import SegmentId
from storage.segments.store import id_of
from storage.state import COLD, Log

_log = structlog.get_logger("storage")


class PendingUploads:
    """Of one log. Belongs to the relocator, on the loop."""

    __slots__ = ("attempted", "garbage", "indexes", "topic_file")

    def __init__(self) -> None:
        #: Whether topic.json is out of date.
        self.topic_file = False
        #: .idx objects that may be out of date; True: compare before putting.
        self.indexes: dict[SegmentId, bool] = {}
        #: Segments whose objects are to be removed.
        self.garbage: set[SegmentId] = set()
        #: Hot segments whose upload was begun.
        self.attempted: set[SegmentId] = set()

    def __bool__(self) -> bool:
        return bool(self.topic_file or self.indexes or self.garbage or self.attempted)


def pending_for(log: Log, there: set[str]) -> PendingUploads | None:
    """The unfinished work for a log that has objects of these names in the store; None: there is none."""
    named = {id_of(log.topic_id, segment): segment for segment in log.held.manifest.segments if segment.tier == COLD}
    if not named and not there:
        return None
    pending = PendingUploads()
    pending.topic_file = True
    for name in there:
        parsed = names.parse_name(name)
        if parsed is not None and (id := SegmentId(log.topic_id, *parsed[:2])) not in named:
            pending.garbage.add(id)
    for id, segment in named.items():
        if names.data_name(id.first_seq, id.gen) not in there:
            _log.error("cold_segment_missing", topic_id=id.topic_id, first_seq=id.first_seq, gen=id.gen)
        # Flags in the store can be out of date only if something was deleted.
        if segment.dead or names.idx_name(id.first_seq, id.gen) not in there:
            pending.indexes[id] = True
    return pending
