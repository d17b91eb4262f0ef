"""The process that reads files of the log ahead of recovery: jobs come in at stdin, what they find goes out at stdout.

Started by `scan_process`, and by nobody else. It imports as little as it can, because it is started while somebody
waits. It ends when stdin does or stdout has no reader any more, so it does not outlive who started it by more than it
takes to read a few MiB. Nothing is written to the disk.
"""

from __future__ import annotations

import gc
import pickle
import struct
import sys
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from storage.format.control import UnknownFrameType
from storage.posix import PosixFileSystem
from storage.wal.reader import FrameStream
from storage.wal.scan_columns import Packed, pack
from storage.wal.scan_inline import Job
from storage.wal.units import BadUnit, ScannedUnit, UnitScan

_HEAD = struct.Struct("<QIB")
_MESSAGE_LOG_BYTES = 1 << 20


class Found(NamedTuple):
    """Units of one file, in order. The last message also has what `Scan.findings` says and the error that ended it."""

    units: Packed
    findings: dict[str, Any]
    error: OSError | BadUnit | UnknownFrameType | None


def scan(job: Job) -> Iterator[tuple[bool, Found]]:
    """(whether it is the last, message), about one a MiB of log."""
    findings: dict[str, Any] = {"end": job.start}
    pending, sent = list[ScannedUnit](), job.start
    failure: OSError | BadUnit | UnknownFrameType | None = None
    try:
        file = PosixFileSystem().open(job.path, write=False)
        try:
            found = UnitScan(FrameStream(file, job.start), job.number, job.group_from)
            try:
                for unit in found.units():
                    pending.append(unit)
                    if unit.end - sent >= _MESSAGE_LOG_BYTES:
                        yield False, Found(pack(pending), {}, None)
                        pending, sent = [], unit.end
            finally:
                findings = found.findings()
        finally:
            file.close()
    except (OSError, BadUnit, UnknownFrameType) as error:
        failure = error
    yield True, Found(pack(pending), findings, failure)


def send(out: IO[bytes], index: int, last: bool, value: object) -> None:
    """One message, whole. Raises OSError."""
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    left = memoryview(_HEAD.pack(len(data), index, last) + data)
    while left:
        left = left[out.write(left) :]
    out.flush()


def receive(source: IO[bytes]) -> tuple[int, bool, bytes] | None:
    """(index, whether it is the job's last, pickled value); None when nothing whole comes any more."""
    head = source.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    size, index, last = _HEAD.unpack(head)
    data = source.read(size)
    return (index, bool(last), data) if len(data) == size else None


def main() -> None:
    """Work off the jobs."""
    gc.disable()  # nothing here is part of a cycle, and millions of small objects come and go
    try:
        while (message := receive(sys.stdin.buffer)) is not None:
            index, _, data = message
            for last, found in scan(pickle.loads(data)):
                send(sys.stdout.buffer, index, last, found)
    except BrokenPipeError:
        pass  # whoever wanted this is gone
