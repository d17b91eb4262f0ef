"""What is kept of blocks is what a sum over each record gives, whatever died and came in between."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from storage.segment_sums import STRIDE, LiveSums, alive_flags, that_free

SIZES = st.lists(st.integers(0, 1000), min_size=1, max_size=5 * STRIDE)


@given(SIZES, st.data())
def test_sums_follow_deletions_and_growth(sizes: list[int], data: st.DataObject) -> None:
    payloads = array("I", sizes)
    sums, dead = LiveSums(payloads), 0
    for _ in range(data.draw(st.integers(1, 6))):
        if data.draw(st.booleans()):
            payloads.extend(data.draw(st.lists(st.integers(0, 1000), max_size=2 * STRIDE)))
        first = data.draw(st.integers(0, len(payloads) - 1))
        dead |= ((1 << data.draw(st.integers(0, 40))) - 1) << first & ((1 << len(payloads)) - 1)
        begin = data.draw(st.integers(0, len(payloads)))
        end = data.draw(st.integers(begin, len(payloads)))
        wanted = sum(size for at, size in enumerate(payloads) if begin <= at < end and not dead >> at & 1)
        assert sums.between(begin, end, dead) == wanted


@given(
    st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=60),
    st.integers(0, 40),
    st.integers(0, 200),
    st.booleans(),
)
def test_the_first_ones_that_free_enough(
    rows: list[tuple[int, bool]], records: int, size_bytes: int, everything_lives: bool
) -> None:
    if not records and not size_bytes:
        records = 1
    rows = [(size, alive or everything_lives) for size, alive in rows]
    taken, freed, freed_bytes = 0, 0, 0
    while taken < len(rows) and (freed < records or freed_bytes < size_bytes):
        size, alive = rows[taken]
        freed, freed_bytes, taken = freed + alive, freed_bytes + size * alive, taken + 1
    enough = freed >= records and freed_bytes >= size_bytes
    flags = None if everything_lives else bytes(alive for _, alive in rows)
    found = that_free(len(rows), array("I", [size for size, _ in rows]), flags, records, size_bytes)
    assert found[0] == taken
    assert (found[1] <= 0 and found[2] <= 0) == enough
    if not enough:
        assert (max(0, found[1]), max(0, found[2])) == (max(0, records - freed), max(0, size_bytes - freed_bytes))


def test_flags_are_the_digits_of_the_bitset() -> None:
    assert alive_flags(0b0110, 0, 4) == b"\1\0\0\1"
    assert alive_flags(0b0110, 3, 5) == b"\1\1"
