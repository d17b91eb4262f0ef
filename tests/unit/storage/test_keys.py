"""Idempotency keys at full size. The model test covers the rest."""

from __future__ import annotations

from storage.state.keys import GENERATION_KEYS, KeyRing, Remembered, key_digest
from tests.support.keys import columns_of

WINDOW_MS = 80_000


def remembered(number: int, ts: int) -> Remembered:
    digest = key_digest(f"key-{number}")
    return Remembered(digest, digest[::-1], number + 1, 2, ts)


def test_keys_over_several_generations_are_found() -> None:
    count = GENERATION_KEYS + 3000
    ring = KeyRing()
    ring.extend(columns_of([remembered(number, 1000) for number in range(count)]), WINDOW_MS)
    assert ring.key_count == count
    for number in range(0, count, 7):
        assert ring.find(key_digest(f"key-{number}"), 1000, WINDOW_MS) == remembered(number, 1000)
    assert ring.find(key_digest("another"), 1000, WINDOW_MS) is None


def test_keys_are_dropped_by_generation_and_never_within_their_window() -> None:
    ring = KeyRing()
    for number in range(160):
        ring.add(remembered(number, 1000 * number), WINDOW_MS)
    held = []
    for now in range(0, 400_000, 1000):
        live = sum(0 <= now - 1000 * number <= WINDOW_MS for number in range(160))
        ring.expire(now, WINDOW_MS)
        if now >= 159_000:
            held.append(ring.key_count - live)
    assert min(held) == 0
    assert max(held) <= 11, "at most an eighth of a window's worth is held too long"
    assert ring.key_count == 0


def test_digests_have_16_bytes() -> None:
    assert len(key_digest("k")) == 16
    assert key_digest("k") != key_digest("K")
    assert key_digest("ä") == key_digest("\u00e4")
