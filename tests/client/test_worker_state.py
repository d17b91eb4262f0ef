"""The worker's state of a queue, against a broker made of a dictionary: the worker notices every ended lease, and sends
no outcome for a job whose lease it has lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from topics_client import Job
from topics_client.workers.state import (
    BATCH,
    DONE,
    GIVEN_BACK,
    MAX_UNSENT,
    Held,
    Kind,
    Outcome,
    QueueState,
    Sending,
)

LEASE_S = 30.0
FAILED = Outcome(Kind.NACK, "it failed")


@dataclass
class Model:
    """A queue of the broker: jobs that are not done by seq, and the current leases with seq and end."""

    open: set[int] = field(default_factory=set[int])
    leases: dict[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])
    deliveries: dict[int, int] = field(default_factory=dict[int, int])
    acked: list[str] = field(default_factory=list[str])
    now: float = 100.0
    made: int = 0

    def add(self, count: int) -> None:
        for _ in range(count):
            self.made += 1
            self.open.add(self.made)

    def stands(self, lease_id: str) -> bool:
        return lease_id in self.leases and self.leases[lease_id][1] > self.now

    def claim(self, count: int) -> list[Job]:
        taken = {seq for seq, end in self.leases.values() if end > self.now}
        jobs: list[Job] = []
        for seq in sorted(self.open - taken)[:count]:
            self.deliveries[seq] = self.deliveries.get(seq, 0) + 1
            job = Job(seq=seq, ts=0, lease_id=f"{seq}-{self.deliveries[seq]}", deadline=0, deliveries=1)
            self.leases[job.lease_id] = (seq, self.now + LEASE_S)
            jobs.append(job)
        return jobs

    def settle(self, jobs: list[Job], outcome: Outcome) -> list[int]:
        skipped: list[int] = []
        for job in jobs:
            if not self.stands(job.lease_id):
                skipped.append(job.seq)
                continue
            del self.leases[job.lease_id]
            if outcome.kind is not Kind.NACK:
                self.acked.append(job.lease_id)
                self.open.discard(job.seq)
            elif not outcome.penalty:
                self.deliveries[job.seq] -= 1
        return skipped

    def extend(self, jobs: list[Job]) -> list[int]:
        for job in jobs:
            if self.stands(job.lease_id):
                self.leases[job.lease_id] = (job.seq, self.now + LEASE_S)
        return [job.seq for job in jobs if not self.stands(job.lease_id)]


def jobs_of(held: list[Held]) -> list[Job]:
    return [each.job for each in held]


class WorkerModel(RuleBasedStateMachine):
    """A worker whose threads are slow or stop for long, and whose calls get lost."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = Model()
        self.state = QueueState(3, LEASE_S)
        self.running: list[Held] = []
        self.succeeded: set[str] = set()
        self.sending: Sending | None = None
        self.told: set[str] = set()

    @rule(count=st.integers(1, 20))
    def add(self, count: int) -> None:
        self.broker.add(count)

    @rule(seconds=st.sampled_from([0.001, 0.1, 1.0, 3.0, 9.0, 31.0]))
    def pass_time(self, seconds: float) -> None:
        self.broker.now += seconds

    @rule(took_s=st.sampled_from([0.0, 0.01, 5.0]), lost=st.booleans())
    def claim(self, took_s: float, lost: bool) -> None:
        if not (room := self.state.room()):
            return
        assert room <= BATCH
        asked_at = self.broker.now
        jobs = self.broker.claim(room)
        self.broker.now += took_s
        if not lost:
            self.tell(self.state.claimed(jobs, asked_at))
        assert self.state.running + self.state.waiting <= self.state.concurrency + self.state.ahead

    @rule()
    def begin(self) -> None:
        if (held := self.state.begin(self.broker.now)) is not None:
            assert held.expires - self.broker.now >= LEASE_S / 2
            self.running.append(held)

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 2), succeeds=st.booleans())
    def end(self, number: int, succeeds: bool) -> None:
        held = self.running.pop(number % len(self.running))
        counts = self.state.ended(held, DONE if succeeds else FAILED, self.broker.now)
        assert counts == (not held.lost)
        if counts and succeeds:
            self.succeeded.add(held.job.lease_id)

    @rule()
    def send(self) -> None:
        if self.sending is None:
            self.sending = self.state.to_send(self.broker.now)
            if self.sending is not None:
                assert not [held for held in self.sending.jobs if held.lost]
                assert len({held.job.seq for held in self.sending.jobs}) == len(self.sending.jobs)

    @precondition(lambda self: self.sending is not None)
    @rule(arrives=st.booleans(), answered=st.booleans())
    def answer(self, arrives: bool, answered: bool) -> None:
        sending, self.sending = self.sending, None
        assert sending is not None
        skipped = self.broker.settle(jobs_of(sending.jobs), sending.outcome) if arrives else []
        if arrives and answered:
            self.state.settled(sending, skipped)
        else:
            self.state.failed(sending, self.broker.now, perhaps_done=True, retry_after_s=0.0, draw=0.5)

    @rule(arrives=st.booleans(), answered=st.booleans(), took_s=st.sampled_from([0.0, 0.01, 12.0]))
    def renew(self, arrives: bool, answered: bool, took_s: float) -> None:
        asked_at = self.broker.now
        due = self.state.renewing(asked_at)
        if not due:
            return
        skipped = self.broker.extend(jobs_of(due)) if arrives else []
        self.broker.now += took_s
        if arrives and answered:
            self.tell(self.state.renewed(due, skipped, LEASE_S, asked_at))
        else:
            self.state.not_renewed(due, self.broker.now)

    @rule()
    def expire(self) -> None:
        self.tell(self.state.expire(self.broker.now))

    def tell(self, lost: list[Held]) -> None:
        for held in lost:
            assert held.lost
            assert held in self.running
            assert held.job.lease_id not in self.told
            self.told.add(held.job.lease_id)

    @rule()
    def kill_broker(self) -> None:
        """Drop all leases."""
        self.broker.leases.clear()

    @rule()
    def doubt(self) -> None:
        self.state.doubt(self.broker.now)
        assert self.state.waiting == 0

    @invariant()
    def never_more_at_a_time(self) -> None:
        assert self.state.running == len(self.running) <= self.state.concurrency

    @invariant()
    def what_is_acked_was_done_under_that_lease_and_once(self) -> None:
        assert set(self.broker.acked) <= self.succeeded
        assert len({lease.partition("-")[0] for lease in self.broker.acked}) == len(self.broker.acked)

    def teardown(self) -> None:
        """When everything works again, all jobs end and no lease stays."""
        for _ in range(400):
            self.broker.now += 1.0
            for held in list(self.running):
                self.running.remove(held)
                self.state.ended(held, DONE, self.broker.now)
            self.state.expire(self.broker.now)
            if (due := self.state.renewing(self.broker.now)) and self.sending is None:
                self.state.renewed(due, self.broker.extend(jobs_of(due)), LEASE_S, self.broker.now)
            sending = self.sending or self.state.to_send(self.broker.now)
            self.sending = None
            if sending is not None:
                self.state.settled(sending, self.broker.settle(jobs_of(sending.jobs), sending.outcome))
            if room := self.state.room():
                self.state.claimed(self.broker.claim(room), self.broker.now)
            while (held := self.state.begin(self.broker.now)) is not None:
                self.running.append(held)
        assert not self.broker.open
        assert len(self.state) == self.state.unsent == 0


