"""Units of the log as columns of numbers, for the way from one process to another.

A unit that is one run of records and nothing else, as nearly all are, is a row; taking a row apart and making it again
costs a fraction of what pickling its dozen objects does. Anything else goes as it is.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from storage.format.control import Batch
from storage.log.submission import RunStep, Unit
from storage.log.units import ScannedUnit
from storage.records.batches import Run


class Rows(NamedTuple):
    """Consecutive units, each of a Batch frame of `leads` bytes (0: none) and `counts` records without tag or delay."""

    offsets: array[int]
    ends: array[int]
    leads: array[int]
    topic_ids: array[int]
    first_seqs: array[int]
    stamps: array[int]
    counts: array[int]
    sizes: array[int]
    payloads: array[int]
    keys: list[tuple[str | None, bytes | None]]
    """Of the Batch frame, where there is one: key and hash."""


Packed: TypeAlias = list[Rows | ScannedUnit]


def pack(units: Iterable[ScannedUnit]) -> Packed:
    """The units, in order. `unpack` gives back their equals."""
    found: Packed = []
    rows: list[tuple[ScannedUnit, RunStep]] = []
    for each in units:
        steps = each.unit.steps
        step = steps[0] if len(steps) == 1 else None
        if isinstance(step, RunStep) and _is_row(each, step):
            rows.append((each, step))
            continue
        if rows:
            found.append(_columns(rows))
            rows = []
        found.append(each)
    if rows:
        found.append(_columns(rows))
    return found


def _columns(rows: list[tuple[ScannedUnit, RunStep]]) -> Rows:
    numbers = [
        (unit.offset, unit.end, lead, topic_id, run.first_seq, run.ts, len(run.sizes))
        for unit, (topic_id, run, lead) in rows
    ]
    sizes, payloads = array("I"), array("I")
    for _, (_, run, _) in rows:
        sizes.extend(run.sizes)
        payloads.extend(run.payloads)
    batches = [unit.unit.batch for unit, _ in rows]
    keys = [(batch.key, batch.hash) for batch in batches if batch is not None]
    columns = [array("Q", column) for column in zip(*numbers, strict=True)]
    return Rows(*columns, sizes=sizes, payloads=payloads, keys=keys)


def _is_row(unit: ScannedUnit, step: RunStep) -> bool:
    """Whether all that is in the unit can be told from a row."""
    run, batch = step.run, unit.unit.batch
    if run.tagged or run.delayed:
        return False
    count = len(run.sizes)
    if batch is None:
        return step.offset == 0 and unit.frames == count
    return (
        step.offset > 0
        and unit.frames == count + 1
        and batch == _batch(unit.offset, unit.end, step.offset, run.first_seq, count, (batch.key, batch.hash))
    )


def _batch(offset: int, end: int, lead: int, first_seq: int, count: int, key: tuple[str | None, bytes | None]) -> Batch:
    return Batch(frames=count, body_bytes=end - offset - lead, first_seq=first_seq, key=key[0], hash=key[1])


def _unit(
    offset: int, end: int, lead: int, topic_id: int, run: Run, key: tuple[str | None, bytes | None] | None
) -> ScannedUnit:
    count = len(run.sizes)
    if key is None:
        return ScannedUnit(offset, end, Unit(None, [RunStep(topic_id, run, lead)]), count)
    batch = _batch(offset, end, lead, run.first_seq, count, key)
    return ScannedUnit(offset, end, Unit(batch, [RunStep(topic_id, run, lead)]), count + 1)


def unpack(packed: Packed) -> Iterator[ScannedUnit]:
    """The units that were packed."""
    for each in packed:
        if not isinstance(each, Rows):
            yield each
            continue
        at, keys = 0, iter(each.keys)
        for offset, end, lead, topic_id, first_seq, ts, count in zip(*each[:7], strict=True):
            run = Run(first_seq, ts, each.sizes[at : at + count], each.payloads[at : at + count], [])
            yield _unit(offset, end, lead, topic_id, run, next(keys) if lead else None)
            at += count
