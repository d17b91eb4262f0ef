"""Records kept for claims: each is taken once, as it was read, and their number is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

import kernel
from storage.format import wal_frame
from storage.format.wal_frame import FrameType
from storage.queues.lease_queue import ClaimedBatch, ClaimedJob
from storage.queues.prefetched import PrefetchedRecords
from storage.records.frame_records import ChainedRecords, FrameRecords
from storage.records.values import StoredRecord

TOPIC_ID, TS = 7, 1_700_000_000_000


def record(seq: int, size: int = 0) -> StoredRecord:
    return StoredRecord(seq, TS + seq, b"", b"", b'{"data":"%d%b"}' % (seq, b"x" * size))


def lying(records: Sequence[StoredRecord]) -> Sequence[StoredRecord]:
    """Consecutive records as a read of many finds them."""
    data = b"".join([wal_frame.encode(FrameType.APPEND, 0, TOPIC_ID, *each) for each in records])
    return FrameRecords(data, kernel.scan(data).columns)


def run(first: int, last: int, *, apart: bool = False) -> Sequence[StoredRecord]:
    records = [record(seq) for seq in range(first, last + 1)]
    return records if apart else lying(records)


def new(records: int = 10**6, size: int = 10**9) -> PrefetchedRecords:
    return PrefetchedRecords(records, size)


apart = pytest.mark.parametrize("apart", [False, True])


@apart
def test_taken_records_are_removed(apart: bool) -> None:
    kept = new()
    kept.add(run(10, 99, apart=apart))
    assert kept.take([*range(40, 50)]) == [*run(40, 49)]
    assert len(kept) == 80
    assert kept.take([40]) is None
    assert kept.take([39]) == [*run(39, 39)]
    assert kept.take([*range(10, 39)]) == [*run(10, 38)]
    assert kept.take([*range(50, 100)]) == [*run(50, 99)]
    assert (len(kept), kept.bytes) == (0, 0)


@apart
def test_a_take_with_a_missing_record_takes_no_record(apart: bool) -> None:
    kept = new()
    kept.add(run(10, 20, apart=apart))
    kept.add(run(22, 30, apart=apart))
    for seqs in ([9, 10], [20, 21], [*range(18, 25)], [30, 31], [12, 21, 25], [1], [40]):
        assert kept.take(seqs) is None
    assert len(kept) == 20
    assert kept.take([12, 13, 19, 25]) == [record(seq) for seq in (12, 13, 19, 25)]
    assert len(kept) == 16


def test_a_take_crosses_several_runs() -> None:
    kept = new()
    kept.add(ChainedRecords([run(1, 30), [record(31), record(32), record(40)]]))
    kept.add(run(33, 39))
    assert kept.take([*range(25, 41)]) == [record(seq) for seq in range(25, 41)]
    assert kept.take([*range(1, 25)]) == [*run(1, 24)]
    assert len(kept) == 0


@apart
def test_a_record_added_twice_is_held_once(apart: bool) -> None:
    kept = new()
    kept.add(run(10, 50, apart=apart))
    kept.add(run(40, 60))
    kept.add(run(5, 15, apart=apart))
    assert len(kept) == 56
    assert kept.take([*range(5, 61)]) == [record(seq) for seq in range(5, 61)]


def test_the_oldest_records_are_dropped_first() -> None:
    kept = new(records=25)
    kept.add(run(100, 109))
    kept.add(run(50, 59))
    kept.add(run(1, 10))
    assert kept.take([100]) is None
    assert len(kept) == 20
    kept.take([*range(50, 58)])
    kept.add(run(200, 214))
    assert kept.take([58]) is None, "what is left of a run is as old as it was"
    assert len(kept) == 25


def test_held_bytes_are_bounded() -> None:
    kept = new(size=1000)
    for seq in range(1, 50):
        kept.add([record(seq, 90)])
        assert kept.bytes <= 1000
    assert len(kept) == 9
    kept.add([record(50, 2000)])
    assert (len(kept), kept.bytes) == (0, 0)


def test_a_few_held_records_do_not_retain_the_bytes_of_many() -> None:
    kept = new()
    kept.add(lying([record(seq, 1000) for seq in range(1000, 2000)]))
    kept.take([*range(1000, 1990)])
    [rest] = [each.records for each in kept._stored]  # pyright: ignore[reportPrivateUsage]
    assert len(rest) == 10
    assert len(rest.buffer) < 20_000  # pyright: ignore


@pytest.mark.parametrize("seed", range(40))
def test_held_records_match_a_dict_model(seed: int) -> None:
    random, kept, model = Random(seed), new(), dict[int, StoredRecord]()
    for _ in range(60):
        first = random.randint(1, 200)
        last = first + random.choice([0, 3, 20, 80])
        kind = random.choice(["lying", "apart", "holes", "take", "take", "some", "drop"])
        seqs = [*range(first, last + 1)]
        if kind in ("holes", "some"):
            seqs = sorted(random.sample(seqs, random.randint(1, len(seqs))))
        if kind == "drop":
            kept.drop(first, last + 1)
            model = {seq: each for seq, each in model.items() if not first <= seq <= last}
        elif kind in ("take", "some"):
            found = kept.take(seqs)
            there = all(seq in model for seq in seqs)
            assert (found is not None) == there
            if found is not None:
                assert found == [model.pop(seq) for seq in seqs]
        else:
            records = [record(seq, random.randint(0, 9)) for seq in seqs]
            kept.add(lying(records) if kind == "lying" else records)
            model |= {each.seq: each for each in records}
        assert len(kept) == len(model)
        assert kept.bytes == sum(len(each.body) for each in model.values())


def test_a_claimed_batch_behaves_as_a_list_of_jobs() -> None:
    records, lease_ids = [record(seq) for seq in range(5, 25)], (*range(901, 921),)
    jobs = [ClaimedJob(each, token, 77, 1) for each, token in zip(records, lease_ids, strict=True)]
    for found in (ClaimedBatch(lying(records), lease_ids, 77), ClaimedBatch(records, lease_ids, 77)):
        assert [*found] == jobs == found
        assert found == jobs
        assert found != jobs[1:]
        assert [found[at] for at in (0, 7, -1)] == [jobs[at] for at in (0, 7, -1)]
        assert found[3:9] == jobs[3:9]
        assert (len(found), bool(found)) == (20, True)
        with pytest.raises(IndexError):
            found[20]
