"""The checker of queue histories finds errors of pauses, purges, redrives, strict calls, backoff and streams.

Times are ms from 0. "a takes 1 at 10" means requested at 10 and answered at 11.
"""

from __future__ import annotations

import pytest

from tests.support.queue_history import Act, Dead
from tests.support.queue_script import FAILED, UNKNOWN, ClaimedJob, Script

pytestmark = pytest.mark.fast


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def durable() -> Script:
    return Script(leases_durable=True)


def dead(seq: int, name: str = "") -> Dead:
    return Dead(seq, 1, name or f"j{seq}")


# -- backoff and delays ------------------------------------------------------------------------------------------------


def test_a_job_waits_for_its_backoff_after_a_nack_an_expiry_and_a_stream(script: Script) -> None:
    script = Script(retry_backoff_ms=80)
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.nacks("a", (1, "A"), at=20, delay_ms=None)
    script.takes("a", ClaimedJob(1, "B", 2), at=60)
    script.takes("a", ClaimedJob(1, "C", 3), at=160 + 80)
    stream = script.opens("s", at=340 + 160)
    script.brings(stream, ClaimedJob(1, "D", 4), at=340 + 161)
    script.leaves(stream, ClaimedJob(1, "D"), at=510)
    script.takes("a", ClaimedJob(1, "E", 5), at=510 + 320)
    script.right()


def test_a_job_returned_before_its_backoff_is_reported() -> None:
    script = Script(retry_backoff_ms=80)
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.nacks("a", (1, "A"), at=20, delay_ms=None)
    script.takes("a", ClaimedJob(1, "B", 2), at=55)
    script.wrong("B before the delay of its nack was over")
    script = Script(retry_backoff_ms=80)
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.takes("a", ClaimedJob(1, "B", 2), at=140)
    script.wrong("B before the backoff was over")


def test_backoff_ignores_nacks_without_penalty_and_ends_at_a_crash() -> None:
    script = Script(retry_backoff_ms=80)
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.nacks("a", (1, "A"), at=20, delay_ms=None, penalty=False)
    script.takes("a", ClaimedJob(1, "B", 2), at=30)
    script.crash(40)
    script.takes("a", ClaimedJob(1, "C"), at=50)
    script.right()


def test_a_delay_applies_after_a_crash(script: Script) -> None:
    script.jobs(1, delay_ms=500)
    script.crash(10)
    script.takes("a", ClaimedJob(1, "A"), at=100)
    script.wrong("A was leased before the job was due")


# -- strict ------------------------------------------------------------------------------------------------------------


def test_a_refused_strict_call_changes_no_lease(script: Script) -> None:
    script.jobs(1, 2)
    script.takes("a", ClaimedJob(1, "A"), ClaimedJob(2, "B"), at=10)
    script.nacks("a", (2, "B"), at=20)
    script.refuses(Act.ACK, "a", (1, "A"), (2, "B"), lost=[2], at=30)
    script.looks(1, 2, at=40)
    script.acks("a", (1, "A"), at=50)
    script.takes("a", ClaimedJob(2, "C", 2), at=60)
    script.right()


def test_a_refused_strict_call_that_took_effect_is_reported(script: Script) -> None:
    script.jobs(1, 2)
    script.takes("a", ClaimedJob(1, "A"), ClaimedJob(2, "B"), at=10)
    script.nacks("a", (2, "B"), at=20)
    script.refuses(Act.ACK, "a", (1, "A"), (2, "B"), lost=[2], at=30)
    script.looks(2, at=40)
    script.wrong(r"job 1 \(j1\): is lost")


