"""One group, event by event: joining, waiting, and assignments."""

from __future__ import annotations

import pytest

from broker.kafka.errors import ErrorCode
from broker.kafka.groups.states import State
from broker.kafka.groups.values import Limits, Save
from tests.unit.kafka.groups.bench import LIMITS, RANGE, Bench


def test_the_first_member_waits_for_the_join_delay_and_leads() -> None:
    bench = Bench()
    token = bench.join()
    bench.pass_ms(99)
    assert not bench.joined
    assert bench.group.state is State.PREPARING
    bench.pass_ms(1)
    answer = bench.joined[token]
    assert (answer.error, answer.generation, answer.leader, answer.protocol) == (0, 1, "m1", "range")
    assert [(each.member_id, each.metadata) for each in answer.members] == [("m1", b"range of it")]
    assert bench.group.state is State.COMPLETING
    assert bench.saved == [Save(1, "consumer", empty=False)]


def test_a_new_member_within_the_delay_extends_the_delay() -> None:
    bench = Bench()
    bench.join()
    bench.pass_ms(60)
    bench.join()
    bench.pass_ms(99)
    assert not bench.joined
    bench.pass_ms(1)
    assert len(bench.joined) == 2
    assert len(bench.saved) == 1


def test_new_members_extend_the_delay_at_most_to_the_rebalance_timeout() -> None:
    bench = Bench(Limits(min_session_ms=1_000, rebalance_delay_ms=100, max_members=0))
    for _ in range(6):
        bench.join(rebalance_ms=250)
        bench.pass_ms(50)
    assert len(bench.saved) == 1


def test_followers_do_not_see_the_members() -> None:
    bench = Bench()
    bench.join()
    second = bench.join()
    bench.pass_ms(100)
    assert bench.joined[second].leader == "m1"
    assert bench.joined[second].members == ()


def test_a_sync_of_a_follower_waits_for_the_assignment_of_the_leader() -> None:
    bench = Bench()
    bench.join()
    bench.join()
    bench.pass_ms(100)
    follower = bench.sync("m2")
    assert not bench.synced
    leader = bench.sync("m1", assignments={"m1": b"one", "m2": b"two"})
    assert (bench.synced[leader].assignment, bench.synced[follower].assignment) == (b"one", b"two")
    assert bench.group.state is State.STABLE
    assert bench.synced[bench.sync("m2")].assignment == b"two"


def test_a_second_sync_of_the_leader_has_no_effect() -> None:
    bench = Bench()
    bench.stable(2)
    assert bench.synced[bench.sync("m1", assignments={"m2": b"other"})].assignment == b"a1"
    assert bench.synced[bench.sync("m2")].assignment == b"a2"


def test_member_without_an_assignment_gets_empty_bytes() -> None:
    bench = Bench()
    bench.join()
    bench.pass_ms(100)
    assert bench.synced[bench.sync("m1")].assignment == b""


def test_a_new_member_makes_all_members_rejoin() -> None:
    bench = Bench()
    bench.stable(2)
    third = bench.join()
    assert bench.group.state is State.PREPARING
    assert bench.heartbeat("m1") is ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.synced[bench.sync("m2")].error is ErrorCode.REBALANCE_IN_PROGRESS
    first = bench.join("m1")
    assert third not in bench.joined
    bench.join("m2")
    assert {bench.joined[token].generation for token in (first, third)} == {2}
    assert bench.joined[first].leader == "m1"


