"""Units of encoded records, in the form that a write makes."""

from __future__ import annotations

from typing import Any

from kernel import Header
from storage.log.encode import EncodedUnit, Surroundings
from storage.log.submission import AppendStep, Unit
from storage.records.batches import AppendedRecords


def assemble(appends: bytes, appended: AppendedRecords, head: Header, **around: Any) -> EncodedUnit:
    """The unit with these Append frames. `around`: see Surroundings. A single frame gets no Batch frame."""
    count = len(appended.sizes)
    if count == 1 and not any(around.values()):
        return EncodedUnit(Unit(None, [AppendStep(head.topic_id, appended, 0)]), appends, 1)
    frames = Surroundings(head, count, **around)
    front, behind = frames(len(appends))
    return EncodedUnit(frames.unit(appended), front + appends + behind, frames.frames)
