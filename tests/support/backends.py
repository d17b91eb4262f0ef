"""The backends of a log, for tests that run over all of them.

`TOPICS_TEST_BACKEND=mmap pytest tests/unit/storage` runs any test with that backend: engines on the real disk get it
whatever their options say, brokers by their environment, and files of the simulated disk go through the code of
`io_uring` (that of `mmap` needs real pages).
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


#: For tests that need the kernel's rings: deselected, and said so, where there are none.
needs_io_uring = pytest.mark.io_uring
#: Parameters for tests that run with each.
OTHERS = [IoBackend.MMAP, pytest.param(IoBackend.IO_URING, marks=needs_io_uring)]
EACH = [IoBackend.FD, *OTHERS]


def refusal() -> str | None:
    """Why this machine has no io_uring; None when it has."""
    try:
        close_file_system(MAKERS[IoBackend.IO_URING]())
    except OSError as error:
        return str(error)
    return None


@contextmanager
def made(backend: IoBackend) -> Iterator[PosixFileSystem]:
    """One of that kind."""
    fs = MAKERS[backend]()
    yield fs
    close_file_system(fs)


@contextmanager
def everywhere(name: str) -> Iterator[None]:
    """Every engine made by this process gets it."""
    backend = IoBackend(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(backend))  # for brokers and other processes that are started
        patch.setattr(runtime, "open_file_system", lambda _: open_file_system(backend))
        if backend is IoBackend.IO_URING:
            patch.setattr(SimDisk, "dress", staticmethod(SimUringFile))
        yield
