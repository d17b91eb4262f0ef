"""The directory tree of the simulated disk, and what tests do to it without the knowledge of the code under test.

Nothing here is counted, stopped or failed. It reads, creates and damages files. Paths are absolute.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from typing import TypeVar

from tests.support.sim_loss import unsynced_before
from tests.support.sim_nodes import DirNode, EntryChange, FileNode, Image, Node

N = TypeVar("N", DirNode, FileNode)


class SimTree:
    """Names, and the files that they refer to."""

    def __init__(self) -> None:
        self._root = DirNode()
        #: Changes of names that no sync_dir has made durable yet, oldest first.
        self._entry_changes: list[EntryChange] = []
        self._mutex = threading.RLock()

    # ---- reading and damaging

    def read_file(self, path: str) -> bytes:
        """The whole content, as the running system sees it."""
        with self._mutex:
            image = self._file(path).live
            return image.read(image.length, 0)

    def write_file(self, path: str, content: bytes) -> None:
        """Make the file contain exactly this, durably, with the directories that it needs. Syncs those directories."""
        with self._mutex:
            directory = self._root
            for name in _parts(path)[:-1]:
                directory = self._ensure(directory, name, DirNode)
            node = self._ensure(directory, _parts(path)[-1], FileNode)
            node.settle(Image(bytearray(content), len(content), len(content)))

    def remove_file(self, path: str) -> None:
        """Delete the file, durably."""
        with self._mutex:
            parent, name = self._parent(path)
            self._file(path)
            self._enter((parent, name, None))
            self._sync_entries(parent)

    def cut_file(self, path: str, size: int) -> None:
        """Give the file this length, durably."""
        with self._mutex:
            content = self.read_file(path)
            self.write_file(path, content[:size].ljust(size, b"\0"))

    def flip_byte(self, path: str, offset: int, mask: int = 0xFF) -> None:
        """Invert the bits of `mask` in one byte of the stored file. IndexError beyond its end."""
        with self._mutex:
            node = self._file(path)
            if not 0 <= offset < node.live.length:
                raise IndexError(f"{path} has no byte {offset}")
            for image in (node.live, node.durable):
                if offset < image.length:
                    image.write(offset, bytes([image.read(1, offset)[0] ^ mask]))

    def zero(self, path: str, offset: int, size: int) -> None:
        """Put zeros over stored bytes, but never beyond the end of the file."""
        with self._mutex:
            node = self._file(path)
            for image in (node.live, node.durable):
                if offset < image.length:
                    image.write(offset, bytes(min(size, image.length - offset)))

    def tree(self) -> dict[str, int]:
        """Every path with its length in bytes, sorted; directories end in a slash and have length 0."""
        with self._mutex:
            return {
                f"{path}/" if isinstance(node, DirNode) else path: 0 if isinstance(node, DirNode) else node.live.length
                for path, node in self._walk(self._root, "")
            }

    def content(self) -> dict[str, bytes]:
        """Every file with its content. Two disks with the same content compare equal."""
        with self._mutex:
            return {path: node.live.read(node.live.length, 0) for path, node in self._files()}

    def dump_to(self, target: str | os.PathLike[str], source: str = "/") -> None:
        """Copy the directory `source` into the real directory `target`, for tools that read real files."""
        with self._mutex:
            os.makedirs(target, exist_ok=True)
            for path, node in self._walk(self._directory(source), ""):
                real = os.path.join(target, path[1:])
                if isinstance(node, DirNode):
                    os.makedirs(real, exist_ok=True)
                    continue
                with open(real, "wb") as file:
                    file.write(node.live.data)
                    file.truncate(node.live.length)

    # ---- names

    def _find(self, path: str) -> Node | None:
        node: Node = self._root
        for name in _parts(path):
            child = node.live.get(name) if isinstance(node, DirNode) else None
            if child is None:
                return None
            node = child
        return node

    def _need(self, path: str) -> Node:
        node = self._find(path)
        if node is None:
            # Distinguishes a missing directory on the way from a file in its place, as the kernel does.
            self._parent(path)
            raise sim_error(errno.ENOENT, path)
        return node

    def _directory(self, path: str) -> DirNode:
        node = self._need(path)
        if not isinstance(node, DirNode):
            raise sim_error(errno.ENOTDIR, path)
        return node

    def _file(self, path: str) -> FileNode:
        node = self._need(path)
        if not isinstance(node, FileNode):
            raise sim_error(errno.EISDIR, path)
        return node

    def _parent(self, path: str) -> tuple[DirNode, str]:
        """The directory that a name is in, and the name."""
        parts = _parts(path)
        if not parts:
            raise sim_error(errno.EBUSY, path)
        node: Node | None = self._root
        for name in parts[:-1]:
            node = node.live.get(name) if isinstance(node, DirNode) else node
            if node is None:
                raise sim_error(errno.ENOENT, path)
        if not isinstance(node, DirNode):
            raise sim_error(errno.ENOTDIR, path)
        return node, parts[-1]

    def _enter(self, *edits: tuple[DirNode, str, Node | None]) -> None:
        """Change names, not durably."""
        change = EntryChange(edits)
        change.apply_live()
        self._entry_changes.append(change)

    def _sync_entries(self, directory: DirNode) -> None:
        durable = unsynced_before(directory, self._entry_changes)
        for change in durable:
            change.apply_durable()
        done = {id(change) for change in durable}
        self._entry_changes = [change for change in self._entry_changes if id(change) not in done]

    def _ensure(self, directory: DirNode, name: str, kind: type[N]) -> N:
        node = directory.live.get(name)
        if node is None:
            node = kind()
            self._enter((directory, name, node))
        self._sync_entries(directory)
        if not isinstance(node, kind):
            raise sim_error(errno.EISDIR if isinstance(node, DirNode) else errno.ENOTDIR, name)
        return node

    def _walk(self, directory: DirNode, path: str) -> Iterator[tuple[str, Node]]:
        for name, node in sorted(directory.live.items()):
            yield f"{path}/{name}", node
            if isinstance(node, DirNode):
                yield from self._walk(node, f"{path}/{name}")

    def _files(self) -> Iterator[tuple[str, FileNode]]:
        for path, node in self._walk(self._root, ""):
            if isinstance(node, FileNode):
                yield path, node


def sim_error(number: int, path: str, target: str | None = None) -> OSError:
    """The OSError that the kernel would raise, with its subclass and names."""
    if target is None:
        return OSError(number, os.strerror(number), path)
    return OSError(number, os.strerror(number), path, None, target)


def _parts(path: str) -> list[str]:
    if not path.startswith("/"):
        raise ValueError(f"the path must be absolute: {path!r}")
    return [part for part in path.split("/") if part]
