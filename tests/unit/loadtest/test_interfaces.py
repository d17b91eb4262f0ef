"""A sample of the loads of `loadtest.interfaces` leaves out no interface."""

from __future__ import annotations

from collections import Counter

from loadtest.interfaces import Case, drawn, nothing

CASES = [Case("a", "1", nothing), Case("b", "1", nothing), *(Case("c", str(number), nothing) for number in range(5))]


def test_so_many_loads_of_each_interface_are_drawn_in_their_order() -> None:
    seen: set[Case] = set()
    for _ in range(200):
        found = drawn(CASES, 2)
        assert Counter(each.interface for each in found) == {"a": 1, "b": 1, "c": 2}
        assert found == sorted(found, key=CASES.index)
        seen.update(found)
    assert seen == {*CASES}
    assert drawn(CASES, 9) == CASES
