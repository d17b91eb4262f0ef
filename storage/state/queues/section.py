"""The jobs of a queue in a snapshot, captured and restored, and as Lease frames. Pure.

Source: docs/reference/format.md#queue-in-a-snapshot, docs/reference/format.md#lease.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator

import msgspec

from storage.format import Lease
from storage.state.queues.leases import DELAYED, LEASED, READY, Attempt, Job, LeaseEntry, LeaseTable
from storage.state.queues.moves import Move, Moves


class Attempted(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs given to a claim with an attempt_key."""

    node: str
    key: str
    jobs: list[tuple[int, int]]


class QueueSection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A queue. Columns with one value for each job that was touched: u64, but u32 for deliveries, forgiven and
    holders. `reasons` holds (seq, reason) of each unleased job whose last release gave one; it is no column, because
    few jobs have a reason."""

    taken: int
    lost: int
    dead_lettered: int
    seqs: bytes
    lease_ids: bytes
    deadlines: bytes
    ready_ats: bytes
    deliveries: bytes
    forgiven: bytes
    holders: bytes
    nodes: list[str]
    attempts: list[Attempted]
    reasons: list[tuple[int, str]] = []


class MovesSection(msgspec.Struct, frozen=True, kw_only=True):
    """Open moves out of a log, and copies whose source may still exist."""

    out: list[tuple[int, int, int, str | None]]
    came: list[tuple[int, int]]


def capture(table: LeaseTable, *, leases: bool) -> QueueSection:
    """The table as it is; without `leases`, only what survives a crash of a queue whose leases are not durable."""
    jobs = [job for job in table.everything() if leases or (not job.deliveries and job.ready_at)]
    nodes: dict[str, int] = {}
    return QueueSection(
        taken=table.taken if leases else 0,
        lost=table.lost,
        dead_lettered=table.dead_lettered,
        seqs=_bytes("Q", (job.seq for job in jobs)),
        lease_ids=_bytes("Q", (job.lease_id for job in jobs)),
        deadlines=_bytes("Q", (job.deadline for job in jobs)),
        ready_ats=_bytes("Q", (job.ready_at for job in jobs)),
        deliveries=_bytes("I", (job.deliveries for job in jobs)),
        forgiven=_bytes("I", (job.forgiven for job in jobs)),
        holders=_bytes("I", (nodes.setdefault(job.node, len(nodes)) if job.lease_id else 0 for job in jobs)),
        nodes=list(nodes),
        attempts=[Attempted(node=each.node, key=each.key, jobs=each.jobs) for each in table.attempts.values()]
        if leases
        else [],
        reasons=[(job.seq, job.reason) for job in jobs if job.reason and not job.lease_id],
    )


def restore(table: LeaseTable, section: QueueSection) -> None:
    """Restore into an empty table."""
    table.taken, table.lost, table.dead_lettered = section.taken, section.lost, section.dead_lettered
    reasons = dict(section.reasons)
    columns = zip(
        _array("Q", section.seqs),
        _array("Q", section.lease_ids),
        _array("Q", section.deadlines),
        _array("Q", section.ready_ats),
        _array("I", section.deliveries),
        _array("I", section.forgiven),
        _array("I", section.holders),
        strict=True,
    )
    for seq, lease_id, deadline, ready_at, deliveries, forgiven, holder in columns:
        job = Job(seq)
        job.lease_id, job.deadline, job.ready_at = lease_id, deadline, ready_at
        job.deliveries, job.forgiven = deliveries, forgiven
        job.node = section.nodes[holder] if lease_id else ""
        job.reason = reasons.get(seq)
        table.put(job)
    for each in section.attempts:
        attempt = Attempt(each.node, each.key, each.jobs)
        attempt.remaining = 0
        for seq, lease_id in each.jobs:
            job = table.jobs.get(seq)
            if job is not None and job.lease_id == lease_id:
                job.attempt = attempt
                attempt.remaining += 1
        if attempt.remaining:
            table.attempts[each.node, each.key] = attempt


def capture_moves(moves: Moves) -> MovesSection | None:
    """None when there are none."""
    if not moves:
        return None
    out = [(seq, move.dest_id, move.deliveries, move.reason) for seq, move in sorted(moves.out.items())]
    return MovesSection(out=out, came=sorted(moves.came))


def restore_moves(moves: Moves, section: MovesSection) -> None:
    moves.out = {seq: Move(dest_id, deliveries, reason) for seq, dest_id, deliveries, reason in section.out}
    moves.came = {(source_id, seq) for source_id, seq in section.came}


def _bytes(code: str, values: Iterable[int]) -> bytes:
    column = array(code, values)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def _array(code: str, data: bytes) -> array[int]:
    column: array[int] = array(code)
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column


#: Jobs in one frame of `lease_frames`.
_FRAME_JOBS = 10_000


def lease_frames(table: LeaseTable) -> list[tuple[Lease, str]]:
    """(frame, node): the whole state of a table that has nothing in flight."""
    found: list[tuple[Lease, str]] = []
    leased: dict[tuple[str, Attempt | None], list[LeaseEntry]] = {}
    others: list[LeaseEntry] = []
    for job in table.everything():
        if job.state == LEASED:
            leased.setdefault((job.node, job.attempt), []).append(job.entry())
        elif job.state in (READY, DELAYED) and (job.deliveries or job.ready_at):
            others.append(job.entry())
    for (node, attempt), entries in leased.items():
        key = attempt.key if attempt is not None else None
        found += [(Lease(event="claimed", jobs=part, attempt_key=key), node) for part in _parts(entries)]
    found += [(Lease(event="released", jobs=part), "") for part in _parts(others)]
    return found


def _parts(entries: list[LeaseEntry]) -> Iterator[list[LeaseEntry]]:
    for begin in range(0, len(entries), _FRAME_JOBS):
        yield entries[begin : begin + _FRAME_JOBS]
