"""The segments of one engine, as the parts that work on them in the background share them.

The flusher, housekeeping, the relocator and a backup all use the same files. This keeps them from using one at the same
time. Belongs to the event loop.
"""

from __future__ import annotations

from collections.abc import Callable

from storage.log import Logs
from storage.segments.names import SegmentId
from storage.segments.pins import Pins
from storage.segments.store import SegmentStore
from storage.state import Segment


class Segments:
    """See the module. `store` is there once recovery is over."""

    store: SegmentStore

    def __init__(self, logs: Logs) -> None:
        self.logs = logs
        #: What the backup in progress still has to copy.
        self.pins = Pins(lambda: any(shard.log.full for shard in logs.shards))
        #: Segments that one part is changing or copying: the others leave them alone.
        self.busy: set[Segment] = set()
        #: Files that no manifest names any more. Housekeeping removes them.
        self.retired: list[SegmentId] = []
        #: Somebody waits for the round of background work to end: it ends at its next step.
        self.pausing = False
        #: Called for each segment that a synced frame has taken out of its manifest, with the tier it was in.
        self.on_removed: Callable[[SegmentId, str], None] = _ignore

    def removed(self, id: SegmentId, tier: str) -> None:
        """A synced frame has removed this segment from its manifest: close its files, and let them be removed."""
        self.store.forget(id)
        self.retired.append(id)
        self.on_removed(id, tier)


def _ignore(id: SegmentId, tier: str) -> None:
    """There is no relocator."""
