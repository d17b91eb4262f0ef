"""Frames from a stream that is split in any way."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.kafka.codec.wire import Malformed
from broker.kafka.framing import Frames, FrameTooLarge


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 30), max_size=30))
def test_frames_are_the_same_however_the_stream_is_cut(bodies: list[bytes], cuts: list[int]) -> None:
    frames = Frames(lambda _: 100)
    stream = b"".join(map(framed, bodies))
    found: list[bytes] = []
    for cut in [*cuts, len(stream)]:
        piece, stream = stream[:cut], stream[cut:]
        found += map(bytes, frames.feed(piece))
    assert found == bodies
    assert not frames.buffered


@given(st.binary(max_size=300), st.integers(1, 50))
def test_random_bytes_are_frames_or_malformed(stream: bytes, step: int) -> None:
    frames = Frames(lambda _: 1000)
    try:
        for at in range(0, len(stream), step):
            frames.feed(stream[at : at + step])
    except Malformed:
        pass


def test_the_length_limit_depends_on_the_kind_of_request() -> None:
    limits = {0: 100, 3: 10}
    assert len(Frames(limits.__getitem__).feed(framed(b"\0\0" + bytes(98)))) == 1
    assert len(Frames(limits.__getitem__).feed(framed(b"\0\3" + bytes(8)))) == 1
    for body in (b"\0\0" + bytes(99), b"\0\3" + bytes(9)):
        with pytest.raises(FrameTooLarge):
            Frames(limits.__getitem__).feed(framed(body))


def test_announced_length_allocates_no_memory() -> None:
    tracemalloc.start()
    try:
        frames = Frames(lambda _: 1 << 30)
        assert frames.feed((1 << 30).to_bytes(4, "big") + bytes(100)) == []
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()
    assert frames.buffered


def test_a_negative_length_is_malformed() -> None:
    with pytest.raises(Malformed):
        Frames(lambda _: 100).feed(b"\xff\xff\xff\xff")
