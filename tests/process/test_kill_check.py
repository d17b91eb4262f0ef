"""The checker that runs after a kill must find every kind of error: each kind is shown to it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.kill_check import check_topic
from tests.support.kill_ledger import Book, Deletion, Write
from tests.support.kill_view import Gap, View

pytestmark = pytest.mark.fast


def write_of(book: Book, name: str, *tags: str | None, first_seq: int | None = None) -> Write:
    """A write with a record for each tag: acknowledged at `first_seq`, or without an answer."""
    write = Write(name=name, node="n", key=None, tags=tags, fills=(0,) * len(tags), kept=book.tight)
    book.enter(write)
    if first_seq is not None:
        book.acknowledge(write, first_seq)
    return write


def served(seq: int, write: Write, index: int) -> dict[str, Any]:
    return {"$seq": seq, "$ts": 1, **write.served(index)}


def view_of(book: Book, *records: dict[str, Any], head_seq: int, gaps: tuple[Gap, ...] = (), **state: Any) -> View:
    found = {
        "head_seq": head_seq,
        "next_seq": head_seq + 1,
        "count": len(records),
        "earliest_seq": records[0]["$seq"] if records else head_seq + 1,
        "config": {"durability": book.durability, "lease_ms": 1000},
    }
    return View(found | state, list(records), list(gaps))


@pytest.fixture
def book() -> Book:
    return Book("t", "disk")


@pytest.fixture
def pair(book: Book) -> Write:
    """Two records, acknowledged with the seqs 1 and 2."""
    return write_of(book, "pair", None, "t1", first_seq=1)


def wrong(book: Book, view: View, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_topic(book, view)


def test_acked_records_that_are_served_pass(book: Book, pair: Write) -> None:
    check_topic(book, view_of(book, served(1, pair, 0), served(2, pair, 1), head_seq=2))
    assert book.base == 2


def test_a_missing_record_is_reported(book: Book, pair: Write) -> None:
    one = write_of(book, "one", None, first_seq=3)
    wrong(book, view_of(book, served(1, pair, 0), served(2, pair, 1), head_seq=3), "one was ok .* is lost")
    assert one.first_seq == 3


def test_a_head_below_an_acked_seq_is_reported(book: Book, pair: Write) -> None:
    wrong(book, view_of(book, served(1, pair, 0), head_seq=1), "seq 2 was given out")


def test_a_write_without_an_answer_may_be_absent_or_complete(book: Book) -> None:
    write = write_of(book, "open", None, "t1")
    check_topic(book, view_of(book, head_seq=0))
    assert write.first_seq is None
    check_topic(book, view_of(book, served(1, write, 0), served(2, write, 1), head_seq=2))
    assert write.first_seq == 1
    wrong(book, view_of(book, served(1, write, 0), head_seq=2), "torn")


def test_a_lost_record_seen_by_a_reader_is_reported(book: Book) -> None:
    write_of(book, "open", None)
    book.seen[1] = ("open", 0)
    wrong(book, view_of(book, head_seq=1), "open was unknown .* is lost")


def test_a_record_of_a_refused_or_unknown_write_is_reported(book: Book) -> None:
    write = write_of(book, "late", None)
    book.refuse(write)
    wrong(book, view_of(book, served(1, write, 0), head_seq=1), "refused")
    book.refused.clear()
    wrong(book, view_of(book, served(1, write, 0), head_seq=1), "nobody's")


def test_a_changed_record_is_reported(book: Book, pair: Write) -> None:
    changed = {**served(1, pair, 0), "meta": {"index": 7}}
    wrong(book, view_of(book, changed, served(2, pair, 1), head_seq=2), "not what was written")


def test_a_duplicate_or_moved_record_is_reported(book: Book, pair: Write) -> None:
    twice = view_of(book, served(1, pair, 0), served(2, pair, 1), served(3, pair, 1), head_seq=3)
    wrong(book, twice, "has seqs 2 and 3")
    wrong(book, view_of(book, served(2, pair, 0), served(3, pair, 1), head_seq=3), "began at 1 and now at 2")


def test_a_seq_given_to_two_writes_is_reported(book: Book, pair: Write) -> None:
    book.new_deletion(Deletion(tag="t1"))
    other = write_of(book, "other", None, first_seq=2)
    wrong(book, view_of(book, served(1, pair, 0), served(2, other, 0), head_seq=2), "seq 2 was given out twice")


def test_a_seq_of_no_write_is_reported(book: Book, pair: Write) -> None:
    wrong(book, view_of(book, served(1, pair, 0), served(2, pair, 1), head_seq=3), "seq 3 was given to nobody")


def test_an_announced_loss_in_a_synced_topic_is_reported(book: Book, pair: Write) -> None:
    gap = Gap(3, 256, "crash")
    wrong(book, view_of(book, served(1, pair, 0), served(2, pair, 1), head_seq=256, gaps=(gap,)), "nothing is lost")


def test_a_torn_log_may_announce_a_loss_except_in_a_synced_topic() -> None:
    for durability in ("disk", "fsync"):
        book = Book("t", durability)
        book.torn = True
        view = view_of(book, head_seq=256, gaps=(Gap(1, 256, "crash"),))
        if durability == "disk":
            check_topic(book, view)
        else:
            wrong(book, view, "nothing is lost")


def test_a_loss_in_an_ephemeral_topic_passes_only_if_announced() -> None:
    book = Book("t", "ephemeral", tight=False)
    write_of(book, "one", None, first_seq=1)
    wrong(book, view_of(book, head_seq=1), "went silently")
    write_of(book, "one", None, first_seq=1)
    check_topic(book, view_of(book, head_seq=256, gaps=(Gap(1, 256, "crash"),)))
    assert book.writes == {}


def test_a_restored_deleted_record_is_reported(book: Book, pair: Write) -> None:
    deletion = Deletion(tag="t")
    book.new_deletion(deletion)
    both = view_of(book, served(1, pair, 0), served(2, pair, 1), head_seq=2)
    check_topic(book, both)  # nobody has said yet that it was done
    book.deleted(deletion)
    wrong(book, both, "seq 2 was deleted and is back")
    check_topic(book, view_of(book, served(1, pair, 0), head_seq=2))


def test_a_lost_record_written_after_a_deletion_is_reported(book: Book, pair: Write) -> None:
    deletion = Deletion(tag="t")
    book.new_deletion(deletion)
    book.deleted(deletion)
    write_of(book, "later", None, "t1", first_seq=3)
    wrong(book, view_of(book, served(1, pair, 0), head_seq=4), "later was ok .* is lost")


def test_a_record_below_a_delete_floor_is_reported(book: Book, pair: Write) -> None:
    deletion = Deletion(before_seq=2)
    book.new_deletion(deletion)
    check_topic(book, view_of(book, served(2, pair, 1), head_seq=2))
    book.deleted(deletion)
    wrong(book, view_of(book, served(1, pair, 0), served(2, pair, 1), head_seq=2), "deleted and is back")


def test_a_reverted_setting_is_reported(book: Book) -> None:
    book.asked_setting = book.setting = 2
    wrong(book, view_of(book, head_seq=0), "setting 2 was acknowledged, 2 asked for, it is 0")


def test_a_cap_keeps_the_newest_records_and_announces_evicted_records() -> None:
    book = Book("t", "disk", cap=2)
    write = write_of(book, "one", None, None, None, None, first_seq=1)
    newest = (served(3, write, 2), served(4, write, 3))
    evicted = (Gap(1, 2, "cap"),)
    wrong(book, view_of(book, served(2, write, 1), *newest, head_seq=4, gaps=evicted), "3 records from 2 to 4")
    wrong(book, view_of(book, newest[1], head_seq=4, gaps=evicted), "1 records from 4 to 4")
    wrong(book, view_of(book, *newest, head_seq=4), "is announced")
    wrong(book, view_of(book, *newest, head_seq=4, gaps=(Gap(1, 3, "cap"),)), "is announced")
    check_topic(book, view_of(book, *newest, head_seq=4, gaps=evicted))
