"""The parts of the simulated disk: files and directories, each with a running and a durable side.

A file's `live` image is what calls see (the page cache). Its `durable` image is what is certain to be
found after a power cut, and `unsynced` lists, in order, the changes between the two. A directory has the
same two sides; its unsynced entry changes are kept by the disk, since a rename can touch two directories.
Images are sparse at the end: a file preallocated to 64 MiB costs nothing until it is written to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

SECTOR_BYTES = 512


@dataclass(slots=True)
class Image:
    """The bytes of a file. Bytes between `len(data)` and `length` are zeros."""

    data: bytearray = field(default_factory=bytearray)
    length: int = 0
    #: Space that the file has taken, in bytes: up to the last byte ever written or allocated.
    reserved_bytes: int = 0

    def read(self, size: int, offset: int) -> bytes:
        end = min(offset + size, self.length)
        if end <= offset:
            return b""
        stored = bytes(self.data[offset:end])
        return stored if len(stored) == end - offset else stored + bytes(end - offset - len(stored))

    def write(self, offset: int, data: bytes) -> None:
        gap = offset - len(self.data)
        if gap > 0:
            self.data.extend(bytes(gap))
        end = offset + len(data)
        self.data[offset:end] = data
        self.length = max(self.length, end)
        self.reserved_bytes = max(self.reserved_bytes, end)

    def resize(self, size: int) -> None:
        del self.data[size:]
        self.length = size
        self.reserved_bytes = min(self.reserved_bytes, size)

    def allocate(self, size: int) -> None:
        if len(self.data) <= size:
            self.data.clear()
        else:
            self.data[:size] = bytes(size)
        self.length = max(self.length, size)
        self.reserved_bytes = max(self.reserved_bytes, size)

    def copy(self) -> Image:
        return Image(self.data[:], self.length, self.reserved_bytes)


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes put at an offset."""

    offset: int
    data: bytes

    def apply(self, image: Image) -> None:
        image.write(self.offset, self.data)


@dataclass(frozen=True, slots=True)
class Resize:
    """A truncate, down or up."""

    size: int

    def apply(self, image: Image) -> None:
        image.resize(self.size)


@dataclass(frozen=True, slots=True)
class Allocate:
    """[0, size) became zeros with space allocated."""

    size: int

    def apply(self, image: Image) -> None:
        image.allocate(self.size)


Change: TypeAlias = Write | Resize | Allocate


class FileNode:
    """An inode. It lives as long as an entry or an open handle refers to it."""

    __slots__ = ("durable", "live", "locked", "unsynced")

    def __init__(self) -> None:
        self.live = Image()
        self.durable = Image()
        self.unsynced: list[Change] = []
        self.locked = False

    def change(self, change: Change) -> None:
        change.apply(self.live)
        self.unsynced.append(change)

    def sync(self) -> None:
        """Bring the durable side up to date, except for bytes whose own sync had failed: those stay zeros or old."""
        for change in self.unsynced:
            change.apply(self.durable)
        self.unsynced.clear()
        if self.durable.length != self.live.length:
            self.durable.resize(self.live.length)
        self.durable.reserved_bytes = self.live.reserved_bytes

    def fail_sync(self, reached: Image) -> None:
        """A sync failed. As on Linux, the pages now count as clean, so no later sync writes them.

        `reached`: what arrived on the device before the failure.
        """
        self.durable = reached
        self.unsynced.clear()

    def settle(self, image: Image) -> None:
        """Become a file that was found with this content, with nothing pending."""
        self.durable = image
        self.live = image.copy()
        self.unsynced.clear()

    def copy(self) -> FileNode:
        """The same file for a machine that continues separately. Unsynced changes stay, and locks are gone."""
        twin = FileNode()
        twin.live = self.live.copy()
        twin.durable = self.durable.copy()
        twin.unsynced = self.unsynced[:]
        return twin


class DirNode:
    """A directory: the entries as calls see them, and as they would be found after a power cut."""

    __slots__ = ("durable", "live")

    def __init__(self) -> None:
        self.live: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node: TypeAlias = FileNode | DirNode


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One change of names: (directory, name, what it now refers to or None). It happens as a whole or not at all."""

    edits: tuple[tuple[DirNode, str, Node | None], ...]

    def apply_live(self) -> None:
        for directory, name, node in self.edits:
            _set_entry(directory.live, name, node)

    def apply_durable(self) -> None:
        for directory, name, node in self.edits:
            _set_entry(directory.durable, name, node)

    def directories(self) -> tuple[int, ...]:
        """The identities of the directories touched, each once, in the same order in every run."""
        return tuple(dict.fromkeys(id(directory) for directory, _, _ in self.edits))


def _set_entry(entries: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def copy_tree(root: DirNode, changes: list[EntryChange]) -> tuple[DirNode, list[EntryChange]]:
    """A copy of everything that names, durable names or unsynced changes refer to. Deleted open files are left out."""
    twins: dict[int, Node] = {}

    def twin_of(node: Node) -> Node:
        twin = twins.get(id(node))
        if twin is not None:
            return twin
        if isinstance(node, FileNode):
            twin = twins[id(node)] = node.copy()
            return twin
        twin = twins[id(node)] = DirNode()
        twin.live = {name: twin_of(child) for name, child in node.live.items()}
        twin.durable = {name: twin_of(child) for name, child in node.durable.items()}
        return twin

    def directory_twin(node: DirNode) -> DirNode:
        twin = twin_of(node)
        assert isinstance(twin, DirNode)
        return twin

    copied = [
        EntryChange(tuple((directory_twin(d), name, None if n is None else twin_of(n)) for d, name, n in change.edits))
        for change in changes
    ]
    return directory_twin(root), copied
