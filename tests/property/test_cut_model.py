"""How many of the oldest records make room, in segments and in the tail, compared with a look at each record."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from storage.records.batches import AppendedRecords
from storage.state.manifest import Details, SegmentState, Times
from storage.state.retained import Eviction, Retained

#: (payload bytes, whether it is live) of each record of a part: a segment, or a batch in the tail.
PART = st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=12)


@given(
    st.lists(PART, max_size=4),
    st.lists(PART, max_size=3),
    st.integers(0, 1000),
    st.integers(0, 1000),
    st.tuples(st.integers(0, 70), st.integers(0, 300)).filter(any),
    st.booleans(),
    st.booleans(),
)
def test_the_cut_equals_a_record_by_record_search(
    segments: list[list[tuple[int, bool]]],
    batches: list[list[tuple[int, bool]]],
    at: int,
    ahead: int,
    over: tuple[int, int],
    known: bool,
    everything_lives: bool,
) -> None:
    if everything_lives:
        segments, batches = ([[(size, True) for size, _ in part] for part in parts] for parts in (segments, batches))
    records = [each for part in (*segments, *batches) for each in part]
    floor = 1 + at % (len(records) + 1)
    seq = floor + ahead % (len(records) + 2 - floor)
    held = Retained(1, None)
    first = 1
    for part in segments:
        alive = [(size, n + first) for n, (size, lives) in enumerate(part) if lives and n + first >= floor]
        state = SegmentState(first_seq=first, end_seq=first + len(part), sealed=True)
        segment = held.manifest.add(state)
        segment.live, segment.live_bytes = len(alive), sum(size for size, _ in alive)
        segment.dead = sum(1 << n for n, (_, lives) in enumerate(part) if not lives)
        if known:
            segment.details = Details(array("I", [size for size, _ in part]), Times([1] * len(part)))
        first += len(part)
    held.flushed = first - 1
    for part in batches:
        held.tail.append(
            AppendedRecords(first, 1, array("I", [50]) * len(part), array("I", [size for size, _ in part]), [])
        )
        for n, (_, lives) in enumerate(part):
            if not lives:
                held.tail.delete(first + n)
        first += len(part)
    count = size = 0
    wanted = len(records) + 1
    for number, (each, lives) in enumerate(records, 1):
        if number < seq:
            continue
        count, size = count + lives, size + each * lives
        if count >= over[0] and size >= over[1]:
            wanted = number + 1
            break
    cut = held.plan_eviction(seq, *over, floor)
    if not isinstance(cut, Eviction):
        assert cut.details is None
        assert not known
        return
    assert (cut.records, cut.size_bytes) == (count, size)
    assert cut.short == (count < over[0] or size < over[1])
    # If nothing is left behind them and nothing live is between them, two floors are equally good.
    assert cut.floor == wanted or cut.short
