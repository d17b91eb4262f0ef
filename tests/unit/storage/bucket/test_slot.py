"""Bytes of slots: written slots are read back, and all other bytes are refused."""

from __future__ import annotations

import pytest

from storage.bucket.slot import DamagedSlot, Seal, Slot, decode, encode_data, encode_seal

OWNER = Seal(7, 3, "ab" * 16, "node-1", "http://10.0.0.1:8080", "dir-1")


def test_a_data_slot_is_read_as_it_was_written() -> None:
    data = encode_data(8, OWNER, file=2, offset=4096, body=b"frames")
    assert decode(8, data) == Slot(8, 3, "ab" * 16, b"frames", file=2, offset=4096)


def test_a_seal_names_its_owner() -> None:
    assert decode(7, encode_seal(OWNER)).seal == OWNER


@pytest.mark.parametrize("data", [encode_data(8, OWNER, 2, 4096, b"frames"), encode_seal(OWNER)], ids=["data", "seal"])
def test_every_changed_missing_or_additional_byte_is_detected(data: bytes) -> None:
    number = decode_number(data)
    for index in range(len(data)):
        changed = bytearray(data)
        changed[index] ^= 1 << (index % 8)
        with pytest.raises(DamagedSlot):
            decode(number, bytes(changed))
        with pytest.raises(DamagedSlot):
            decode(number, data[:index])
    with pytest.raises(DamagedSlot):
        decode(number, data + b"\0")


def decode_number(data: bytes) -> int:
    return int.from_bytes(data[16:24], "little")


def test_the_object_of_another_slot_is_damage() -> None:
    with pytest.raises(DamagedSlot, match="header"):
        decode(9, encode_data(8, OWNER, 2, 4096, b"frames"))
