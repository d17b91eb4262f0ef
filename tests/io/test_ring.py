"""The kernel's ring, as the log uses it."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.options import IoBackend
from storage.platform.filesystem import File
from storage.platform.io.ring import DATASYNC, LINK, OP_FSYNC, OP_NOP, OP_READ, OP_WRITE, Entry, Ring, address_of
from storage.platform.io.uring import UringFileSystem
from tests.support.backends import made, needs_io_uring

pytestmark = needs_io_uring


@pytest.fixture
def ring() -> Iterator[Ring]:
    ring = Ring(8)
    yield ring
    ring.close()


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def results(ring: Ring, *entries: Entry) -> list[int]:
    """Submit them together. Returns their results in order."""
    for number, entry in enumerate(entries):
        ring.push(entry, number)
    assert ring.submit(len(entries)) == len(entries)
    found: dict[int, int] = {}
    while len(found) < len(entries):
        ring.wait(len(entries) - len(found))
        found.update(ring.reap())
    return [found[number] for number in range(len(entries))]


def test_bytes_are_written_synced_and_read(ring: Ring, fd: int) -> None:
    data, buffer = b"0123456789", bytearray(20)
    write = Entry(OP_WRITE, fd, 3, address_of(data), len(data), flags=LINK)
    assert results(ring, write, Entry(OP_FSYNC, fd, operation_flags=DATASYNC)) == [10, 0]
    assert results(ring, Entry(OP_READ, fd, 1, address_of(buffer), 20)) == [12]
    assert buffer == b"\0\0" + data + bytes(8)
    assert os.pread(fd, 100, 0) == bytes(3) + data


def test_the_ring_goes_round_many_times(ring: Ring, fd: int) -> None:
    data = bytes(range(200))
    for number in range(1000):
        write = Entry(OP_WRITE, fd, number, address_of(data) + number % 200, 1)
        assert results(ring, write, *[Entry(OP_NOP, -1)] * (number % 7)) == [1] + [0] * (number % 7)
    assert os.pread(fd, 2000, 0) == data * 5


def test_a_failed_write_cancels_the_linked_sync(ring: Ring, fd: int) -> None:
    data = b"x"
    write = Entry(OP_WRITE, -1, 0, address_of(data), 1, flags=LINK)
    assert results(ring, write, Entry(OP_FSYNC, fd, operation_flags=DATASYNC)) == [-errno.EBADF, -errno.ECANCELED]


def test_a_short_write_cancels_the_linked_sync(ring: Ring, fd: int, file_size_limit: int) -> None:
    data = bytes(100)
    write = Entry(OP_WRITE, fd, file_size_limit - 60, address_of(data), 100, flags=LINK)
    assert results(ring, write, Entry(OP_FSYNC, fd, operation_flags=DATASYNC)) == [60, -errno.ECANCELED]


def test_other_threads_run_while_a_thread_waits(ring: Ring) -> None:
    read, write = os.pipe()
    buffer, running = bytearray(1), threading.Event()

    def release() -> None:
        running.set()
        time.sleep(0.05)
        os.write(write, b"!")

    thread = threading.Thread(target=release)
    ring.push(Entry(OP_READ, read, 0xFFFFFFFFFFFFFFFF, address_of(buffer), 1), 5)
    ring.submit(1)
    thread.start()
    ring.wait(1)  # a thread that held the interpreter here would wait for ever
    assert ring.reap() == [(5, 1)]
    assert running.is_set()
    assert buffer == b"!"
    thread.join()
    os.close(read)
    os.close(write)


def test_a_signal_ends_the_wait_with_eintr(ring: Ring) -> None:
    read, write = os.pipe()
    buffer = bytearray(1)
    ring.push(Entry(OP_READ, read, 0xFFFFFFFFFFFFFFFF, address_of(buffer), 1), 5)
    ring.submit(1)
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)  # again, if the first one came before the wait
    with pytest.raises(InterruptedError):
        ring.wait(1)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    os.write(write, b"!")
    ring.wait(1)
    assert ring.reap() == [(5, 1)]
    os.close(read)
    os.close(write)


def test_closing_releases_all_descriptors_and_may_be_repeated() -> None:
    before = len(os.listdir("/proc/self/fd"))
    ring = Ring(8)
    assert len(os.listdir("/proc/self/fd")) > before
    ring.close()
    ring.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_processors_that_reorder_reads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*found[:4], "aarch64")))
    with pytest.raises(OSError, match="aarch64"):
        Ring(8)


def test_entries_submitted_by_an_ended_thread_complete(tmp_path: Path) -> None:
    """The kernel cancels what a thread leaves behind. Threads that wait for it must not notice."""
    with made(IoBackend.IO_URING) as fs:
        files = [fs.open(str(tmp_path / str(number)), create=True) for number in range(8)]
        errors: list[BaseException] = []

        def write(file: File, round_: int) -> None:
            try:
                file.write_and_sync([bytes([round_]) * 5000], 5000 * round_, lambda: 0)
            except BaseException as error:
                errors.append(error)

        for round_ in range(40):
            threads = [threading.Thread(target=write, args=(file, round_)) for file in files]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert errors == []
        expected = b"".join(bytes([round_]) * 5000 for round_ in range(40))
        assert [file.pread(1 << 20, 0) == expected for file in files] == [True] * 8
        assert isinstance(fs, UringFileSystem)
        print(f"{fs.submissions} submissions of {8 * 40} writes with their syncs")
        for file in files:
            file.close()
