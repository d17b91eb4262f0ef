"""Arguments and results of queue operations: plain values. Times are ms since the epoch, engine time."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, overload

import msgspec

from storage.records.values import StoredRecord


class JobState(enum.StrEnum):
    """The state of a job that is not acked. `dead`: on its way to the dead letter topic."""

    READY = "ready"
    LEASED = "leased"
    DELAYED = "delayed"
    DEAD = "dead"


class ClaimedJob(NamedTuple):
    """One job given to a claim. `lease_id` is the token of this lease, not 0; expired iff now > deadline."""

    record: StoredRecord
    lease_id: int
    deadline: int
    deliveries: int


#: Creates the tuple without a Python call.
_claimed_job: Callable[[Iterable[Any]], ClaimedJob] = partial(tuple.__new__, ClaimedJob)  # pyright: ignore


class ClaimedBatch(Sequence[ClaimedJob]):
    """The jobs given to one claim, each for the first time. Each is created on access, and not kept."""

    __slots__ = ("deadline", "lease_ids", "records")

    def __init__(self, records: Sequence[StoredRecord], lease_ids: Sequence[int], deadline: int) -> None:
        self.records = records
        self.lease_ids = lease_ids
        self.deadline = deadline

    def __len__(self) -> int:
        return len(self.lease_ids)

    def __iter__(self) -> Iterator[ClaimedJob]:
        return map(_claimed_job, zip(self.records, self.lease_ids, repeat(self.deadline), repeat(1), strict=False))

    @overload
    def __getitem__(self, index: int) -> ClaimedJob: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[ClaimedJob]: ...

    def __getitem__(self, index: int | slice) -> ClaimedJob | Sequence[ClaimedJob]:
        if isinstance(index, slice):
            return [*self][index]
        return ClaimedJob(self.records[index], self.lease_ids[index], self.deadline, 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]  # pyright: ignore[reportUnknownArgumentType]


class Settled(msgspec.Struct, kw_only=True):
    """The outcome of an ack, nack or extend: the jobs, and those it skipped because the lease is not (or no longer)
    the caller's. `deadlines` by seq, for an extend."""

    topic: str
    done: list[int]
    skipped: list[int]
    ready: int
    in_flight: int
    deadlines: dict[int, int] = {}


class JobView(msgspec.Struct, kw_only=True):
    """A job in a listing. `deadline` of a lease, `ready_at` of a delay."""

    seq: int
    state: JobState
    deliveries: int
    node: str | None = None
    deadline: int | None = None
    ready_at: int | None = None


class Redriven(msgspec.Struct, kw_only=True):
    """What a redrive moved (or, in a dry run, would move), and how many jobs remain."""

    moved: int
    remaining: int
