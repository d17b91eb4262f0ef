"""Prints the frames of a data directory, as text or as NDJSON."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

import msgspec

from storage.format import FrameFlag, FrameType, SnapshotDamaged, SnapshotUnsupported, control, segment_frame
from storage.inspect.directory import DataDirectory, Entry, SnapshotView, WalPath, control_map, entries, type_name
from storage.inspect.text import (
    LEGEND,
    compact,
    control_text,
    decoded,
    flag_letters,
    plain,
    printable,
    text_of,
    utc_text,
)
from storage.log import FrameStream
from storage.platform import File, Readable, layout
from storage.segments import PackedData, SegmentCorrupt, iter_frames
from storage.snapshot import Section

_PREVIEW_CHARS = 72
_NAMED = (FrameType.TOPIC_CREATE, FrameType.CONFIG_UPDATE)

END_REASONS = {
    "": "the file ends with its last frame",
    "zero": "zeros follow: space for later frames",
    "length": "the next bytes are not a frame: their lengths contradict each other",
    "checksum": "the next bytes are not a frame: the checksum does not match",
    "overrun": "the next frame is incomplete: it would exceed the file",
}


class DumpOptions(NamedTuple):
    """`file` is a relative path, a file name, or a pattern of either; `topic` a name or a topic_id."""

    file: str | None = None
    topic: str | None = None
    json: bool = False
    data: bool = False


class NoSuchFile(Exception):
    """No file of the directory matches --file."""


def dump(directory: DataDirectory, options: DumpOptions, write: Callable[[str], None]) -> None:
    """Write a line for each snapshot and frame. Raises NoSuchFile, OSError."""
    wal_files = [each for each in directory.all_wal_files() if _chosen(each.path, options.file)]
    snapshots = [path for path in directory.snapshots().values() if _chosen(path, options.file)]
    segments = [path for path in directory.segment_data_files() if _chosen(path, options.file)]
    if options.file is not None and not wal_files and not snapshots and not segments:
        raise NoSuchFile(f"No log file, snapshot or segment (.data) in {directory.root} matches {options.file!r}.")
    names = _Names(directory)
    show: _Json | _Text = _Json(write, options, names) if options.json else _Text(write, options, names)
    if options.file is None and options.topic is None:
        show.heading(directory.read_small(layout.FORMAT).decode("utf-8", "replace").split("\n"))
    if options.topic is None:
        for path in snapshots:
            show.snapshot(path, _snapshot(directory, path))
    for wal in wal_files:
        try:
            with directory.open(wal.path) as file:
                _dump_wal(file, wal, show, options)
        except FileNotFoundError:
            continue  # trimmed since it was listed
    for path in segments:
        try:
            _dump_segment(directory, path, show, options)
        except FileNotFoundError:
            continue  # dropped or rewritten since it was listed


def _chosen(path: str, pattern: str | None) -> bool:
    if pattern is None:
        return True
    return any(fnmatch.fnmatchcase(name, pattern) for name in (path, path.rpartition("/")[2]))


def _snapshot(directory: DataDirectory, path: str) -> SnapshotView | str:
    """The snapshot, or a message about what is wrong with it."""
    try:
        return directory.snapshot(path)
    except (SnapshotDamaged, SnapshotUnsupported) as error:
        return f"not usable: {error}"
    except FileNotFoundError:
        return "replaced by a newer one since it was listed"


def _dump_wal(file: File, wal: WalPath, show: _Json | _Text, options: DumpOptions) -> None:
    stream = FrameStream(file)
    show.file(wal.path, stream.size)
    for entry in entries(stream):
        show.names.learn(entry)
        if options.topic is None or show.names.concerns(entry, options.topic):
            show.frame(wal, entry)
    show.end(wal.path, wal.shard, stream.end, stream.size, stream.reason)


def _dump_segment(directory: DataDirectory, path: str, show: _Json | _Text, options: DumpOptions) -> None:
    try:
        records = directory.open_records(path)
    except SegmentCorrupt as error:
        size = directory.size(path)
        show.file(path, size)
        show.end(path, None, 0, size, f"it cannot be read: {error.what}")
        return
    with closing(records):
        _dump_records(records, path, show, options)


def _dump_records(records: Readable, path: str, show: _Json | _Text, options: DumpOptions) -> None:
    size, offset, reason = records.size(), 0, ""
    show.file(path, size)
    try:
        gone = records.delete_bytes() if isinstance(records, PackedData) else b""
        first_seq = records.header.first_seq if isinstance(records, PackedData) else 0
        for frame in iter_frames(path, records, 0, size):
            if gone and frame.seq - first_seq in range(len(gone)):
                frame = frame._replace(deleted=gone[frame.seq - first_seq] == segment_frame.DELETED)
            if options.topic is None or show.names.fits(frame.topic_id, options.topic):
                flags, topic_id, seq, ts, node, tag, data, deleted, frame_size = frame
                entry = Entry(offset, FrameType.APPEND, flags, topic_id, seq, ts, node, tag, data, frame_size)
                show.record(path, entry, deleted=deleted)
            offset += frame.size
    except SegmentCorrupt as error:
        reason = f"the next bytes are not a frame: {error.what}"
    show.end(path, None, offset, size, reason)


class _Names:
    """The names of topics by topic_id, from snapshots and from the frames so far."""

    def __init__(self, directory: DataDirectory) -> None:
        self._names: dict[int, str] = {}
        for path in directory.snapshots().values():
            view = _snapshot(directory, path)
            if not isinstance(view, str):
                self._names.update((section.topic_id, section.name) for section in view.sections)

    def learn(self, entry: Entry) -> None:
        if entry.type in _NAMED:
            name = (control_map(entry.data) or {}).get("name")
            if isinstance(name, str):
                self._names[entry.topic_id] = name

    def of(self, topic_id: int) -> str | None:
        return self._names.get(topic_id)

    def called(self, topic_id: int) -> str:
        """The topic_id, and the name if it is known."""
        name = self.of(topic_id)
        return f"{topic_id} {name}" if name else str(topic_id)

    def concerns(self, entry: Entry, wanted: str) -> bool:
        """Whether a frame belongs to the topic `wanted`, or a mark mentions it."""
        value = _known(entry)
        marked = value.absorbed if isinstance(value, control.CheckpointMark) else ()
        return any(self.fits(topic_id, wanted) for topic_id in (entry.topic_id, *marked))

    def fits(self, topic_id: int, wanted: str) -> bool:
        return topic_id != 0 and (self._names.get(topic_id) == wanted or str(topic_id) == wanted)


def _known(entry: Entry) -> control.Control | None:
    """The decoded frame, if it is about segments."""
    if entry.type not in (FrameType.CHECKPOINT_MARK, FrameType.SEGMENT):
        return None
    try:
        return control.decode_control(entry.type, entry.data)
    except msgspec.DecodeError:
        return None


def _head(view: SnapshotView) -> dict[str, Any]:
    """The body of a snapshot without the sections of logs."""
    fields = {name: value for name, value in msgspec.structs.asdict(view.body).items() if name != "sections"}
    del fields["states"]
    return fields if view.states is None else {**fields, "states": msgspec.structs.asdict(view.states)}


def _section(section: Section) -> dict[str, Any]:
    """A section with its idempotency keys counted instead of listed."""
    keys = len(section.keys.counts) // 4 if section.keys else 0
    segments = [msgspec.structs.asdict(segment) for segment in section.segments]
    routers = [msgspec.structs.asdict(router) for router in section.routers]
    consumers = [msgspec.structs.asdict(consumer) for consumer in section.consumers]
    producers = [msgspec.structs.asdict(producer) for producer in section.producers]
    several = {
        "segments": segments,
        "keys": keys,
        "routers": routers,
        "consumers": consumers,
        "producers": producers,
    }
    return msgspec.structs.asdict(section) | several


class _Text:
    """Prints text."""

    def __init__(self, write: Callable[[str], None], options: DumpOptions, names: _Names) -> None:
        self._write = write
        self._options = options
        self.names = names
        self._held: str | None = None

    def heading(self, lines: list[str]) -> None:
        version, cluster_id, shards, *_ = [*lines, "?", "?", "?"]
        self._write(f"format version {version}, cluster {cluster_id}, made with {shards} shard(s)")
        self._write(LEGEND)

    def snapshot(self, path: str, view: SnapshotView | str) -> None:
        if isinstance(view, str):
            self._write(f"\n{path}\n  {view}")
            return
        self._write(f"\n{path}  {view.size} bytes")
        for name, value in _head(view).items():
            self._write(f"  {name}: {compact(value)}")
        for section in view.sections:
            self._write(f"  log {section.topic_id} {section.name}: {compact(_section(section))}")

    def file(self, path: str, size: int) -> None:
        title = f"\n{path}  {size} bytes"
        columns = (
            f"{'offset':>10} {'bytes':>7} {'type':<15} {'flags':<5} {'topic':<20} {'seq':>10}  {'time (UTC)':<24} data"
        )
        # With --topic, a file without a matching frame shows nothing at all.
        self._held = f"{title}\n{columns}"

    def frame(self, wal: WalPath, entry: Entry) -> None:
        self._line(entry, type_name(entry.type))

    def record(self, path: str, entry: Entry, *, deleted: bool) -> None:
        self._line(entry, "deleted" if deleted else "record")

    def _line(self, entry: Entry, what: str) -> None:
        self._release()
        topic = self.names.called(entry.topic_id) if entry.topic_id else "-"
        self._write(
            f"{entry.offset:>10} {entry.size:>7} {what:<15} {flag_letters(entry.flags):<5} "
            f"{topic:<20} {entry.seq or '-':>10}  {utc_text(entry.ts):<24} {self._content(entry)}"
        )

    def end(self, path: str, shard: int | None, end: int, size: int, reason: str) -> None:
        if self._options.topic is None:
            self._release()
            self._write(f"{end:>10} end: {END_REASONS.get(reason, reason)}")
        self._held = None

    def _release(self) -> None:
        if self._held is not None:
            self._write(self._held)
            self._held = None

    def _content(self, entry: Entry) -> str:
        parts = [f"node={text_of(entry.node)}"] if entry.node else []
        parts += [f"tag={text_of(entry.tag)}"] if entry.tag else []
        if entry.type == FrameType.APPEND:
            shown = text_of(entry.data)
            if len(shown) > _PREVIEW_CHARS and not self._options.data:
                shown = f"{shown[:_PREVIEW_CHARS]}… ({len(entry.data)} bytes)"
        else:
            fields = control_map(entry.data)
            sentence = control_text(_known(entry), self.names.called)
            if sentence is not None:
                return printable(sentence)
            shown = f"not a MessagePack map: {entry.data.hex()}" if fields is None else compact(fields)
        return " ".join([*parts, shown])


class _Json:
    """Prints a JSON object on each line; `kind` is its kind."""

    def __init__(self, write: Callable[[str], None], options: DumpOptions, names: _Names) -> None:
        self._write = write
        self._options = options
        self.names = names

    def _line(self, **values: Any) -> None:
        self._write(json.dumps(values, separators=(",", ":"), default=plain))

    def heading(self, lines: list[str]) -> None:
        version, cluster_id, shards, *_ = [*lines, "", "", ""]
        self._line(kind="format", version=version, cluster_id=cluster_id, shards=shards)

    def snapshot(self, path: str, view: SnapshotView | str) -> None:
        if isinstance(view, str):
            self._line(kind="snapshot", file=path, valid=False, error=view)
            return
        self._line(kind="snapshot", file=path, valid=True, size=view.size, **_head(view))
        for section in view.sections:
            self._line(kind="section", file=path, **_section(section))

    def file(self, path: str, size: int) -> None:
        pass

    def frame(self, wal: WalPath, entry: Entry) -> None:
        values = {"kind": "frame", "file": wal.path, "shard": wal.shard, **self._values(entry)}
        if entry.type != FrameType.APPEND:
            values["control"] = control_map(entry.data)
        self._line(**values)

    def record(self, path: str, entry: Entry, *, deleted: bool) -> None:
        self._line(kind="record", file=path, deleted=deleted, **self._values(entry))

    def _values(self, entry: Entry) -> dict[str, Any]:
        values: dict[str, Any] = {
            "offset": entry.offset,
            "size": entry.size,
            "type": entry.type,
            "type_name": type_name(entry.type),
            "flags": entry.flags,
            "topic_id": entry.topic_id,
            "topic": self.names.of(entry.topic_id),
            "seq": entry.seq,
            "ts": entry.ts,
            "node": decoded(entry.node) if entry.node else None,
            "tag": decoded(entry.tag) if entry.tag else None,
            "data_len": len(entry.data),
        }
        if entry.type == FrameType.APPEND and self._options.data:
            values["data"] = entry.data.hex() if entry.flags & FrameFlag.BINARY else decoded(entry.data)
        return values

    def end(self, path: str, shard: int | None, end: int, size: int, reason: str) -> None:
        self._line(kind="end", file=path, shard=shard, offset=end, size=size, reason=reason)
