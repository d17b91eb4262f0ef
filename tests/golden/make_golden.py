"""Writes the golden files that are missing, never one that exists. See README.md.

Each value below is the content of its file in v1/; the tests compare both ways.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from storage.format import control, snapshot_header, wal_frame
from storage.format.wal_frame import FrameType
from tests.golden.directory import directory_files
from tests.golden.packed import packed_files
from tests.golden.segment_tags import tag_files
from tests.golden.segments import END_SEQ, FIRST_SEQ, TOPIC_ID, segment_files
from tests.support.spec_decoder import read_files
from tests.support.spec_frames import decode_frame
from tests.support.spec_meta import unseal_snapshot
from tests.support.spec_segment import decode_segment

FOLDER = Path(__file__).parent / "v1"
TS = 1_755_000_000_123

DURABLE, MORE, BINARY = 4, 8, 16


@dataclass(frozen=True, kw_only=True)
class GoldenFrame:
    """The arguments of one frame. `control`: the decoded data of a control frame."""

    type: FrameType
    flags: int = 0
    topic_id: int = 7
    seq: int = 0
    ts: int = TS
    node: bytes = b""
    tag: bytes = b""
    data: bytes = b""
    control: control.Control | None = None

    def encoded(self) -> bytes:
        data = self.data if self.control is None else control.encode_control(self.control)
        return wal_frame.encode(self.type, self.flags, self.topic_id, self.seq, self.ts, self.node, self.tag, data)


def _append(**values: object) -> GoldenFrame:
    return GoldenFrame(type=FrameType.APPEND, **{"seq": 1, "data": b'{"data":null}', **values})  # type: ignore[arg-type]


def _control(value: control.Control, **values: object) -> GoldenFrame:
    return GoldenFrame(type=control.TYPE_OF[type(value)], control=value, **values)  # type: ignore[arg-type]


CONFIG = {
    "type": "log",
    "durability": "fsync",
    "ttl_ms": 60_000,
    "cap_records": 0,
    "dead_letter": None,
    "partitions": 1,
}

FRAMES: dict[str, GoldenFrame] = {
    "append-bare": _append(),
    "append-node-tag-meta": _append(
        seq=2, node=b"worker-1", tag=b"orders", data=b'{"data":{"a": 1.10},"meta":{"k":"v"}}', flags=DURABLE
    ),
    "append-verbatim": _append(
        seq=3,
        topic_id=(1 << 64) - 1,
        data='{"data":[1e400,0.10,"ä\\u00e4",{"a":1,"a":2},123456789012345678901234567890]}'.encode(),
    ),
    "append-first-of-batch": _append(seq=4, flags=MORE),
    "append-deliver-at": _append(seq=5, data=b'{"data":"job","meta":{},"deliver_at":1755000060123}'),
    "append-greatest-seq": _append(seq=(1 << 64) - 1, ts=(1 << 63) - 1),
    "append-last-hop": _append(seq=6, flags=7 << 5),
    "append-binary": _append(seq=7, flags=BINARY, data=b"\x82\xa1k\xc0\xa1v\xc4\x02\x00\xff"),
    "append-of-a-kafka-client": _append(
        seq=8, tag=b"k", data=b'{"data":{"a":1},"ct":1700000000123,"h":[["n","AA=="]]}'
    ),
    "append-binary-of-a-kafka-client": _append(
        seq=9,
        flags=BINARY,
        data=b"\x84\xd9\x01v\xc0\xa1k\xc4\x01\xff\xa1h\x91\x92\xa1n\xc4\x01\x00\xa2ct\xcf\x00\x00\x01\x8b\xcf\xe5h\x7b",
    ),
    "topic-create": _control(
        control.TopicCreate(name="orders", topic=7, partition=0, partitions=1, epoch=7, config=CONFIG), flags=DURABLE
    ),
    "topic-create-paused": _control(
        control.TopicCreate(name="jobs:eu", topic=7, partition=2, partitions=3, epoch=9, config=CONFIG, paused=True),
        topic_id=9,
        flags=DURABLE,
    ),
    "config-update": _control(
        control.ConfigUpdate(name="orders", topic=7, partition=0, partitions=4, epoch=11, config=CONFIG, paused=False),
        flags=DURABLE,
    ),
    "topic-delete": _control(control.TopicDelete(name="orders"), flags=DURABLE),
    "delete-before": _control(control.Delete(bound_head=100, before_seq=51)),
    "delete-match-exact": _control(control.Delete(bound_head=100, match=["tag", "Eq", "orders"])),
    "delete-match-prefix-before": _control(
        control.Delete(bound_head=100, before_seq=90, match=["tag", "Glob", "ord*"]), flags=DURABLE
    ),
    "delete-ack": _control(control.Delete(bound_head=100, seqs=[3, 5, 90], ack=True)),
    "evict-floors": _control(control.EvictWatermark(floors={"cap": 12, "ttl": 9})),
    "evict-loss": _control(control.EvictWatermark(floors={"crash": 300}, loss=[(257, 512, "crash")])),
    "lease-claimed": _control(
        control.Lease(
            event="claimed",
            jobs=[(5, 0xFEDC_BA98_7654_3210, TS + 30_000, 1, 0, 0), (9, 1, TS + 30_000, 4, 0, 2)],
            attempt_key="try-1",
        ),
        node=b"worker-1",
    ),
    "lease-dead": _control(
        control.Lease(event="dead", jobs=[(5, 0, 0, 3, 0, 0)], dest_id=8, reason="no such customer"), flags=DURABLE
    ),
    "batch-move": _control(control.Batch(frames=1, body_bytes=61, first_seq=12, move=(7, 5)), flags=DURABLE | MORE),
    "moved": _control(control.Moved(source_id=7, seqs=[5, 6, 90]), flags=DURABLE),
    "batch-of-many-moves": _control(control.Batch(frames=4, body_bytes=253, first_seq=12), flags=DURABLE | MORE),
    "head-watermark": _control(control.HeadWatermark(reserved=512)),
    "batch": _control(control.Batch(frames=3, body_bytes=177, first_seq=4), flags=MORE),
    "batch-with-key": _control(
        control.Batch(frames=1, body_bytes=59, first_seq=4, key="order-4711", hash=bytes(range(16))),
        flags=MORE | DURABLE,
    ),
    "batch-of-controls": _control(control.Batch(frames=2, body_bytes=130), flags=MORE),
    "batch-of-a-move": _control(control.Batch(frames=1, body_bytes=59, first_seq=1, move=(6, 90)), flags=MORE),
    "batch-of-a-producer": _control(
        control.Batch(frames=2, body_bytes=118, first_seq=1, producer=((1 << 63) - 1, 32_767, (1 << 31) - 1)),
        flags=MORE | DURABLE,
    ),
    "checkpoint-mark": _control(
        control.CheckpointMark(absorbed={7: 4711, (1 << 64) - 1: 1}), topic_id=0, flags=DURABLE
    ),
    "segment-opened": _control(
        control.Segment(first_seq=41, end_seq=41, event="opened", gen=0, live=0, data_bytes=0, tier="hot"),
        flags=DURABLE,
    ),
    "segment-sealed": _control(
        control.Segment(
            first_seq=41, end_seq=49, event="sealed", gen=0, live=2, data_bytes=259, tier="hot", live_bytes=17
        ),
        flags=DURABLE,
    ),
    "segment-rewritten": _control(
        control.Segment(
            first_seq=41, end_seq=49, event="rewritten", gen=1, live=1, data_bytes=59, tier="hot", live_bytes=4
        ),
        flags=DURABLE,
    ),
    "segment-packed": _control(
        control.Segment(
            first_seq=1,
            end_seq=10_001,
            event="rewritten",
            gen=1,
            live=10_000,
            data_bytes=3_690_000,
            tier="hot",
            live_bytes=2_950_000,
            packed_bytes=1_090_000,
        )
    ),
    "segment-dropped": _control(
        control.Segment(
            first_seq=41, end_seq=49, event="dropped", gen=1, live=0, data_bytes=59, tier="hot", live_bytes=0
        ),
        flags=DURABLE,
    ),
    "router-create": _control(
        control.RouterCreate(
            router_id=9,
            name="orders>audit",
            definition={
                "source": "orders",
                "dest": "audit",
                "preserve_node": True,
                "preserve_tag": False,
                "create_dest": True,
                "filter": ["tag", "Glob", "ord*"],
                "allow_cycle": False,
                "guarantee": "exactly_once",
                "from": "earliest",
            },
            source_id=7,
            dest_id=8,
            source_cursor=0,
        ),
        topic_id=8,
        flags=DURABLE,
    ),
    "router-delete": _control(control.RouterDelete(router_id=9), topic_id=8, flags=DURABLE),
    "router-cursor": _control(control.RouterCursor(router_id=9, source_seq=(1 << 64) - 1), topic_id=8),
    "consumer-put": _control(
        control.Consumer(
            consumer_id=10,
            name="group:billing%20daily",
            event="put",
            config={"consistency": "strictly_at_once", "persist_every": 1000},
            seq=0,
        ),
        flags=DURABLE,
    ),
    "consumer-config": _control(
        control.Consumer(
            consumer_id=10,
            name="billing",
            event="put",
            config={"consistency": "at_least_once", "persist_every": 1},
        ),
        flags=DURABLE,
    ),
    "consumer-cursor": _control(
        control.Consumer(consumer_id=10, name="billing", event="cursor", seq=(1 << 64) - 1), flags=DURABLE
    ),
    "consumer-delete": _control(control.Consumer(consumer_id=10, name="billing", event="delete"), flags=DURABLE),
    "state": _control(
        control.State(kind="producer_ids", key="next", value=b"1700000000001000"), topic_id=0, flags=DURABLE
    ),
    "state-of-an-offset": _control(control.State(kind="offset", key="group:billing", value=b"\x00\xff"), flags=DURABLE),
    "state-empty": _control(control.State(kind="group", key="billing", value=b""), topic_id=0, flags=DURABLE),
    "state-gone": _control(control.State(kind="offset", key="group:billing"), flags=DURABLE),
    "append-routed": _append(topic_id=8, seq=8, flags=1 << 5 | MORE, node=b"worker-1"),
    "sync-point": _control(control.SyncPoint(file=3, at=1_048_999, offset=1_048_576), topic_id=0),
}

SNAPSHOT_BODY = b"\x83\xadnext_topic_id\x08\xa6shards\x02\xa5clean\xc3"


def files() -> dict[str, bytes]:
    """Every golden file: its name in v1/ and its bytes."""
    made = {f"frame-{name}.bin": frame.encoded() for name, frame in FRAMES.items()}
    made["snapshot-header.bin"] = snapshot_header.seal(SNAPSHOT_BODY)
    made |= segment_files() | tag_files() | packed_files()
    return made | {f"directory/{name}.bin": content for name, content in directory_files().items()}


def directory_paths() -> dict[str, Path]:
    """Where each file of the golden data directory is stored. Its name there ends in .bin, because it is not text."""
    folder = FOLDER / "directory"
    return {
        path.relative_to(folder).as_posix().removesuffix(".bin"): path for path in folder.rglob("*") if path.is_file()
    }


def show() -> None:
    """The values that the independent decoder reads in each file."""
    for path in sorted(FOLDER.glob("frame-*.bin")):
        # A SyncPoint contains its own offset, so it is filled in.
        at = FRAMES["sync-point"].control.at if path.stem == "frame-sync-point" else 0  # type: ignore[union-attr]
        frame = decode_frame(bytes(at) + path.read_bytes(), at, path.name)
        print(frame)
    path = FOLDER / "snapshot-header.bin"
    print(unseal_snapshot(path.read_bytes(), path.name))
    data, idx = ((FOLDER / f"segment.{kind}.bin").read_bytes() for kind in ("data", "idx"))
    for record in decode_segment(data, idx, topic_id=TOPIC_ID, first_seq=FIRST_SEQ, end_seq=END_SEQ).values():
        print(record)
    for log in read_files({name: path.read_bytes for name, path in directory_paths().items()}).logs.values():
        print(log)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--show", action="store_true", help="print what the independent decoder reads in the files")
    if parser.parse_args().show:
        show()
        return 0
    status = 0
    for name, content in files().items():
        path = FOLDER / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            print(f"made {name}")
        elif path.read_bytes() != content:
            print(f"{name} differs from what the code writes now; golden files are never rewritten", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
