"""Repairs a shard's files so that the log can continue: quarantines and truncates the bytes after its end, and syncs
the rest.

Order: quarantine copy synced -> doubtful bytes written again -> truncate -> fsync of every replayed file and directory.
A crash in between leaves the same evidence, and the next recovery repeats the repair. `heal` repairs the damage that
salvage skipped, later, when its loss is announced.

Source: docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import structlog
import xxhash

from storage.log import CHUNK_BYTES, no_space, split
from storage.options import Options
from storage.platform import File, FileSystem, layout, write_whole
from storage.recovery.log_end import LogEnd, last_nonzero
from storage.recovery.salvage import filler

if TYPE_CHECKING:
    from storage.recovery.recovery import Report

_log = structlog.get_logger("storage")


def repair(fs: FileSystem, root: str, end: LogEnd, options: Options, report: Report) -> None:
    """Truncate, write again, sync. Raises OSError: then the start is refused."""
    last_file, last_offset = split(end.lsn)
    cuts = dict(end.cuts)
    for number in sorted({*end.replayed, *cuts}):
        path = layout.join(end.directory, layout.wal_name(number))
        file = fs.open(path)
        try:
            if number in cuts:
                _set_aside(fs, root, file, end, number, cuts[number], options, report)
            if number == last_file and number in end.replayed:
                # After a failed sync, pages that never reached the disk are clean. Writing them again makes them dirty.
                _write_again(file, end.rewrite_from, last_offset)
            if number in cuts:
                file.truncate(cuts[number])
            file.sync()
        finally:
            file.close()
    if end.first_file is not None:
        fs.sync_dir(end.directory)


def heal(fs: FileSystem, root: str, end: LogEnd, options: Options) -> None:
    """Salvage: quarantine damage and replace it with filler frames, so that later starts find a whole log.

    Only after all losses are announced and in two snapshots: until then the damage is the evidence of the loss.
    """
    numbers = layout.wal_numbers(fs.listdir(end.directory))
    for number in end.missing:
        if numbers[0] < number:
            fs.open(layout.join(end.directory, layout.wal_name(number)), create=True).close()
    for number, start, stop in end.holes:
        if number not in numbers:
            continue  # trimmed by those snapshots
        file = fs.open(layout.join(end.directory, layout.wal_name(number)))
        try:
            last = last_nonzero(file, start)
            size = stop - start if stop is not None else 0 if last is None else last + 1 - start
            _copy(fs, root, file, end.shard, number, start, size, options)
            if stop is None:
                file.truncate(start)
            else:
                write_whole(file, filler(size), start)
            file.sync()
        finally:
            file.close()
    fs.sync_dir(end.directory)


def _write_again(file: File, start: int, end: int) -> None:
    offset = start
    while offset < end:
        data = file.pread(min(CHUNK_BYTES, end - offset), offset)
        if not data:
            return
        write_whole(file, data, offset)
        offset += len(data)


def _set_aside(
    fs: FileSystem, root: str, file: File, end: LogEnd, number: int, end_offset: int, options: Options, report: Report
) -> None:
    last = last_nonzero(file, end_offset)
    if last is None:
        return
    size = last + 1 - end_offset
    report.discarded_bytes += size
    report.discarded_frames += end.loose_frames
    copied_to: str | None = None
    try:
        copied_to = _copy(fs, root, file, end.shard, number, end_offset, size, options)
    except OSError as error:
        if not no_space(error):
            raise  # only a full disk must not prevent the start: no write of the tail was acked
    _log.warning(
        "wal_tail_truncated",
        shard=end.shard,
        file=number,
        offset=end_offset,
        bytes=size,
        valid_frames=end.loose_frames,
        quarantined=copied_to,
    )


def _copy(
    fs: FileSystem, root: str, file: File, shard: int, number: int, end_offset: int, size: int, options: Options
) -> str | None:
    """The name of the copy in quarantine/, or None when it does not fit under the limit."""
    directory = layout.quarantine_dir(root)
    if not fs.exists(directory):
        fs.mkdir(directory)
        fs.sync_dir(root)
    used = sum(fs.file_size(layout.join(directory, name)) for name in fs.listdir(directory))
    if used + size > options.quarantine_max_bytes:
        return None
    digest = xxhash.xxh3_64()
    offset = end_offset
    while offset < end_offset + size:
        data = file.pread(min(CHUNK_BYTES, end_offset + size - offset), offset)
        digest.update(data)
        offset += len(data)
    name = layout.quarantine_name(shard, number, end_offset, digest.hexdigest())
    path = layout.join(directory, name)
    copy = fs.open(path, create=True)
    try:
        offset = end_offset
        while offset < end_offset + size:
            data = file.pread(min(CHUNK_BYTES, end_offset + size - offset), offset)
            write_whole(copy, data, offset - end_offset)
            offset += len(data)
        copy.sync()
    except OSError:
        with contextlib.suppress(OSError):
            fs.unlink(path)
        raise
    finally:
        copy.close()
    fs.sync_dir(directory)
    return name
