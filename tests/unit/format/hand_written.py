"""Data directories written frame by frame, so that a test can damage exact bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from storage.format import control, wal_frame
from storage.format.wal_frame import FrameType
from storage.platform import layout
from storage.snapshot import contents as snapshot
from tests.support import wal_frames

TS = 1_755_000_000_000
DURABLE, MORE = 4, 8
CONFIG = {"type": "log", "durability": "fsync"}
LOG = 1


def append(
    seq: int, data: str = '{"data":1}', *, topic_id: int = LOG, flags: int = DURABLE, ts: int = TS, **parts: bytes
) -> bytes:
    return wal_frame.encode(FrameType.APPEND, flags, topic_id, seq, ts, data=data.encode(), **parts)


def controlled(value: control.Control, *, topic_id: int = LOG, flags: int = DURABLE, ts: int = TS) -> bytes:
    return wal_frame.encode(control.TYPE_OF[type(value)], flags, topic_id, 0, ts, data=control.encode_control(value))


def create(
    name: str = "orders", *, topic_id: int = LOG, config: dict[str, Any] | None = None, flags: int = DURABLE
) -> bytes:
    value = control.TopicCreate(
        name=name, topic=topic_id, partition=0, partitions=1, epoch=topic_id, config={**CONFIG, **(config or {})}
    )
    return controlled(value, topic_id=topic_id, flags=flags)


def batch(*frames: bytes, first_seq: int | None = None, topic_id: int = LOG, **fields: Any) -> bytes:
    """A Batch frame and these frames, each of which must have been made without `more`."""
    value = control.Batch(
        **{"frames": len(frames), "body_bytes": sum(map(len, frames)), "first_seq": first_seq, **fields}
    )
    head = controlled(value, topic_id=topic_id, flags=DURABLE | MORE)
    return head + b"".join(with_flag(frame, MORE) for frame in frames[:-1]) + frames[-1]


def with_flag(frame: bytes, flag: int) -> bytes:
    """The same frame with one more flag and a correct checksum."""
    decoded = wal_frames.decode(frame)
    return wal_frame.encode(decoded.type, decoded.flags | flag, *decoded[2:8])


def sync_point(at: int, *, file: int = 1, offset: int | None = None) -> bytes:
    value = control.SyncPoint(file=file, at=at, offset=at if offset is None else offset)
    return controlled(value, topic_id=0, flags=0)


def unknown_type(number: int = 99) -> bytes:
    return wal_frame.encode(number, 0, 0, 0, TS, data=b"\x80")


def data_dir(root: Path, *files: bytes, shards: int = 1) -> Path:
    """A directory whose shard 0 has the given WAL files, numbered from 1."""
    (root / "wal").mkdir(parents=True)
    (root / "meta").mkdir()
    (root / "FORMAT").write_text(f"{layout.FORMAT_VERSION}\nc1\n{shards}\n")
    (root / ".lock").write_text("4711\n")
    if shards == 1:
        (root / "wal" / "reserve").write_bytes(bytes(4096))
    for number, content in enumerate(files, 1):
        wal_file(root, number).write_bytes(content)
    return root


def wal_file(root: Path, number: int = 1) -> Path:
    return root / "wal" / layout.wal_name(number)


def flip(path: Path, offset: int) -> None:
    """Change one byte of a file."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x40
    path.write_bytes(content)


def section(
    *, head_seq: int, as_of: tuple[int, int], topic_id: int = LOG, name: str = "orders", **more: Any
) -> snapshot.Section:
    """A snapshot's section of a log with `head_seq` live records of one byte each."""
    values: dict[str, Any] = {
        "topic_id": topic_id,
        "name": name,
        "topic": topic_id,
        "partition": 0,
        "partitions": 1,
        "config": CONFIG,
        "epoch": topic_id,
        "head_seq": head_seq,
        "reserved": 0,
        "last_ts": TS,
        "last_write_ts": TS,
        "absorbed": 0,
        "floors": {},
        "loss": [],
        "live_count": head_seq,
        "live_bytes": head_seq,
        "paused": False,
        "as_of": as_of,
        "keys": None,
    }
    return snapshot.Section(**{**values, **more})


def snapshot_file(
    root: Path, *sections: snapshot.Section, number: int = 1, redo_from: tuple[int, int] = (1, 0), clean: bool = False
) -> Path:
    """A snapshot of a directory with one shard, made of these sections."""
    body = snapshot.Body(
        created_ms=TS,
        shards=1,
        next_topic_id=1 + max((each.topic_id for each in sections), default=0),
        pending_deletes=[],
        clean=clean,
        redo_from=[redo_from],
        sections=[msgspec.msgpack.encode(each) for each in sections],
    )
    path = root / "meta" / layout.snapshot_name(number)
    path.write_bytes(snapshot.encode(body))
    return path
