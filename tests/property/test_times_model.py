"""Times stored as runs give the same answers as a plain list of them."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from storage.state.manifest import Times

RUNS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)))


@given(RUNS, RUNS)
def test_times_kept_by_runs_equal_a_plain_list(loaded: list[tuple[int, int]], added: list[tuple[int, int]]) -> None:
    both = [*loaded, *added]
    stamps = accumulate(step for _, step in both)
    steps = [(count, ts) for (count, _), ts in zip(both, stamps, strict=True)]
    model = [ts for count, ts in steps for _ in range(count)]
    times = Times([ts for count, ts in steps[: len(loaded)] for _ in range(count)])
    for count, ts in steps[len(loaded) :]:
        times.add(count, ts)
    assert [times[index] for index in range(len(times))] == model
    assert times.size_bytes == 12 * len(set(model))
    for ts in {0, *model, 99}:
        assert times.first_since(ts) == bisect_left(model, ts)
