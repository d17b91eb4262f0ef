"""A log's two views: published seqs, and seqs assigned to writes that are not on disk yet."""

from __future__ import annotations

import pytest

from storage.format import control
from storage.records.values import LossCause, TagMatch
from storage.state.keys import KeyRing
from storage.state.lookup import tag_match, tag_predicate
from storage.state.usage import Usage
from tests.unit.storage.log_steps import assigned, new_log, published, reserve, write


def test_a_new_log_is_empty_and_begins_at_seq_1() -> None:
    log = new_log()
    assert (published(log), assigned(log), log.earliest_seq) == ((0, 0, 0), (0, 0, 0), 1)


def test_reserved_records_are_assigned_but_not_published() -> None:
    log = new_log()
    run, row = reserve(log, [10, 20])
    assert (published(log), assigned(log)) == ((0, 0, 0), (2, 2, 30))
    log.commit(run, row, 1 << 40, 0)
    assert (published(log), assigned(log)) == ((2, 2, 30), (2, 2, 30))
    assert (log.last_ts, log.last_write_ts) == (1000, 1000)


def test_a_roll_back_keeps_published_records() -> None:
    log = new_log()
    write(log, [10])
    reserve(log, [20, 30])
    reserve(log, [40])
    log.roll_back()
    assert (published(log), assigned(log), log.usage.bytes) == ((1, 1, 10), (1, 1, 10), 10)
    write(log, [50])
    assert published(log) == (2, 2, 60)


def test_a_roll_back_undoes_a_pending_eviction() -> None:
    log = new_log()
    write(log, [10, 20, 30])
    reserve(log, [40])
    log.assign_floor(3)
    assert assigned(log) == (4, 2, 70)
    log.roll_back()
    assert (assigned(log), log.assigned_floor, log.usage.bytes) == ((3, 3, 60), 1, 60)


def test_a_pending_eviction_counts_at_once_for_writers_and_when_committed_for_readers() -> None:
    log = new_log()
    write(log, [10, 20, 30])
    log.assign_floor(3)
    assert (published(log), assigned(log)) == ((3, 3, 60), (3, 1, 30))
    assert log.evict({LossCause.CAP: 3}) == 2
    assert (published(log), assigned(log), log.earliest_seq) == ((3, 1, 30), (3, 1, 30), 3)
    assert log.usage.bytes == 30


def test_a_repeated_eviction_counts_once() -> None:
    log = new_log()
    write(log, [10, 20, 30])
    assert [log.evict({LossCause.CAP: 3}) for _ in range(2)] == [2, 0]
    assert log.evict({LossCause.TTL: 2}) == 0
    assert published(log) == (3, 1, 30)


def test_evictions_of_two_causes_overlap_without_counting_twice() -> None:
    log = new_log()
    write(log, [10, 20, 30, 40])
    log.assign_floor(3)
    assert log.evict({LossCause.TTL: 4}) == 3
    assert log.evict({LossCause.CAP: 3}) == 0
    assert (published(log), assigned(log), log.usage.bytes) == ((4, 1, 40), (4, 1, 40), 40)


def test_a_floor_within_a_pending_write_is_published_with_the_write() -> None:
    log = new_log()
    run, row = reserve(log, [1] * 10)
    log.assign_floor(8)
    assert assigned(log) == (10, 3, 3)
    log.commit(run, row, 1 << 40, 0)
    assert published(log) == (10, 10, 10)
    assert log.evict({LossCause.CAP: 8}) == 7
    assert (published(log), assigned(log)) == ((10, 3, 3), (10, 3, 3))


def test_a_loss_range_raises_the_head_for_good() -> None:
    log = new_log()
    write(log, [10])
    log.evict(loss=[(2, 256, "crash")])
    assert (log.head, log.assigned_head, log.count, log.earliest_seq) == (256, 256, 1, 1)
    write(log, [5])
    assert published(log) == (257, 2, 15)


def test_deleting_below_a_seq_is_silent_and_repeats_without_effect() -> None:
    log = new_log()
    write(log, [10, 20, 30])
    request = control.Delete(bound_head=3, before_seq=3)
    assert [log.delete(request) for _ in range(2)] == [2, 0]
    assert (published(log), log.marks.evict_floor, log.earliest_seq) == ((3, 1, 30), 1, 3)


@pytest.mark.parametrize(("before_seq", "left"), [(0, 3), (1, 3), (2, 2), (4, 0), (999, 0)])
def test_deleting_below_any_seq(before_seq: int, left: int) -> None:
    log = new_log()
    write(log, [1, 1, 1])
    log.delete(control.Delete(bound_head=3, before_seq=before_seq))
    assert (log.count, log.head) == (left, 3)
    assert log.earliest_seq == 4 - left


def test_deleting_reaches_no_further_than_the_head_at_the_call() -> None:
    log = new_log()
    write(log, [1, 1], tags={1: b"x", 2: b"x"})
    write(log, [1, 1], tags={3: b"x", 4: b"x"})
    assert log.delete(control.Delete(bound_head=2, match=["tag", "Eq", "x"])) == 2
    assert log.earliest_seq == 3
    assert log.delete(control.Delete(bound_head=2, before_seq=99)) == 0


