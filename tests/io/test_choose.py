"""Which backend an engine gets, and the message when one is refused."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.settings import Settings
from storage import Engine, Options
from storage.options import IoBackend
from storage.platform.io import choose, ring
from storage.platform.io.choose import backend_of, open_file_system
from storage.platform.io.mmap_file import MmapFileSystem
from storage.platform.io.uring import UringFileSystem
from storage.platform.posix import PosixFileSystem
from tests.support.backends import EACH, needs_io_uring
from tests.support.sim_disk import SimDisk


@pytest.mark.parametrize("backend", EACH)
async def test_an_engine_uses_the_requested_backend(backend: IoBackend, tmp_path: Path) -> None:
    with capture_logs() as logs:
        engine = Engine(tmp_path, Options(io_backend=backend, wal_file_bytes=1 << 16, wal_reserve_bytes=4096))
        await engine.start()
    assert backend_of(engine.fs) is backend
    await engine.close()
    assert [each for each in logs if each["event"] == "io_backend_refused"] == []


@needs_io_uring
async def test_a_closed_engine_releases_its_rings(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    options = Options(io_backend=IoBackend.IO_URING, wal_file_bytes=1 << 16, wal_reserve_bytes=4096)
    for _ in range(2):
        engine = Engine(tmp_path, options)
        await engine.start()
        await engine.close()
    (tmp_path / "FORMAT").write_text("unknown\n")
    engine = Engine(tmp_path, options)
    with pytest.raises(Exception, match="FORMAT"):
        await engine.start()
    assert len(os.listdir("/proc/self/fd")) == before


def refused(backend: IoBackend) -> list[Any]:
    """The message at opening; the engine then uses the plain backend."""
    with capture_logs() as logs:
        fs = open_file_system(backend)
    assert type(fs) is PosixFileSystem
    return [(each["log_level"], each["event"], each["wanted"], each["used"], each["error"]) for each in logs]


LIBC = ctypes.CDLL(None, use_errno=True)


class _Refusing:
    """A C library whose system call fails."""

    restype: Any = None
    argtypes: Any = None

    def __init__(self, number: int, code: int) -> None:
        self._number, self._code = number, code
        self.syscall = self

    def __call__(self, number: int, *rest: int) -> int:
        if number == self._number:
            ctypes.set_errno(self._code)
            return -1
        return int(LIBC.syscall(ctypes.c_long(number), *map(ctypes.c_ulong, rest)))


@needs_io_uring
@pytest.mark.parametrize("call", [425, 426], ids=["setup", "enter"])
@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM, errno.ENOMEM])
def test_a_kernel_that_refuses_io_uring_is_logged_once(call: int, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(ring.ctypes, "CDLL", lambda *_, **__: _Refusing(call, code))
    (said,) = refused(IoBackend.IO_URING)
    assert said[:4] == ("warning", "io_backend_refused", "io_uring", "fd")
    assert os.strerror(code) in said[4]
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_c_library_without_the_call_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring.ctypes, "CDLL", lambda *_, **__: object())
    (said,) = refused(IoBackend.IO_URING)
    assert "syscall" in said[4]


def test_a_kernel_that_cannot_populate_maps_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> PosixFileSystem:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setitem(choose.MAKERS, IoBackend.MMAP, make)
    (said,) = refused(IoBackend.MMAP)
    assert said[:4] == ("warning", "io_backend_refused", "mmap", "fd")


def test_only_file_systems_on_the_real_disk_have_a_backend() -> None:
    assert backend_of(PosixFileSystem()) is IoBackend.FD
    assert backend_of(MmapFileSystem()) is IoBackend.MMAP
    assert backend_of(type("Other", (PosixFileSystem,), {})()) is None
    assert backend_of(SimDisk()) is None
    assert not issubclass(PosixFileSystem, UringFileSystem)


@pytest.mark.parametrize("backend", IoBackend)
def test_the_setting_is_the_option(backend: IoBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_IO_BACKEND", str(backend))
    assert Settings().storage_options().io_backend is backend
