"""Cycles of routers are found, and the error names the shortest one."""

from __future__ import annotations

import pytest

from storage.state.routers import find_cycle

CHAIN = [("a", "b"), ("b", "c"), ("c", "d")]


@pytest.mark.parametrize(
    ("edges", "source", "dest", "cycle"),
    [
        ([], "a", "b", None),
        ([("a", "b")], "a", "b", None),
        ([("b", "a")], "a", "b", ["a", "b", "a"]),
        (CHAIN, "d", "a", ["d", "a", "b", "c", "d"]),
        (CHAIN, "a", "d", None),
        (CHAIN, "d", "e", None),
        ([*CHAIN, ("a", "c")], "d", "a", ["d", "a", "c", "d"]),
        ([("b", "c"), ("c", "b")], "a", "b", None),
    ],
)
def test_the_shortest_cycle_is_found(
    edges: list[tuple[str, str]], source: str, dest: str, cycle: list[str] | None
) -> None:
    assert find_cycle(edges, source, dest) == cycle