def test_a_member_that_rejoins_too_late_is_removed() -> None:
    bench = Bench()
    bench.stable(2)
    third = bench.join()
    bench.join("m1")
    for _ in range(5):  # alive, and does not join
        bench.pass_ms(6_000)
        bench.heartbeat("m2")
    assert bench.joined[third].generation == 2
    assert set(bench.group.roster.members) == {"m1", "m3"}
    assert bench.heartbeat("m2", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leaving_or_silent_member_starts_a_rebalance() -> None:
    bench = Bench()
    bench.stable(3)
    assert bench.leave("m2") is ErrorCode.NONE
    assert bench.group.state is State.PREPARING
    first = bench.join("m1")
    bench.pass_ms(9_999)
    assert first not in bench.joined
    bench.pass_ms(1)
    assert bench.joined[first].generation == 2
    assert [each.member_id for each in bench.joined[first].members] == ["m1"]


def test_the_next_member_leads_when_the_leader_has_left() -> None:
    bench = Bench()
    bench.stable(2)
    bench.leave("m1")
    token = bench.join("m2")
    assert bench.joined[token].leader == "m2"
    assert len(bench.joined[token].members) == 1


def test_a_group_without_members_is_empty_and_keeps_its_generation() -> None:
    bench = Bench()
    bench.stable(1)
    bench.leave("m1")
    assert (bench.group.state, bench.group.generation) == (State.EMPTY, 2)
    assert bench.saved[-1] == Save(2, "consumer", empty=True)
    bench.join()
    bench.pass_ms(100)
    assert bench.group.generation == 3


def test_a_leader_that_never_syncs_is_removed_after_the_rebalance_timeout() -> None:
    bench = Bench()
    bench.join()
    bench.join()
    bench.pass_ms(100)
    waiting = bench.sync("m2")
    for _ in range(5):
        bench.pass_ms(6_000)
        bench.heartbeat("m1")
    assert bench.synced[waiting].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert set(bench.group.roster.members) == {"m2"}
    assert bench.group.state is State.PREPARING


def test_a_waiting_member_does_not_expire() -> None:
    bench = Bench()
    bench.stable(2)
    waiting = bench.join("m1", protocols=(("range", b"other"),))
    bench.heartbeat("m2")
    for _ in range(4):
        bench.pass_ms(7_000)
        bench.heartbeat("m2")
    assert waiting not in bench.joined
    bench.pass_ms(2_000)
    assert bench.joined[waiting].error is ErrorCode.NONE


def test_a_member_that_disconnects_while_waiting_expires_after_a_session() -> None:
    bench = Bench()
    bench.stable(2)
    bench.group.disconnected(bench.join("m1", protocols=(("range", b"other"),)), bench.now)
    second = bench.join("m2")
    assert bench.joined[second].generation == 2, "it is in the barrier still"
    for _ in range(5):
        bench.pass_ms(2_000)
        bench.heartbeat("m2")
    assert set(bench.group.roster.members) == {"m2"}


def test_a_member_that_disconnects_after_a_long_wait_still_has_a_full_session() -> None:
    bench = Bench()
    bench.stable(2)
    waiting = bench.join("m1", protocols=(("range", b"other"),))
    for _ in range(3):
        bench.pass_ms(6_000)
        bench.heartbeat("m2")
    bench.group.disconnected(waiting, bench.now)
    bench.pass_ms(9_999)
    assert set(bench.group.roster.members) == {"m1", "m2"}
    bench.heartbeat("m2")
    bench.pass_ms(1)
    assert set(bench.group.roster.members) == {"m2"}


def test_a_lost_answer_to_a_join_is_given_again() -> None:
    bench = Bench()
    bench.join()
    bench.join()
    bench.pass_ms(100)
    assert bench.joined[bench.join("m2")].generation == 1
    assert len(bench.joined[bench.join("m1")].members) == 2
    assert bench.group.state is State.COMPLETING


def test_a_rejoining_leader_or_changed_metadata_starts_a_rebalance() -> None:
    for member_id, protocols in (("m1", RANGE), ("m2", (("range", b"other topics"),))):
        bench = Bench()
        bench.stable(2)
        assert bench.join(member_id, protocols=protocols) not in bench.joined
        assert bench.group.state is State.PREPARING
    bench = Bench()
    bench.stable(2)
    assert bench.joined[bench.join("m2")].generation == 1


def test_a_join_sent_twice_is_answered_twice() -> None:
    bench = Bench()
    bench.stable(2)
    one = bench.join("m1")
    other = bench.join("m1")
    assert bench.joined[one].error is ErrorCode.REBALANCE_IN_PROGRESS
    bench.join("m2")
    assert bench.joined[other].generation == 2


def test_an_older_generation_is_refused() -> None:
    bench = Bench()
    bench.stable(1)
    bench.join("m1")
    assert bench.group.generation == 2
    assert bench.heartbeat("m1", 1) is ErrorCode.ILLEGAL_GENERATION
    assert bench.synced[bench.sync("m1", 1)].error is ErrorCode.ILLEGAL_GENERATION
    assert bench.group.commit("m1", 1, None, bench.now) is ErrorCode.ILLEGAL_GENERATION


def test_a_stranger_is_refused() -> None:
    empty, stable = Bench(), Bench()
    stable.stable(1)
    for bench in (empty, stable):
        assert bench.heartbeat("who") is ErrorCode.UNKNOWN_MEMBER_ID
        assert bench.leave("who") is ErrorCode.UNKNOWN_MEMBER_ID
        assert bench.leave("", "who") is ErrorCode.UNKNOWN_MEMBER_ID
        assert bench.synced[bench.sync("who")].error is ErrorCode.UNKNOWN_MEMBER_ID
        assert bench.joined[bench.join("who")].error is ErrorCode.UNKNOWN_MEMBER_ID


# -- joining ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session_ms", [-1, 0, 999, 60_001])
def test_a_session_timeout_out_of_the_limits_is_refused(session_ms: int) -> None:
    bench = Bench()
    assert bench.joined[bench.join(session_ms=session_ms)].error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_new_member_must_join_again_with_its_assigned_id() -> None:
    bench = Bench()
    answer = bench.joined[bench.join(round_trip=True)]
    assert (answer.error, answer.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "m1")
    assert bench.group.state is State.EMPTY
    token = bench.join("m1", round_trip=True)
    bench.pass_ms(100)
    assert bench.joined[token].member_id == "m1"


def test_the_join_barrier_waits_for_assigned_ids() -> None:
    bench = Bench()
    bench.stable(1)
    bench.join(fresh_id="new", round_trip=True)
    first = bench.join("m1")
    assert first not in bench.joined
    bench.join("new", round_trip=True)
    assert bench.joined[first].generation == 2
    assert len(bench.joined[first].members) == 2


def test_unused_member_id_expires() -> None:
    bench = Bench()
    bench.stable(1)
    bench.join(fresh_id="new", round_trip=True)
    first = bench.join("m1")
    bench.pass_ms(9_999)
    assert first not in bench.joined
    bench.pass_ms(1)
    assert bench.joined[first].generation == 2
    assert bench.joined[bench.join("new")].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_assigned_id_can_leave_before_joining() -> None:
    bench = Bench()
    bench.stable(1)
    bench.join(fresh_id="new", round_trip=True)
    first = bench.join("m1")
    assert bench.leave("new") is ErrorCode.NONE
    assert bench.joined[first].generation == 2


def test_a_full_group_refuses_new_members_and_counts_assigned_ids() -> None:
    bench = Bench()
    for _ in range(3):
        bench.join()
    bench.join(round_trip=True)
    bench.join(fresh_id="last", round_trip=True)
    for trip in (True, False):
        assert bench.joined[bench.join(round_trip=trip)].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    bench.join("last", round_trip=True)
    bench.pass_ms(LIMITS.rebalance_delay_ms + 10_000)
    assert bench.group.generation == 1
    assert "last" in bench.group.roster.members


def test_oversized_member_metadata_is_refused() -> None:
    bench = Bench(Limits(min_session_ms=1_000, max_bytes=100))
    bench.stable(2, protocols=(("p", b"x" * 40),))
    assert bench.joined[bench.join(protocols=(("p", b"x" * 18),))].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.joined[bench.join("m2", protocols=(("p", b"x" * 59),))].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.join("m2", protocols=(("p", b"x" * 58),)) not in bench.joined


@pytest.mark.parametrize(
    "changes",
    [{"protocol_type": ""}, {"protocols": ()}, {"protocol_type": "connect"}, {"protocols": (("other", b""),)}],
)
def test_member_without_a_common_protocol_is_refused(changes: dict[str, object]) -> None:
    bench = Bench()
    bench.stable(2)
    assert bench.joined[bench.join(**changes)].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.joined[bench.join("m2", **changes)].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.group.state is State.STABLE


def test_the_only_member_may_change_its_protocol() -> None:
    bench = Bench()
    bench.stable(1)
    assert bench.joined[bench.join("m1", protocols=(("other", b"x"),))].protocol == "other"


def test_an_empty_group_takes_another_protocol_type() -> None:
    bench = Bench()
    bench.stable(1)
    bench.leave("m1")
    token = bench.join(protocol_type="connect", protocols=(("sessioned", b"x"),))
    bench.pass_ms(100)
    assert bench.joined[token].protocol == "sessioned"
    assert bench.group.protocol_type == "connect"


@pytest.mark.parametrize(
    ("likes", "chosen"),
    [
        (["ab", "ba", "ba"], "b"),
        (["ab", "ba"], "a"),
        (["ba", "ab"], "b"),
        (["abc", "cb", "cb"], "c"),
        (["abc", "c"], "c"),
    ],
)
def test_the_chosen_protocol_is_common_and_has_most_votes(likes: list[str], chosen: str) -> None:
    bench = Bench()
    tokens = [bench.join(protocols=tuple((name, b"") for name in each)) for each in likes]
    bench.pass_ms(100)
    assert {bench.joined[token].protocol for token in tokens} == {chosen}


# -- static members ---------------------------------------------------------------------------------------------------


def test_a_restarted_static_member_causes_no_rebalance() -> None:
    bench = Bench()
    bench.stable(1)
    bench.join(instance_id="i", fresh_id="old")
    bench.join("m1")
    bench.sync("old", instance_id="i")
    bench.sync("m1", assignments={"old": b"its own"})
    answer = bench.joined[bench.join(instance_id="i", fresh_id="new", round_trip=True)]
    assert (answer.error, answer.member_id, answer.generation) == (0, "new", 2)
    assert bench.group.state is State.STABLE
    assert bench.synced[bench.sync("new", instance_id="i")].assignment == b"its own"
    assert bench.heartbeat("old", instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    assert bench.group.commit("old", 2, "i", bench.now) is ErrorCode.FENCED_INSTANCE_ID
    assert bench.leave("old", "i") is ErrorCode.FENCED_INSTANCE_ID
    assert bench.joined[bench.join("old", instance_id="i")].error is ErrorCode.FENCED_INSTANCE_ID


def test_a_restarted_static_leader_is_not_told_to_lead() -> None:
    bench = Bench()
    bench.join(instance_id="i", fresh_id="old")
    bench.pass_ms(100)
    bench.sync("old", instance_id="i", assignments={"old": b"its own"})
    answer = bench.joined[bench.join(instance_id="i", fresh_id="new")]
    assert (answer.leader, answer.members) == ("old", ())
    assert bench.group.roster.leader == "new"
    assert bench.synced[bench.sync("new", instance_id="i")].assignment == b"its own"


def test_a_static_member_restarted_during_a_rebalance_replaces_the_old_member() -> None:
    bench = Bench()
    bench.stable(1)
    old = bench.join(instance_id="i", fresh_id="old")
    new = bench.join(instance_id="i", fresh_id="new")
    assert bench.joined[old].error is ErrorCode.FENCED_INSTANCE_ID
    first = bench.join("m1")
    assert bench.joined[new].generation == 2
    assert [each.instance_id for each in bench.joined[first].members] == [None, "i"]
    bench.join(instance_id="i", fresh_id="newer")
    assert bench.group.state is State.PREPARING, "what is being assigned names the one before"


def test_a_static_member_with_another_protocol_starts_a_rebalance() -> None:
    bench = Bench()
    both = (("range", b""), ("sticky", b""))
    bench.join(instance_id="i", protocols=both)
    bench.join(protocols=both)
    bench.pass_ms(100)
    bench.sync("m1", instance_id="i")
    assert bench.join(instance_id="i", protocols=(("sticky", b""),)) not in bench.joined
    assert bench.group.state is State.PREPARING


def test_an_absent_static_member_stays_until_its_session_ends() -> None:
    bench = Bench()
    bench.join(instance_id="i", fresh_id="static", session_ms=50_000)
    bench.join(fresh_id="other")
    bench.pass_ms(100)
    bench.sync("other")
    bench.sync("static", instance_id="i", assignments={})
    third = bench.join(fresh_id="third")
    bench.join("other")
    bench.pass_ms(30_000)
    answer = bench.joined[third]
    assert (answer.generation, answer.leader) == (2, "other")
    assert set(bench.group.roster.members) == {"static", "other", "third"}
    bench.sync("other")
    bench.sync("third")
    bench.pass_ms(9_000)
    bench.heartbeat("other")
    bench.heartbeat("third")
    bench.pass_ms(11_000)
    assert "static" not in bench.group.roster.members


def test_absent_static_members_keep_their_assignments() -> None:
    bench = Bench()
    bench.stable(1, instance_id="i", session_ms=50_000)
    bench.join("m1", instance_id="i", session_ms=50_000, protocols=(("range", b"more"),))
    bench.join(fresh_id="other", round_trip=True)
    bench.sync("m1", instance_id="i")
    token = bench.join("other")
    bench.leave("other")
    assert bench.joined[token].error is ErrorCode.UNKNOWN_MEMBER_ID
    generation = bench.group.generation
    bench.pass_ms(31_000)
    assert bench.group.generation == generation
    bench.pass_ms(20_000)
    assert (bench.group.state, bench.group.generation) == (State.EMPTY, generation + 1)


def test_a_static_member_can_be_removed_by_instance_id() -> None:
    bench = Bench()
    bench.stable(1, instance_id="i")
    assert bench.leave("", "i") is ErrorCode.NONE
    assert bench.group.state is State.EMPTY


# -- offsets, deletion, the end ---------------------------------------------------------------------------------------


def test_offset_commits_are_accepted_only_from_the_current_generation() -> None:
    bench = Bench()
    bench.stable(2)
    commit = bench.group.commit
    assert commit("m1", 1, None, bench.now) is ErrorCode.NONE
    assert commit("", -1, None, bench.now) is ErrorCode.UNKNOWN_MEMBER_ID
    bench.join("m1")
    assert commit("m2", 1, None, bench.now) is ErrorCode.NONE
    bench.join("m2")
    assert bench.group.state is State.COMPLETING
    assert commit("m2", 2, None, bench.now) is ErrorCode.REBALANCE_IN_PROGRESS
    assert commit("m2", -1, None, bench.now) is ErrorCode.ILLEGAL_GENERATION


def test_offsets_are_taken_from_outside_when_the_group_is_empty() -> None:
    bench = Bench()
    assert bench.group.commit("", -1, None, bench.now) is ErrorCode.NONE
    assert bench.group.commit("m", 1, None, bench.now) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_keeps_a_member_alive() -> None:
    bench = Bench()
    bench.stable(1)
    for _ in range(5):
        bench.pass_ms(9_000)
        assert bench.group.commit("m1", 1, None, bench.now) is ErrorCode.NONE


def test_only_an_empty_group_can_be_deleted_and_accepts_no_more_members() -> None:
    bench = Bench()
    bench.stable(1)
    assert bench.group.delete() is ErrorCode.NON_EMPTY_GROUP
    bench.leave("m1")
    assert bench.group.delete() is ErrorCode.NONE
    assert bench.group.state is State.DEAD
    assert bench.joined[bench.join()].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.group.commit("", -1, None, bench.now) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.group.deadline() is None


def test_disbanded_group_answers_all_waits_and_continues_with_later_generations() -> None:
    bench = Bench()
    bench.stable(2)
    token = bench.join("m1")
    bench.group.disband(ErrorCode.NOT_COORDINATOR)
    bench.take()
    assert bench.joined[token].error is ErrorCode.NOT_COORDINATOR
    assert bench.heartbeat("m2") is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.group.state is State.EMPTY
    assert bench.group.deadline() is None
    bench.join()
    bench.pass_ms(100)
    assert bench.group.generation == 2
