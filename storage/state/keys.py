"""Idempotency keys of one log: 16-byte digests in arrays, for the length of the topic's window.

Entries are in generations. A generation covers an eighth of a window and has at most GENERATION_KEYS keys. When its
newest entry has expired, the whole generation is dropped: no entry is deleted by itself, and no lookup table is rebuilt
for more than one generation. Inside a generation: open addressing.

Source: docs/reference/format.md#snapshots, docs/reference/guarantees.md#recovery, docs/reference/api.md#records.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import msgspec

from storage.format import digest128

GENERATION_KEYS = 16_384
_FIRST_SLOTS = 16


class Remembered(msgspec.Struct, frozen=True):
    """The write that a key names. `digest` is of the key, `hash` of the payload."""

    digest: bytes
    hash: bytes
    first_seq: int
    count: int
    ts: int


def key_digest(key: str) -> bytes:
    """The digest of an idempotency key: 16 bytes."""
    return digest128(key.encode())


class _Generation:
    __slots__ = ("_counts", "_digests", "_hashes", "_seqs", "_slots", "_stamps")

    def __init__(self) -> None:
        self._digests = bytearray()
        self._hashes = bytearray()
        self._seqs: array[int] = array("Q")
        self._counts: array[int] = array("I")
        self._stamps: array[int] = array("Q")
        self._slots: array[int] = array("H", bytes(2 * _FIRST_SLOTS))  # row + 1; 0 = empty

    def __len__(self) -> int:
        return len(self._seqs)

    @property
    def newest(self) -> int:
        return self._stamps[-1]

    @property
    def oldest(self) -> int:
        return self._stamps[0]

    def find(self, digest: bytes) -> int | None:
        mask = len(self._slots) - 1
        slot = int.from_bytes(digest[:4], "little") & mask
        while (entry := self._slots[slot]) != 0:
            if self._digests.startswith(digest, (entry - 1) * 16):
                return entry - 1
            slot = (slot + 1) & mask
        return None

    def _enter(self, entry: int) -> None:
        mask = len(self._slots) - 1
        slot = int.from_bytes(self._digests[entry * 16 : entry * 16 + 4], "little") & mask
        while self._slots[slot]:
            slot = (slot + 1) & mask
        self._slots[slot] = entry + 1

    def add(self, each: Remembered) -> None:
        self._digests += each.digest
        self._hashes += each.hash
        self._seqs.append(each.first_seq)
        self._counts.append(each.count)
        self._stamps.append(each.ts)
        if len(self._seqs) * 2 > len(self._slots):
            self._slots = array("H", bytes(4 * len(self._slots)))
            for entry in range(len(self._seqs)):
                self._enter(entry)
        else:
            self._enter(len(self._seqs) - 1)

    def entry(self, entry: int) -> Remembered:
        return Remembered(
            bytes(self._digests[entry * 16 : entry * 16 + 16]),
            bytes(self._hashes[entry * 16 : entry * 16 + 16]),
            self._seqs[entry],
            self._counts[entry],
            self._stamps[entry],
        )


class KeyRing:
    """The keys of one log, oldest generation first. Timestamps must not decrease."""

    __slots__ = ("_generations", "key_count")

    def __init__(self) -> None:
        self._generations: list[_Generation] = []
        #: Entries held, including expired ones of a generation that is still held (at most an eighth of a window).
        self.key_count = 0

    def find(self, digest: bytes, now_ms: int, window_ms: int) -> Remembered | None:
        """The write that the key names, if it was committed within the window."""
        for generation in reversed(self._generations):
            if now_ms - generation.newest > window_ms:
                return None
            entry = generation.find(digest)
            if entry is not None:
                found = generation.entry(entry)
                return found if now_ms - found.ts <= window_ms else None
        return None

    def add(self, each: Remembered, window_ms: int) -> None:
        """Remember a key, which must not be here yet."""
        last = self._generations[-1] if self._generations else None
        if last is None or len(last) >= GENERATION_KEYS or each.ts - last.oldest > window_ms // 8:
            last = _Generation()
            self._generations.append(last)
        last.add(each)
        self.key_count += 1

    def expire(self, now_ms: int, window_ms: int) -> int:
        """Drop generations without a live entry; returns how many entries were dropped."""
        dropped = 0
        while self._generations and now_ms - self._generations[0].newest > window_ms:
            dropped += len(self._generations.pop(0))
        self.key_count -= dropped
        return dropped

    def live(self, now_ms: int, window_ms: int) -> list[Remembered]:
        """All keys written within the window, oldest first."""
        entries = (generation.entry(entry) for generation in self._generations for entry in range(len(generation)))
        return [each for each in entries if now_ms - each.ts <= window_ms]

    @classmethod
    def of(cls, entries: Iterable[Remembered], window_ms: int) -> KeyRing:
        """A ring of these entries, oldest first."""
        ring = cls()
        for each in entries:
            ring.add(each, window_ms)
        return ring
