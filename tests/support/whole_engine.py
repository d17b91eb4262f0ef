"""An engine with something of everything, and all that an engine has, to be compared with another one.

    await fill(engine)
    before = await whole(engine)          # also after it was copied elsewhere: the same

`whole` is what a snapshot says, without what concerns the files (which segments there are, and up to where the log is
in the snapshot), and every record.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from storage import Durability, Engine, NewRecord, ReadQuery, TagMatch, TopicConfig
from storage.errors import TopicNotFound
from storage.records import CleanupPolicy, CompressionType, ProducerBatch, Retention, TopicType
from storage.snapshot import contents
from storage.state.routers import Definition

#: Of a section: what says where records are, and not which.
_FILES = ("absorbed", "segments", "as_of", "reserved")
HOUR_MS = 3_600_000


def record(value: object, tag: str | None = None, **more: Any) -> NewRecord:
    return NewRecord(msgspec.Raw(json.dumps(value).encode()), tag=tag, **more)


async def fill(engine: Engine) -> None:
    """Topics of all classes and types, and all that hangs on them."""
    await engine.put_topic(
        "events",
        TopicConfig(
            durability=Durability.FSYNC, compression_type=CompressionType.ZSTD, cap_records=55,
            idempotency_window_ms=24 * HOUR_MS, priority=7,
        ),
    )  # fmt: skip
    for begin in range(0, 60, 10):
        batch = [
            record({"n": n, "text": "as always " * 30}, "x" if n in (12, 36) else "y", node=f"node-{n % 3}",
                   meta=msgspec.Raw(b'{"k":"v"}'))
            for n in range(begin, begin + 10)
        ]  # fmt: skip
        await engine.append("events", batch, idempotency_key=f"key-{begin}")
        await engine.segment_worker.flush_all()
    await engine.delete_records("events", match=TagMatch(b"x"))
    await engine.put_topic("disk", TopicConfig(durability=Durability.DISK, ttl_ms=24 * HOUR_MS))
    for number in range(7):
        await engine.append("disk", [record({"n": number})])
    await engine.append("disk", b"\x00raw\xff")
    await engine.put_topic("memory", TopicConfig(durability=Durability.MEMORY))
    await engine.append("memory", [record(1)])
    await engine.put_topic("gone", TopicConfig(durability=Durability.EPHEMERAL))
    await engine.put_topic("compacted", TopicConfig(cleanup_policy=CleanupPolicy.COMPACT, durability=Durability.FSYNC))
    await engine.append("compacted", [record(n, f"tag-{n % 2}") for n in range(6)])
    await engine.put_topic("deleted", TopicConfig())
    await engine.append("deleted", [record(1)])
    await engine.delete_topic("deleted")
    await engine.put_topic("spread", TopicConfig(partitions=3, durability=Durability.FSYNC))
    for number in range(6):
        await engine.append("spread", [record(number, f"tag-{number}")])
    await _fill_readers(engine)
    await _fill_queues(engine)


async def _fill_readers(engine: Engine) -> None:
    """Consumers, routers, producers of Kafka, and values that others store."""
    for name, at in (("slow", 20), ("fast", 50)):
        await engine.put_consumer("events", name)
        await engine.commit("events", name, at)
    await engine.put_topic("consumed", TopicConfig(retention=Retention.CONSUMED, durability=Durability.FSYNC))
    await engine.put_consumer("consumed", "only")
    await engine.append("consumed", [record(n) for n in range(4)])
    await engine.commit("consumed", "only", 2)
    await engine.put_topic("dest", TopicConfig(durability=Durability.FSYNC))
    await engine.routers.put("router", Definition(source="disk", dest="dest"))
    await engine.put_topic("produced", TopicConfig(durability=Durability.FSYNC))
    for epoch, base in ((0, 0), (0, 2), (1, 0)):
        await engine.append("produced", [record(1), record(2)], producer=ProducerBatch(7, epoch, base))
    await engine.states.put("kafka_group", "group-1", b"a group")
    await engine.states.put("transactional", "id-1", b"\x00\xff")
    await engine.states.put_of_log(engine.topic("produced"), "offset", "group-1", b"3")


async def _fill_queues(engine: Engine) -> None:
    """Ready and delayed jobs, leases of both kinds, counts, dead letters, and a pause."""
    for name, durable in (("jobs", True), ("loose", False)):
        config = TopicConfig(
            type=TopicType.QUEUE, durability=Durability.DISK, leases_durable=durable, max_deliveries=3,
            dead_letter=f"{name}-dead",
        )  # fmt: skip
        await engine.put_topic(f"{name}-dead", TopicConfig(type=TopicType.QUEUE, durability=Durability.FSYNC))
        await engine.put_topic(name, config)
        await engine.append(name, [record(n) for n in range(6)])
        await engine.append(name, [record("late", delay_ms=HOUR_MS)])
        claimed = (await engine.queues.claim(name, "worker", max=4, lease_ms=HOUR_MS)).jobs
        seqs, leases = [each.record.seq for each in claimed], [each.lease_id for each in claimed]
        await engine.queues.ack(name, "worker", seqs[:1], lease_ids=leases[:1])
        await engine.queues.nack(name, "worker", seqs[1:2], lease_ids=leases[1:2], delay_ms=HOUR_MS, reason="later")
        await engine.queues.reject(name, "worker", seqs[2:3], lease_ids=leases[2:3], reason="never")
        await engine.wait_beyond(f"{name}-dead", 0, 10_000)
    await engine.put_topic("paused", TopicConfig(type=TopicType.QUEUE, durability=Durability.FSYNC))
    await engine.queues.pause("paused")


async def whole(engine: Engine) -> dict[str, Any]:
    """By topic, and what belongs to none."""
    found: dict[str, Any] = {}
    for topic in engine.catalog.by_id.values():
        routers = engine.catalog.routes.into.get(topic.topic_id, ())
        section = contents.decode_section(contents.capture(topic, engine.now_ms(), routers, clean=True))
        shown = msgspec.to_builtins(section)
        keys = section.keys
        for each in shown.get("producers", []):
            each.pop("ts")  # a start begins their time anew
        if keys is not None:  # the rest of their time passes
            shown["keys"] = (keys.digests, keys.hashes, keys.first_seqs, keys.counts)
        for each in _FILES:
            shown.pop(each, None)
        found[topic.name] = (shown, await _records(engine, topic.name))
    found[""] = (sorted(engine.catalog.states.table.capture()), engine.catalog.next_topic_id)
    return found


async def _records(engine: Engine, name: str) -> Any:
    records: list[Any] = []
    losses: list[Any] = []
    at = 0
    while True:
        try:
            page = await engine.read(name, ReadQuery(from_seq=at, limit=1000))
        except TopicNotFound:
            return None
        records += [tuple(each) for each in page.records]
        if page.tombstone is not None:
            losses.append(msgspec.to_builtins(page.tombstone))
        if page.next_from_seq <= at or page.next_from_seq >= page.head_seq:
            return records, losses
        at = page.next_from_seq


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Between two results of `whole`, in words."""
    found: list[str] = []
    for name in sorted(one.keys() | other.keys()):
        first, second = one.get(name), other.get(name)
        if first == second:
            continue
        if not name or first is None or second is None:
            found.append(f"{name}: {first} != {second}")
            continue
        fields = first[0].keys() | second[0].keys()
        found += [
            f"{name}.{each}: {first[0].get(each)} != {second[0].get(each)}"
            for each in sorted(fields)
            if first[0].get(each) != second[0].get(each)
        ]
        if first[1] != second[1]:
            found.append(f"{name}: records {first[1]} != {second[1]}")
    return found
