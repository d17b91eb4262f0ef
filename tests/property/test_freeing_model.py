"""Which records free enough space, compared with a look at each."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from storage.state.segment_sums import alive_flags, next_that_free, that_free


@given(
    st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=60),
    st.integers(0, 40),
    st.integers(0, 200),
    st.booleans(),
)
def test_the_shortest_sufficient_prefix_is_found(
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
    if flags is None:
        quick = next_that_free(array("I", [99, 99, *[size for size, _ in rows]]), 2, len(rows) + 2, records, size_bytes)
        assert quick is None or (enough and quick == (taken, freed_bytes))
        if len({size for size, _ in rows}) == 1 and rows[0][0]:
            assert (quick is not None) == enough
    assert (found[1] <= 0 and found[2] <= 0) == enough
    if not enough:
        assert (max(0, found[1]), max(0, found[2])) == (max(0, records - freed), max(0, size_bytes - freed_bytes))


def test_flags_are_the_digits_of_the_bitset() -> None:
    assert alive_flags(0b0110, 0, 4) == b"\1\0\0\1"
    assert alive_flags(0b0110, 3, 5) == b"\1\1"
