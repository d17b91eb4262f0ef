"""Metrics of this process from the operating system. For Linux; elsewhere, metrics that cannot be read are left out."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from time import process_time

from broker.telemetry.metric_table import METRICS
from storage import Family

_PAGE_BYTES = resource.getpagesize()


def resident_bytes() -> int | None:
    """Resident memory, including mapped files; None where the system does not say."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
    return None


def families() -> Iterator[Family]:
    """Memory, processor time, open files."""
    yield METRICS.whole("topics_process_cpu_seconds", process_time())
    if (resident := resident_bytes()) is not None:
        yield METRICS.whole("topics_process_resident_bytes", resident)
    with suppress(OSError):
        # One of them belongs to the listing itself.
        yield METRICS.whole("topics_process_open_files", len(os.listdir("/proc/self/fd")) - 1)
    yield METRICS.whole("topics_process_max_open_files", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
