"""The .len sidecar: encoded lengths are decoded, and other bytes are rejected."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from storage.format import len_file

U32 = st.integers(0, (1 << 32) - 1)
U64 = st.integers(0, (1 << 64) - 1)


@given(st.lists(U32, max_size=50), U64, U64, U64)
def test_a_len_file_round_trips_only_for_its_segment(
    sizes: list[int], first_seq: int, gen: int, data_bytes: int
) -> None:
    content = len_file.encode(first_seq, gen, data_bytes, array("I", sizes))
    assert len_file.decode(content, first_seq, gen, data_bytes) == array("I", sizes)
    assert len_file.decode(content, first_seq ^ 1, gen, data_bytes) is None
    assert len_file.decode(content, first_seq, gen ^ 1, data_bytes) is None
    assert len_file.decode(content, first_seq, gen, data_bytes ^ 1) is None


@given(st.lists(U32, min_size=1, max_size=9), st.data())
def test_damage_is_noticed(sizes: list[int], data: st.DataObject) -> None:
    content = bytearray(len_file.encode(1, 0, 99, array("I", sizes)))
    at = data.draw(st.integers(0, len(content) - 1))
    cut = bytes(content[:at])
    content[at] ^= data.draw(st.integers(1, 255))
    assert len_file.decode(bytes(content), 1, 0, 99) is None
    assert len_file.decode(cut, 1, 0, 99) is None
    assert len_file.decode(bytes(len_file.encode(1, 0, 99, array("I", sizes))) + b"\0", 1, 0, 99) is None


def test_the_bytes_are_the_documented_bytes() -> None:
    content = len_file.encode(41, 2, 777, array("I", [5, 0, 7]))
    assert content[:8] == b"TLEN\1\0\0\0"
    assert content[8:36] == b"".join(value.to_bytes(8, "little") for value in (41, 777, 2)) + (3).to_bytes(4, "little")
    assert content[44:] == b"".join(value.to_bytes(4, "little") for value in (5, 0, 7))