def test_a_strict_call_refused_for_a_valid_lease_is_reported(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.refuses(Act.EXTEND, "a", (1, "A"), lost=[1], at=30)
    script.wrong("extend by a under A, a valid lease, was passed over")


# -- pauses ------------------------------------------------------------------------------------------------------------


def test_a_claim_answered_between_pause_and_resume_is_reported(script: Script) -> None:
    script.jobs(1, 2)
    script.pauses(at=10)
    script.pauses(at=30, paused=False)
    script.takes("a", ClaimedJob(1, "A"), at=31)
    script.looks(1, 2, at=40, paused=False)
    script.right()
    script.pauses(at=50)
    script.takes("a", ClaimedJob(2, "B"), at=60)
    script.wrong("job 2: B was leased while the queue was paused")


def test_a_pause_outlives_the_process(script: Script) -> None:
    script.jobs(1)
    script.pauses(at=10)
    script.crash(20)
    script.looks(1, at=30, paused=True)
    script.right()
    script.looks(1, at=40, paused=False)
    script.wrong("the queue was paused, and is not any more")
    script.takes("a", ClaimedJob(1, "A"), at=50)
    script.wrong("A was leased while the queue was paused")


def test_a_paused_queue_without_a_pause_request_is_reported(script: Script) -> None:
    script.jobs(1)
    script.pauses(at=10)
    script.pauses(at=20, paused=False)
    script.looks(1, at=30, paused=True)
    script.wrong("is paused, though nobody has paused it since it was resumed")


def test_a_lost_pause_or_resume_may_have_happened_or_not() -> None:
    for paused in (True, False):
        script = Script()
        script.jobs(1)
        script.pauses(at=10, outcome=UNKNOWN)
        script.crash(20)
        script.looks(1, at=30, paused=paused)
        script.pauses(at=40)
        script.pauses(at=50, paused=False, outcome=UNKNOWN)
        script.crash(60)
        script.looks(1, at=70, paused=paused)
        script.right()


def test_leases_are_settled_while_paused(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=5)
    script.pauses(at=10)
    script.acks("a", (1, "A"), at=20, skipped=frozenset({1}))
    script.wrong("ack by a under A, a valid lease, was passed over")


# -- purges ------------------------------------------------------------------------------------------------------------


def test_jobs_missing_after_a_purge_pass(script: Script) -> None:
    script.jobs(1, 2, 3)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.purges(2, at=20)
    script.looks(1, at=30)
    script.acks("a", (1, "A"), at=40)
    script.looks(at=50, final=True)
    script.right()


def test_a_purged_leased_job_is_reported(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.purges(1, at=20)
    script.looks(at=30)
    script.wrong(r"job 1 \(j1\): is lost")


def test_a_purged_later_job_is_reported(script: Script) -> None:
    script.purges(1, at=5)
    script.jobs(1, at=10)
    script.looks(at=30)
    script.wrong(r"job 1 \(j1\): is lost")


def test_a_purged_job_that_returns_is_reported(script: Script) -> None:
    script.jobs(1)
    script.purges(1, at=10)
    script.crash(20)
    script.takes("a", ClaimedJob(1, "A"), at=30)
    script.acks("a", (1, "A"), at=40)
    script.looks(at=50, final=True)
    script.wrong("purges took 1 jobs, and of all that are gone 0 were not acked for certain")


def test_an_uncounted_purged_job_is_reported(script: Script) -> None:
    script.jobs(1, 2)
    script.purges(1, at=10)
    script.looks(at=50, final=True)
    script.wrong("2 jobs are gone and were not acked, purges took 1")


def test_a_lost_purge_may_have_taken_any(script: Script) -> None:
    script.jobs(1, 2, 3)
    script.purges(0, at=10, outcome=UNKNOWN)
    script.crash(20)
    script.looks(3, at=30)
    script.takes("a", ClaimedJob(3, "A"), at=40)
    script.acks("a", (3, "A"), at=50)
    script.looks(at=60, final=True)
    script.right()
    script.jobs(4, at=70)
    script.looks(at=80, final=True)
    script.wrong(r"job 4 \(j4\): is lost")


# -- redrives ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def risen() -> Script:
    """A job that died, was redriven as job 2, and was leased once more."""
    script = Script(max_deliveries=1)
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.nacks("a", (1, "A"), at=20)
    script.looks(at=30, dead=[dead(1)])
    script.redrives(1, at=40)
    script.takes("b", ClaimedJob(2, "B", name="j1"), at=50)
    return script


def test_a_redriven_job_starts_again(risen: Script) -> None:
    risen.acks("b", (2, "B"), at=60)
    risen.looks(at=70, final=True)
    risen.right()


def test_a_redriven_job_may_die_again(risen: Script) -> None:
    risen.nacks("b", (2, "B"), at=60)
    risen.looks(at=70, dead=[dead(2, "j1")], final=True)
    risen.right()


def test_a_lost_redriven_job_is_reported(risen: Script) -> None:
    risen.looks(at=70, final=True)
    risen.wrong(r"job 2 \(j1\): is lost")


def test_a_dead_letter_lost_by_a_redrive_is_reported() -> None:
    script = Script(max_deliveries=1)
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.nacks("a", (1, "A"), at=20)
    script.looks(at=30, dead=[dead(1)])
    script.redrives(1, at=40)
    script.crash(50)
    script.looks(at=60, final=True)
    script.wrong("job 1 was in the dead letter topic and is not any more")
    script.wrong("redrives moved 1 jobs, and 0 came back")


def test_a_dead_letter_left_behind_by_its_redrive_is_reported(risen: Script) -> None:
    risen.looks(at=60, again={2: "j1"}, dead=[dead(1)])
    risen.right()
    risen.looks(at=70, again={2: "j1"}, dead=[dead(1)], final=True)
    risen.wrong("is job 1 again, which is still a dead letter")


def test_a_dead_letter_redriven_twice_is_reported(risen: Script) -> None:
    risen.acks("b", (2, "B"), at=60)
    risen.takes("c", ClaimedJob(3, "C", name="j1"), at=70)
    risen.acks("c", (3, "C"), at=80)
    risen.looks(at=90, final=True)
    risen.wrong("is job 2 again, which was acked under B")
    risen.wrong("2 jobs came back from the dead letter topic, and redrives moved 1")


def test_an_acked_job_that_is_redriven_is_reported(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.acks("a", (1, "A"), at=20)
    script.redrives(1, at=30)
    script.looks(at=40, again={5: "j1"})
    script.wrong("is job 1 again, which was acked under A")


def test_a_duplicate_job_without_a_redrive_is_reported(script: Script) -> None:
    script.jobs(1)
    script.redrives(0, at=5, outcome=FAILED)
    script.takes("a", ClaimedJob(7, "A", name="j1"), at=10)
    script.wrong("j1 is job 1 and 7")


def test_a_job_redriven_while_its_lease_lasts_is_reported() -> None:
    script = Script(max_deliveries=1)
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.redrives(1, at=20)
    script.takes("b", ClaimedJob(2, "B", name="j1"), at=30)
    script.wrong("B was given before A had ended")


def test_deliveries_of_a_redriven_job_start_at_one(risen: Script) -> None:
    risen.nacks("b", (2, "B"), at=60, penalty=False)
    risen.takes("c", ClaimedJob(2, "C", 3, name="j1"), at=70)
    risen.wrong("C says 3 deliveries: of 1 nobody knows")


def test_a_job_redriven_and_purged_unseen_is_accepted() -> None:
    script = Script(max_deliveries=1)
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.nacks("a", (1, "A"), at=20)
    script.looks(at=30, dead=[dead(1)])
    script.redrives(1, at=40)
    script.purges(1, at=50)
    script.looks(at=60, final=True)
    script.right()


def test_a_lost_dead_letter_move() -> None:
    script = Script(max_deliveries=1)
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.nacks("a", (1, "A"), at=20)
    script.crash(30)
    script.looks(at=40)
    script.wrong(r"job 1 \(j1\): is lost")


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_stream_delivers_jobs_after_acks_and_expiries(script: Script) -> None:
    script.jobs(1, 2, 3)
    stream = script.opens("s", at=5)
    script.brings(stream, ClaimedJob(1, "A"), at=10)
    script.acks("s", (1, "A"), at=20)
    script.brings(stream, ClaimedJob(2, "B"), at=21)
    script.brings(stream, ClaimedJob(3, "C"), at=130)
    script.leaves(stream, ClaimedJob(3, "C"), at=140)
    script.takes("a", ClaimedJob(3, "D", 2), at=141)
    script.right()


def test_a_stream_with_more_than_its_maximum_of_jobs_is_reported(script: Script) -> None:
    script.jobs(1, 2, 3)
    stream = script.opens("s", at=5, max=2)
    script.brings(stream, ClaimedJob(1, "A"), at=10)
    script.brings(stream, ClaimedJob(2, "B"), at=11)
    script.brings(stream, ClaimedJob(3, "C"), at=12)
    script.wrong("C was pushed to s, which had 2 jobs in hand, 2 at most")


def test_a_job_leased_by_a_stream_and_a_claim_is_reported(script: Script) -> None:
    script.jobs(1)
    stream = script.opens("s", at=5)
    script.brings(stream, ClaimedJob(1, "A"), at=10)
    script.takes("a", ClaimedJob(1, "B", 2), at=20)
    script.leaves(stream, ClaimedJob(1, "A"), at=30)
    script.wrong("a was given B 90 ms before A of s expired")


def test_leases_of_a_stream_outlive_a_crash_but_not_a_clean_stop() -> None:
    for clean in (True, False):
        durable = Script(leases_durable=True)
        durable.jobs(1)
        stream = durable.opens("s", at=5)
        durable.brings(stream, ClaimedJob(1, "A"), at=10)
        durable.leaves(stream, ClaimedJob(1, "A"), at=20, cut=True)
        durable.crash(21, clean=clean)
        durable.takes("a", ClaimedJob(1, "B", 2), at=30)
        if clean:
            durable.right()
        else:
            durable.wrong("a was given B 80 ms before A of s expired")


def test_an_undelivered_job_of_a_stream_returns_with_one_more_delivery(script: Script) -> None:
    script.jobs(1)
    stream = script.opens("s", at=5)
    script.leaves(stream, at=20)
    script.takes("a", ClaimedJob(1, "A", 2), at=25)
    script.right()
    other = Script()
    other.jobs(1)
    stream = other.opens("s", at=5)
    other.leaves(stream, at=20)
    other.takes("a", ClaimedJob(1, "A"), at=60)
    other.takes("a", ClaimedJob(1, "B", 3), at=300)
    other.wrong("B says 3 deliveries: of 1 nobody knows, and 0 claims were lost meanwhile")


@pytest.mark.parametrize("cut", [False, True])
def test_a_stopping_process_may_release_leases_before_the_client_reads_the_end(durable: Script, cut: bool) -> None:
    durable.jobs(1)
    stream = durable.opens("s", at=5)
    durable.brings(stream, ClaimedJob(1, "A"), at=10)
    durable.clock.ms = 12
    durable.history.stopping()
    durable.takes("a", ClaimedJob(1, "B", 2), at=14)
    durable.acks("s", (1, "A"), at=16, skipped=frozenset({1}))
    durable.leaves(stream, ClaimedJob(1, "A"), at=20, cut=cut)
    durable.crash(21, clean=True)
    durable.right()
