"""Which leases are renewed, and when."""

from __future__ import annotations

from topics_client.errors import ConnectionFailed, TopicNotFound
from topics_client.renewing import Holding
from topics_client.values import Job, Settled


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def job(seq: int, lease: str = "") -> Job:
    return Job(seq=seq, ts=1, lease_id=lease or f"lease_{seq}", deadline=9, deliveries=1)


def settled(skipped: list[int]) -> Settled:
    return Settled(topic="q", count=1, skipped=skipped, ready=0, in_flight=0)


def seqs(jobs: list[Job]) -> list[int]:
    return [each.seq for each in jobs]


def holding(clock: Clock) -> Holding:
    held = Holding("q", "w", 30_000, clock)
    held.begin(job(1))
    held.begin(job(2))
    return held


def test_a_lease_is_due_after_each_third_of_its_time() -> None:
    clock = Clock()
    held = holding(clock)
    assert (held.due(), held.wait_s()) == ([], 10)
    clock.now_s += 10
    assert (seqs(held.due()), held.wait_s()) == ([1, 2], 0)
    held.renewed(held.due(), settled([]))
    assert (held.due(), held.wait_s()) == ([], 10)


def test_a_settled_job_is_no_longer_renewed() -> None:
    held = holding(Clock())
    held.end("q", "other", [1])
    held.end("other", "w", [1])
    held.end("q", "w", [job(1, "lease_of_another_claim")])
    assert len(held) == 2
    held.end("q", "w", [job(1)])
    held.end("q", "w", [2])
    assert (len(held), held.wait_s()) == (0, None)


def test_a_lost_lease_is_let_go() -> None:
    clock = Clock()
    held = holding(clock)
    clock.now_s += 10
    held.renewed(held.due(), settled([1]))
    assert seqs(held.jobs) == [2]
    held.renewed(held.jobs, TopicNotFound("Gone."))
    assert held.jobs == []


def test_a_renewal_without_an_answer_is_tried_again_before_the_lease_ends() -> None:
    clock = Clock()
    held = holding(clock)
    clock.now_s += 10
    held.renewed(held.due(), ConnectionFailed("The line broke."))
    assert (len(held), held.wait_s()) == (2, 3)


def test_a_job_settled_during_its_renewal_is_not_held_again() -> None:
    clock = Clock()
    held = holding(clock)
    clock.now_s += 10
    due = held.due()
    held.end("q", "w", [1, 2])
    held.renewed(due, settled([]))
    assert len(held) == 0


def test_the_call_renews_by_lease() -> None:
    call = holding(Clock()).renewal([job(1)])
    assert call.request.target == "/v0/topics/q/extend"
    assert call.request.body == b'{"node":"w","seqs":[1],"lease_ids":["lease_1"],"lease_ms":30000}'
