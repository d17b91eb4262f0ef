"""Where a batch of a stream ends, and when it waits."""

from __future__ import annotations

from pipeline.admission import Delay, Offset, Offsets, advance
from pipeline.progress import lag


def at(*seqs: int, epoch: int = 1) -> Offsets:
    return {"t": {str(number): {"epoch": epoch, "seq": seq} for number, seq in enumerate(seqs)}}


class Clock:
    """A clock that is set by hand, in seconds."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_small_batch_waits_for_records_or_for_its_time() -> None:
    clock = Clock()
    delay = Delay(10, 5000, clock)
    assert not delay.holds(at(1, 1), at(2, 1)), "the first batch does not wait"
    assert delay.holds(at(2, 1), at(7, 5))
    assert not delay.holds(at(2, 1), at(7, 6)), "ten records are enough, of all partitions together"
    clock.now += 4.9
    assert delay.holds(at(7, 6), at(8, 6))
    clock.now += 0.2
    assert not delay.holds(at(7, 6), at(8, 6)), "the time is over"
    assert delay.holds(at(8, 6), at(9, 6)), "each batch begins a new time"


def test_a_recreated_topic_counts_from_its_first_seq() -> None:
    clock = Clock()
    delay = Delay(10, 5000, clock)
    delay.holds(at(1), at(1))
    assert not delay.holds(at(500), at(11, epoch=2))
    assert delay.holds(at(500), at(10, epoch=2))


def test_another_cluster_id_is_another_topic() -> None:
    def of(seq: int, cluster_id: str = "") -> Offsets:
        found: Offset = {"epoch": 1, "seq": seq}
        return {"t": {"0": {**found, "cluster_id": cluster_id} if cluster_id else found}}

    assert advance(of(56, "a"), of(81, "b"), None) == of(81, "b")
    assert advance(of(56, "a"), of(81, "b"), 30) == of(31, "b")
    assert advance(of(56, "a"), of(1, "b"), None) == of(1, "b"), "it may be empty"
    # Checkpoints of earlier versions have no cluster id: the epoch alone decides, and the id is added.
    assert advance(of(56), of(81, "b"), 10) == of(66, "b")
    assert advance(of(56), of(56, "b"), None) == of(56, "b")
    assert lag({"endOffset": of(56, "a"), "latestOffset": of(81, "b")}) == {"t": {"0": 80}}
    assert lag({"endOffset": of(56), "latestOffset": of(81, "b")}) == {"t": {"0": 25}}


def test_without_a_minimum_no_batch_waits() -> None:
    delay = Delay(None, 5000)
    assert not delay.holds(at(1), at(1))
    assert not delay.holds(at(1), at(1))


def test_the_lag_of_each_partition_is_in_the_progress() -> None:
    end = '{"t":{"0":{"epoch":1,"seq":5}}}'
    latest = {"t": {"0": {"epoch": 1, "seq": 9}, "1": {"epoch": 1, "seq": 3}}}
    assert lag({"endOffset": end, "latestOffset": latest}) == {"t": {"0": 4, "1": 2}}
    assert lag({"endOffset": end, "latestOffset": end}) == {"t": {"0": 0}}
    assert lag({"endOffset": None, "latestOffset": None}) == {}
