"""How many records free a number of bytes: sums give the same answer as adding one by one."""

from __future__ import annotations

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.state.segment_sums import next_that_free

SIZES = st.one_of(
    st.lists(st.integers(0, 30), max_size=200),
    st.builds(lambda size, count: [size] * count, st.integers(0, 30), st.integers(0, 200)),
)


def one_by_one(sizes: list[int], records: int, size_bytes: int) -> tuple[int, int] | None:
    taken = freed = 0
    for size in sizes:
        if taken >= records and freed >= size_bytes:
            break
        taken, freed = taken + 1, freed + size
    return (taken, freed) if taken >= records and freed >= size_bytes else None


@settings(max_examples=500)
@given(SIZES, st.integers(0, 5), st.integers(0, 5), st.integers(-5, 210), st.integers(-50, 3000))
def test_the_summed_search_equals_adding_one_by_one(
    sizes: list[int], before: int, behind: int, records: int, size_bytes: int
) -> None:
    column = array("I", [9] * before + sizes + [9] * behind)
    found = next_that_free(column, before, before + len(sizes), records, size_bytes)
    assert found == one_by_one(sizes, records, size_bytes)