TestWorkerModel = WorkerModel.TestCase


@given(
    takes_s=st.lists(st.sampled_from([0.0, 0.001, 0.3, 5.0, 29.0, 31.0, 200.0]), min_size=1, max_size=30),
    concurrency=st.integers(1, 5),
    every_s=st.sampled_from([0.2, 1.0, 2.5]),
)
def test_no_job_is_delivered_twice_while_the_broker_answers(
    takes_s: list[float], concurrency: int, every_s: float
) -> None:
    """Handlers may take any time."""
    broker, state = Model(), QueueState(concurrency, LEASE_S)
    broker.add(len(takes_s))
    running: list[Held] = []
    while broker.open:
        assert broker.now < 1e6
        assert state.expire(broker.now) == []
        if due := state.renewing(broker.now):
            assert state.renewed(due, broker.extend(jobs_of(due)), LEASE_S, broker.now) == []
        for held in list(running):
            if broker.now - held.began >= takes_s[held.job.seq - 1]:
                running.remove(held)
                assert state.ended(held, DONE, broker.now)
        while (sending := state.to_send(broker.now)) is not None:
            state.settled(sending, broker.settle(jobs_of(sending.jobs), sending.outcome))
        if room := state.room():
            state.claimed(broker.claim(room), broker.now)
        while (held := state.begin(broker.now)) is not None:
            running.append(held)
        broker.now += every_s
    assert set(broker.deliveries.values()) == {1}
    assert state.counts["done"] == len(takes_s)
    assert state.counts["lost"] == state.counts["unsure"] == 0


