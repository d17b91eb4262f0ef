"""What the operating system says of this process. Linux; elsewhere what cannot be told is left out."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from time import process_time

from storage.metrics import Family, Sample

_PAGE_BYTES = resource.getpagesize()


def families() -> Iterator[Family]:
    """Memory, processor time, open files."""
    for name, kind, help, value in _values():
        yield Family(name, kind, help, [Sample((), value)])


def _values() -> Iterator[tuple[str, str, str, float]]:
    yield "topics_process_cpu_seconds", "counter", "Processor time of the broker, all threads.", process_time()
    with suppress(OSError, ValueError, IndexError):
        with open("/proc/self/statm", "rb") as file:
            resident = int(file.read().split()[1]) * _PAGE_BYTES
        yield "topics_process_resident_bytes", "gauge", "Memory, mapped files that are in it included.", resident
    with suppress(OSError):
        # One of them is that of the listing itself.
        yield "topics_process_open_files", "gauge", "Open files and sockets.", len(os.listdir("/proc/self/fd")) - 1
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield "topics_process_max_open_files", "gauge", "Most there may be.", limit
