"""Applies one committed unit: the only way records and control frames take effect, live and in recovery."""

from __future__ import annotations

from storage.format.control import RouterCursor
from storage.format.wal_frame import FrameType
from storage.log.submission import ControlStep, PlaceStep, SinglesStep, Unit
from storage.state.catalog import Catalog
from storage.state.log import Log


def apply_unit(catalog: Catalog, unit: Unit, place: int, end_place: int, row: int = -1) -> int | None:
    """Publish a unit whose bytes lie at `place` (0: in memory only) up to `end_place`.

    `row` is that of the unit's reserved run; without one (recovery) runs are reserved here. The caller has checked
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
            result = catalog.apply(step.type, topic_id, step.ts, step.value, place, step.node)
            removed = result if result is not None else removed
            ts = step.ts
            continue
        log = catalog.log(topic_id)
        if log is None:
            continue
        if isinstance(step, PlaceStep):
            log.written_out(log.tail.place_batch(step.first_seq, place, step.offset))
            continue
        if isinstance(step, SinglesStep):
            log.take_singles(step.singles, place)
            continue
        run = step.run
        log.commit(run, log.reserve(run) if row < 0 else row, place, step.offset)
        count += len(run.sizes)
        ts = run.ts
    if unit.batch is not None:
        catalog.remember(topic_id, ts, unit.batch, count)
    log = log or catalog.log(topic_id)
    if log is not None and end_place:
        log.applied_place = end_place
    elif topic_id == 0 and any(isinstance(step, ControlStep) and step.type == FrameType.STATE for step in unit.steps):
        catalog.states.applied_place = end_place
    return removed
