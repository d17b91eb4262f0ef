"""Two tables driven by the same operations: one keeps jobs together in grants, the other each job alone.

After every operation both must give the same answers; `Pair` compares them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest

from storage.format.control import Lease
from storage.state.queues import leases
from storage.state.queues.leases import DEAD, LEASED, Job, LeaseBatch, LeaseTable
from storage.state.queues.policy import Limits
from storage.state.queues.section import capture, restore

NODES = ("a", "a", "a", "b")


class Leased(NamedTuple):
    """A claim that was answered."""

    node: str
    seqs: list[int]
    tokens: list[int]


class Holding:
    """Notes which leases end."""

    def __init__(self) -> None:
        self.ended: list[int] = []

    def lease_ended(self, seq: int) -> None:
        self.ended.append(seq)


class Side:
    """One of the two tables. It returns a grant or jobs, and takes the same kind back for acks and nacks."""

    def __init__(self, limits: Limits, together: bool) -> None:
        self.limits = limits
        self.together = together
        self.table = LeaseTable(limits)
        self.holder = Holding()

    def take(self, count: int, live_seqs: Callable[[int, int], Sequence[int]]) -> LeaseBatch | list[Job]:
        grant = self.table.take_batch(count, live_seqs) if self.together else None
        return grant if grant is not None else self.table.take(count, live_seqs)

    def apply(self, value: Lease, node: str = "") -> None:
        with pytest.MonkeyPatch.context() as patch:
            if not self.together:
                value = msgspec.structs.replace(value, jobs=[*value.jobs])  # without the columns of a batch
                patch.setattr(leases, "uniform_columns", lambda jobs: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
            self.table.apply(value, node)

    def lease(self, taken: LeaseBatch | list[Job], value: Lease, node: str, *, durable: bool, held: bool) -> None:
        """Like `together.hand_out` and `Dispatcher._hand_out`."""
        grant = taken if isinstance(taken, LeaseBatch) else None
        if grant is None or grant.separate is not None or durable:
            self.apply(value, node)
        else:
            tokens = tuple(row[1] for row in value.jobs)
            self.table.lease_batch(grant, tokens, value.jobs[0][2], node, value.attempt_key)
        holder = self.holder if held else None
        jobs = taken if isinstance(taken, list) else taken.separate or ()
        for job in jobs:
            job.holder, job.size = holder, 10
        if grant is not None:
            grant.holder, grant.sizes = holder, [10] * len(grant.seqs)

    def fail(self, taken: LeaseBatch | list[Job]) -> None:
        if isinstance(taken, LeaseBatch):
            self.table.put_back_batch(taken)
        else:
            self.table.put_back(taken)

    def hold(self, leased: Leased, now_ms: int) -> LeaseBatch | list[Job] | None:
        """The seqs of an ack of these jobs, which are busy from here on. None: some are not held, or not free."""
        grant = self.table.held_batch(leased.seqs, leased.tokens, leased.node, now_ms)
        if grant is not None:
            grant.busy = True
            return grant
        found = [self.table.held_by(seq, leased.node, token, now_ms) for seq, token in zip(*leased[1:], strict=True)]
        jobs = [job for job in found if job is not None and not job.busy]
        if len(jobs) < len(found) or not jobs:
            return None
        for job in jobs:
            job.busy = True
        return jobs

    def image(self, live: int) -> Any:
        """Everything that is visible."""
        table = self.table
        ended, self.holder.ended = self.holder.ended, []
        attempts = {key: (each.jobs, each.remaining) for key, each in table.attempts.items()}
        figures = table.counts, table.in_flight, table.ready(live), table.touched, table.dead_lettered
        comes = table.next_change(), table.first_back(), table.taken, table.dying
        return figures, comes, sorted(map(row_of, table.everything())), attempts, sorted(ended)


def row_of(job: Job) -> Any:
    lease = job.lease_id, job.deadline, job.node if job.state == LEASED else ""
    attempt = job.attempt.key if job.attempt is not None else ""
    return (
        *job.entry(),
        job.state,
        *lease,
        job.busy,
        job.gone,
        job.reason or "",
        attempt,
        job.holder is not None,
        job.size,
    )


def seqs_of(taken: LeaseBatch | list[Job]) -> list[int]:
    return [*taken.seqs] if isinstance(taken, LeaseBatch) else [job.seq for job in taken]


def rows_of(taken: LeaseBatch | list[Job], tokens: Iterable[int], deadline: int) -> list[Any]:
    jobs = taken if isinstance(taken, list) else taken.separate or taken.jobs()
    return [
        (job.seq, token, deadline, job.deliveries + 1, 0, job.forgiven) for job, token in zip(jobs, tokens, strict=True)
    ]


class Pair:
    """Both tables, the existing records, and the operations in flight."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.limits = Limits(2, "dead") if seed % 2 else Limits()
        self.sides = Side(self.limits, True), Side(self.limits, False)
        self.live: list[int] = []
        self.head = self.token = self.key = 0
        self.now = 1_000_000
        self.leased: list[Leased] = []
        self.claiming: list[tuple[LeaseBatch | list[Job], list[Job]]] = []
        self.acking: list[tuple[LeaseBatch | list[Job], list[Job], list[int]]] = []
        #: What a log would contain: applied to a new table, it gives the same state.
        self.journal: list[Callable[[Side], None]] = []
        self.grants = 0

    def live_seqs(self, seq: int, count: int) -> list[int]:
        at = bisect_left(self.live, seq)
        return self.live[at : at + count]

    def alike(self) -> None:
        one, other = (side.image(len(self.live)) for side in self.sides)
        assert one == other
        assert not self.sides[1].table.batches
        self.grants += bool(self.sides[0].table.batches)

    def write(self, step: Callable[[Side], None]) -> None:
        """A committed frame: applied to both tables, and again by a replay."""
        self.journal.append(step)
        for side in self.sides:
            step(side)

    def lease_frame(self, event: Any, jobs: list[Any], node: str = "", **more: Any) -> None:
        value = Lease(event=event, jobs=jobs, **more)
        self.write(lambda side: side.apply(value, node))

    def gone(self, seqs: Iterable[int]) -> None:
        gone = {*seqs}
        self.live = [seq for seq in self.live if seq not in gone]

    # -- what may happen ---------------------------------------------------------------------------------------------

    def append(self) -> None:
        count = self.random.randint(1, 30)
        fresh = [*range(self.head + 1, self.head + 1 + count)]
        self.head += count
        self.live += fresh
        if self.random.random() < 0.2:
            delays = [(seq, self.now + self.random.randint(1, 400)) for seq in self.random.sample(fresh, min(2, count))]
            self.write(lambda side: side.table.delay(delays))

    def claim(self) -> None:
        most = self.random.choice((1, 2, 5, 20))
        one, other = (side.take(most, self.live_seqs) for side in self.sides)
        assert isinstance(other, list)
        assert seqs_of(one) == seqs_of(other)
        if other:
            self.claiming.append((one, other))
            if self.random.random() < 0.7:
                self.give()

    def give(self) -> None:
        if not self.claiming:
            return
        pair = self.claiming.pop(self.random.randrange(len(self.claiming)))
        if self.random.random() < 0.15:
            for side, taken in zip(self.sides, pair, strict=True):
                side.fail(taken)
            return
        seqs, node, durable = seqs_of(pair[0]), self.random.choice(NODES), self.random.random() < 0.5
        key = self.random.choice((None, None, f"k{self.random.randrange(4)}"))
        tokens = [self.token + 1 + index for index in range(len(seqs))]
        self.token += len(seqs)
        deadline, held = self.now + self.random.randint(0, 600), self.random.random() < 0.3
        for side, taken in zip(self.sides, pair, strict=True):
            value = Lease(event="claimed", jobs=rows_of(taken, tokens, deadline), attempt_key=key)
            side.lease(taken, value, node, durable=durable, held=held)
        value = Lease(event="claimed", jobs=rows_of_frame(pair[1], tokens, deadline), attempt_key=key)
        self.journal.append(lambda side: side.apply(value, node))
        self.leased.append(Leased(node, seqs, tokens))

    def picked(self) -> Leased | None:
        """A claim as it was answered, or a part of it, or its jobs in another order, or jobs of another node."""
        if not self.leased:
            return None
        found = self.leased[-min(len(self.leased), self.random.randint(1, 6))]
        kind = self.random.random()
        if kind < 0.5:
            return found
        if kind < 0.55:
            return found._replace(node="c")
        order = self.random.sample(range(len(found.seqs)), self.random.randint(1, len(found.seqs)))
        order = order if kind < 0.6 else sorted(order)
        return Leased(found.node, [found.seqs[at] for at in order], [found.tokens[at] for at in order])

    def ack(self) -> None:
        leased = self.picked()
        if leased is None:
            return
        if self.random.random() < 0.3:
            leased = leased._replace(tokens=[0] * len(leased.seqs))
        one, other = (side.hold(leased, self.now) for side in self.sides)
        assert (one is None) == (other is None)
        if one is not None:
            assert isinstance(other, list)
            self.acking.append((one, other, leased.seqs))
            if self.random.random() < 0.7:
                self.acked()

    def acked(self) -> None:
        if not self.acking:
            return
        one, other, seqs = self.acking.pop(self.random.randrange(len(self.acking)))
        if self.random.random() < 0.2:
            for side, taken in zip(self.sides, (one, other), strict=True):
                side.fail(taken)
            return
        self.gone(seqs)
        self.write(lambda side: side.table.forget_deleted(seqs))

    def free(self) -> list[Any] | None:
        """(seq, token, deliveries, forgiven) of jobs that are picked, held and not busy."""
        leased = self.picked()
        if leased is None:
            return None
        rows: list[list[Any]] = []
        for side in self.sides:
            jobs = [side.table.held_by(seq, leased.node, token, self.now) for _, seq, token in zip_of(leased)]
            rows.append(
                [
                    (job.seq, job.lease_id, job.deliveries, job.forgiven)
                    for job in jobs
                    if job is not None and not job.busy
                ]
            )
        assert rows[0] == rows[1]
        return rows[0] or None

    def nack(self) -> None:
        wait, forgiven = self.random.choice((0, 0, 50)), self.random.random() < 0.5
        at = self.now + wait if wait else 0
        if rows := self.free():
            self.lease_frame("released", [(seq, 0, 0, n, at, f + forgiven) for seq, _, n, f in rows], reason="r")

    def extend(self) -> None:
        deadline = self.now + self.random.randint(0, 900)
        if rows := self.free():
            self.lease_frame("extended", [(seq, token, deadline, n, 0, f) for seq, token, n, f in rows])

    def time(self) -> None:
        times = [at for at in (self.sides[0].table.next_change(),) if at is not None]
        self.now = max(self.now, self.random.choice([self.now + self.random.randint(0, 200), *times]))
        came = [side.table.advance(self.now) for side in self.sides]
        assert came[0] == came[1]
        one, other = (side.table.expired(self.now) for side in self.sides)
        assert sorted(map(row_of, one)) == sorted(map(row_of, other))
        if not one:
            return
        if self.random.random() < 0.2:
            for side, jobs in zip(self.sides, (one, other), strict=True):
                side.table.put_back(jobs)
        else:
            self.lease_frame("expired", sorted((job.seq, 0, 0, job.deliveries, 0, job.forgiven) for job in one))

    def delete(self) -> None:
        acking = {seq for _, _, seqs in self.acking for seq in seqs}
        near = [seq for seq in self.live[:60] if seq not in acking]
        seqs = sorted(self.random.sample(near, min(len(near), self.random.randint(1, 3))))
        self.gone(seqs)
        self.write(lambda side: [side.table.deleted(seq) for seq in seqs])

    def raise_floor(self) -> None:
        if self.acking or len(self.live) < 20:
            return
        floor = self.live[self.random.randint(1, 10)] + self.random.randint(0, 1)
        self.gone([seq for seq in self.live if seq < floor])
        self.write(lambda side: side.table.floor_raised(floor))

    def repeat(self) -> None:
        node, key = self.random.choice(NODES), f"k{self.random.randrange(4)}"
        found = [side.table.repeat(node, key, self.now) for side in self.sides]
        one, other = ([row_of(job) for job in jobs] if jobs else None for jobs in found)
        assert one == other

    def move_dead(self) -> None:
        dying = sorted(self.sides[0].table.dying)[:3]
        jobs = [self.sides[0].table.jobs[seq] for seq in dying]
        if dying:
            assert {job.state for job in jobs} == {DEAD}
            self.lease_frame("dead", [(job.seq, 0, 0, job.deliveries, 0, job.forgiven) for job in jobs])
            self.gone(dying)
            self.write(lambda side: side.table.forget_deleted(dying))

    def snapshot(self) -> None:
        """Replace both tables by their restored snapshots, if no operation is in flight."""
        if self.claiming or self.acking or self.random.random() < 0.7:
            return
        sections = [capture(side.table, leases=True) for side in self.sides]
        taken = {section.taken for section in sections}
        lengths = {len(section.seqs) for section in sections}
        assert (len(taken), len(lengths)) == (1, 1)
        assert sorted(sections[0].attempts, key=str) == sorted(sections[1].attempts, key=str)
        for side, section in zip(self.sides, sections, strict=True):
            side.table = LeaseTable(self.limits)
            restore(side.table, section)

    def review(self) -> None:
        if self.limits.dead_letter:
            limits = Limits(self.random.choice((1, 2, 3)), "dead")
            self.write(lambda side: side.table.review(limits))

    def step(self) -> None:
        usual = [self.append, self.claim, self.claim, self.give, self.ack, self.ack, self.acked, self.time]
        seldom = [self.nack, self.extend, self.delete, self.raise_floor, self.repeat, self.move_dead, self.snapshot]
        choice = self.random.choice(usual if self.random.random() < 0.75 else [*seldom, self.review])
        choice()


def zip_of(leased: Leased) -> Iterable[tuple[str, int, int]]:
    return ((leased.node, seq, token) for seq, token in zip(leased.seqs, leased.tokens, strict=True))


def rows_of_frame(jobs: list[Job], tokens: list[int], deadline: int) -> list[Any]:
    """The deliveries afterwards: by now the jobs have been delivered once more."""
    return [
        (job.seq, token, deadline, job.deliveries, 0, job.forgiven) for job, token in zip(jobs, tokens, strict=True)
    ]
