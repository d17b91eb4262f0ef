"""The checker of queue histories is shown valid and invalid histories: it must accept the former and reject the latter.

Times are ms from 0. "a takes 1 at 10" means requested at 10 and answered at 11.
"""

from __future__ import annotations

import pytest

from tests.support.queue_history import Dead
from tests.support.queue_script import FAILED, UNKNOWN, ClaimedJob, Script

pytestmark = pytest.mark.fast


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def durable() -> Script:
    return Script(leases_durable=True)


# -- what goes well ---------------------------------------------------------------------------------------------------


def test_acked_dead_and_remaining_jobs_are_accepted() -> None:
    script = Script(max_deliveries=2)
    script.jobs(1, 2, 3)
    script.takes("a", ClaimedJob(1, "A"), ClaimedJob(2, "B"), at=10)
    script.acks("a", (1, "A"), at=20)
    script.takes("b", ClaimedJob(2, "C", 2), at=111)
    script.looks(3, at=300, dead=[Dead(2, 2, "j2")], final=True)
    script.right()


def test_a_waiting_claim_may_get_a_job_after_its_lease_expires(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A", deadline=110), at=10)
    script.takes("b", ClaimedJob(1, "B", 2, deadline=211), at=50, took=70)
    script.right()


def test_a_lease_is_valid_at_its_deadline(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A", deadline=110), at=10)
    script.acks("a", (1, "A"), at=110, took=0)
    script.looks(at=500, final=True)
    script.right()
    other = Script()
    other.jobs(1)
    other.takes("a", ClaimedJob(1, "A", deadline=110), at=10)
    other.takes("b", ClaimedJob(1, "B", 2, deadline=210), at=50, took=70)
    other.wrong("B 0 ms before A of a expired")


def test_a_job_of_an_unanswered_claim_returns_with_one_more_delivery(script: Script) -> None:
    script.jobs(1)
    script.takes("a", at=10, outcome=UNKNOWN)
    script.takes("b", ClaimedJob(1, "B", 2), at=20)
    script.right()


def test_a_repeated_claim_may_get_the_lost_answer_of_its_key(script: Script) -> None:
    script.jobs(1, 2)
    script.takes("a", at=10, outcome=UNKNOWN, key="k")
    script.takes("b", ClaimedJob(2, "B"), at=20)
    script.takes("a", ClaimedJob(1, "A", deadline=110), at=50, key="k")
    script.extends("a", 1, "A", at=60, ms=300)
    script.takes("a", ClaimedJob(1, "A", deadline=360), at=70, key="k")
    script.acks("a", (1, "A"), at=350)
    script.takes("a", ClaimedJob(2, "C", 2), at=400, key="k")
    script.right()


def test_a_lost_ack_may_have_happened_or_not() -> None:
    for script in (Script(), Script(leases_durable=True)):
        script.jobs(1, 2)
        script.takes("a", ClaimedJob(1, "A"), ClaimedJob(2, "B"), at=10)
        script.acks("a", (1, "A"), (2, "B"), at=20, outcome=UNKNOWN)
        script.crash(30)
        script.looks(2, at=40)
        deliveries = 2 if script.history.rules.leases_durable else 1
        script.takes("b", ClaimedJob(2, "C", deliveries), at=120)
        script.acks("b", (2, "C"), at=130)
        script.looks(at=200, final=True)
        script.right()


def test_a_nack_an_extension_and_a_late_ack_are_accepted(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.nacks("a", (1, "A"), at=20, delay_ms=30)
    script.takes("a", ClaimedJob(1, "B", 2), at=50)
    script.extends("a", 1, "B", at=60, ms=500)
    script.acks("b", (1, "B"), at=70, skipped=frozenset({1}))
    script.extends("a", 1, "B", at=300, ms=10)
    script.takes("b", ClaimedJob(1, "C", 3), at=311)
    script.acks("a", (1, "B"), at=312, skipped=frozenset({1}))
    script.acks("b", (1, None), at=320)
    script.looks(at=400, final=True)
    script.right()


def test_durable_leases_survive_a_crash_and_other_leases_do_not(script: Script, durable: Script) -> None:
    for each in (script, durable):
        each.jobs(1)
        each.takes("a", ClaimedJob(1, "A"), at=10, key="k")
        each.crash(20)
    script.acks("a", (1, "A"), at=30, skipped=frozenset({1}))
    script.takes("b", ClaimedJob(1, "B", 1), at=40)
    script.right()
    durable.takes("a", ClaimedJob(1, "A", deadline=110), at=30, key="k")
    durable.acks("a", (1, "A"), at=40)
    durable.looks(at=60, final=True)
    durable.right()


def test_a_clean_stop_keeps_every_lease(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.crash(20, clean=True)
    script.acks("a", (1, "A"), at=40)
    script.looks(at=60, final=True)
    script.right()


def test_an_answer_of_a_dead_process_is_accepted(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10, took=2)
    script.acks("a", (1, "A"), at=20, took=30)
    script.history.eras[-1].ended = 25
    script.history.started()
    script.looks(at=60, final=True)
    script.right()


def test_an_append_without_an_answer_may_be_absent_or_complete(script: Script) -> None:
    script.jobs(1, 2, outcome=UNKNOWN)
    script.crash(10)
    script.jobs(1, at=20)
    script.looks(1, at=40, final=True)
    script.right()
    other = Script()
    other.jobs(1, 2, outcome=UNKNOWN)
    other.crash(10)
    other.looks(1, at=40, final=True)
    other.wrong(r"job 2 \(j2\): is lost")


# -- two leases at a time ---------------------------------------------------------------------------------------------


def test_a_job_leased_twice_at_a_time_is_reported(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.takes("b", ClaimedJob(1, "B", 2), at=60)
    script.wrong("job 1: b was given B 50 ms before A of a expired")


def test_a_later_or_refused_nack_does_not_excuse_an_early_claim(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.nacks("a", (1, "A"), at=20, outcome=FAILED)
    script.takes("b", ClaimedJob(1, "B", 2), at=60)
    script.nacks("a", (1, "A"), at=70, outcome=UNKNOWN)
    script.wrong("b was given B 50 ms before A")


def test_an_extension_counts(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.extends("a", 1, "A", at=50, ms=200)
    script.takes("b", ClaimedJob(1, "B", 2), at=150)
    script.wrong("b was given B 100 ms before A")


def test_a_lost_extension_may_count(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.extends("a", 1, "A", at=50, ms=200, outcome=UNKNOWN, deadlines={})
    script.acks("a", (1, "A"), at=220)
    script.looks(at=400, final=True)
    script.right()
    other = Script()
    other.jobs(1)
    other.takes("a", ClaimedJob(1, "A"), at=10)
    other.extends("a", 1, "A", at=50, ms=200, outcome=UNKNOWN, deadlines={})
    other.takes("b", ClaimedJob(1, "B", 2), at=111)
    other.right()


def test_a_durable_lease_ended_by_a_crash_is_reported(durable: Script) -> None:
    durable.jobs(1)
    durable.takes("a", ClaimedJob(1, "A"), at=10)
    durable.crash(20)
    durable.takes("b", ClaimedJob(1, "B", 2), at=30)
    durable.wrong("b was given B 80 ms before A")


def test_a_lease_ended_by_a_clean_stop_is_reported(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.crash(20, clean=True)
    script.takes("b", ClaimedJob(1, "B", 2), at=30)
    script.wrong("b was given B 80 ms before A")


def test_a_token_given_twice_is_reported(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A", deadline=110), at=10)
    script.takes("b", ClaimedJob(1, "A", deadline=110), at=12)
    script.wrong("job 1: A was given to a and b")


def test_a_job_returned_before_its_nack_delay_is_reported(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.nacks("a", (1, "A"), at=20, delay_ms=500)
    script.takes("b", ClaimedJob(1, "B", 2), at=150)
    script.wrong("before the delay of its nack was over")


def test_a_job_claimed_before_its_due_time_is_reported(script: Script) -> None:
    script.jobs(1, delay_ms=50)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.wrong("before the job was due")


def test_a_deadline_other_than_claim_time_plus_lease_is_reported(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A", deadline=112), at=10)
    script.wrong("not leased while a asked for it")


# -- acks and nacks ---------------------------------------------------------------------------------------------------


def test_an_acked_job_that_returns_is_reported(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.acks("a", (1, "A"), at=20)
    script.crash(30)
    script.takes("b", ClaimedJob(1, "B"), at=200)
    script.wrong("b was given B after it was acked under A")


def test_an_acked_job_that_remains_is_reported(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.acks("a", (1, "A"), at=20)
    script.looks(1, at=40)
    script.wrong("was acked under A and is still there")


def test_an_accepted_ack_of_an_ended_lease_is_reported(script: Script) -> None:
    script.jobs(1, 2, 3)
    script.takes("a", ClaimedJob(1, "A"), ClaimedJob(2, "B"), ClaimedJob(3, "C"), at=10)
    script.acks("a", (1, "A"), at=111)
    script.wrong("ack by a under A counted 1 ms after its deadline")
    script.nacks("a", (2, "B"), at=20)
    script.acks("a", (2, "B"), at=30)
    script.wrong("under B counted, though nack had ended it")
    script.acks("a", (3, "C"), at=20)
    script.acks("a", (3, "C"), at=20)
    script.wrong("C was ended by ack and ack, both counted")


def test_an_ack_of_a_superseded_lease_is_reported(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.takes("b", ClaimedJob(1, "B", 2), at=111)
    script.extends("a", 1, "A", at=105, took=0, ms=900, outcome=UNKNOWN, deadlines={})
    script.acks("a", (1, "A"), at=120)
    script.wrong("under A counted, though b had the job under B")


def test_an_ack_by_the_wrong_node_or_with_an_unknown_token_is_reported(script: Script) -> None:
    script.jobs(1, 2)
    script.takes("a", ClaimedJob(1, "A"), ClaimedJob(2, "B"), at=10)
    script.acks("b", (1, "A"), at=20)
    script.wrong("ack by b under A counted, a lease of a")
    script.acks("a", (2, "Z"), at=20)
    script.wrong("job 2: ack under Z counted, and nobody has it")


def test_an_accepted_token_from_before_a_crash_is_reported(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.crash(20)
    script.acks("a", (1, "A"), at=30)
    script.wrong("counted after a crash, and leases are not durable")


def test_a_skipped_valid_lease_is_reported(script: Script, durable: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.acks("a", (1, "A"), at=20, skipped=frozenset({1}))
    script.wrong("ack by a under A, a valid lease, was passed over")
    durable.jobs(1)
    durable.takes("a", ClaimedJob(1, "A"), at=10)
    durable.crash(20)
    durable.extends("a", 1, "A", at=30, ms=50, skipped=frozenset({1}), deadlines={})
    durable.wrong("extend by a under A, a valid lease, was passed over")


def test_a_lost_ack_that_happened_is_final(durable: Script) -> None:
    durable.jobs(1)
    durable.takes("a", ClaimedJob(1, "A"), at=10)
    durable.looks(1, at=15)
    durable.acks("a", (1, "A"), at=20, outcome=UNKNOWN)
    durable.crash(30)
    durable.acks("a", (1, "A"), at=40, skipped=frozenset({1}))
    durable.right()
    durable.takes("b", ClaimedJob(1, "B", 2), at=200)
    durable.wrong("b was given B after it was acked under A")


def test_a_job_remaining_after_an_unanswered_effective_ack_is_reported(durable: Script) -> None:
    durable.jobs(1)
    durable.takes("a", ClaimedJob(1, "A"), at=10)
    durable.acks("a", (1, "A"), at=20, outcome=UNKNOWN)
    durable.crash(30)
    durable.acks("a", (1, "A"), at=40, skipped=frozenset({1}))
    durable.looks(1, at=60)
    durable.wrong("was acked under A and is still there")


def test_an_ack_without_a_token_is_checked_against_the_jobs_of_the_node(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.nacks("a", (1, None), at=20)
    script.takes("a", ClaimedJob(1, "B", 2), at=30)
    script.takes("a", at=40, outcome=UNKNOWN)
    script.acks("a", (1, None), at=150)
    script.looks(at=400, final=True)
    script.right()
    script.acks("b", (1, None), at=150)
    script.wrong("job 1: ack by b counted, and it never had the job")


def test_a_lost_ack_that_did_not_happen_does_not_happen_later(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.acks("a", (1, "A"), at=20, outcome=UNKNOWN)
    script.crash(30)
    script.looks(1, at=40)
    script.right()
    script.looks(at=60)
    script.wrong("is lost: it was never acked")


def test_a_lost_ack_of_a_lease_with_a_successor_did_not_happen(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.acks("a", (1, "A"), at=20, outcome=UNKNOWN)
    script.takes("b", ClaimedJob(1, "B", 2), at=111)
    script.crash(120)
    script.looks(at=140)
    script.wrong("is lost: it was never acked")


def test_an_extension_with_a_wrong_deadline_is_reported(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.extends("a", 1, "A", at=20, ms=50, deadlines={1: 90})
    script.wrong("gave the deadline 90")


# -- what becomes of jobs ---------------------------------------------------------------------------------------------


def test_a_lost_or_invented_job_is_reported(script: Script) -> None:
    script.jobs(1, 2)
    script.looks(1, at=40)
    script.wrong(r"job 2 \(j2\): is lost")
    script.looks(1, 2, at=60)
    script.wrong("was gone and is back")
    script.takes("a", ClaimedJob(7, "A", name="who"), at=80)
    script.wrong("job 7 is who, which nobody produced")
    script.takes("a", ClaimedJob(2, "B", name="j1"), at=90)
    script.wrong("job 2 is j2 and j1")


def test_a_refused_job_that_appears_is_reported(script: Script) -> None:
    script.jobs(1, outcome=FAILED)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.wrong("job 1 is j1, which was refused")


def test_a_vanished_job_that_is_delivered_is_reported(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.acks("a", (1, "A"), at=20, outcome=UNKNOWN)
    script.looks(at=40)
    script.takes("b", ClaimedJob(1, "B", 2), at=200)
    script.wrong("was gone, and then b was given B")


@pytest.fixture
def buried() -> Script:
    """A job that has used all its deliveries."""
    script = Script(max_deliveries=1)
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    return script


def test_a_dead_job_exists_once_and_stays(buried: Script) -> None:
    buried.looks(1, at=150, dead=[Dead(1, 1, "j1")])
    buried.right()
    buried.looks(at=160, dead=[Dead(1, 1, "j1"), Dead(1, 1, "j1")], final=True)
    buried.wrong("job 1 is 2 times in the dead letter topic")
    buried.looks(at=170, final=True)
    buried.wrong("was in the dead letter topic and is not any more")


def test_a_dead_job_that_remains_in_the_queue_is_reported(buried: Script) -> None:
    buried.looks(1, at=150, dead=[Dead(1, 1, "j1")], final=True)
    buried.wrong("is in the dead letter topic and still in the queue")


def test_an_acked_job_that_is_dead_lettered_is_reported(buried: Script) -> None:
    buried.acks("a", (1, "A"), at=20)
    buried.looks(at=150, dead=[Dead(1, 1, "j1")], final=True)
    buried.wrong("was acked under A and dead-lettered")


def test_a_job_dead_too_early_or_with_a_wrong_count_is_reported() -> None:
    script = Script(max_deliveries=3)
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.looks(at=150, dead=[Dead(1, 1, "j1")], final=True)
    script.wrong("dead-lettered after 1 deliveries")
    script = Script(max_deliveries=1)
    script.jobs(1)
    script.takes("a", at=5, outcome=UNKNOWN)
    script.takes("a", ClaimedJob(1, "A", 2), at=10)
    script.looks(at=150, dead=[Dead(1, 1, "j1")], final=True)
    script.wrong("was delivered 2 times, its dead letter says 1")


def test_a_job_delivered_too_often_is_reported(buried: Script) -> None:
    buried.takes("b", ClaimedJob(1, "B", 2), at=111)
    buried.wrong("delivered 2 times, 0 of them forgiven, at most 1 are allowed")


def test_a_nack_without_penalty_allows_one_more_delivery(buried: Script) -> None:
    buried.nacks("a", (1, "A"), at=20, penalty=False)
    buried.takes("b", ClaimedJob(1, "B", 2), at=111)
    buried.looks(at=300, dead=[Dead(1, 2, "j1")], final=True)
    buried.right()


# -- deliveries, order, keys ------------------------------------------------------------------------------------------


def test_a_delivery_count_that_does_not_grow_is_reported(script: Script, durable: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.takes("b", ClaimedJob(1, "B", 1), at=200)
    script.wrong("B says 1 deliveries, it must be 2 at least")
    durable.jobs(1)
    durable.takes("a", ClaimedJob(1, "A"), at=10)
    durable.crash(20)
    durable.takes("b", ClaimedJob(1, "B", 1), at=200)
    durable.wrong("B says 1 deliveries, it must be 2 at least")


def test_deliveries_without_a_claim_are_reported(script: Script) -> None:
    script.jobs(1)
    script.takes("a", at=300, outcome=UNKNOWN)
    script.takes("a", ClaimedJob(1, "A", 2), at=10)
    script.wrong("A says 2 deliveries: of 1 nobody knows, and 0 claims were lost")


def test_delivery_counts_that_survive_a_crash_without_durable_leases_are_reported(script: Script) -> None:
    script.jobs(1)
    script.takes("a", ClaimedJob(1, "A"), at=10)
    script.takes("a", at=12, outcome=UNKNOWN)
    script.crash(20)
    script.takes("b", ClaimedJob(1, "B", 2), at=30)
    script.wrong("B says 2 deliveries: of 1 nobody knows")


def test_deliveries_beyond_the_maximum_of_an_unanswered_claim_are_reported(script: Script) -> None:
    script.jobs(*range(1, 12))
    script.takes("a", at=5, outcome=UNKNOWN)
    for seq in range(1, 12):
        script.takes("b", ClaimedJob(seq, f"t{seq}", 2), at=10 * seq)
    script.wrong("11 deliveries went to nobody, and lost claims asked for 10 jobs only")


def test_fresh_jobs_out_of_order(script: Script) -> None:
    script.jobs(1, 2, 3, 4)
    script.takes("a", ClaimedJob(2, "B"), ClaimedJob(1, "A"), at=10)
    script.wrong(r"a was given fresh jobs out of order: \[2, 1\]")
    script.takes("a", ClaimedJob(4, "D"), at=20)
    script.takes("a", ClaimedJob(3, "C"), at=30)
    script.wrong("a was given the fresh job 3, when 4 was out already")


def test_a_late_job_of_a_disconnected_client_is_accepted(script: Script) -> None:
    script.jobs(1, 2)
    script.takes("a", at=5, outcome=UNKNOWN)
    script.takes("b", ClaimedJob(2, "B"), at=10)
    script.takes("b", ClaimedJob(1, "A"), at=20)
    script.right()


def test_fresh_jobs_of_claims_side_by_side_have_no_order(script: Script) -> None:
    script.jobs(1, 2, 3, 4)
    script.takes("a", ClaimedJob(2, "B", deadline=111), ClaimedJob(4, "D", deadline=111), at=10, took=5)
    script.takes("b", ClaimedJob(1, "A", deadline=111), ClaimedJob(3, "C", deadline=111), at=11, took=5)
    script.right()


def test_returned_jobs_come_first_and_in_order(script: Script) -> None:
    script.jobs(1, 2, 3, 4)
    script.takes("a", ClaimedJob(1, "A"), ClaimedJob(2, "B"), at=10)
    script.nacks("a", (2, "B"), (1, "A"), at=20)
    script.takes("a", ClaimedJob(3, "C"), ClaimedJob(1, "D", 2), at=30)
    script.wrong(r"given fresh jobs before returned ones: \[3, 1\]")
    other = Script()
    other.jobs(1, 2, 3, 4)
    other.takes("a", ClaimedJob(1, "A"), ClaimedJob(2, "B"), at=10)
    other.nacks("a", (2, "B"), (1, "A"), at=20)
    other.takes("a", ClaimedJob(2, "C", 2), ClaimedJob(1, "D", 2), ClaimedJob(3, "E"), at=30)
    other.wrong(r"given returned jobs out of order: \[2, 1\]")


def test_an_answer_with_too_many_jobs_is_reported(script: Script) -> None:
    script.jobs(*range(1, 12))
    script.takes("a", *(ClaimedJob(seq, f"t{seq}") for seq in range(1, 12)), at=10)
    script.wrong("a asked for 10 jobs and was given")


def test_a_repeated_claim_with_different_jobs_is_reported(script: Script) -> None:
    script.jobs(1, 2)
    script.takes("a", ClaimedJob(1, "A"), at=10, key="k")
    script.takes("a", ClaimedJob(2, "B"), at=20, key="k")
    script.wrong("a asked again under k and was not given A")
    script.wrong("a asked again under k and was given other jobs: B")


def test_a_repeated_claim_with_another_deadline_or_count_is_reported(durable: Script) -> None:
    durable.jobs(1)
    durable.takes("a", ClaimedJob(1, "A", deadline=110), at=10, key="k")
    durable.crash(20)
    durable.takes("a", ClaimedJob(1, "A", 2, deadline=130), at=30, key="k")
    durable.wrong("A had the deadline 110, asked for again it has 130")
    durable.wrong("A is Lease")


def test_a_key_returns_the_leases_that_have_not_ended(script: Script) -> None:
    script.jobs(1, 2, 3)
    script.takes("a", ClaimedJob(1, "A", deadline=110), ClaimedJob(2, "B", deadline=110), at=10, key="k")
    script.acks("a", (1, "A"), at=20)
    script.takes("a", ClaimedJob(2, "B", deadline=110), at=30, key="k")
    script.right()
