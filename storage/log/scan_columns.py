"""Units of the log as columns of numbers, for the way from one process to another.

A unit that is one run of records and nothing else, as nearly all are, is a row; taking a row apart and making it again
costs a fraction of what pickling its dozen objects does. Anything else goes as it is.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from storage.format.control import Batch
from storage.log.submission import AppendStep, Unit
from storage.log.units import ScannedUnit
from storage.records.batches import AppendedRecords


class UnitColumns(NamedTuple):
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


Packed: TypeAlias = list[UnitColumns | ScannedUnit]


def pack(units: Iterable[ScannedUnit]) -> Packed:
    """The units, in order. `unpack` gives back their equals."""
    found: Packed = []
    units_: list[tuple[ScannedUnit, AppendStep]] = []
    for each in units:
        steps = each.unit.steps
        step = steps[0] if len(steps) == 1 else None
        if isinstance(step, AppendStep) and _is_uniform(each, step):
            units_.append((each, step))
            continue
        if units_:
            found.append(_columns(units_))
            units_ = []
        found.append(each)
    if units_:
        found.append(_columns(units_))
    return found


def _columns(units_: list[tuple[ScannedUnit, AppendStep]]) -> UnitColumns:
    numbers = [
        (unit.offset, unit.end, lead, topic_id, appended.first_seq, appended.ts, len(appended.sizes))
        for unit, (topic_id, appended, lead) in units_
    ]
    sizes, payloads = array("I"), array("I")
    for _, (_, appended, _) in units_:
        sizes.extend(appended.sizes)
        payloads.extend(appended.payloads)
    batches = [unit.unit.batch for unit, _ in units_]
    keys = [(batch.key, batch.hash) for batch in batches if batch is not None]
    columns = [array("Q", column) for column in zip(*numbers, strict=True)]
    return UnitColumns(*columns, sizes=sizes, payloads=payloads, keys=keys)


def _is_uniform(unit: ScannedUnit, step: AppendStep) -> bool:
    """Whether all that is in the unit can be told from a row."""
    appended, batch = step.appended, unit.unit.batch
    if appended.tagged or appended.delayed:
        return False
    count = len(appended.sizes)
    if batch is None:
        return step.offset == 0 and unit.frames == count
    return (
        step.offset > 0
        and unit.frames == count + 1
        and batch == _batch(unit.offset, unit.end, step.offset, appended.first_seq, count, (batch.key, batch.hash))
    )


def _batch(offset: int, end: int, lead: int, first_seq: int, count: int, key: tuple[str | None, bytes | None]) -> Batch:
    return Batch(frames=count, body_bytes=end - offset - lead, first_seq=first_seq, key=key[0], hash=key[1])


def _unit(
    offset: int,
    end: int,
    lead: int,
    topic_id: int,
    appended: AppendedRecords,
    key: tuple[str | None, bytes | None] | None,
) -> ScannedUnit:
    count = len(appended.sizes)
    if key is None:
        return ScannedUnit(offset, end, Unit(None, [AppendStep(topic_id, appended, lead)]), count)
    batch = _batch(offset, end, lead, appended.first_seq, count, key)
    return ScannedUnit(offset, end, Unit(batch, [AppendStep(topic_id, appended, lead)]), count + 1)


def unpack(packed: Packed) -> Iterator[ScannedUnit]:
    """The units that were packed."""
    for each in packed:
        if not isinstance(each, UnitColumns):
            yield each
            continue
        at, keys = 0, iter(each.keys)
        for offset, end, lead, topic_id, first_seq, ts, count in zip(*each[:7], strict=True):
            appended = AppendedRecords(first_seq, ts, each.sizes[at : at + count], each.payloads[at : at + count], [])
            yield _unit(offset, end, lead, topic_id, appended, next(keys) if lead else None)
            at += count
