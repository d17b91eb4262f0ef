"""Share sessions and members by their tables."""

from __future__ import annotations

import pytest

from broker.kafka.errors import ErrorCode
from broker.kafka.share.members import SESSION_TIMEOUT_MS, Member, Members
from broker.kafka.share.sessions import MAX_QUEUES, Session, Step, advance

LAST = (1 << 31) - 1
NOT_FOUND, INVALID = ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH


def a_session(next_epoch: int) -> Session:
    session = Session("g", "m")
    session.next_epoch = next_epoch
    return session


@pytest.mark.parametrize(
    ("expected", "epoch", "outcome", "then"),
    [
        (None, 0, Step.OPEN, None),
        (7, 0, Step.OPEN, 7),
        (None, -1, NOT_FOUND, None),
        (7, -1, Step.CLOSE, 7),
        (None, 1, NOT_FOUND, None),
        (None, -2, NOT_FOUND, None),
        (7, 7, Step.GO_ON, 8),
        (7, 6, INVALID, 7),
        (7, 8, INVALID, 7),
        (7, -2, INVALID, 7),
        (LAST, LAST, Step.GO_ON, 1),
    ],
)
def test_a_session_epoch_leads_to_the_expected_step(
    expected: int | None, epoch: int, outcome: Step | ErrorCode, then: int | None
) -> None:
    session = None if expected is None else a_session(expected)
    assert advance(session, epoch) is outcome
    if session is not None:
        assert session.next_epoch == then


def test_queues_are_served_in_rotation() -> None:
    session = a_session(1)
    for each in (b"a", b"b", b"a", b"c"):
        session.add(each)
    assert session.queues == [b"a", b"b", b"c"]
    session.rotate()
    assert session.queues == [b"b", b"c", b"a"]
    session.forget(b"c")
    session.forget(b"none")
    assert session.queues == [b"b", b"a"]


def test_the_number_of_queues_of_a_session_is_limited() -> None:
    session = a_session(1)
    assert all(session.add(b"%d" % n) for n in range(MAX_QUEUES))
    assert not session.add(b"more")
    assert session.add(b"0")
    assert len(session.queues) == MAX_QUEUES


def test_an_ended_lease_is_no_longer_held() -> None:
    holding = a_session(1).holding(b"a")
    holding.leases.update({1: 10, 2: 20})
    holding.lease_ended(1)
    holding.lease_ended(9)
    assert holding.leases == {2: 20}


def joined(members: Members, member_id: str = "m", *names: str) -> Member:
    member = members.heartbeat("g", member_id, 0, names or ("t",), 0)
    assert isinstance(member, Member)
    return member


@pytest.mark.parametrize(
    ("epoch", "outcome"),
    [(4, ErrorCode.FENCED_MEMBER_EPOCH), (1, ErrorCode.FENCED_MEMBER_EPOCH), (3, None), (2, None), (0, None)],
)
def test_a_member_continues_with_the_current_or_the_previous_epoch(epoch: int, outcome: ErrorCode | None) -> None:
    members = Members(10)
    member = joined(members)
    for ids in ([b"1"], [b"1", b"2"], [b"2"]):
        assert member.announce(ids)
    assert member.epoch == 3
    found = members.heartbeat("g", "m", epoch, None if epoch else ("t",), 5)
    assert found is outcome if outcome is not None else isinstance(found, Member)


def test_topics_are_sent_after_a_change_or_a_lost_answer() -> None:
    members = Members(10)
    member = joined(members)
    assert member.announce([])
    assert not member.announce([])
    assert member.announce([b"1"])
    assert member.epoch == 2
    assert members.heartbeat("g", "m", 2, None, 0) is member
    assert not member.announce([b"1"])
    assert members.heartbeat("g", "m", 1, None, 0) is member
    assert member.announce([b"1"])
    assert member.epoch == 2


def test_unknown_member_must_join_again() -> None:
    members = Members(10)
    assert members.heartbeat("g", "m", 1, None, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    joined(members)
    assert members.heartbeat("other", "m", 1, None, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert members.leave("g", "m")
    assert not members.leave("g", "m")
    assert members.heartbeat("g", "m", 1, None, 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_number_of_members_of_a_group_is_limited() -> None:
    members = Members(2)
    for name in ("a", "b", "a"):
        joined(members, name)
    assert members.heartbeat("g", "c", 0, ("t",), 0) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert isinstance(members.heartbeat("other", "c", 0, ("t",), 0), Member)
    members.leave("g", "a")
    assert members.size("g") == 1
    assert len(members) == 2
    joined(members, "c")


def test_member_without_heartbeats_is_overdue() -> None:
    members = Members(10)
    joined(members)
    assert [*members.overdue(SESSION_TIMEOUT_MS)] == []
    assert [*members.overdue(SESSION_TIMEOUT_MS + 1)] == [("g", "m")]
    members.heartbeat("g", "m", 1, None, 5)
    assert [*members.overdue(SESSION_TIMEOUT_MS + 1)] == []
