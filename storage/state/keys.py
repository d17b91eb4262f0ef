"""Idempotency keys of one log: 16-byte digests in arrays, for the length of the topic's window.

Entries are in generations. A generation covers an eighth of a window and has at most GENERATION_KEYS keys. When its
newest entry has expired, the whole generation is dropped: no entry is deleted by itself, and no lookup table is rebuilt
for more than one generation. Inside a generation: open addressing.

Source: docs/reference/format.md#snapshots, docs/reference/guarantees.md#recovery, docs/reference/api.md#records.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from storage.format import digest128

GENERATION_KEYS = 16_384
_FIRST_SLOTS = 16


#: Of a write with a key: its first seq, its number of records, its time, the key in UTF-8, and the hash (b"" = none).
Keyed: TypeAlias = tuple[int, int, int, bytes, bytes]


class Remembered(msgspec.Struct, frozen=True):
    """The write that a key names. `digest` is of the key, `hash` of the payload."""

    digest: bytes
    hash: bytes
    first_seq: int
    count: int
    ts: int


class KeyColumns(NamedTuple):
    """Keys and their writes, oldest first: digests and hashes of 16 bytes each, in one, and the other fields of
    Remembered."""

    digests: bytes
    hashes: bytes
    seqs: array[int]
    counts: array[int]
    stamps: array[int]

    def between(self, begin: int, end: int) -> KeyColumns:
        """Those with these numbers."""
        if begin == 0 and end >= len(self.seqs):
            return self
        sixteen = slice(16 * begin, 16 * end)
        return KeyColumns(self.digests[sixteen], self.hashes[sixteen], *(each[begin:end] for each in self[2:]))


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
        slot = int.from_bytes(digest[:4], sys.byteorder) & mask
        while (entry := self._slots[slot]) != 0:
            if self._digests.startswith(digest, (entry - 1) * 16):
                return entry - 1
            slot = (slot + 1) & mask
        return None

    def finds_any(self, digests: Sequence[bytes], in_one: bytes) -> bool:
        """Whether one of them is here. `in_one`: all of them, one after the other."""
        slots, mask = self._slots, len(self._slots) - 1
        taken = [number for number, head in enumerate(_heads(in_one)) if slots[head & mask]]
        return any(self.find(digests[number]) is not None for number in taken)

    def extend(self, columns: KeyColumns) -> None:
        first = len(self._seqs)
        self._digests += columns.digests
        self._hashes += columns.hashes
        self._seqs += columns.seqs
        self._counts += columns.counts
        self._stamps += columns.stamps
        room = len(self._slots)
        while len(self._seqs) * 2 > room:
            room *= 2
        if room > len(self._slots):
            self._slots = array("H", bytes(2 * room))
            first = 0
        slots, mask = self._slots, room - 1
        for entry, head in enumerate(_heads(self._digests[first * 16 :]), first + 1):
            slot = head & mask
            while slots[slot]:
                slot = (slot + 1) & mask
            slots[slot] = entry

    def since(self, ts: int) -> KeyColumns:
        """Entries of this time or later."""
        begin = bisect_left(self._stamps, ts)
        whole = KeyColumns(bytes(self._digests), bytes(self._hashes), self._seqs, self._counts, self._stamps)
        return whole.between(begin, len(self))

    def renew(self, ts: int) -> None:
        """Give all entries this time."""
        self._stamps = array("Q", [ts]) * len(self)

    def entry(self, entry: int) -> Remembered:
        return Remembered(
            bytes(self._digests[entry * 16 : entry * 16 + 16]),
            bytes(self._hashes[entry * 16 : entry * 16 + 16]),
            self._seqs[entry],
            self._counts[entry],
            self._stamps[entry],
        )


def _heads(digests: bytes | bytearray) -> array[int]:
    """The first four bytes of each digest."""
    return array("I", bytes(digests))[::4]


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
        numbers = array("Q", [each.first_seq]), array("I", [each.count]), array("Q", [each.ts])
        self.extend(KeyColumns(each.digest, each.hash, *numbers), window_ms)

    def add_all(self, writes: Sequence[Keyed], window_ms: int) -> int:
        """`find` and `add` for each of these writes, oldest first; returns how many were added."""
        seqs, counts, stamps, keys, hashes = zip(*writes, strict=True)
        digests = [*map(digest128, keys)]
        in_one = b"".join(digests)
        if len({*digests}) == len(digests) and not any(each.finds_any(digests, in_one) for each in self._generations):
            own_hashes = b"".join(hashes if all(hashes) else [each or bytes(16) for each in hashes])
            columns = KeyColumns(in_one, own_hashes, array("Q", seqs), array("I", counts), array("Q", stamps))
            self.extend(columns, window_ms)
            return len(writes)
        added = 0
        for (seq, count, ts, _, hash_), digest in zip(writes, digests, strict=True):
            if self.find(digest, ts, window_ms) is None:
                self.add(Remembered(digest, hash_ or bytes(16), seq, count, ts), window_ms)
                added += 1
        return added

    def extend(self, columns: KeyColumns, window_ms: int) -> None:
        """Remember keys, none of which may be here yet."""
        begin, stamps, count = 0, columns.stamps, len(columns.seqs)
        self.key_count += count
        while begin < count:
            last, ts = self._generations[-1] if self._generations else None, stamps[begin]
            if last is None or len(last) >= GENERATION_KEYS or ts - last.oldest > window_ms // 8:
                last = _Generation()
                self._generations.append(last)
            until = (last.oldest if len(last) else ts) + window_ms // 8
            end = bisect_right(stamps, until, begin, min(count, begin + GENERATION_KEYS - len(last)))
            last.extend(columns.between(begin, end))
            begin = end

    def expire(self, now_ms: int, window_ms: int) -> int:
        """Drop generations without a live entry; returns how many entries were dropped."""
        dropped = 0
        while self._generations and now_ms - self._generations[0].newest > window_ms:
            dropped += len(self._generations.pop(0))
        self.key_count -= dropped
        return dropped

    def live(self, now_ms: int, window_ms: int) -> KeyColumns:
        """All keys written within the window, oldest first."""
        found = [each.since(now_ms - window_ms) for each in self._generations]
        live = KeyColumns(
            b"".join(each.digests for each in found),
            b"".join(each.hashes for each in found),
            array("Q"),
            array("I"),
            array("Q"),
        )
        for each in found:
            live.seqs.extend(each.seqs)
            live.counts.extend(each.counts)
            live.stamps.extend(each.stamps)
        return live

    def renew(self, last_ms: int, window_ms: int, now_ms: int) -> int:
        """Keys that were within the window at `last_ms` are written now; returns how many others are forgotten."""
        before, generations = self.key_count, self._generations
        self.expire(last_ms, window_ms)
        for number, each in enumerate(generations):
            if last_ms - each.oldest > window_ms:
                generations[number] = _Generation()
                generations[number].extend(each.since(last_ms - window_ms))
            generations[number].renew(now_ms)
        self.key_count = sum(map(len, generations))
        return before - self.key_count
