"""Open files and locks of the simulated disk."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from storage.platform.filesystem import Buffer, write_then_sync
from storage.platform.posix import IOV_MAX
from tests.support.sim_faults import Fault
from tests.support.sim_loss import Loss, surviving_image
from tests.support.sim_nodes import Allocate, FileNode, Resize, Write
from tests.support.sim_tree import sim_error

if TYPE_CHECKING:
    from tests.support.sim_disk import SimDisk


class SimFile:
    """An open file of a SimDisk."""

    __slots__ = ("_closed", "_disk", "_path", "_writable", "node")

    def __init__(self, disk: SimDisk, node: FileNode, path: str, writable: bool) -> None:
        self.node = node
        self._disk = disk
        self._path = path
        self._writable = writable
        self._closed = False

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        data = b"".join(buffers[:IOV_MAX])
        return self._disk.perform(
            "pwritev",
            self._path,
            (offset, len(data)),
            lambda: self._write(data, offset),
            half=lambda: self._write(data[: len(data) // 2], offset),
        )

    def _write(self, data: bytes, offset: int) -> int:
        self._check_open(writing=True)
        data = data[: self._disk.short_limit(self._path, len(data))]
        missing = self._disk.room(self.node, offset + len(data))
        if missing:
            if missing >= len(data):
                raise sim_error(errno.ENOSPC, self._path)
            data = data[: len(data) - missing]
        if data:
            self.node.change(Write(offset, data))
        return len(data)

    def pread(self, size: int, offset: int) -> bytes:
        return self._disk.perform("pread", self._path, (offset, size), lambda: self._read(size, offset))

    def _read(self, size: int, offset: int) -> bytes:
        self._check_open()
        return self.node.live.read(size, offset)

    def size(self) -> int:
        return self._disk.perform("size", self._path, (), self._length)

    def _length(self) -> int:
        self._check_open()
        return self.node.live.length

    def truncate(self, size: int) -> None:
        self._disk.perform("truncate", self._path, (size,), lambda: self._truncate(size))

    def _truncate(self, size: int) -> None:
        self._check_open()
        if not self._writable:
            raise sim_error(errno.EINVAL, self._path)
        self.node.change(Resize(size))

    def allocate(self, size: int, *, fill: bool = True) -> None:
        arguments = (size,) if fill else (size, "unfilled")
        self._disk.perform(
            "allocate", self._path, arguments, lambda: self._allocate(size), half=lambda: self._allocate(size // 2)
        )

    def _allocate(self, size: int) -> None:
        self._check_open(writing=True)
        if self._disk.room(self.node, size):
            raise sim_error(errno.ENOSPC, self._path)
        self.node.change(Allocate(size))

    def datasync(self) -> None:
        self._disk.perform("datasync", self._path, (), self._sync, on_fault=self._fail_sync)

    def sync(self) -> None:
        self._disk.perform("sync", self._path, (), self._sync, on_fault=self._fail_sync)

    def _sync(self) -> None:
        self._check_open()
        self.node.sync()

    def _fail_sync(self, fault: Fault) -> None:
        loss = Loss.TORN if fault.torn else Loss.DROP
        self.node.fail_sync(surviving_image(self.node.durable, self.node.unsynced, loss, Random(fault.seed)))

    def write_and_sync(self, buffers: Sequence[Buffer], offset: int, now: Callable[[], int]) -> int:
        return write_then_sync(self, buffers, offset, now)

    def close(self) -> None:
        self._disk.perform("close", self._path, (), self._close)

    def _close(self) -> None:
        self._closed = True

    def _check_open(self, *, writing: bool = False) -> None:
        if self._closed or (writing and not self._writable):
            raise sim_error(errno.EBADF, self._path)


class SimLock:
    """A held lock of a SimDisk. It ends with the machine or the process: `power_cut` and `process_kill` release it."""

    __slots__ = ("_disk", "_held", "_node", "_path", "_previous")

    def __init__(self, disk: SimDisk, node: FileNode, path: str) -> None:
        self._disk = disk
        self._node = node
        self._path = path
        self._held = True
        self._previous = node.live.read(4096, 0).decode("utf-8", "replace")

    def write(self, text: str) -> None:
        data = text.encode()
        self._disk.perform(
            "lock_write", self._path, (text,), lambda: self._write(data), half=lambda: self._write_over(data)
        )

    def _write(self, data: bytes) -> None:
        self._write_over(data)
        self._node.change(Resize(len(data)))

    def _write_over(self, data: bytes) -> None:
        """The end of a longer old text is still there."""
        if not self._held:
            raise sim_error(errno.EBADF, self._path)
        self._node.change(Write(0, data))

    def previous(self) -> str:
        return self._previous

    def release(self) -> None:
        self._disk.perform("lock_release", self._path, (), self._release)

    def _release(self) -> None:
        if self._held:
            self._held = False
            self._node.locked = False