def test_deleting_by_tag_repeats_without_effect() -> None:
    log = new_log()
    write(log, [1, 2, 4, 8], tags={1: b"a", 2: b"ab", 4: b"b"})
    request = control.Delete(bound_head=4, match=["tag", "Glob", "a*"])
    assert [log.delete(request) for _ in range(2)] == [2, 0]
    assert (published(log), assigned(log), log.usage.bytes) == ((4, 2, 12), (4, 2, 12), 12)


def test_a_delete_by_tag_and_seq_needs_both_to_match() -> None:
    log = new_log()
    write(log, [1, 1, 1], tags={1: b"a", 2: b"b", 3: b"a"})
    assert log.delete(control.Delete(bound_head=3, before_seq=3, match=["tag", "Eq", "a"])) == 1
    assert [seq for seq in (1, 2, 3) if log.tail.holds(seq)] == [2, 3]


def test_a_delete_of_seqs_counts_only_live_records() -> None:
    log = new_log()
    write(log, [1, 1, 1])
    log.evict({LossCause.CAP: 2})
    assert log.delete(control.Delete(bound_head=3, seqs=[1, 2, 2, 9])) == 1
    assert published(log) == (3, 1, 1)


def test_a_record_deleted_during_its_eviction_is_counted_once() -> None:
    log = new_log()
    write(log, [10, 20, 30], tags={1: b"x"})
    log.assign_floor(3)
    log.delete(control.Delete(bound_head=3, match=["tag", "Eq", "x"]))
    assert (published(log), assigned(log)) == ((3, 2, 50), (3, 1, 30))
    log.evict({LossCause.CAP: 3})
    assert (published(log), assigned(log), log.usage.bytes) == ((3, 1, 30), (3, 1, 30), 30)


def test_a_record_deleted_during_a_failing_eviction_is_counted_once() -> None:
    log = new_log()
    write(log, [10, 20, 30], tags={1: b"x"})
    reserve(log, [40])
    log.assign_floor(3)
    log.delete(control.Delete(bound_head=3, match=["tag", "Eq", "x"]))
    log.roll_back()
    assert (published(log), assigned(log), log.usage.bytes) == ((3, 2, 50), (3, 2, 50), 50)


def test_tags_of_evicted_records_do_not_accumulate() -> None:
    log = new_log()
    for _ in range(40):
        first = log.assigned_head + 1
        write(log, [1] * 100, tags={seq: b"t%d" % seq for seq in range(first, first + 100)})
        log.evict({LossCause.CAP: log.head - 9})
    assert len(log.tags) < 1500
    found = log.tags.find(TagMatch(b"t", True), log.head)
    assert [seq for seq in found if seq >= log.earliest_seq] == list(range(log.head - 9, log.head + 1))


def test_ephemeral_bytes_count_only_records_written_while_ephemeral() -> None:
    usage = Usage()
    log = new_log(usage)
    write(log, [10])
    log.set_ephemeral(True)
    assert (log.durable_head, usage.ephemeral_bytes) == (1, 0)
    write(log, [20, 30], place=0)
    assert usage.ephemeral_bytes == 50
    log.evict({LossCause.CAP: 3})
    assert (usage.bytes, usage.ephemeral_bytes) == (30, 30)
    log.set_ephemeral(False)
    assert (usage.bytes, usage.ephemeral_bytes) == (30, 0)


def test_written_out_bytes_no_longer_count_as_memory() -> None:
    usage = Usage()
    log = new_log(usage)
    log.set_ephemeral(True)
    write(log, [20, 30], place=0)
    write(log, [40], place=0)
    log.written_out(2)
    assert (usage.ephemeral_bytes, log.durable_head, log.in_memory_only) == (40, 2, False)
    log.written_out(1)
    assert (usage.ephemeral_bytes, log.durable_head) == (40, 2)


def test_a_released_log_has_no_usage() -> None:
    usage = Usage()
    log = new_log(usage)
    log.keys = KeyRing()
    log.set_ephemeral(True)
    write(log, [20, 30], place=0)
    log.release()
    assert (usage.bytes, usage.ephemeral_bytes, usage.keys) == (0, 0, 0)


def test_the_log_is_needed_from_the_file_of_the_first_live_record() -> None:
    log = new_log()
    for n in range(4):
        write(log, [1, 1], place=(1 << 40) + 1000 * n, tags={2 * n + 1: b"x", 2 * n + 2: b"y"})
    assert log.wal_needed_from() == 1 << 40
    log.evict({LossCause.CAP: 4})
    assert log.wal_needed_from() == (1 << 40) + 1000
    log.delete(control.Delete(bound_head=8, seqs=[4, 5, 6]))
    assert log.wal_needed_from() == (1 << 40) + 3000
    log.delete(control.Delete(bound_head=8, before_seq=9))
    assert log.wal_needed_from() is None


@pytest.mark.parametrize("match", [TagMatch(b"a"), TagMatch(b"a*"), TagMatch(b"a", True), TagMatch(b"", True)])
def test_a_tag_predicate_is_stored_and_read_back(match: TagMatch) -> None:
    assert tag_match(tag_predicate(match)) == match


def test_a_tag_match_is_exact_or_by_prefix_and_excludes_untagged_records() -> None:
    assert [TagMatch(b"ab").matches(tag) for tag in (b"ab", b"abc", b"a", b"")] == [True, False, False, False]
    assert [TagMatch(b"ab", True).matches(tag) for tag in (b"ab", b"abc", b"a", b"")] == [True, True, False, False]
    assert [TagMatch(b"", True).matches(tag) for tag in (b"ab", b"")] == [True, False]
