"""gzip: all members, bounded bytes and members, and no more copying than input plus output."""

from __future__ import annotations

import gzip
import random
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.content import inflate
from broker.content.inflate import MAX_MEMBERS, Damaged, TooLarge, TooManyMembers, gunzip

EMPTY = gzip.compress(b"", mtime=0)
NOISE = random.Random(26).randbytes(300_000)


@given(st.lists(st.binary(max_size=3000), max_size=8))
def test_all_members_are_read(members: list[bytes]) -> None:
    whole = b"".join(members)
    assert gunzip(b"".join(map(gzip.compress, members)), len(whole)) == whole


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 1500, 65_535, 65_536, 65_537, 300_000])
@pytest.mark.parametrize("level", [0, 9])
def test_members_that_end_at_the_border_of_a_slice_are_read(size: int, level: int) -> None:
    stream = zlib.compress(NOISE[:size], level, 31)
    assert gunzip(stream * 3, 3 * size) == NOISE[:size] * 3


def test_output_beyond_the_bound_is_refused_in_one_member_or_in_many() -> None:
    for stream in (gzip.compress(bytes(1 << 24)), gzip.compress(bytes(1 << 12)) * 4096):
        assert len(gunzip(stream, 1 << 24)) == 1 << 24
        with pytest.raises(TooLarge):
            gunzip(stream, (1 << 24) - 1)


def test_the_number_of_members_is_bounded_even_if_empty() -> None:
    assert gunzip(EMPTY * MAX_MEMBERS, 0) == b""
    with pytest.raises(TooManyMembers, match=str(MAX_MEMBERS)):
        gunzip(EMPTY * (MAX_MEMBERS + 1), 0)


@pytest.mark.parametrize(
    "stream",
    [b"x", EMPTY[:-1], EMPTY + b"x", EMPTY[:5], gzip.compress(NOISE)[:-1], b"\0", EMPTY + EMPTY[:10]],
    ids=["no head", "torn trailer", "text behind", "torn head", "torn body", "zero", "torn second member"],
)
def test_invalid_gzip_is_damaged(stream: bytes) -> None:
    with pytest.raises(Damaged):
        gunzip(stream, 1 << 20)


_decompressor = zlib.decompressobj


class _Counting:
    """A decompressor that counts the bytes zlib has to copy: its input and its output."""

    moved = 0

    def __init__(self, wbits: int) -> None:
        self._real: Any = _decompressor(wbits)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        part = self._real.decompress(data, max_length)
        _Counting.moved += len(data) + len(self._real.unused_data) + len(self._real.unconsumed_tail)
        return part

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@pytest.mark.parametrize(
    "member",
    [EMPTY, gzip.compress(b"x" * 6000), gzip.compress(NOISE[:1000])],
    ids=["empty", "dense", "noise"],
)
def test_copied_bytes_grow_linearly_with_the_stream(member: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[int] = []
    monkeypatch.setattr(inflate.zlib, "decompressobj", _Counting)
    for count in (500, 4000):
        _Counting.moved = 0
        gunzip(member * count, 1 << 26)
        moved.append(_Counting.moved)
    assert moved[1] < 9 * moved[0]


def test_a_large_stream_is_not_copied_once_more_for_each_piece_of_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflate.zlib, "decompressobj", _Counting)
    stream = zlib.compress(NOISE * 60, 1, 31)
    _Counting.moved = 0
    gunzip(stream, 1 << 26)
    assert _Counting.moved < 3 * len(stream)
