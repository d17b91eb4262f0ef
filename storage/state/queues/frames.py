"""The state of a queue's jobs as Lease frames. Pure.

Source: docs/reference/format.md#lease.
"""

from __future__ import annotations

from collections.abc import Iterator

from storage.format import Lease
from storage.state.queues.leases import DELAYED, LEASED, READY, Attempt, LeaseEntry, LeaseTable

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
