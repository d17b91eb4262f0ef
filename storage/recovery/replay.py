"""Applies replayed units: records that a snapshot section already holds are only indexed, the rest goes through
`apply`.

Source: docs/reference/format.md#snapshots, docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel import Batches
from storage.errors import WalCorrupt
from storage.format import control
from storage.log import (
    MAX_OFFSET,
    AppendStep,
    BatchesStep,
    ControlStep,
    PersistStep,
    ScannedUnit,
    Step,
    Unit,
    apply_unit,
    position,
    split,
)
from storage.platform import layout
from storage.recovery.salvage import Salvage
from storage.state import Catalog, Log, tag_match


class Replay:
    """Replays one shard. `as_of`: by topic_id, the position below which the snapshot's section is complete.

    `beyond`: a frame was applied that the snapshot did not know, supposing that the snapshot is of a clean stop.
    """

    def __init__(
        self,
        catalog: Catalog,
        as_of: dict[int, int],
        directory: str,
        salvage: Salvage | None,
        without_segments: Sequence[range] = (),
    ) -> None:
        """`without_segments`: ignore the log's frames about segments, which belong to another directory."""
        self._catalog = catalog
        self._as_of = as_of
        self._directory = directory
        self._salvage = salvage
        self._next_topic_id = catalog.next_topic_id
        self._without_segments = without_segments
        self.beyond = False

    def known_below(self, number: int) -> int:
        """Offset in a file below which units are applied one by one: the snapshot may know them, or salvage needs
        them."""
        if self._salvage is not None:
            return MAX_OFFSET
        file, offset = split(max(self._as_of.values(), default=0))
        return offset if file == number else MAX_OFFSET if file > number else 0

    def apply(self, number: int, scanned: ScannedUnit) -> None:
        """Apply one whole, verified unit. Raises WalCorrupt when its seqs leave a gap."""
        unit = scanned.unit
        if not unit.steps:
            return
        topic_id = unit.steps[0].topic_id
        lsn = position(number, scanned.offset)
        if any(lsn in each for each in self._without_segments):
            unit = _without_segments(unit)
            if not unit.steps:
                return
        log = self._catalog.log(topic_id)
        if log is not None and lsn < self._as_of.get(topic_id, 0):
            self._index(log, unit, lsn)
            return
        if topic_id == 0 and self._is_state(unit.steps[0]) and lsn < self._as_of.get(0, 0):
            return
        self.beyond = self.beyond or self._is_news(unit.steps[0])
        if log is None and self._salvage is not None:
            self._salvage.ownerless(unit.steps)
        if log is not None:
            unit = self._following_on(log, unit, number, scanned.offset)
            if log.ephemeral and log.half_written is None:
                log.half_written = _first_append(unit)
        apply_unit(self._catalog, unit, lsn, position(number, scanned.end))

    def _is_news(self, step: Step) -> bool:
        """Whether a clean stop's snapshot did not know the step. If the id of a log without a section had been
        assigned, that log was deleted; and a CheckpointMark may repeat a known state."""
        if isinstance(step, ControlStep) and isinstance(step.value, control.CheckpointMark):
            return any(self._is_further(topic_id, seq) for topic_id, seq in step.value.absorbed.items())
        if step.topic_id == 0:
            return self._is_state(step)
        return step.topic_id in self._as_of or step.topic_id >= self._next_topic_id

    @staticmethod
    def _is_state(step: Step) -> bool:
        return isinstance(step, ControlStep) and isinstance(step.value, control.State)

    def _is_further(self, topic_id: int, flushed: int) -> bool:
        log = self._catalog.log(topic_id) if topic_id in self._as_of else None
        return topic_id >= self._next_topic_id or (log is not None and flushed > log.held.flushed)

    def _index(self, log: Log, unit: Unit, lsn: int) -> None:
        """Below as_of, the section has head, counts, keys and floors: add only positions and delete flags."""
        for step in unit.steps:
            if isinstance(step, AppendStep):
                if step.appended.last_seq >= log.marks.live_floor and step.appended.last_seq > log.held.flushed:
                    log.index_only(step.appended, lsn, step.offset)
                    for start, end, _ in log.marks.loss:
                        for seq in range(max(start, step.appended.first_seq), min(end, step.appended.last_seq) + 1):
                            log.tail.delete(seq)
            elif isinstance(step, ControlStep) and isinstance(step.value, control.Delete):
                self._flag(log, step.value, lsn)

    @staticmethod
    def _flag(log: Log, value: control.Delete, lsn: int) -> None:
        if value.match is None and value.seqs is None:
            return
        last = log.delete_end(value)
        log.held.deferred.append((value, lsn))
        seqs = value.seqs if value.seqs is not None else log.tags.find(tag_match(value.match or []), last)
        for seq in seqs:
            if max(log.marks.live_floor, log.held.flushed + 1) <= seq <= last:
                log.tail.delete(seq)

    def _following_on(self, log: Log, unit: Unit, number: int, offset: int) -> Unit:
        """The unit without records that exist already. A gap in the seqs needs a reservation (or salvage)."""
        steps = unit.steps
        head = log.head
        for step in steps:
            if isinstance(step, ControlStep):
                if isinstance(step.value, control.EvictWatermark):
                    head = max([head, *(end for _, end, _ in step.value.loss or ())])
                continue
            if isinstance(step, PersistStep):
                continue
            appended = step.appended if isinstance(step, AppendStep) else step.batches
            if isinstance(appended, Batches) and appended.first_seq <= head < appended.last_seq:
                appended = appended.behind(head)
                step = BatchesStep(log.topic_id, appended)
                steps = list[Step]((step,))
            if appended.last_seq <= head:
                steps = [each for each in steps if each is not step]
                continue
            if appended.first_seq != head + 1:
                self._jump(log, head, appended.first_seq, number, offset)
            head = appended.last_seq
        return unit if steps is unit.steps else Unit(None, steps)

    def _jump(self, log: Log, head: int, first_seq: int, number: int, offset: int) -> None:
        if first_seq > head + 1 and (log.reserved >= first_seq - 1 or self._salvage is not None):
            return  # salvage looks for missing records after everything has been read
        path = layout.join(self._directory, layout.wal_name(number))
        raise WalCorrupt(
            f"{path}, offset {offset}: seq {first_seq} of log {log.topic_id} follows seq {head}: records are missing.",
            file=path,
            offset=offset,
        )


def _without_segments(unit: Unit) -> Unit:
    """The unit without what it says about segments: their records stay in the log, and go into segments anew."""
    steps = [
        step
        for step in unit.steps
        if not (isinstance(step, ControlStep) and isinstance(step.value, control.CheckpointMark | control.Segment))
    ]
    return unit if len(steps) == len(unit.steps) else Unit(None, steps)


def _first_append(unit: Unit) -> int | None:
    """The first seq of the records in a unit."""
    for step in unit.steps:
        if isinstance(step, AppendStep):
            return step.appended.first_seq
        if isinstance(step, BatchesStep):
            return step.batches.first_seq
    return None
