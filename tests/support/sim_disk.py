"""A disk in memory that forgets unsynced writes: storage's FileSystem, with crashes, faults, a full disk and damage on
demand.

    disk = SimDisk()
    disk.crash_at(17)                    # the machine stops at the 18th call, and SimCrash is raised
    ...                                  # run something on it
    found = disk.power_cut(Loss.TORN, seed=3)     # what the next start finds; `disk` itself stays as it was

Only the promises in `storage/platform/filesystem.py` decide what is kept. The same calls, mode and seed give the same
disk. A stopped disk answers every call with SimCrash, also through handles opened before, so a thread of the crashed
process never reaches the disk of its successor. A stopped disk may be cut again, in another way. A cross-directory
rename is durable, as a whole, once either directory is synced.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, TypeVar

from storage.platform.filesystem import File, Read, read_each
from storage.segments.tiering import Tier
from tests.support.sim_faults import Call, Fault, Gate, Rule, ShortWrite, SimCrash, Stop, When, quiet_crashes
from tests.support.sim_handles import SimFile, SimLock
from tests.support.sim_loss import Loss, cut_power
from tests.support.sim_nodes import DirNode, FileNode, copy_tree
from tests.support.sim_tree import SimTree, sim_error

__all__ = ["Call", "Gate", "Loss", "SimCrash", "SimDisk", "SimFile", "SimLock", "When", "quiet_crashes"]

T = TypeVar("T")

#: Calls that do not change the disk.
_LOOKS = frozenset(
    ("pread", "size", "close", "listdir", "exists", "is_dir", "file_size", "boot_id", "runs", "lock_release")
)


class SimDisk(SimTree):
    """The names on the simulated disk, and its machine."""

    #: What `open` returns for a file: the file itself, or one written by another backend (`tests/support/backends.py`).
    dress: Callable[[SimFile], File] = staticmethod(lambda file: file)
    #: Puts a base of an engine into a bucket, on a machine that has one.
    make_base: Callable[[Any], Awaitable[None]] | None = None
    #: The cold tier that such a machine has; the argument says whether segments may move there.
    make_tier: Callable[[bool], Tier] | None = None

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        super().__init__()
        #: Space for file content; None for no limit. May be changed at any time.
        self.capacity_bytes = capacity_bytes
        #: Processes that exist on this machine.
        self.running = {os.getpid()}
        #: Every call made, in order, including those that raised.
        self.calls: list[Call] = []
        self.crashed = False
        self._boot = 1
        self._stops: list[Stop] = []
        self._faults: list[Fault] = []
        self._short_writes: list[ShortWrite] = []
        self._gates: list[Gate] = []
        self._on_crash: list[Callable[[], None]] = []

    # ---- going wrong

    def crash_at(self, index: int, when: When | str = When.BEFORE) -> None:
        """Stop the machine at the call with this index in `calls`."""
        self._stops.append(Stop(When(when), index=index))

    def crash_on(self, op: str, path_glob: str = "*", *, nth: int = 1, when: When | str = When.BEFORE) -> None:
        """Stop the machine at the nth call from now on that matches."""
        self._stops.append(Stop(When(when), rule=Rule(op, path_glob, nth)))

    def on_crash(self, callback: Callable[[], None]) -> None:
        """When the machine stops, call this in the thread whose call it was, with the disk's lock held."""
        self._on_crash.append(callback)

    def fail(
        self,
        op: str,
        path_glob: str = "*",
        *,
        errno: int = errno.EIO,
        nth: int = 1,
        times: int = 1,
        sticky: bool = False,
        torn: bool = False,
        seed: int = 0,
    ) -> None:
        """Raise OSError from the nth matching call on, `times` times or (`sticky`) until `clear_faults`.

        The failing call has no effect, with one exception: after a datasync or sync, what it should have written stays
        readable but never becomes durable, unless it is written again. With `torn` some of its sectors, chosen by
        `seed`, are durable anyway. Ops are the method names; for a lock `lock`, `lock_write`, `lock_release`. Handles
        match by the path with which they were opened.
        """
        self._faults.append(Fault(Rule(op, path_glob, nth, None if sticky else times), errno, torn, seed))

    def short_writes(
        self, path_glob: str = "*", *, nth: int = 1, times: int = 1, sticky: bool = False, keep_bytes: int | None = None
    ) -> None:
        """Let matching pwritev calls write only `keep_bytes`, or half of what they were given."""
        self._short_writes.append(ShortWrite(Rule("pwritev", path_glob, nth, None if sticky else times), keep_bytes))

    def hold(self, op: str, path_glob: str = "*", *, nth: int = 1, times: int | None = None) -> Gate:
        """Make matching calls wait, before they take effect, until the gate is opened or the machine stops."""
        gate = Gate(Rule(op, path_glob, nth, times))
        with self._mutex:
            self._gates.append(gate)
            if self.crashed:
                gate.open()
        return gate

    def clear_faults(self) -> None:
        """Remove every `fail` and `short_writes`."""
        with self._mutex:
            self._faults.clear()
            self._short_writes.clear()

    def crash_points(self) -> list[int]:
        """Indexes of the calls that changed the disk or made something durable. A crash makes a difference only
        there."""
        return [call.number for call in self.calls if call.op not in _LOOKS and not _opens_existing(call)]

    @property
    def used_bytes(self) -> int:
        """Space taken by the content of all files that have a name."""
        with self._mutex:
            return sum(node.live.reserved_bytes for _, node in self._files())

    # ---- the next start

    def power_cut(self, loss: Loss | str = Loss.TORN, seed: int = 0, *, entries: Loss | str | None = None) -> SimDisk:
        """The disk as found after a power loss. `entries`: the mode for names, if it differs from that for bytes."""
        found = self._restarted()
        found._boot = self._boot + 1
        cut_power(found._root, found._entry_changes, Loss(loss), Loss(entries or loss), Random(seed))
        found._entry_changes.clear()
        return found

    def process_kill(self) -> SimDisk:
        """The disk as found by the next process of the same boot: nothing is lost, and nothing more becomes durable."""
        found = self._restarted()
        found._boot = self._boot
        return found

    def _restarted(self) -> SimDisk:
        with self._mutex:
            self._stop()
            found = type(self)(capacity_bytes=self.capacity_bytes)
            found._root, found._entry_changes = copy_tree(self._root, self._entry_changes)
            return found

    def _stop(self) -> None:
        if self.crashed:
            return
        self.crashed = True
        for gate in self._gates:
            gate.open()
        for callback in self._on_crash:
            callback()

    # ---- one call

    def perform(
        self,
        op: str,
        path: str,
        args: tuple[int | str, ...],
        effect: Callable[[], T],
        *,
        half: Callable[[], object] | None = None,
        on_fault: Callable[[Fault], None] | None = None,
    ) -> T:
        """Every call on the disk goes through here. It is counted, and stopped, failed or carried out, one at a
        time."""
        for gate in tuple(self._gates):
            gate.pass_through(op, path)
        with self._mutex:
            if self.crashed:
                raise SimCrash("the machine has stopped")
            index = len(self.calls)
            self.calls.append(Call(index, op, path, args))
            when = next((stop.when for stop in self._stops if stop.due(index, op, path)), None)
            if when is None or when is When.AFTER:
                result = self._carry_out(op, path, effect, on_fault)
                if when is None:
                    return result
            elif when is When.HALF and half is not None:
                half()
            self._stop()
            raise SimCrash(f"the machine stopped {when} call {index}: {op} {path} {args}")

    def _carry_out(self, op: str, path: str, effect: Callable[[], T], on_fault: Callable[[Fault], None] | None) -> T:
        # Every rule counts every match, also if an earlier one already fails the call.
        due = [fault for fault in self._faults if fault.rule.picks(op, path)]
        if due:
            if on_fault:
                on_fault(due[0])
            raise due[0].error(path)
        return effect()

    def room(self, node: FileNode, end: int) -> int:
        """The number of bytes of growth to `end` for which the disk has no space."""
        if self.capacity_bytes is None:
            return 0
        growth = end - node.live.reserved_bytes
        return max(0, growth - max(0, self.capacity_bytes - self.used_bytes)) if growth > 0 else 0

    def short_limit(self, path: str, size: int) -> int:
        limits = [short.allowed(size) for short in self._short_writes if short.rule.picks("pwritev", path)]
        return min(limits, default=size)

    # ---- FileSystem

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True) -> File:
        flags = tuple(name for name, on in (("create", create), ("exclusive", exclusive), ("write", write)) if on)
        file = self.perform("open", path, flags, lambda: self._open(path, create or exclusive, exclusive, write))
        return SimDisk.dress(file)

    def _open(self, path: str, create: bool, exclusive: bool, write: bool) -> SimFile:
        parent, name = self._parent(path)
        node = parent.live.get(name)
        if node is None:
            if not create:
                raise sim_error(errno.ENOENT, path)
            node = FileNode()
            self._enter((parent, name, node))
        elif exclusive:
            raise sim_error(errno.EEXIST, path)
        if isinstance(node, DirNode):
            raise sim_error(errno.EISDIR, path)
        return SimFile(self, node, path, write)

    def read_many(self, reads: Sequence[Read]) -> list[bytes]:
        return read_each(reads)

    def listdir(self, path: str) -> list[str]:
        return self.perform("listdir", path, (), lambda: sorted(self._directory(path).live))

    def exists(self, path: str) -> bool:
        return self.perform("exists", path, (), lambda: self._find(path) is not None)

    def is_dir(self, path: str) -> bool:
        return self.perform("is_dir", path, (), lambda: isinstance(self._find(path), DirNode))

    def is_private(self, path: str) -> bool:
        return True

    def file_size(self, path: str) -> int:
        return self.perform("file_size", path, (), lambda: self._file(path).live.length)

    def mkdir(self, path: str) -> None:
        self.perform("mkdir", path, (), lambda: self._mkdir(path))

    def _mkdir(self, path: str) -> None:
        parent, name = self._parent(path)
        if name in parent.live:
            raise sim_error(errno.EEXIST, path)
        self._enter((parent, name, DirNode()))

    def rename(self, source: str, target: str) -> None:
        self.perform("rename", source, (target,), lambda: self._rename(source, target))

    def _rename(self, source: str, target: str) -> None:
        source_parent, source_name = self._parent(source)
        node = source_parent.live.get(source_name)
        target_parent, target_name = self._parent(target)
        replaced = target_parent.live.get(target_name)
        if node is None:
            raise sim_error(errno.ENOENT, source, target)
        if replaced is node:
            return
        if isinstance(node, DirNode):
            if isinstance(replaced, FileNode):
                raise sim_error(errno.ENOTDIR, source, target)
            if replaced is not None and replaced.live:
                raise sim_error(errno.ENOTEMPTY, source, target)
            if f"{target}/".startswith(f"{source}/"):
                raise sim_error(errno.EINVAL, source, target)
        elif isinstance(replaced, DirNode):
            raise sim_error(errno.EISDIR, source, target)
        self._enter((source_parent, source_name, None), (target_parent, target_name, node))

    def unlink(self, path: str) -> None:
        self.perform("unlink", path, (), lambda: self._unlink(path))

    def _unlink(self, path: str) -> None:
        parent, name = self._parent(path)
        if isinstance(self._need(path), DirNode):
            raise sim_error(errno.EISDIR, path)
        self._enter((parent, name, None))

    def rmdir(self, path: str) -> None:
        self.perform("rmdir", path, (), lambda: self._rmdir(path))

    def _rmdir(self, path: str) -> None:
        parent, name = self._parent(path)
        if self._directory(path).live:
            raise sim_error(errno.ENOTEMPTY, path)
        self._enter((parent, name, None))

    def sync_dir(self, path: str) -> None:
        self.perform("sync_dir", path, (), lambda: self._sync_entries(self._directory(path)))

    def lock(self, path: str) -> SimLock:
        return self.perform("lock", path, (), lambda: self._lock(path))

    def _lock(self, path: str) -> SimLock:
        node = self._open(path, True, False, True).node
        if node.locked:
            raise sim_error(errno.EAGAIN, path)
        node.locked = True
        return SimLock(self, node, path)

    def is_running(self, pid: int) -> bool:
        return self.perform("runs", "", (str(pid),), lambda: pid in self.running)

    def boot_id(self) -> str:
        return self.perform("boot_id", "", (), lambda: f"00000000-0000-4000-8000-{self._boot:012d}")


def _opens_existing(call: Call) -> bool:
    return call.op == "open" and not {"create", "exclusive"} & set(call.args)
