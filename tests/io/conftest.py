"""Shared parts of the backend tests."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def file_size_limit() -> Iterator[int]:
    """A limit on the length of files: a write beyond it is short, and the next one fails with EFBIG."""
    limit = 1 << 20
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)
