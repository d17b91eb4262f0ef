"""The contents of a metadata snapshot, and how a log becomes a section and back. Pure.

Body (MessagePack map): created_ms, shards, next_topic_id, pending_deletes, clean, redo_from ([file, offset] per shard),
sections (one MessagePack map per log, as bin). A snapshot has no payloads.

Source: docs/reference/format.md#snapshots.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

import msgspec

from storage.format import control, snapshot_header
from storage.log import position, split
from storage.records import TopicConfig
from storage.state import (
    Catalog,
    KeyColumns,
    KeyRing,
    Manifest,
    OwnStates,
    ProducerSection,
    ProducerTable,
    SegmentState,
    StatesSection,
    StateTable,
    Topic,
    leases_durable,
)
from storage.state.consumers import ConsumerSection
from storage.state.consumers import section as consumer_section
from storage.state.queues import MovesSection, QueueSection
from storage.state.queues import section as queue_section
from storage.state.routers import Router, RouterSection
from storage.state.routers import section as router_section


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """Live idempotency keys in columns: 16-byte digests and payload hashes, u64 seqs, u32 counts, u64 ms left."""

    digests: bytes
    hashes: bytes
    first_seqs: bytes
    counts: bytes
    remaining_ms: bytes


class Section(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One log: everything that its shard's frames below `as_of` say, and nothing from frames above.

    A field equal to its default is left out: such a section has the same bytes as before the field existed.
    """

    topic_id: int
    name: str
    topic: int
    partition: int
    partitions: int
    config: dict[str, Any]
    epoch: int
    head_seq: int
    reserved: int
    last_ts: int
    last_write_ts: int | None
    absorbed: int
    segments: list[SegmentState] = []
    floors: dict[str, int]
    loss: list[tuple[int, int, str]]
    live_count: int
    live_bytes: int
    paused: bool
    as_of: tuple[int, int]
    keys: Keys | None
    queue: QueueSection | None = None
    moves: MovesSection | None = None
    routers: list[RouterSection] = []
    consumers: list[ConsumerSection] = []
    producers: list[ProducerSection] = []
    states: list[tuple[str, str, bytes]] = []
    renewals: list[tuple[int, int]] = []


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A whole snapshot. `states`: the section of values that belong to no log; empty if there are none."""

    created_ms: int
    shards: int
    next_topic_id: int
    pending_deletes: list[int]
    clean: bool
    redo_from: list[tuple[int, int]]
    sections: list[bytes]
    states: bytes = b""


_encoder = msgspec.msgpack.Encoder()
_body = msgspec.msgpack.Decoder(Body)
_section = msgspec.msgpack.Decoder(Section)
_states = msgspec.msgpack.Decoder(StatesSection)


def encode(body: Body) -> bytes:
    """The snapshot file."""
    return snapshot_header.seal(_encoder.encode(body))


def decode(file: bytes) -> Body:
    """Raises SnapshotDamaged, SnapshotUnsupported."""
    try:
        return _body.decode(snapshot_header.unseal(file))
    except msgspec.DecodeError as error:
        raise snapshot_header.SnapshotDamaged(f"its body does not decode: {error}") from error


def decode_section(data: bytes) -> Section:
    """One section. Raises SnapshotDamaged."""
    try:
        return _section.decode(data)
    except msgspec.DecodeError as error:
        raise snapshot_header.SnapshotDamaged(f"a section does not decode: {error}") from error


def decode_states(data: bytes) -> StatesSection:
    """The section of values that belong to no log. Raises SnapshotDamaged."""
    try:
        return _states.decode(data)
    except msgspec.DecodeError as error:
        raise snapshot_header.SnapshotDamaged(f"the section of no log does not decode: {error}") from error


def capture(topic: Topic, now_ms: int, routers: Iterable[Router] = (), *, clean: bool = False) -> bytes:
    """The section of a topic's log as it is now; unchanged logs give the same bytes again.

    `routers`: the routers into the log. `clean`: no frame follows the snapshot, so it also has leases that are not
    durable.
    """
    log = topic.log
    volatile = log.queue is not None and not leases_durable(topic.config)
    if log.section is not None and not (clean and volatile):
        return log.section
    head, count, size = log.head, log.count, log.bytes
    if log.ephemeral:
        # Records in memory only are gone after any restart: only records in the WAL count.
        head = log.durable_head
        count, size = log.held.totals(log.marks.live_floor, head + 1, log.marks.live_floor)
    section = Section(
        topic_id=log.topic_id,
        name=topic.title,
        topic=topic.root_id,
        partition=log.partition,
        partitions=topic.config.partitions,
        config=topic.config.to_map(),
        epoch=log.epoch,
        head_seq=head,
        reserved=log.reserved,
        last_ts=log.last_ts,
        last_write_ts=log.last_write_ts,
        absorbed=log.held.flushed,
        segments=log.held.manifest.states(),
        floors=dict(log.marks.floors),
        loss=list(log.marks.loss),
        live_count=count,
        live_bytes=size,
        paused=topic.paused,
        as_of=split(log.applied_lsn),
        keys=_keys(log.keys, now_ms, topic.config.idempotency_window_ms, head),
        queue=None if log.queue is None else queue_section.capture(log.queue, leases=clean or not volatile),
        moves=queue_section.capture_moves(log.moves),
        routers=router_section.capture(routers),
        consumers=consumer_section.capture(log.consumers),
        producers=log.producers.capture(head) if log.producers is not None else [],
        states=log.states.capture() if log.states is not None else [],
        renewals=[*log.renewals],
    )
    encoded = _encoder.encode(section)
    if log.keys is None and not (clean and volatile):  # the rest of a key's window changes with time
        log.section = encoded
    return encoded


def capture_states(own: OwnStates) -> bytes:
    """The section of values that belong to no log, as they are now; empty when no frame has ever set one."""
    if own.section is None:
        section = StatesSection(as_of=split(own.applied_lsn), values=own.table.capture())
        own.section = _encoder.encode(section) if own.applied_lsn else b""
    return own.section


def restore_states(own: OwnStates, data: bytes) -> None:
    """Restore the result of `capture_states`. Raises SnapshotDamaged."""
    if data:
        section = decode_states(data)
        own.table = StateTable.of(section.values)
        own.applied_lsn = position(*section.as_of)
        own.section = data


def restore(catalog: Catalog, section: Section, created_ms: int) -> Topic:
    """The log of a section, without its records, which come from the WAL."""
    creation = control.TopicCreate(
        name=section.name,
        topic=section.topic,
        partition=section.partition,
        partitions=section.partitions,
        epoch=section.epoch,
        config=section.config,
        paused=section.paused,
    )
    topic = catalog.add(section.topic_id, creation)
    log = topic.log
    log.head = log.assigned_head = section.head_seq
    log.durable_head = section.head_seq
    log.reserved = section.reserved
    log.renewals = [*section.renewals]
    log.last_ts = section.last_ts
    log.last_write_ts = section.last_write_ts
    log.marks.merge(section.floors, section.loss)
    log.held.flushed = section.absorbed
    log.held.manifest = Manifest(section.segments)
    log.assigned_floor = log.marks.live_floor
    log.count = log.assigned_count = section.live_count
    log.bytes = log.assigned_bytes = section.live_bytes
    log.take_usage()
    log.applied_lsn = position(*section.as_of)
    if section.queue is not None and log.queue is not None:
        queue_section.restore(log.queue, section.queue)
    if section.moves is not None:
        queue_section.restore_moves(log.moves, section.moves)
        if log.queue is not None:
            for seq, move in log.moves.out.items():
                log.queue.die(seq, move.deliveries, move.reason)
    for router in section.routers:
        catalog.routes.add(router_section.restore(router, topic.topic_id))
    consumer_section.restore(log.consumers, section.consumers)
    catalog.usage.consumers += len(log.consumers)
    if section.producers:
        log.producers = ProducerTable.of(section.producers)
        catalog.usage.producers += len(log.producers)
    if section.states:
        log.states = StateTable.of(section.states)
    if section.keys is not None:
        window_ms = TopicConfig.from_map(section.config).idempotency_window_ms
        log.keys = KeyRing()
        log.keys.extend(_remembered(section.keys, created_ms, window_ms), window_ms)
        catalog.usage.keys += log.keys.key_count
    return topic


def _keys(ring: KeyRing | None, now_ms: int, window_ms: int, head: int) -> Keys | None:
    if ring is None:
        return None
    live = ring.live(now_ms, window_ms)
    live = live.between(0, bisect_right(live.seqs, head))  # the records of later entries are in memory only, too
    if not live.seqs:
        return None
    return Keys(
        digests=live.digests,
        hashes=live.hashes,
        first_seqs=_little(live.seqs),
        counts=_little(live.counts),
        remaining_ms=_little(array("Q", [ts + window_ms - now_ms for ts in live.stamps])),
    )


def _little(values: array[int]) -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def _array(code: str, data: bytes) -> array[int]:
    values: array[int] = array(code)
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _remembered(keys: Keys, created_ms: int, window_ms: int) -> KeyColumns:
    stamps = [max(0, created_ms + left - window_ms) for left in _array("Q", keys.remaining_ms)]
    numbers = _array("Q", keys.first_seqs), _array("I", keys.counts), array("Q", stamps)
    return KeyColumns(keys.digests, keys.hashes, *numbers)
