"""The time until which an owner answers."""

from __future__ import annotations

from storage.bucket.signs import OwnTime


def owner(sent_at: float = 100.0) -> OwnTime:
    time = OwnTime(ttl_s=5, margin_s=1)
    time.sealed(sent_at)
    return time


def test_there_is_no_time_before_a_seal() -> None:
    time = OwnTime()
    time.stored(10, 11)
    assert not time.is_open(11)
    assert not time.expired(1000)


def test_time_is_counted_from_the_sending_of_the_seal() -> None:
    time = owner()
    assert time.is_open(103.9)
    assert not time.is_open(104)
    assert time.expired(104)


def test_a_sign_counts_from_its_sending() -> None:
    time = owner()
    time.stored(sent_at=102, at=103)
    assert time.is_open(105.9)
    assert not time.is_open(106)


def test_a_sign_that_was_sent_in_time_and_is_known_too_late_extends_nothing() -> None:
    time = owner()
    time.stored(sent_at=103.9, at=104)
    assert time.expired(104)


def test_answers_out_of_order_take_no_time_away() -> None:
    time = owner()
    time.stored(sent_at=102, at=102.5)
    time.stored(sent_at=101, at=103)
    assert time.is_open(105.9)


def test_only_a_new_seal_begins_another_time() -> None:
    time = owner()
    time.stored(sent_at=110, at=111)
    assert time.expired(111)
    time.sealed(112)
    assert time.is_open(115.9)


def test_a_process_that_gives_the_cell_up_answers_nothing() -> None:
    time = owner()
    time.close()
    time.stored(101, 102)
    assert not time.is_open(102)