def job(seq: int) -> Job:
    return Job(seq=seq, ts=0, lease_id=str(seq), deadline=0, deliveries=1)


def test_before_a_job_has_ended_only_jobs_that_can_begin_are_claimed() -> None:
    state = QueueState(4, LEASE_S)
    assert state.room() == 4
    state.claimed([job(1), job(2)], 0.0)
    state.begin(0.0)
    assert (state.running, state.waiting, state.room()) == (1, 1, 0)
    state.begin(0.0)
    assert state.room() == 2


@pytest.mark.parametrize(("took_s", "ahead"), [(0.001, 200), (0.02, 10), (0.5, 0), (0.0, 500)])
def test_a_worker_claims_as_many_jobs_ahead_as_begin_in_a_short_time(took_s: float, ahead: int) -> None:
    state = QueueState(1, LEASE_S)
    state.claimed([job(1)], 0.0)
    held = state.begin(0.0)
    assert held is not None
    state.ended(held, DONE, took_s)
    assert state.ahead == pytest.approx(ahead, abs=1)


def test_a_job_waits_for_only_a_part_of_a_short_lease() -> None:
    state = QueueState(1, 0.1)
    state.claimed([job(1)], 0.0)
    held = state.begin(0.0)
    assert held is not None
    state.ended(held, DONE, 0.001)
    assert state.ahead <= 10


def test_a_job_that_waits_too_long_is_returned_without_a_penalty() -> None:
    state = QueueState(1, LEASE_S)
    state.claimed([job(1), job(2)], 0.0)
    state.begin(0.0)
    assert state.expire(LEASE_S / 3) == []
    sending = state.to_send(LEASE_S)
    assert sending is not None
    assert (sending.outcome, jobs_of(sending.jobs)) == (GIVEN_BACK, [job(2)])


def test_a_job_of_an_old_claim_is_not_begun() -> None:
    state = QueueState(1, LEASE_S)
    state.claimed([job(1)], 0.0)
    assert state.begin(LEASE_S * 0.6) is None
    assert state.unsent == 1


def test_no_job_is_claimed_while_too_many_outcomes_are_unsent() -> None:
    state = QueueState(1, LEASE_S)
    for seq in range(1, MAX_UNSENT + 3):
        state.claimed([job(seq)], 0.0)
        held = state.begin(0.0)
        assert held is not None
        state.ended(held, DONE, 0.0)
    assert state.unsent == MAX_UNSENT + 2
    assert state.room() == 0


def test_outcomes_are_sent_together_without_waiting_when_no_handler_runs() -> None:
    state = QueueState(2, LEASE_S)
    state.claimed([job(1), job(2)], 0.0)
    first, second = state.begin(0.0), state.begin(0.0)
    assert first is not None
    assert second is not None
    state.ended(first, DONE, 1.0)
    assert state.to_send(1.0) is None
    state.ended(second, DONE, 1.001)
    sending = state.to_send(1.001)
    assert sending is not None
    assert jobs_of(sending.jobs) == [job(1), job(2)]
    assert state.to_send(9.0) is None, "one call at a time"


def test_after_a_stop_jobs_not_begun_and_jobs_not_ended_in_time_are_returned() -> None:
    state = QueueState(1, LEASE_S)
    state.claimed([job(1), job(2)], 0.0)
    running = state.begin(0.0)
    state.stop(1.0)
    state.claimed([job(3)], 0.9)
    assert state.begin(1.0) is None
    assert state.room() == 0
    sending = state.to_send(1.0)
    assert sending is not None
    assert (sending.outcome, jobs_of(sending.jobs)) == (GIVEN_BACK, [job(2), job(3)])
    state.settled(sending, [])
    assert state.abandon(5.0) == [running]
    assert running is not None
    assert running.lost
    assert not state.ended(running, DONE, 6.0)
    sending = state.to_send(6.0)
    assert sending is not None
    state.settled(sending, [])
    assert len(state) == 0
    assert state.counts["returned"] == 3


def test_a_prolonged_lease_is_renewed_at_once_for_the_new_time() -> None:
    state = QueueState(1, LEASE_S)
    state.claimed([job(1)], 0.0)
    held = state.begin(0.0)
    assert held is not None
    assert state.renewing(1.0) == []
    state.prolong(held, 600.0, 1.0)
    assert state.renewing(1.0) == [held]
    state.renewed([held], [], 600.0, 1.0)
    assert held.expires == 601.0
    assert state.renewing(190.0) == []
