"""Frames encoded by columns: large writes are cut by blocks, and what is kept for that stays small."""

from __future__ import annotations

import tracemalloc
from array import array
from typing import Any

import msgspec
import pytest

import kernel
from storage.format.binary import binary_body
from storage.format.wal_frame import FrameFlag, decode
from storage.log import encode
from storage.log.encode import WriteHeader, encode_appends, encode_plain, payload_hash, plain_hash
from storage.log.framing import FEW
from storage.records.values import BinaryRecord, NewRecord

HEAD = WriteHeader(7, 250, 1_700_000_000_000, True, b"node")


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize("count", [1, 2, 7, FEW - 1, FEW, FEW + 1, 40])
def test_few_records_give_the_same_bytes_one_by_one_and_by_columns(
    monkeypatch: pytest.MonkeyPatch, count: int, uniform: bool, binary: bool
) -> None:
    datas = [b'"%04d%b"' % (number, b"" if uniform else b"x" * (number % 7)) for number in range(count)]
    payloads = array("I", map(len, datas))
    for head in (HEAD, WriteHeader(7, 65_530, 1_700_000_000_000, False, b"")):
        for more, apart in ((False, False), (True, False), (False, True)):
            made: list[tuple[Any, ...]] = []
            for few in (0, count):
                monkeypatch.setattr(encode, "FEW", few)
                frames, run = encode_plain(datas, payloads, head, more=more, binary=binary, apart=apart)
                content = frames.between(b"in front", b"behind")
                made.append((frames.size, content, run, kernel.scan(content[8:-6])))
            assert made[0] == made[1]
            parsed, end, reason = made[0][3]
            assert (len(parsed), end, reason) == (count, made[0][0], "")
            assert [*parsed.seqs] == [*range(head.first_seq, head.first_seq + count)]


@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize("count", [1, 2, FEW, FEW + 1, 255, 256, 257, 511, 512, 513, 1300])
def test_any_number_of_records_gives_the_same_bytes(count: int, uniform: bool) -> None:
    batch = [
        NewRecord(msgspec.Raw(b'"%04d%b"' % (number, b"" if uniform else b"x" * (number % 7))))
        for number in range(count)
    ]
    datas = [each.data for each in batch]
    sizes = array("I", map(len, datas))
    for more in (False, True):
        fast, fast_run = encode_plain(datas, sizes, HEAD, more=more)
        slow, slow_run = encode_appends(batch, HEAD, sizes, more=more)
        assert fast.between(b"in front", b"") == slow.between(b"in front", b"")
        assert fast_run == slow_run
    assert plain_hash(datas, sizes, b"node") == payload_hash(batch, "node")


@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize("count", [1, 2, FEW, FEW + 1, 257])
def test_raw_bytes_give_the_same_bytes_by_columns(count: int, uniform: bool) -> None:
    datas = [b"\x00%04d%b" % (number, b"" if uniform else b"x" * (number % 300)) for number in range(count)]
    sizes = array("I", map(len, datas))
    for more in (False, True):
        fast, fast_run = encode_plain(datas, sizes, HEAD, more=more, binary=True)
        slow, slow_run = encode_appends([BinaryRecord(msgspec.Raw(each)) for each in datas], HEAD, sizes, more=more)
        assert fast.between(b"in front", b"") == slow.between(b"in front", b"")
        assert fast_run == slow_run
        frame = decode(fast.between(b"", b""))
        assert frame.flags & FrameFlag.BINARY
        assert frame.data == binary_body(datas[0])


def test_large_writes_of_many_sizes_leave_little_behind() -> None:
    tracemalloc.start()
    try:
        for size in range(3, 43):
            datas = [msgspec.Raw(b'"%b"' % (b"x" * (size - 2)))] * 5000
            encode_plain(datas, array("I", [size]) * 5000, HEAD, more=False)
            datas.clear()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2 << 20
