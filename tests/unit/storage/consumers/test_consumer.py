"""One cursor alone: which records may be returned, what must be saved, and what a crash would repeat."""

from __future__ import annotations

import pytest

from storage.state.consumers.consumer import UNPERSISTED_SEQS, Consumer
from storage.state.consumers.values import Consistency, ConsumerConfig


def consumer(persist_every: int = 10, seq: int = 0, *, strict: bool = False) -> Consumer:
    consistency = Consistency.STRICTLY_AT_ONCE if strict else Consistency.AT_LEAST_ONCE
    return Consumer(7, "c", ConsumerConfig(consistency=consistency, persist_every=persist_every), seq)


def persist(each: Consumer) -> None:
    """A frame is written, and is durable."""
    each.durable_seq = each.write()
    each.written(durable=True)


def test_a_cursor_frame_excludes_the_unconfirmed_answer() -> None:
    each = consumer()
    each.deliver(6, 6)
    assert not each.due
    each.confirm()
    each.deliver(9, 3)
    assert each.write() == 6


@pytest.mark.parametrize(("handed", "due"), [(4, False), (5, True)])
def test_a_cursor_write_is_due_at_half_of_persist_every(handed: int, due: bool) -> None:
    each = consumer(10)
    each.deliver(handed, handed)
    each.confirm()
    assert each.due is due


def test_no_cursor_write_is_due_while_a_frame_is_in_flight() -> None:
    each = consumer(10)
    each.deliver(5, 5)
    each.confirm()
    each.write()
    each.deliver(10, 5)
    each.confirm()
    assert not each.due
    each.durable_seq = 5
    each.written(durable=True)
    assert each.due


def test_skipped_records_make_a_cursor_write_due() -> None:
    each = consumer(10)
    each.deliver(UNPERSISTED_SEQS - 1, 0)
    each.confirm()
    assert not each.due
    each.deliver(UNPERSISTED_SEQS, 0)
    each.confirm()
    assert each.due


def test_at_most_persist_every_records_are_unpersisted() -> None:
    each = consumer(10)
    each.deliver(7, 7)
    assert (each.has_room(3), each.has_room(4)) == (True, False)


def test_a_cursor_frame_makes_room_only_for_the_records_it_covers() -> None:
    each = consumer(10)
    each.deliver(6, 6)
    each.confirm()
    each.deliver(10, 4)
    persist(each)
    assert each.unpersisted == 4
    assert (each.has_room(6), each.has_room(7)) == (True, False)


def test_a_failed_frame_makes_no_room() -> None:
    each = consumer(10)
    each.deliver(10, 10)
    each.confirm()
    each.write()
    each.written(durable=False)
    assert not each.has_room(1)
    assert each.due


def test_seqs_without_records_take_no_room() -> None:
    each = consumer(2)
    each.deliver(1000, 1)
    assert each.has_room(1)


def test_an_answer_over_persist_every_is_allowed_when_the_cursor_is_durable() -> None:
    each = consumer(10)
    each.config = ConsumerConfig(persist_every=1)
    assert each.has_room(3)


def test_a_commit_ahead_of_the_cursor_leaves_no_unpersisted_record() -> None:
    each = consumer(10)
    each.deliver(4, 4)
    each.confirm()
    each.write_other()
    each.durable_seq = 8
    each.written(durable=True)
    each.moved_to(8)
    assert (each.cursor_seq, each.confirmed_seq, each.unpersisted, each.confirmed) == (8, 8, 0, 0)


def test_a_commit_within_the_delivered_range_keeps_the_later_records_unpersisted() -> None:
    each = consumer(10)
    each.deliver(6, 6)
    each.confirm()
    each.deliver(8, 2)
    each.write_other()
    each.durable_seq = 5
    each.written(durable=True)
    each.moved_to(5)
    assert (each.cursor_seq, each.confirmed_seq, each.unpersisted, each.confirmed) == (8, 6, 3, 1)


def test_a_seek_clears_the_unpersisted_records() -> None:
    each = consumer(10)
    each.deliver(8, 8)
    each.durable_seq = 2
    each.reset()
    assert (each.cursor_seq, each.confirmed_seq, each.unpersisted, each.behind) == (2, 2, 0, False)


def test_a_strict_consumer_is_behind_only_by_skipped_records() -> None:
    each = consumer(strict=True)
    each.deliver(3, 0)
    each.confirm()
    assert (each.behind, each.due) == (True, False)
