"""Applies one committed unit: the only way records and control frames take effect, live and in recovery."""

from __future__ import annotations

from storage.format.control import RouterCursor
from storage.format.wal_frame import FrameType
from storage.log.submission import ControlStep, LoneAppendsStep, PersistStep, Unit
from storage.state.catalog import Catalog
from storage.state.log import Log


def apply_unit(catalog: Catalog, unit: Unit, lsn: int, end_lsn: int, entry: int = -1) -> int | None:
    """Publish a unit whose bytes lie at `lsn` (0: in memory only) up to `end_lsn`.

    `entry` is that of the unit's reserved run; without one (recovery) runs are reserved here. The caller has checked
    that runs continue their logs. Returns what the last removing control frame removed, in records.
    """
    removed: int | None = None
    count = 0
    topic_id = 0
    ts = 0
    log: Log | None = None
    for step in unit.steps:
        topic_id = step.topic_id
        if isinstance(step, ControlStep):
            log = None  # it may go
            if isinstance(step.value, RouterCursor):
                catalog.move_router(topic_id, step.value, count)
                continue
            result = catalog.apply(step.type, topic_id, step.ts, step.value, lsn, step.node)
            removed = result if result is not None else removed
            ts = step.ts
            continue
        log = catalog.log(topic_id)
        if log is None:
            continue
        if isinstance(step, PersistStep):
            log.written_out(log.tail.set_batch_lsn(step.first_seq, lsn, step.offset))
            continue
        if isinstance(step, LoneAppendsStep):
            log.take_lone(step.lone, lsn)
            continue
        appended = step.appended
        log.commit(appended, log.reserve(appended) if entry < 0 else entry, lsn, step.offset)
        count += len(appended.sizes)
        ts = appended.ts
    if unit.batch is not None:
        catalog.remember(topic_id, ts, unit.batch, count)
    log = log or catalog.log(topic_id)
    if log is not None and end_lsn:
        log.applied_lsn = end_lsn
    elif topic_id == 0 and any(isinstance(step, ControlStep) and step.type == FrameType.STATE for step in unit.steps):
        catalog.states.applied_lsn = end_lsn
    return removed
