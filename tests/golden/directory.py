"""A small data directory of format version 1, as bytes: two log files and a snapshot. See README.md."""

from __future__ import annotations

from array import array

import msgspec

from storage.format import control, wal_frame
from storage.format.wal_frame import FrameType
from storage.log.encode import hash_of
from storage.records.values import NewRecord
from storage.snapshot import contents as snapshot

TS = 1_755_000_000_000
DURABLE, MORE = 4, 8
ORDERS, AUDIT = 1, 2
CONFIGS = {
    ORDERS: {"type": "log", "durability": "fsync", "cap_records": 5},
    AUDIT: {"type": "log", "durability": "disk"},
}

#: The content for readers: topic → seq → (node, tag, body). Seqs 1 and 2 of orders are evicted, and 4 is deleted.
RECORDS: dict[str, dict[int, tuple[bytes, bytes, bytes]]] = {
    "orders": {
        3: (b"till-1", b"eu", b'{"data":{"price":1.10},"meta":{"k":"v"}}'),
        5: (b"", b"", b'{"data":"\xc3\xa4"}'),
        6: (b"", b"us", b'{"data":[1e400]}'),
    },
    "audit": {1: (b"", b"", b'{"data":null}'), 2: (b"n", b"", b'{"data":{"a":1,"a":2}}')},
}


def _append(topic_id: int, seq: int, body: bytes, flags: int, node: bytes = b"", tag: bytes = b"") -> bytes:
    return wal_frame.encode(FrameType.APPEND, flags, topic_id, seq, TS + seq, node, tag, body)


def _control(topic_id: int, value: control.Control, flags: int = DURABLE) -> bytes:
    type_ = control.TYPE_OF[type(value)]
    return wal_frame.encode(type_, flags, topic_id, 0, TS, data=control.encode_control(value))


def _create(topic_id: int, name: str) -> bytes:
    config = CONFIGS[topic_id]
    return _control(
        topic_id,
        control.TopicCreate(name=name, topic=topic_id, partition=0, partitions=1, epoch=topic_id, config=config),
    )


def _first_file() -> bytes:
    written = b"".join(
        (
            _create(ORDERS, "orders"),
            _create(AUDIT, "audit"),
            _control(AUDIT, control.HeadWatermark(reserved=2)),
            _append(ORDERS, 1, b'{"data":1}', DURABLE),
            _append(ORDERS, 2, b'{"data":2}', DURABLE),
            _append(AUDIT, 1, *_stored("audit", 1)),
        )
    )
    return written + _control(0, control.SyncPoint(file=1, at=len(written), offset=len(written)), flags=0)


def _second_file() -> bytes:
    keyed_record = NewRecord(data=msgspec.Raw(b'{"price":1.10}'), meta=msgspec.Raw(b'{"k":"v"}'), tag="eu")
    digest = hash_of([keyed_record], array("I"), "till-1")
    third = _append(ORDERS, 3, *_stored("orders", 3, DURABLE))
    keyed = control.Batch(frames=1, body_bytes=len(third), first_seq=3, key="order-3", hash=digest)
    group = [
        _append(ORDERS, 4, b'{"data":4}', DURABLE | MORE, tag=b"eu-west"),
        _append(ORDERS, 5, *_stored("orders", 5, DURABLE | MORE)),
        _append(ORDERS, 6, *_stored("orders", 6, DURABLE | MORE)),
        _control(ORDERS, control.EvictWatermark(floors={"cap": 3})),
    ]
    several = control.Batch(frames=4, body_bytes=sum(map(len, group)), first_seq=4)
    return b"".join(
        (
            _control(ORDERS, keyed, DURABLE | MORE),
            third,
            _control(ORDERS, several, DURABLE | MORE),
            *group,
            _control(ORDERS, control.Delete(bound_head=6, match=["tag", "Glob", "eu-*"])),
            _append(AUDIT, 2, *_stored("audit", 2)),
        )
    )


def _stored(topic: str, seq: int, flags: int = 0) -> tuple[bytes, int, bytes, bytes]:
    node, tag, body = RECORDS[topic][seq]
    return body, flags, node, tag


def _snapshot(as_of: tuple[int, int]) -> bytes:
    """The directory when the first file was complete."""
    common = {"partition": 0, "partitions": 1, "absorbed": 0, "floors": {}, "loss": [], "paused": False, "as_of": as_of}
    heads = {ORDERS: ("orders", 2, 0, 2, 2), AUDIT: ("audit", 1, 2, 1, 4)}
    sections = [
        snapshot.Section(
            topic_id=topic_id,
            topic=topic_id,
            epoch=topic_id,
            name=name,
            config=CONFIGS[topic_id],
            head_seq=head,
            reserved=reserved,
            last_ts=TS + head,
            last_write_ts=TS + head,
            live_count=count,
            live_bytes=size,
            keys=None,
            **common,
        )
        for topic_id, (name, head, reserved, count, size) in heads.items()
    ]
    body = snapshot.Body(
        created_ms=TS + 10,
        shards=1,
        next_topic_id=3,
        pending_deletes=[],
        clean=False,
        redo_from=[(1, 0)],
        sections=[msgspec.msgpack.encode(section) for section in sections],
    )
    return snapshot.encode(body)


def directory_files() -> dict[str, bytes]:
    """Relative path → content."""
    first = _first_file()
    return {
        "FORMAT": b"1\n0123456789abcdef0123456789abcdef\n1\n",
        "meta/snapshot-0000000000000001.bin": _snapshot((1, len(first))),
        "wal/CURRENT": b"wal-0000000000000002.log\n",
        "wal/wal-0000000000000001.log": first,
        "wal/wal-0000000000000002.log": _second_file(),
    }
