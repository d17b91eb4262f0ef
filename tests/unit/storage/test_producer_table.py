"""A log's state of idempotent producers: repeats, gaps, epochs, and writes in flight."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import InvalidProducerEpoch, OutOfOrderSequence
from storage.records.values import ProducerBatch
from storage.state.producer_table import MAX_SEQUENCE, REMEMBERED, ProducerTable, Sent, last_sequence

IDLE = 1000


def batch(base: int, epoch: int = 0, producer_id: int = 7) -> ProducerBatch:
    return ProducerBatch(producer_id, epoch, base)


def table(*batches: tuple[int, int], epoch: int = 0) -> ProducerTable:
    """(base, count) of each, at seqs from 1, ms from 1."""
    made, seq = ProducerTable(), 1
    for ts, (base, count) in enumerate(batches, 1):
        made.take(batch(base, epoch), count, seq, ts)
        seq += count
    return made


@pytest.mark.parametrize("base", [0, 1, 77, MAX_SEQUENCE])
def test_an_unknown_producer_may_begin_with_any_sequence(base: int) -> None:
    assert ProducerTable().known(batch(base), 3, 0, IDLE) is None
    assert table((0, 3)).known(batch(base, producer_id=8), 3, 0, IDLE) is None


def test_only_the_next_batch_is_in_order() -> None:
    known = table((0, 3), (3, 2))
    assert known.known(batch(5), 4, 10, IDLE) is None
    for base, count in [(6, 1), (4, 2), (3, 3), (0, 2), (1, 3), (MAX_SEQUENCE, 1)]:
        with pytest.raises(OutOfOrderSequence) as raised:
            known.known(batch(base), count, 10, IDLE)
        assert raised.value.detail == {"producer_id": 7, "base_sequence": base, "expected": 5}


def test_only_the_last_batches_of_a_producer_are_recognised() -> None:
    known = table(*[(number * 2, 2) for number in range(REMEMBERED + 2)])
    for number in range(2, REMEMBERED + 2):
        assert known.known(batch(number * 2), 2, 10, IDLE) == Sent(number * 2, number * 2 + 1, number * 2 + 1)
    for number in range(2):
        with pytest.raises(OutOfOrderSequence):
            known.known(batch(number * 2), 2, 10, IDLE)


def test_sequences_wrap_around() -> None:
    assert last_sequence(MAX_SEQUENCE, 1) == MAX_SEQUENCE
    assert last_sequence(MAX_SEQUENCE, 2) == 0
    assert last_sequence(MAX_SEQUENCE - 1, 5) == 2
    known = table((MAX_SEQUENCE - 1, 2))
    assert known.known(batch(0), 3, 10, IDLE) is None
    known = table((MAX_SEQUENCE - 1, 5))
    assert known.known(batch(3), 3, 10, IDLE) is None
    assert known.known(batch(MAX_SEQUENCE - 1), 5, 10, IDLE) == Sent(MAX_SEQUENCE - 1, 2, 1)
    with pytest.raises(OutOfOrderSequence):
        known.known(batch(0), 3, 10, IDLE)


def test_a_newer_epoch_starts_at_0_and_an_older_epoch_is_fenced() -> None:
    known = table((0, 3), epoch=4)
    assert known.known(batch(0, epoch=5), 3, 10, IDLE) is None
    for base in (1, 3):
        with pytest.raises(OutOfOrderSequence):
            known.known(batch(base, epoch=5), 3, 10, IDLE)
    for base in (0, 3):
        with pytest.raises(InvalidProducerEpoch) as raised:
            known.known(batch(base, epoch=3), 3, 10, IDLE)
        assert raised.value.detail == {"producer_id": 7, "epoch": 4}
    known.take(batch(0, epoch=5), 3, 4, 10)
    assert known.known(batch(0, epoch=5), 3, 10, IDLE) == Sent(0, 2, 4)


def test_a_pending_batch_counts_and_is_rolled_back_on_failure() -> None:
    known = table((0, 3))
    known.assign(batch(3), 2, 4, 10)
    known.assign(batch(5), 2, 6, 10)
    assert known.known(batch(3), 2, 10, IDLE) == Sent(3, 4, 4)
    assert known.known(batch(7), 1, 10, IDLE) is None
    known.roll_back()
    assert known.known(batch(3), 9, 10, IDLE) is None
    assert known.known(batch(0), 3, 10, IDLE) == Sent(0, 2, 1)


def test_pending_batches_are_published_in_order() -> None:
    known = ProducerTable()
    known.assign(batch(0), 3, 1, 10)
    known.assign(batch(3), 2, 4, 10)
    assert known.take(batch(0), 3, 1, 10) == 1
    known.roll_back()
    assert known.known(batch(3), 2, 10, IDLE) is None
    known.assign(batch(3), 2, 4, 11)
    assert known.take(batch(3), 2, 4, 11) == 0
    known.roll_back()
    assert known.known(batch(3), 2, 11, IDLE) == Sent(3, 4, 4)
    assert len(known) == 1


def test_an_idle_producer_is_forgotten_after_expiry() -> None:
    known = table((0, 3))
    assert known.known(batch(0), 3, 1 + IDLE, IDLE) == Sent(0, 2, 1)
    assert known.known(batch(0), 3, 2 + IDLE, IDLE) is None
    known.take(batch(9, producer_id=8), 1, 4, 500)
    known.take(batch(3), 1, 5, 501)
    assert (known.expire(500 + IDLE, IDLE), len(known)) == (0, 2)
    assert (known.expire(501 + IDLE, IDLE), len(known)) == (1, 1)
    assert known.entry(8) is None
    assert (known.expire(502 + IDLE, IDLE), len(known)) == (1, 0)


def test_the_longest_idle_producer_is_dropped_first() -> None:
    known = ProducerTable()
    for producer_id in (1, 2, 3, 1):
        known.take(batch(0, producer_id=producer_id), 1, 1, 1)
    assert known.forget_one() == 1
    assert [known.entry(producer_id) is None for producer_id in (1, 2, 3)] == [False, True, False]
    assert ProducerTable().forget_one() == 0


def test_a_batch_with_a_gap_replaces_the_remembered_batches() -> None:
    known = table((0, 3), (77, 2))
    assert known.known(batch(77), 2, 10, IDLE) == Sent(77, 78, 4)
    with pytest.raises(OutOfOrderSequence):
        known.known(batch(0), 3, 10, IDLE)


def test_a_snapshot_has_all_batches_below_the_durable_seq() -> None:
    known = table(*[(number * 2, 2) for number in range(7)], epoch=3)
    again = ProducerTable.of(known.capture(100))
    assert again.entry(7) == known.entry(7)
    assert again.capture(100) == known.capture(100)
    part = ProducerTable.of(known.capture(10)).entry(7)
    assert part is not None
    assert [sent.first_seq for sent in part.sent] == [5, 7, 9]
    assert known.capture(4) == []


def test_down_time_does_not_count() -> None:
    known = table((0, 3))
    known.take(batch(0, producer_id=8), 1, 4, 900)
    assert known.renew(1500, IDLE, 10**9) == 1
    assert known.entry(7) is None
    assert known.known(batch(0, producer_id=8), 1, 10**9 + IDLE, IDLE) == Sent(0, 0, 4)


#: Producer id, epoch, base sequence, records.
SENT = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1), st.sampled_from([0, 2, 4, 6]), st.just(2)), max_size=40)


def rows(sent: Sequence[tuple[int, int, int, int]], seq: int) -> list[tuple[int, int, int, int, int, int]]:
    """As a log has them, at seqs and ms from `seq` on."""
    return [(seq + at, count, seq + at, *batch) for at, (*batch, count) in enumerate(sent)]  # type: ignore[misc]


@given(SENT, SENT)
def test_batches_taken_together_are_remembered_as_one_by_one(
    before: list[tuple[int, int, int, int]], sent: list[tuple[int, int, int, int]]
) -> None:
    one_by_one, together = ProducerTable(), ProducerTable()
    news: list[int] = []
    for each in (rows(before, 1), rows(sent, 100)):
        added = [one_by_one.take(ProducerBatch(*row[3:]), row[1], row[0], row[2]) for row in each]
        news.append(sum(added) - together.take_all(each))
    assert news == [0, 0]
    assert together.capture(1 << 32) == one_by_one.capture(1 << 32)
