"""Checksums of the compiled kernel alone: of many inputs, and with the portable code."""

from __future__ import annotations

import random
from types import ModuleType

import pytest
import xxhash


def test_every_length_by_the_code_for_any_machine(portable: ModuleType) -> None:
    text = random.Random(3).randbytes(8192)
    for size in range(4097):
        piece = text[size % 7 : size % 7 + size]
        assert portable.checksum(piece) == xxhash.xxh3_64_intdigest(piece), size


@pytest.mark.parametrize("count", [100_000, pytest.param(10_000_000, marks=pytest.mark.soak)])
def test_compiled_checksums_of_many_inputs(compiled: ModuleType, count: int) -> None:
    source = random.Random(count)
    text = source.randbytes(1 << 16)
    checksum, expected, choose = compiled.checksum, xxhash.xxh3_64_intdigest, source.random
    for number in range(count):
        size = number % 4097 if number % 8 == 0 else int(choose() * 400)
        start = int(choose() * (len(text) - size))
        piece = text[start : start + size]
        assert checksum(piece) == expected(piece), (size, start)
