"""The key ring against a dict: keys are found for exactly a window, never dropped early, and dropped in time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from storage.state import keys
from storage.state.keys import Keyed, KeyRing, Remembered, key_digest
from tests.support.keys import columns_of

NAMES = st.integers(0, 40)


def remembered(name: int, ts: int) -> Remembered:
    digest = key_digest(f"key-{name}")
    return Remembered(digest, digest[::-1], name * 1000 + 1, name + 1, ts)


class KeyModel(RuleBasedStateMachine):
    """One window for all keys. Generations have three rows, so that there are many."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(keys, "GENERATION_KEYS", 3)
        self.ring = KeyRing()
        self.rows: dict[int, int] = {}
        self.now = 1000

    def teardown(self) -> None:
        self.patch.undo()

    @initialize(window=st.sampled_from([0, 1, 7, 8, 80, 1000]))
    def choose(self, window: int) -> None:
        self.window = window

    @rule(by=st.integers(0, 300))
    def time_passes(self, by: int) -> None:
        self.now += by

    @rule()
    def time_passes_to_the_end_of_a_window(self) -> None:
        ends = [ts + self.window for ts in self.rows.values() if ts + self.window > self.now]
        self.now = min(ends, default=self.now)

    @rule(name=NAMES)
    def write(self, name: int) -> None:
        if not self.live(name):
            self.ring.add(remembered(name, self.now), self.window)
            self.rows[name] = self.now

    @rule()
    def expire(self) -> None:
        before = self.ring.key_count
        assert self.ring.expire(self.now, self.window) == before - self.ring.key_count

    @rule()
    def idle_for_two_windows(self) -> None:
        self.now += 2 * self.window + 2
        self.ring.expire(self.now, self.window)
        assert self.ring.key_count == 0

    @rule()
    def carried_through_a_snapshot(self) -> None:
        live, self.ring = self.ring.live(self.now, self.window), KeyRing()
        self.ring.extend(live, self.window)

    @rule(steps=st.lists(st.tuples(st.integers(0, 60), NAMES), min_size=1, max_size=8))
    def replay(self, steps: list[tuple[int, int]]) -> None:
        """Writes of a log, some with a key that is remembered."""
        rows, new = list[Keyed](), 0
        for by, name in steps:
            self.now += by
            row = remembered(name, self.now)
            rows.append((row.first_seq, row.count, row.ts, b"key-%d" % name, row.hash))
            if not self.live(name):
                self.rows[name] = self.now
                new += 1
        assert self.ring.add_all(rows, self.window) == new

    @rule(by=st.integers(0, 300))
    def start_again(self, by: int) -> None:
        """What was live before a downtime lives for a whole window from now on."""
        last, before = self.now, self.ring.key_count
        self.now += by
        self.rows = {name: self.now for name, ts in self.rows.items() if last - ts <= self.window}
        assert self.ring.renew(last, self.window, self.now) == before - len(self.rows)
        assert self.ring.key_count == len(self.rows)

    @invariant()
    def found_exactly_while_live(self) -> None:
        for name in range(41):
            found = self.ring.find(key_digest(f"key-{name}"), self.now, self.window)
            assert found == (remembered(name, self.rows[name]) if self.live(name) else None)

    @invariant()
    def the_live_ones_come_oldest_first(self) -> None:
        live = self.ring.live(self.now, self.window)
        assert dict(zip(live.seqs, live.stamps, strict=True)) == {
            name * 1000 + 1: ts for name, ts in self.rows.items() if self.live(name)
        }
        assert [*live.stamps] == sorted(live.stamps)
        assert self.ring.key_count >= len(live.seqs)

    def live(self, name: int) -> bool:
        return name in self.rows and self.now - self.rows[name] <= self.window


TestKeyModel = KeyModel.TestCase


@pytest.fixture(scope="module", autouse=True)
def small_generations() -> Iterator[None]:
    """Also used by the tests below."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "GENERATION_KEYS", 5)
        yield


@given(st.lists(st.tuples(st.integers(0, 90), NAMES, st.sampled_from([1, 20, 100, 400])), max_size=60))
def test_a_changing_window_never_hides_a_live_key(steps: list[tuple[int, int, int]]) -> None:
    ring = KeyRing()
    now = 0
    written: dict[int, int] = {}
    alive: set[int] = set()
    for by, name, window in steps:
        now += by
        alive = {each for each in alive if now - written[each] <= window}
        for each in alive:
            found = ring.find(key_digest(f"key-{each}"), now, window)
            assert found is not None
            assert found.ts == written[each]
        if ring.find(key_digest(f"key-{name}"), now, window) is None:
            assert name not in alive
            ring.add(remembered(name, now), window)
            written[name] = now
            alive.add(name)
        ring.expire(now, window)


@given(st.sets(st.integers(0, 500), min_size=1, max_size=300))
def test_many_keys_with_the_same_timestamp_are_found(names: set[int]) -> None:
    ring = KeyRing()
    ring.extend(columns_of([remembered(name, 5) for name in sorted(names)]), 1000)
    assert ring.key_count == len(names)
    for name in range(501):
        assert (ring.find(key_digest(f"key-{name}"), 1005, 1000) is not None) == (name in names)
