"""Jobs that were claimed together for the first time, and that still have the same state.

Most jobs are like that: claimed and acked by the hundred. As long as nothing happens to one of them alone, a batch
represents them all, and operations work on columns. `JobTable.take_apart` handles the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import TypeAlias

from storage.state.queues.job import CLAIMING, Attempt, Holder, Job, LeaseEntry

#: Seqs, lease_ids, and the common deadline.
Columns: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]


class LeaseBatch:
    """Jobs with these ascending seqs, each delivered once: CLAIMING, or LEASED to `node`.

    `busy` as in Job. `sizes`: payload bytes of each, if known.
    """

    __slots__ = ("attempt", "busy", "deadline", "holder", "lease_ids", "node", "separate", "seqs", "sizes", "state")

    def __init__(self, seqs: tuple[int, ...]) -> None:
        self.seqs = seqs
        self.state = CLAIMING
        self.lease_ids: tuple[int, ...] = ()
        self.deadline = 0
        self.node = ""
        self.busy = False
        self.sizes: Sequence[int] | None = None
        self.attempt: Attempt | None = None
        self.holder: Holder | None = None
        #: Its jobs, after it was taken apart: from then on they have the state.
        self.separate: list[Job] | None = None

    def jobs(self) -> list[Job]:
        """Its jobs as Job objects, created by every call."""
        return [*map(self.job_at, range(len(self.seqs)))]

    def job_at(self, index: int) -> Job:
        """One of `jobs`."""
        job = Job(self.seqs[index])
        job.state, job.busy = self.state, self.busy
        if self.state != CLAIMING:
            job.lease_id, job.deadline, job.node = self.lease_ids[index], self.deadline, self.node
            job.deliveries = 1
            job.attempt, job.holder = self.attempt, self.holder
        if self.sizes is not None:
            job.size = self.sizes[index]
        return job


class LeaseEntries(list[LeaseEntry]):
    """The result of `lease_entries`, with its columns, so that `apply` need not parse it again. Never changed."""

    __slots__ = ("columns",)

    columns: Columns


def lease_entries(seqs: tuple[int, ...], lease_ids: tuple[int, ...], deadline: int) -> LeaseEntries:
    """The entries of a Lease frame for the jobs of a batch, ascending, claimed together for the first time.

    Raises ValueError unless there is a lease_id for each.
    """
    if len(seqs) != len(lease_ids):
        raise ValueError(f"{len(lease_ids)} lease_ids for {len(seqs)} jobs")
    made = LeaseEntries(zip(seqs, lease_ids, repeat(deadline), repeat(1), repeat(0), repeat(0), strict=False))
    made.columns = seqs, lease_ids, deadline
    return made


def uniform_columns(jobs: Sequence[LeaseEntry]) -> Columns | None:
    """The columns of entries that `lease_entries` could have made, ascending; None for others."""
    if isinstance(jobs, LeaseEntries):
        return jobs.columns
    seqs, lease_ids, deadlines, deliveries, ready_ats, forgiven = zip(*jobs, strict=True)
    count = len(seqs)
    same = (
        deliveries.count(1) == count
        and forgiven.count(0) == count
        and ready_ats.count(0) == count
        and deadlines.count(deadlines[0]) == count
    )
    if not same or not ascending(seqs):
        return None
    return seqs, lease_ids, deadlines[0]


def ascending(seqs: Sequence[int]) -> bool:
    """Whether each is larger than the one before."""
    return [*seqs] == sorted({*seqs})
