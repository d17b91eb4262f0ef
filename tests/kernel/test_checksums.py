"""XXH3-64 and CRC-32C of the kernel, compared with those of the packages xxhash and google-crc32c."""

from __future__ import annotations

import random

import google_crc32c
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

import kernel
from kernel import plain

pytestmark = pytest.mark.usefixtures("twin")

#: Lengths at which XXH3 takes another branch, and their neighbours.
BORDERS = (0, 1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 256, 1024, 1088, 4096, 65536)


def test_every_length_up_to_4096() -> None:
    text = random.Random(0).randbytes(8192)
    for size in range(4097):
        piece = text[size % 7 : size % 7 + size]
        assert kernel.checksum(piece) == xxhash.xxh3_64_intdigest(piece), size


@pytest.mark.parametrize("border", BORDERS)
def test_around_each_border_at_every_alignment(border: int) -> None:
    text = memoryview(random.Random(border).randbytes(border + 64))
    for size in range(max(0, border - 2), border + 3):
        for start in range(9):
            piece = text[start : start + size]
            assert kernel.checksum(piece) == xxhash.xxh3_64_intdigest(piece)
            assert kernel.crc32c(piece) == google_crc32c.value(bytes(piece))


@pytest.mark.parametrize("size", [1 << 20, (3 << 20) + 5])
def test_checksums_of_large_inputs_agree(size: int) -> None:
    text = random.Random(size).randbytes(size)
    assert kernel.checksum(text) == xxhash.xxh3_64_intdigest(text)
    assert kernel.crc32c(text) == google_crc32c.value(text)


def test_crc32c_of_the_standard_vectors() -> None:
    assert kernel.crc32c(b"123456789") == 0xE3069283
    assert kernel.crc32c(bytes(32)) == 0x8A9136AA
    assert kernel.crc32c(b"\xff" * 32) == 0x62A8AB43


@given(st.binary(max_size=600))
def test_crc32c_by_table_is_the_crc32c_of_the_package(text: bytes) -> None:
    assert plain._crc_by_table(text) == google_crc32c.value(text)


@pytest.mark.parametrize("value", [None, 1, "text"])
def test_a_value_without_a_buffer_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        kernel.checksum(value)
