"""Reading frames back: adjacent frames in one read, no more bytes than useful, and few open files."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from storage.log import fetch, position
from storage.log.fetch import WalFetcher, WalFileGone
from storage.state.tail import BatchSlice
from tests.support.sim_disk import SimDisk

CONTENT = bytes(range(256)) * 4000


class Rig:
    def __init__(self, files: int = 3) -> None:
        self.disk = SimDisk()
        self.disk.mkdir("/wal")
        for number in range(1, files + 1):
            file = self.disk.open(f"/wal/wal-{number:016d}.log", create=True)
            file.pwritev([CONTENT], 0)
        self.fetcher = WalFetcher(self.disk, ["/wal"], self.run_io)

    async def run_io(self, job: Any, *arguments: Any) -> Any:
        return job(*arguments)

    async def read(self, *spans: BatchSlice) -> int:
        """Fetch and check. Returns how many reads it took."""
        before = self.count("pread")
        found = await self.fetcher.fetch(0, list(spans))
        for span in spans:
            data, start = found[span.first_seq]
            begin = (span.lsn & 0xFF_FFFF_FFFF) + span.offset
            size = sum(span.sizes)
            assert data[start : start + size] == CONTENT[begin : begin + size]
        return self.count("pread") - before

    def count(self, op: str) -> int:
        return sum(call.op == op for call in self.disk.calls)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def span(seq: int, offset: int, *sizes: int, file: int = 1, skip: int = 0) -> BatchSlice:
    return BatchSlice(seq, position(file, offset), skip, seq, 1, array("I", sizes))


async def test_a_span_takes_a_single_read(rig: Rig) -> None:
    assert await rig.read(span(1, 1000, 50, 60)) == 1


async def test_a_span_may_begin_inside_its_batch(rig: Rig) -> None:
    assert await rig.read(span(1, 1000, 50, 60, skip=77)) == 1


async def test_neighbouring_spans_are_read_together(rig: Rig) -> None:
    assert await rig.read(span(1, 0, 100), span(2, 100, 100), span(3, 900, 100)) == 1


async def test_spans_of_different_files_are_read_separately(rig: Rig) -> None:
    assert await rig.read(span(1, 0, 100), span(2, 0, 100, file=2), span(3, 100, 100, file=2)) == 2


async def test_distant_spans_take_two_reads(rig: Rig) -> None:
    assert await rig.read(span(1, 0, 100), span(2, 500_000, 100)) == 2


async def test_a_small_gap_is_read_over(rig: Rig) -> None:
    assert await rig.read(span(1, 0, 40_000), span(2, 150_000, 40_000)) == 1


async def test_no_read_is_larger_than_the_bound(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_MERGE_MAX_BYTES", 1000)
    assert await rig.read(*(span(n, 400 * n, 400) for n in range(10))) == 5
    assert max(int(call.args[1]) for call in rig.disk.calls if call.op == "pread") <= 1000


async def test_a_span_larger_than_the_bound_is_still_read(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_MERGE_MAX_BYTES", 1000)
    assert await rig.read(span(1, 0, 5000), span(2, 5000, 10)) == 2


async def test_a_file_is_opened_once(rig: Rig) -> None:
    before = rig.count("open")
    for n in range(5):
        await rig.read(span(n, 10 * n, 10))
    assert rig.count("open") == before + 1


async def test_the_least_recently_used_file_is_closed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MAX_OPEN", 2)
    for file in (1, 2, 1, 3):
        await rig.read(span(1, 0, 10, file=file))
    closed = [call.path for call in rig.disk.calls if call.op == "close"]
    assert closed == ["/wal/wal-0000000000000002.log"]
    opened = rig.count("open")
    await rig.read(span(1, 0, 10, file=1))
    assert rig.count("open") == opened
    await rig.read(span(1, 0, 10, file=2))
    assert rig.count("open") == opened + 1


async def test_a_missing_file_is_named(rig: Rig) -> None:
    with pytest.raises(WalFileGone) as caught:
        await rig.read(span(7, 30, 10, file=9))
    assert (caught.value.file, caught.value.offset, caught.value.seq) == (9, 30, 7)


async def test_a_forgotten_file_is_closed_and_looked_for_again(rig: Rig) -> None:
    await rig.read(span(1, 0, 10))
    rig.fetcher.forget(0, 1)
    rig.fetcher.forget(0, 1)
    rig.disk.unlink("/wal/wal-0000000000000001.log")
    with pytest.raises(WalFileGone):
        await rig.read(span(1, 0, 10))


async def test_closing_closes_all(rig: Rig) -> None:
    await rig.read(span(1, 0, 10), span(2, 0, 10, file=2))
    rig.fetcher.close()
    assert rig.count("close") == 2
