"""Entries of one byte between very large ones, in one batch or alone: they are returned unchanged."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from storage import BlockingEngine, Durability, Options, TopicConfig

MIB = 1 << 20


@pytest.mark.parametrize("durability", [Durability.DISK, Durability.FSYNC])
def test_tiny_and_huge_entries_alternate(
    data_dir: Path, durability: Durability, soak_mode: bool, random_seed: int
) -> None:
    huge = (100 if soak_mode else 12) * MIB
    # Files smaller than an entry: each huge one gets a file and a segment of its own.
    options = Options(max_record_bytes=huge, wal_file_bytes=4 * MIB, segment_max_bytes=8 * MIB)
    dice = random.Random(random_seed)
    entries = [dice.randbytes(huge if number % 2 else 1 + number % 3) for number in range(6)]
    digests = [hashlib.sha256(entry).digest() for entry in entries]
    with BlockingEngine.open(data_dir, options) as engine:
        engine.put_topic("t", TopicConfig(durability=durability))
        for entry in entries[:3]:
            engine.append("t", entry)
        engine.append_batch("t", entries[3:])
        first = engine.read_batch("t", "c", max_bytes=1)  # at least one, however large
        assert [hashlib.sha256(record.data).digest() for record in first] == digests[:1]
    del entries
    with BlockingEngine.open(data_dir, options) as engine:
        assert [hashlib.sha256(record.data).digest() for record in engine.follow("t", "d", wait_ms=0)] == digests
        rest = [engine.read_next("t", "c") for _ in digests[1:]]
        assert [hashlib.sha256(record.data).digest() for record in rest if record] == digests[1:]
        assert engine.read_next("t", "c") is None
