"""Compares the records sent with the records read back. No I/O."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

#: Makes a collision among 336,776 records practically impossible.
_DIGEST_BYTES = 16


class Digests:
    """The digest of each record of a topic, in order, and one digest over all of them."""

    def __init__(self, records: Iterable[bytes] = ()) -> None:
        self.each: list[bytes] = []
        self._all = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self.add(records)

    def add(self, records: Iterable[bytes]) -> None:
        """Add the next records."""
        for record in records:
            digest = hashlib.blake2b(record, digest_size=_DIGEST_BYTES).digest()
            self.each.append(digest)
            self._all.update(digest)

    @property
    def content_hash(self) -> str:
        """Equal for two topics iff they have the same records in the same order."""
        return self._all.hexdigest()


@dataclass(slots=True)
class Verdict:
    """What is wrong in all topics. `foreign`: records nobody sent, damaged records included."""

    lost: int = 0
    doubled: int = 0
    foreign: int = 0
    out_of_order: list[str] = field(default_factory=list[str])

    @property
    def clean(self) -> bool:
        """Whether every topic holds exactly what was sent, in order."""
        return not (self.lost or self.doubled or self.foreign or self.out_of_order)

    def add(self, topic: str, sent: Digests, found: Digests) -> None:
        """Compare one topic."""
        if sent.content_hash == found.content_hash:
            return
        expected, got = Counter(sent.each), Counter(found.each)
        surplus = got - expected
        lost = (expected - got).total()
        doubled = sum(count for digest, count in surplus.items() if digest in expected)
        self.lost += lost
        self.doubled += doubled
        self.foreign += surplus.total() - doubled
        if expected == got:
            self.out_of_order.append(topic)
