"""The process that reads files of the log ahead of recovery: jobs come in at stdin, what they find goes out at stdout.

Started by `scan_process`, and by nobody else. It imports as little as it can, because it is started while somebody
waits. It ends when stdin does or stdout has no reader any more, so it does not outlive who started it by more than it
takes to read a few MiB. Nothing is written to the disk.
"""

from __future__ import annotations

import gc
import pickle
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from storage.format.control import UnknownFrameType
from storage.log.reader import FrameStream
from storage.log.scan_columns import Packed, pack
from storage.log.scan_inline import Job
from storage.log.units import BadUnit, ScannedUnit, UnitScan
from storage.platform.posix import PosixFileSystem
from storage.platform.worker_pipe import receive, send

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
