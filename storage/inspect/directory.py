"""Reads the files and frames of a data directory, also of a running broker. Read-only, without a lock.

Files are streamed through `storage.log.reader`, never read whole. If a running broker changes them meanwhile (it
appends, rotates and trims), they are read again.

Source: docs/reference/format.md#directory, docs/reference/format.md#frames.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple, cast

import msgspec

import kernel
from storage.format import FrameType
from storage.log import Chunk, FrameStream
from storage.platform import File, FileSystem, Readable, layout
from storage.segments import names as segment_names
from storage.segments import read_as_data
from storage.snapshot import contents as snapshot
from storage.state import StatesSection, shard_of

_SHARD = re.compile(r"shard-(\d{2,})")
_FORMAT_MAX = 4096


class NotADataDirectory(Exception):
    """The path is not a data directory."""


class FormatFile(NamedTuple):
    """The three lines of FORMAT."""

    version: int
    cluster_id: str
    shards: int


class WalPath(NamedTuple):
    """A log file; `path` is relative to the data directory."""

    shard: int
    number: int
    path: str


class SnapshotView(NamedTuple):
    """A decoded snapshot; `size` of its file in bytes."""

    size: int
    body: snapshot.Body
    sections: list[snapshot.Section]
    states: StatesSection | None = None

    @property
    def lsns(self) -> list[tuple[int, tuple[int, int]]]:
        """(shard, as_of) of every section."""
        shards = self.body.shards
        of_logs = [(shard_of(each.topic_id, shards), each.as_of) for each in self.sections]
        return of_logs if self.states is None else [*of_logs, (0, self.states.as_of)]


class Entry(NamedTuple):
    """A verified frame and the file offset where it begins."""

    offset: int
    type: int
    flags: int
    topic_id: int
    seq: int
    ts: int
    node: bytes
    tag: bytes
    data: bytes
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size


def type_name(type_: int) -> str:
    """'TopicCreate' for 2; 'type 99' for an unknown type."""
    try:
        return FrameType(type_).name.title().replace("_", "")
    except ValueError:
        return f"type {type_}"


def chunk_entries(chunk: Chunk) -> Iterator[Entry]:
    """The frames of a chunk."""
    parts = zip(*kernel.parts(chunk.bytes, chunk.frames), strict=True)
    for row, (node, tag, data) in zip(chunk.frames, parts, strict=True):
        offset, topic_id, seq, ts, size, _, _, _, type_, flags, *_ = row
        yield Entry(chunk.base + offset, type_, flags, topic_id, seq, ts, node, tag, data, size)


def entries(stream: FrameStream) -> Iterator[Entry]:
    """The frames of a stream. Afterwards, `stream.end` and `stream.reason` say where and why they end."""
    for chunk in stream.chunks():
        yield from chunk_entries(chunk)


def control_map(data: bytes) -> dict[str, Any] | None:
    """The map in a control frame, with all keys, known or not; None: not a map."""
    try:
        decoded = msgspec.msgpack.decode(data)
    except msgspec.DecodeError:
        return None
    return cast("dict[str, Any]", decoded) if isinstance(decoded, dict) else None


class DataDirectory:
    """The files of one data directory. Raises NotADataDirectory, and OSError for errors of the disk."""

    def __init__(self, fs: FileSystem, root: str) -> None:
        self.fs = fs
        self.root = root
        if not fs.is_dir(root):
            raise NotADataDirectory(f"{root} is not a directory.")
        if not fs.exists(layout.join(root, layout.FORMAT)):
            raise NotADataDirectory(f"{root} is not a data directory: it has no file {layout.FORMAT}.")

    def open(self, path: str) -> closing[File]:
        """A file of the directory, for reading. `path` is relative."""
        return closing(self.fs.open(layout.join(self.root, path), write=False))

    def open_records(self, path: str) -> Readable:
        """The .data of a segment, or a .zdata as if it were one. `path` is relative.

        Raises FileNotFoundError, SegmentCorrupt, OSError.
        """
        id = segment_names.id_of_path(path)
        if id is None:
            raise FileNotFoundError(f"{path} is not a file of a segment")
        return read_as_data(self.fs.open(layout.join(self.root, path), write=False), path, id)

    def size(self, path: str) -> int:
        """The size of a file; 0: it was deleted since it was listed."""
        try:
            return self.fs.file_size(layout.join(self.root, path))
        except FileNotFoundError:
            return 0

    def names(self, folder: str = "") -> list[str]:
        """The names in a folder, sorted; empty if the folder is missing."""
        path = layout.join(self.root, folder) if folder else self.root
        return self.fs.listdir(path) if self.fs.is_dir(path) else []

    def read_small(self, path: str) -> bytes:
        """The first 4 KiB of a file that is a few lines long."""
        with self.open(path) as file:
            return file.pread(_FORMAT_MAX, 0)

    def format(self) -> FormatFile:
        """FORMAT. Raises ValueError unless it has three lines: version, cluster id and shard count."""
        version, cluster_id, shards, rest = self.read_small(layout.FORMAT).decode("ascii").split("\n")
        if rest or not cluster_id or int(shards) < 1:
            raise ValueError("FORMAT is not three lines of version, cluster id and shard count")
        return FormatFile(int(version), cluster_id, int(shards))

    def shard_folders(self) -> list[tuple[int, str]]:
        """(shard, folder) of every folder that holds a shard's log: wal for a lone one, else wal/shard-NN."""
        names = self.names("wal")
        found = sorted((int(match[1]), f"wal/{name}") for name in names if (match := _SHARD.fullmatch(name)))
        if layout.wal_numbers(names) or not found:
            found.insert(0, (0, "wal"))
        return found

    def wal_files(self, folder: str, shard: int = 0) -> list[WalPath]:
        """The log files in a folder, in order."""
        numbers = layout.wal_numbers(self.names(folder))
        return [WalPath(shard, number, layout.join(folder, layout.wal_name(number))) for number in numbers]

    def all_wal_files(self) -> list[WalPath]:
        """Every log file of every shard, in order."""
        return [file for shard, folder in self.shard_folders() for file in self.wal_files(folder, shard)]

    def segment_folders(self) -> list[tuple[int, str]]:
        """(topic_id, folder) of every folder of a log's segments."""
        topic_ids = segment_names.topic_ids(self.names(segment_names.TOPICS))
        return [(topic_id, segment_names.folder("", topic_id).lstrip("/")) for topic_id in topic_ids]

    def segment_data_files(self) -> list[str]:
        """Paths of the .data and .zdata files of all segments, also of those not in the log, in seq order."""
        return [
            layout.join(folder, name)
            for _, folder in self.segment_folders()
            for name in self.names(folder)
            if (parsed := segment_names.parse_name(name)) and parsed[2] in (segment_names.DATA, segment_names.PACKED)
        ]

    def snapshots(self) -> dict[int, str]:
        """Paths of the snapshots by number, oldest first."""
        numbers = layout.snapshot_numbers(self.names("meta"))
        return {number: layout.join("meta", layout.snapshot_name(number)) for number in numbers}

    def snapshot(self, path: str) -> SnapshotView:
        """A snapshot and its sections. Raises SnapshotDamaged or SnapshotUnsupported."""
        with self.open(path) as file:
            data = file.pread(file.size(), 0)
        body = snapshot.decode(data)
        sections = [snapshot.decode_section(section) for section in body.sections]
        states = snapshot.decode_states(body.states) if body.states else None
        return SnapshotView(len(data), body, sections, states)
