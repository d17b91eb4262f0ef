"""The checker of what consumers got must find every kind of error: each kind is shown to it."""

from __future__ import annotations

import pytest

from tests.support.consume_check import Consumed, Life

pytestmark = pytest.mark.fast


def lives(*each: Life, strict: bool = False, limit: int = 2, persist_every: int = 3) -> list[str]:
    consumed = Consumed(name="c", strict=strict, limit=limit, persist_every=persist_every, lives=list(each))
    return consumed.check(max(max(life.given) for life in each))


def life(*given: int, lost: int = 0, killed: bool = True) -> Life:
    return Life(given=list(given), lost=lost, killed=killed)


@pytest.mark.parametrize("strict", [True, False])
def test_continuing_at_the_end_of_the_last_life_is_accepted(strict: bool) -> None:
    assert lives(life(1, 2, 3), life(4, 5), strict=strict) == []


@pytest.mark.parametrize("strict", [True, False])
def test_shared_readers_may_get_records_in_any_order(strict: bool) -> None:
    assert lives(life(3, 1, 2, 5, 4), strict=strict) == []


def test_a_record_given_twice_in_one_life_is_reported() -> None:
    assert "twice in life 0: [2]" in lives(life(1, 2, 2, 3))[0]


def test_a_record_repeated_over_two_kills_is_reported() -> None:
    assert lives(life(1, 2, 3), life(2, 3, 4)) == []
    assert "again in life 1" in lives(life(1, 2, 3), life(3, 4), strict=True)[0]


def test_more_repetitions_than_persist_every_are_reported() -> None:
    assert lives(life(1, 2, 3, 4), life(2, 3, 4, 5)) == []
    assert "over the 3 allowed" in lives(life(1, 2, 3, 4), life(1, 2, 3, 4, 5))[0]


def test_a_repetition_after_a_clean_stop_is_reported() -> None:
    assert "over the 0 allowed" in lives(life(1, 2, 3, killed=False), life(3, 4))[0]


def test_a_repetition_two_lives_later_is_reported() -> None:
    assert "again in life 2" in lives(life(1, 2), life(3), life(2, 4), strict=True)[0]


def test_a_repetition_with_a_hole_is_reported() -> None:
    assert "hang together" in lives(life(1, 2, 3), life(1, 3, 4))[0]


def test_a_record_missing_within_a_life_is_reported() -> None:
    assert "left out in life 0: [2]" in lives(life(1, 3))[0]


def test_a_record_missing_between_lives_is_reported() -> None:
    assert "left out in life 1: [3]" in lives(life(1, 2), life(4, 5))[0]


@pytest.mark.parametrize("strict", [True, False])
def test_records_of_a_lost_answer_may_be_missing(strict: bool) -> None:
    assert lives(life(1, 2, lost=1), life(5, 6), strict=strict) == []
    assert lives(life(1, 4, 5, lost=1), life(6), strict=strict) == []
    assert "left out" in lives(life(1, 2, lost=1), life(6), strict=strict)[0]


def test_a_lone_at_least_once_consumer_is_excused_no_missing_record() -> None:
    each = [life(1, 2, lost=1), life(5, 6)]
    for strict, problems in ((True, 0), (False, 1)):
        consumed = Consumed(name="c", strict=strict, limit=2, alone=True, lives=each)
        assert len(consumed.check(6)) == problems


def test_a_lost_answer_does_not_excuse_a_later_life() -> None:
    assert "left out in life 2" in lives(life(1, lost=1), life(2, 3), life(5))[0]


def test_records_missing_at_the_end_are_reported() -> None:
    consumed = Consumed(name="c", strict=True, limit=1, lives=[life(1, 2)])
    assert "not given at the end: 3 to 4" in consumed.check(4)[0]


def test_an_answer_with_more_records_than_requested_is_reported() -> None:
    consumed = Consumed(name="c", strict=True, limit=1)
    consumed.given(0, [1, 2])
    assert "2 records where 1" in consumed.check(2)[0]
    consumed = Consumed(name="c", strict=True, limit=2)
    consumed.given(0, [2, 1])
    assert "out of order" in consumed.check(2)[0]


def committing() -> Consumed:
    return Consumed(name="c", strict=False, limit=2, commits=True)


def test_a_peek_that_ignores_an_answered_commit_is_reported() -> None:
    consumed = committing()
    consumed.peeked(0, 0, [1, 2])
    consumed.committing(2)
    consumed.committed(2)
    consumed.peeked(0, 2, [3])
    assert consumed.check(3) == []
    consumed.peeked(0, 0, [1, 2])
    assert "behind 0 where [2] is possible" in consumed.check(3)[0]


def test_a_commit_without_an_answer_may_have_happened_or_not() -> None:
    for cursor in (0, 2):
        consumed = committing()
        consumed.peeked(0, 0, [1, 2])
        consumed.committing(2)
        consumed.lives.append(Life())
        consumed.peeked(1, cursor, [cursor + 1])
        assert consumed.check(2) == []
    consumed.peeked(1, 1, [2])
    assert "possible" in consumed.check(2)[0]


def test_a_peek_that_skips_a_record_is_reported() -> None:
    consumed = committing()
    consumed.peeked(0, 0, [2])
    assert "2 came behind 0" in consumed.check(2)[0]
    assert "never given: [1]" in consumed.check(2)[1]
