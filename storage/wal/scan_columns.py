"""Units of the log as columns of numbers, for the way from one process to another.

A unit that is one run of records and nothing else, as nearly all are, is a row; taking a row apart and making it again
costs a fraction of what pickling its dozen objects does. Anything else goes as it is.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from storage.batches import Run
from storage.format.control import Batch
from storage.wal.submission import RunStep, Unit
from storage.wal.units import ScannedUnit


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
    rows: Rows | None = None
    for each in units:
        step = each.unit.steps[0] if len(each.unit.steps) == 1 else None
        if not isinstance(step, RunStep) or not _is_row(each, step):
            found.append(each)
            rows = None
            continue
        if rows is None:
            rows = Rows(*(array("Q") for _ in range(7)), sizes=array("I"), payloads=array("I"), keys=[])
            found.append(rows)
        batch, run = each.unit.batch, step.run
        numbers = (each.offset, each.end, step.offset, step.topic_id, run.first_seq, run.ts, len(run.sizes))
        for column, number in zip(rows[:7], numbers, strict=True):
            column.append(number)
        rows.sizes.extend(run.sizes)
        rows.payloads.extend(run.payloads)
        if batch is not None:
            rows.keys.append((batch.key, batch.hash))
    return found


def _is_row(unit: ScannedUnit, step: RunStep) -> bool:
    """Whether all that is in the unit can be told from a row."""
    return (
        not step.run.tagged
        and not step.run.delayed
        and unit
        == _unit(
            unit.offset,
            unit.end,
            step.offset,
            step.topic_id,
            step.run,
            (unit.unit.batch.key, unit.unit.batch.hash) if unit.unit.batch is not None else None,
        )
    )


def _unit(
    offset: int, end: int, lead: int, topic_id: int, run: Run, key: tuple[str | None, bytes | None] | None
) -> ScannedUnit:
    count = len(run.sizes)
    if key is None:
        return ScannedUnit(offset, end, Unit(None, [RunStep(topic_id, run, lead)]), count)
    batch = Batch(frames=count, body_bytes=end - offset - lead, first_seq=run.first_seq, key=key[0], hash=key[1])
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
