"""Shows the frames of a data directory, as lines for people or as NDJSON for programs."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from storage import layout
from storage.filesystem import File
from storage.format.snapshot_header import SnapshotDamaged, SnapshotUnsupported
from storage.format.wal_frame import HOP_SHIFT, FrameFlag, FrameType
from storage.inspect import DataDirectory, Entry, SnapshotView, WalPath, control_map, entries, type_name
from storage.snapshot import Section
from storage.wal.reader import FrameStream

LEGEND = (
    "flags: t tag, n node, d durable (fsync class), m more frames of this batch follow, b binary, 1-7 hops of a copy"
)
_LETTERS = {
    FrameFlag.HAS_TAG: "t",
    FrameFlag.HAS_NODE: "n",
    FrameFlag.DURABLE: "d",
    FrameFlag.MORE: "m",
    FrameFlag.BINARY: "b",
}
_PREVIEW_CHARS = 72
_LAST_DAY = 2_932_897  # 10000-01-01, in days since 1970-01-01
_NAMED = (FrameType.TOPIC_CREATE, FrameType.CONFIG_UPDATE)

END_REASONS = {
    "": "the file ends with its last frame",
    "zero": "zeros follow: space prepared for frames to come",
    "length": "what follows is no frame: its lengths do not fit each other",
    "checksum": "what follows is no frame: its checksum does not match its bytes",
    "overrun": "what follows is no whole frame: it would pass the end of the file",
}


class DumpOptions(NamedTuple):
    """`file` is a relative path, a file name, or a pattern of either; `topic` a name or a topic_id."""

    file: str | None = None
    topic: str | None = None
    json: bool = False
    data: bool = False


class NoSuchFile(Exception):
    """No file of the directory fits --file."""


def dump(directory: DataDirectory, options: DumpOptions, write: Callable[[str], None]) -> None:
    """Write a line for each snapshot and frame. Raises NoSuchFile, OSError."""
    wal_files = [each for each in directory.all_wal_files() if _chosen(each.path, options.file)]
    snapshots = [path for path in directory.snapshots().values() if _chosen(path, options.file)]
    if options.file is not None and not wal_files and not snapshots:
        raise NoSuchFile(f"No log file or snapshot in {directory.root} fits {options.file!r}.")
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


def _chosen(path: str, pattern: str | None) -> bool:
    if pattern is None:
        return True
    return any(fnmatch.fnmatchcase(name, pattern) for name in (path, path.rpartition("/")[2]))


def _snapshot(directory: DataDirectory, path: str) -> SnapshotView | str:
    """The snapshot, or a sentence about what is wrong with it."""
    try:
        return directory.snapshot(path)
    except (SnapshotDamaged, SnapshotUnsupported) as error:
        return f"not usable: {error}"
    except FileNotFoundError:
        return "replaced by a newer one since it was listed"


def _dump_wal(file: File, wal: WalPath, show: _Json | _Text, options: DumpOptions) -> None:
    stream = FrameStream(file)
    show.file(wal, stream.size)
    for entry in entries(stream):
        show.names.learn(entry)
        if options.topic is None or show.names.fits(entry.topic_id, options.topic):
            show.frame(wal, entry)
    show.end(wal, stream.end, stream.size, stream.reason)


class _Names:
    """Which topic a topic_id belongs to, as far as snapshots and the frames seen so far tell."""

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

    def fits(self, topic_id: int, wanted: str) -> bool:
        return topic_id != 0 and (self._names.get(topic_id) == wanted or str(topic_id) == wanted)


def flag_letters(flags: int) -> str:
    """'dm' for durable and more; '-' for none."""
    letters = "".join(letter for flag, letter in _LETTERS.items() if flags & flag)
    hops = flags >> HOP_SHIFT
    return f"{letters}{hops or ''}" or "-"


def _printable(text: str) -> str:
    """The same text with whatever could upset a terminal escaped."""
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def _plain(value: Any) -> Any:
    """For JSON: bytes as hex."""
    return value.hex() if isinstance(value, bytes) else str(value)


def _compact(value: Any) -> str:
    return _printable(json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_plain))


def _head(view: SnapshotView) -> dict[str, Any]:
    """The body of a snapshot without its sections."""
    return {name: value for name, value in msgspec.structs.asdict(view.body).items() if name != "sections"}


def _section(section: Section) -> dict[str, Any]:
    """A section with its idempotency keys counted instead of listed."""
    keys = len(section.keys.counts) // 4 if section.keys else 0
    return msgspec.structs.asdict(section) | {"keys": keys}


class _Text:
    """Lines for people."""

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
            self._write(f"  {name}: {_compact(value)}")
        for section in view.sections:
            self._write(f"  log {section.topic_id} {section.name}: {_compact(_section(section))}")

    def file(self, wal: WalPath, size: int) -> None:
        title = f"\n{wal.path}  {size} bytes"
        columns = (
            f"{'offset':>10} {'bytes':>7} {'type':<15} {'flags':<5} {'topic':<20} {'seq':>10}  {'time (UTC)':<24} data"
        )
        # With --topic, a file none of whose frames fits shows nothing at all.
        self._held = f"{title}\n{columns}"

    def frame(self, wal: WalPath, entry: Entry) -> None:
        self._release()
        name = self.names.of(entry.topic_id)
        topic = "-" if entry.topic_id == 0 else f"{entry.topic_id} {name}" if name else str(entry.topic_id)
        self._write(
            f"{entry.offset:>10} {entry.size:>7} {type_name(entry.type):<15} {flag_letters(entry.flags):<5} "
            f"{topic:<20} {entry.seq or '-':>10}  {utc_text(entry.ts):<24} {self._content(entry)}"
        )

    def end(self, wal: WalPath, end: int, size: int, reason: str) -> None:
        if self._options.topic is None:
            self._release()
            self._write(f"{end:>10} end: {END_REASONS.get(reason, reason)}")
        self._held = None

    def _release(self) -> None:
        if self._held is not None:
            self._write(self._held)
            self._held = None

    def _content(self, entry: Entry) -> str:
        parts = [f"node={_text(entry.node)}"] if entry.node else []
        parts += [f"tag={_text(entry.tag)}"] if entry.tag else []
        if entry.type == FrameType.APPEND:
            shown = _text(entry.data)
            if len(shown) > _PREVIEW_CHARS and not self._options.data:
                shown = f"{shown[:_PREVIEW_CHARS]}… ({len(entry.data)} bytes)"
        else:
            fields = control_map(entry.data)
            shown = f"not a MessagePack map: {entry.data.hex()}" if fields is None else _compact(fields)
        return " ".join([*parts, shown])


class _Json:
    """One JSON object a line; `kind` tells what it is about."""

    def __init__(self, write: Callable[[str], None], options: DumpOptions, names: _Names) -> None:
        self._write = write
        self._options = options
        self.names = names

    def _line(self, **values: Any) -> None:
        self._write(json.dumps(values, separators=(",", ":"), default=_plain))

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

    def file(self, wal: WalPath, size: int) -> None:
        pass

    def frame(self, wal: WalPath, entry: Entry) -> None:
        values: dict[str, Any] = {
            "kind": "frame",
            "file": wal.path,
            "shard": wal.shard,
            "offset": entry.offset,
            "size": entry.size,
            "type": entry.type,
            "type_name": type_name(entry.type),
            "flags": entry.flags,
            "topic_id": entry.topic_id,
            "topic": self.names.of(entry.topic_id),
            "seq": entry.seq,
            "ts": entry.ts,
            "node": _decoded(entry.node) if entry.node else None,
            "tag": _decoded(entry.tag) if entry.tag else None,
            "data_len": len(entry.data),
        }
        if entry.type != FrameType.APPEND:
            values["control"] = control_map(entry.data)
        elif self._options.data:
            values["data"] = entry.data.hex() if entry.flags & FrameFlag.BINARY else _decoded(entry.data)
        self._line(**values)

    def end(self, wal: WalPath, end: int, size: int, reason: str) -> None:
        self._line(kind="end", file=wal.path, shard=wal.shard, offset=end, size=size, reason=reason)


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _text(data: bytes) -> str:
    return _printable(_decoded(data))


def utc_text(ts_ms: int) -> str:
    """2025-08-12T12:00:00.000Z, or the bare number when it is no date of this era.

    Reckoned here, because only storage/clock.py may use the modules that could also read the time.
    """
    days, in_day_ms = divmod(ts_ms, 86_400_000)
    if days >= _LAST_DAY:
        return str(ts_ms)
    # Years that begin in March put the leap day last, so that months have fixed places (days from civil, reversed).
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    march_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * march_month + 2) // 5 + 1
    month = march_month + 3 if march_month < 10 else march_month - 9
    year = era * 400 + year_of_era + (month <= 2)
    hours, rest_ms = divmod(in_day_ms, 3_600_000)
    minutes, rest_ms = divmod(rest_ms, 60_000)
    seconds, millis = divmod(rest_ms, 1000)
    return f"{year:04d}-{month:02d}-{day:02d}T{hours:02d}:{minutes:02d}:{seconds:02d}.{millis:03d}Z"
