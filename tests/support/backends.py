"""The backends of the log, for tests that run with all of them.

`TOPICS_TEST_BACKEND=mmap pytest tests/unit/storage` runs any test with that backend. Engines on the real disk get it
whatever their options say, and brokers through their environment. Files of the simulated disk go through the code of
`io_uring` (the code of `mmap` needs real pages).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from storage.options import IoBackend
from storage.platform import runtime
from storage.platform.io.choose import MAKERS, close_file_system, open_file_system
from storage.platform.posix import PosixFileSystem
from tests.support.sim_disk import SimDisk
from tests.support.sim_uring import SimUringFile

VARIABLE = "TOPICS_TEST_BACKEND"


#: For tests that need the kernel's rings. Without rings they are deselected, and the run says so.
needs_io_uring = pytest.mark.io_uring
#: Parameters for tests that run with each backend.
OTHERS = [IoBackend.MMAP, pytest.param(IoBackend.IO_URING, marks=needs_io_uring)]
EACH = [IoBackend.FD, *OTHERS]


def refusal() -> str | None:
    """Why this machine has no io_uring. None if it has."""
    try:
        close_file_system(MAKERS[IoBackend.IO_URING]())
    except OSError as error:
        return str(error)
    return None


@contextmanager
def made(backend: IoBackend) -> Iterator[PosixFileSystem]:
    """An instance of that backend."""
    fs = MAKERS[backend]()
    yield fs
    close_file_system(fs)


@contextmanager
def everywhere(name: str) -> Iterator[None]:
    """Every engine made by this process gets this backend."""
    backend = IoBackend(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(backend))  # for brokers and other child processes
        patch.setattr(runtime, "open_file_system", lambda _: open_file_system(backend))
        if backend is IoBackend.IO_URING:
            patch.setattr(SimDisk, "dress", staticmethod(SimUringFile))
        yield
