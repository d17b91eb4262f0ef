"""The backends of a log, for tests that run over all of them.

`TOPICS_TEST_BACKEND=mmap pytest tests/unit/storage` runs any test with that backend: engines on the real disk get it
whatever their options say, brokers by their environment, and files of the simulated disk go through the code of
`io_uring` (that of `mmap` needs real pages).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

import storage.core
from storage.io.choose import open_file_system
from storage.io.uring import UringFileSystem
from storage.options import IoBackend
from tests.support.sim_disk import SimDisk
from tests.support.sim_uring import SimUringFile

VARIABLE = "TOPICS_TEST_BACKEND"


def asked_for(environment: Mapping[str, str]) -> IoBackend | None:
    """The backend that all tests are to run with."""
    name = environment.get(VARIABLE, "")
    return IoBackend(name) if name else None


def refusal(backend: IoBackend) -> str:
    """Why this machine does not have it; '' when it does."""
    if backend is not IoBackend.IO_URING:
        return ""
    try:
        UringFileSystem().close()
    except OSError as error:
        return f"no io_uring here: {error}"
    return ""


@contextmanager
def everywhere(backend: IoBackend) -> Iterator[None]:
    """Every engine made by this process gets it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(backend))  # for brokers and other processes that are started
        patch.setattr(storage.core, "open_file_system", lambda _: open_file_system(backend))
        if backend is IoBackend.IO_URING:
            patch.setattr(SimDisk, "dress", staticmethod(SimUringFile))
        yield
