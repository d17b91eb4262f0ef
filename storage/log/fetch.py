"""Reads frames back from WAL files, on the I/O pool. It has file handles of its own, in a small LRU cache."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kernel import total
from storage.log.files import split
from storage.platform import File, FileSystem, Read, layout
from storage.state import BatchSlice

MAX_OPEN = 64
#: The most reads in one batch: fewer than MAX_OPEN, so that opening the last never closes the first.
_MOST_AT_ONCE = 32
_MERGE_MAX_BYTES = 4 << 20
_MERGE_WASTE = 4


class WalFileGone(Exception):
    """The file was trimmed after the read was planned. `seq`: the first record that was wanted from it."""

    def __init__(self, file: int, offset: int, seq: int) -> None:
        super().__init__(f"WAL file {file} is not there")
        self.file = file
        self.offset = offset
        self.seq = seq


class WalReader:
    """Blocking; may be used by several threads at once."""

    def __init__(self, fs: FileSystem, directories: Sequence[str]) -> None:
        self._fs = fs
        self._directories = directories
        self._open: OrderedDict[tuple[int, int], File] = OrderedDict()
        self._lock = threading.Lock()

    def apart(self) -> WalReader:
        """A reader of the same files with handles of its own, so that threads do not wait for each other. Close it
        after use."""
        return WalReader(self._fs, self._directories)

    def read(self, shard: int, slices: list[BatchSlice]) -> dict[int, tuple[bytes, int]]:
        """By each slice's first seq: bytes with its frames, and where they begin. Raises WalFileGone, OSError."""
        found: dict[int, tuple[bytes, int]] = {}
        groups = _merge(slices)
        for begin in range(0, len(groups), _MOST_AT_ONCE):
            part = groups[begin : begin + _MOST_AT_ONCE]
            for group, data in zip(part, self._read_groups(shard, part), strict=True):
                start = _begin(group)[1]
                for slice_ in group:
                    found[slice_.first_seq] = (data, split(slice_.lsn)[1] + slice_.offset - start)
        return found

    def _read_groups(self, shard: int, groups: list[list[BatchSlice]]) -> list[bytes]:
        """One batch of reads, of no more files than stay open."""
        # Read under the lock: no file is closed meanwhile.
        with self._lock:
            reads: list[Read] = []
            for group in groups:
                number, begin = _begin(group)
                last = group[-1]
                end = split(last.lsn)[1] + last.offset + total(last.sizes)
                try:
                    reads.append(Read(self._file(shard, number), end - begin, begin))
                except FileNotFoundError:
                    raise WalFileGone(number, begin, group[0].first_seq) from None
            return self._fs.read_many(reads)

    def _file(self, shard: int, number: int) -> File:
        """The open file; opening one may close the least recently used. Called with the lock held."""
        key = (shard, number)
        file = self._open.get(key)
        if file is not None:
            self._open.move_to_end(key)
            return file
        file = self._fs.open(layout.join(self._directories[shard], layout.wal_name(number)), write=False)
        self._open[key] = file
        if len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)[1].close()
        return file

    def forget(self, shard: int, number: int) -> None:
        """The file is being deleted."""
        with self._lock:
            file = self._open.pop((shard, number), None)
            if file is not None:
                file.close()

    def close(self) -> None:
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()


class WalFetcher(WalReader):
    """The same for the loop. `run_io` runs a function on the I/O pool and awaits it."""

    def __init__(self, fs: FileSystem, directories: Sequence[str], run_io: Callable[..., Awaitable[Any]]) -> None:
        super().__init__(fs, directories)
        self._run_io = run_io

    async def fetch(self, shard: int, slices: list[BatchSlice]) -> dict[int, tuple[bytes, int]]:
        """`read`, awaited."""
        return await self._run_io(self.read, shard, slices)


def _begin(group: list[BatchSlice]) -> tuple[int, int]:
    """File and offset where the bytes of a group begin."""
    return split(group[0].lsn + group[0].offset)


def _merge(slices: list[BatchSlice]) -> list[list[BatchSlice]]:
    """Merge slices of one file that are close to each other, up to a limit, into one read."""
    groups: list[list[BatchSlice]] = []
    begin = used = 0
    for slice_ in slices:
        number, offset = split(slice_.lsn)
        offset += slice_.offset
        size = total(slice_.sizes)
        if groups and split(groups[-1][-1].lsn)[0] == number and offset >= begin:
            extent = offset + size - begin
            if extent <= _MERGE_MAX_BYTES and extent <= _MERGE_WASTE * (used + size) + 65536:
                groups[-1].append(slice_)
                used += size
                continue
        groups.append([slice_])
        begin, used = offset, size
    return groups
