"""Whether files of the log are read ahead in processes, which of them, and in how many."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from storage.log.position import split
from storage.log.scan_ahead import AheadScanner
from storage.log.scan_inline import InlineScanner, Job, Scanner
from storage.platform import layout
from storage.platform.filesystem import File, FileSystem
from storage.platform.io.choose import backend_of

#: So much of log pays for the start of processes, and for giving a file to one.
LEAST_LOG_BYTES = 48 << 20
LEAST_FILE_BYTES = 1 << 20
_MOST_PROCESSES = 8
_PROBE = bytes(4096)


class ShardPart(NamedTuple):
    """What is to be replayed of a shard: its directory, place where that begins, and what groups a file's frames."""

    directory: str
    redo: int
    group_from: Callable[[int], int]


def open_scanner(fs: FileSystem, processes: int, shards: Iterable[ShardPart]) -> Scanner:
    """What reads the log. `processes` as Options.recovery_processes. Only the real disk can be read by processes."""
    wanted = processes or min(_cpus(), _MOST_PROCESSES)
    if wanted > 1 and backend_of(fs) is not None:
        files = [file for shard in shards for file in _files(fs, shard)]
        jobs = [job for job, _ in files]
        if len(jobs) > 1 and sum(size for _, size in files) >= LEAST_LOG_BYTES:
            return AheadScanner(jobs, wanted)
    return InlineScanner()


def _cpus() -> int:
    return len(os.sched_getaffinity(0))


def _files(fs: FileSystem, shard: ShardPart) -> list[tuple[Job, int]]:
    """Files worth a process, and about how many bytes are to be read of each. What cannot be read now is left to the
    replay, which knows what to say of it.
    """
    found: list[tuple[Job, int]] = []
    redo_file, redo_offset = split(shard.redo)
    with suppress(OSError):
        for number in layout.wal_numbers(fs.listdir(shard.directory)):
            if number < redo_file:
                continue
            path = layout.join(shard.directory, layout.wal_name(number))
            start = redo_offset if number == redo_file else 0
            size = _written(fs, path, start)
            if size >= LEAST_FILE_BYTES:
                found.append((Job(path, number, start, shard.group_from(number)), size))
    return found


def _written(fs: FileSystem, path: str, start: int) -> int:
    """About how many bytes from `start` on have been written: files are made of zeros and filled from the front."""
    file = fs.open(path, write=False)
    try:
        low, high = start, file.size()
        while high - low > max(len(_PROBE), LEAST_FILE_BYTES // 4):
            middle = (low + high) // 2
            low, high = (low, middle) if _is_blank(file, middle) else (middle, high)
        return low - start
    finally:
        file.close()


def _is_blank(file: File, offset: int) -> bool:
    return _PROBE.startswith(file.pread(len(_PROBE), offset))
