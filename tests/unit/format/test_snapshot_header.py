"""storage.format.snapshot_header: sealing and unsealing a snapshot."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from storage.format.snapshot_header import HEADER_SIZE, SnapshotDamaged, SnapshotUnsupported, seal, unseal
from tests.golden.make_golden import SNAPSHOT_BODY
from tests.support.spec_meta import unseal_snapshot
from tests.unit.format.mutations import one_byte_changes, truncations


@given(st.binary(max_size=300))
def test_a_sealed_body_is_unsealed(body: bytes) -> None:
    assert unseal(seal(body)) == body


def test_the_independent_decoder_reads_the_same() -> None:
    assert unseal_snapshot(seal(SNAPSHOT_BODY)) == {"next_topic_id": 8, "shards": 2, "clean": True}


def test_every_changed_byte_is_detected() -> None:
    for offset, changed in one_byte_changes(seal(SNAPSHOT_BODY)):
        try:
            unseal(changed)
        except SnapshotDamaged:
            continue
        pytest.fail(f"changing byte {offset} left a valid snapshot")


def test_every_truncation_is_refused() -> None:
    for cut in truncations(seal(SNAPSHOT_BODY)):
        with pytest.raises(SnapshotDamaged):
            unseal(cut)


def test_bytes_after_the_body_are_refused() -> None:
    with pytest.raises(SnapshotDamaged):
        unseal(seal(SNAPSHOT_BODY) + b"\0")


def test_a_valid_snapshot_of_a_newer_version_is_unsupported_and_not_damaged() -> None:
    prefix = struct.pack("<4sIQ", b"TSNP", 2, len(SNAPSHOT_BODY))
    newer = prefix + struct.pack("<Q", xxhash.xxh3_64_intdigest(prefix + SNAPSHOT_BODY)) + SNAPSHOT_BODY
    with pytest.raises(SnapshotUnsupported):
        unseal(newer)


def test_an_overlong_length_is_refused_without_an_allocation() -> None:
    header = struct.pack("<4sIQQ", b"TSNP", 1, 1 << 60, 0)
    tracemalloc.start()
    try:
        with pytest.raises(SnapshotDamaged):
            unseal(header + bytes(100))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_the_header_is_24_bytes() -> None:
    assert HEADER_SIZE == len(seal(b"")) == 24
