"""A snapshot's body and sections, and what must agree with the log, from the specification alone.

The specification names what a section contains, but not the names of the fields; those are from
docs/reference/format.md.

Readings, where the specification leaves a choice:

- A section is of the moment its log had taken in all of its own frames below `as_of`; frames of other logs may lie
  between those and `as_of`, or not. `as_of` and `redo_from` are [file number, offset].
- head_seq, reserved, config, floors, loss and segments equal what the frames below `as_of` say; so do the count and
  the bytes (data and meta as sent) of live records, since a log file with a live record that is in no segment is never
  trimmed. What segments hold of them is their own count, as long as the log does not tell all. Of an ephemeral log
  only name, config and segments are compared.
- last_ts is that of the last Append. A floor of 1 and no floor are the same.
- The log begins at or before `redo_from` of every snapshot there is, and ends at or behind every `as_of`.
- A clean stop has written, for each log not of class fsync, a reservation equal to its head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec.msgpack

from tests.support.spec_consumers import are_readers, meet_readers
from tests.support.spec_control import (
    ControlViolation,
    Fits,
    checked_map,
    is_config,
    is_flag,
    is_floors,
    is_loss,
    is_map,
    is_name,
    is_seq,
    is_u64,
)
from tests.support.spec_frames import SpecViolation
from tests.support.spec_jobs import is_moves_section, is_queue_section, judge_volatile, meet_jobs
from tests.support.spec_kept import Kept, are_producers, are_some_values, are_values
from tests.support.spec_manifest import manifest_of
from tests.support.spec_meta import SNAPSHOT_HEADER_BYTES, unseal_snapshot
from tests.support.spec_replay import Log
from tests.support.spec_routers import are_routers, meet_routers

Place: TypeAlias = tuple[int, int]


def _is_place(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_u64, value))


def _are_places(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_place, value))


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_seq, value))


def _are_blobs(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, bytes) for one in value)


def _is_blob(value: Any) -> bool:
    return isinstance(value, bytes)


def _is_maybe_time(value: Any) -> bool:
    return value is None or is_u64(value)


def _are_keys(value: Any) -> bool:
    """Columns of one length: 16 bytes, 16 bytes, u64, u32, u64 a row."""
    if value is None:
        return True
    widths = {"digests": 16, "hashes": 16, "first_seqs": 8, "counts": 4, "remaining_ms": 8}
    if not is_map(value) or value.keys() != widths.keys() or not all(isinstance(one, bytes) for one in value.values()):
        return False
    return len({len(value[name]) / width for name, width in widths.items()}) == 1


def _are_segments(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_map, value))


_BODY: dict[str, Fits] = {
    "created_ms": is_u64,
    "shards": is_seq,
    "next_topic_id": is_seq,
    "pending_deletes": _are_ids,
    "clean": is_flag,
    "redo_from": _are_places,
    "sections": _are_blobs,
    "states?": _is_blob,
}


def are_renewals(value: Any) -> bool:
    """Pairs of an epoch and of the head when it began, ascending."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, list) and len(each) == 2 and is_seq(each[0]) and is_u64(each[1]) for each in value)
        and value == sorted(value)
    )


_STATES: dict[str, Fits] = {"as_of": _is_place, "values": are_values}
_SECTION: dict[str, Fits] = {
    "topic_id": is_seq,
    "name": is_name,
    "topic": is_seq,
    "partition": is_u64,
    "partitions": is_seq,
    "config": is_config,
    "epoch": is_seq,
    "renewals?": are_renewals,
    "head_seq": is_u64,
    "reserved": is_u64,
    "last_ts": is_u64,
    "last_write_ts": _is_maybe_time,
    "absorbed": is_u64,
    "segments?": _are_segments,
    "floors": is_floors,
    "loss": is_loss,
    "live_count": is_u64,
    "live_bytes": is_u64,
    "paused": is_flag,
    "as_of": _is_place,
    "keys": _are_keys,
    "queue?": is_queue_section,
    "moves?": is_moves_section,
    "routers?": are_routers,
    "consumers?": are_readers,
    "producers?": are_producers,
    "states?": are_some_values,
}


@dataclass(frozen=True, slots=True)
class Section:
    """One log's section; `fields` by name."""

    snapshot: str
    fields: dict[str, Any]

    @property
    def topic_id(self) -> int:
        return self.fields["topic_id"]

    @property
    def as_of(self) -> Place:
        file, offset = self.fields["as_of"]
        return file, offset

    def wrong(self, reason: str) -> SpecViolation:
        return SpecViolation(self.snapshot, 0, f"section of log {self.topic_id} ({self.fields['name']}): {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A decoded snapshot; `sections` by topic_id, `redo_from` by shard."""

    name: str
    number: int
    created_ms: int
    shards: int
    next_topic_id: int
    pending_deletes: list[int]
    clean: bool
    redo_from: list[Place]
    sections: dict[int, Section]
    #: What belongs to no log: `as_of` and `values`. None: no frame has ever set any.
    states: dict[str, Any] | None

    def meet_states(self, kept: Kept) -> None:
        """The replay of shard 0 has come to their `as_of`."""
        try:
            kept.meet((self.states or {})["values"], [])
        except ControlViolation as error:
            raise SpecViolation(self.name, 0, f"what belongs to no log: {error}") from error


def decode_snapshot(data: bytes, *, number: int = 0, name: str = "snapshot") -> Snapshot:
    """Decode a whole snapshot file. Raises SpecViolation."""
    body = unseal_snapshot(data, name)
    try:
        checked_map(body, _BODY)
        decoded = [checked_map(msgspec.msgpack.decode(blob), _SECTION) for blob in body["sections"]]
        states = checked_map(msgspec.msgpack.decode(body["states"]), _STATES) if body.get("states") else None
    except (ControlViolation, msgspec.DecodeError) as error:
        raise SpecViolation(name, SNAPSHOT_HEADER_BYTES, str(error)) from error
    sections = {fields["topic_id"]: Section(name, fields) for fields in decoded}
    for section in sections.values():
        if not body["clean"]:
            _with_place(section, judge_volatile)
    if len(sections) != len(decoded):
        raise SpecViolation(name, SNAPSHOT_HEADER_BYTES, "two sections of one log")
    if len(body["redo_from"]) != body["shards"]:
        raise SpecViolation(name, SNAPSHOT_HEADER_BYTES, "not one redo_from a shard")
    if body["next_topic_id"] <= max(sections, default=0):
        raise SpecViolation(name, SNAPSHOT_HEADER_BYTES, "next_topic_id is in use")
    values = {key: body[key] for key in ("created_ms", "shards", "next_topic_id", "pending_deletes", "clean")}
    redo_from = [(file, offset) for file, offset in body["redo_from"]]
    return Snapshot(name=name, number=number, redo_from=redo_from, sections=sections, states=states, **values)


def log_of(section: Section) -> Log:
    """A log whose TopicCreate is no longer in the WAL. What is not known before `as_of` is left open."""
    names = ("topic_id", "name", "topic", "partition", "partitions", "epoch", "config")
    known = {name: section.fields[name] for name in names}
    log = Log(**known, head=None, settled=False, config_known=False, complete=False)
    log.jobs.partial = log.routes.partial = log.readers.partial = log.kept.partial = True
    log.jobs.lasting = bool(known["config"].get("leases_durable"))
    return log


def meet(log: Log, section: Section) -> None:
    """The replay has come to the section's `as_of`: take over what the log could not know, and compare the rest."""
    fields = section.fields
    if log.head is None:
        log.head = fields["head_seq"]
    try:
        if not log.settled:
            log.manifest = manifest_of(fields)
        log.manifest.meet(fields)
    except ControlViolation as error:
        raise section.wrong(str(error)) from error
    if not log.settled:
        log.settled = log.config_known = True
        log.reserved = fields["reserved"]
        log.epoch, log.config, log.partitions = fields["epoch"], fields["config"], fields["partitions"]
        log.paused = fields["paused"]
        log.jobs.lasting = bool(fields["config"].get("leases_durable"))
        for cause, floor in fields["floors"].items():
            log.floors[cause] = max(log.floors.get(cause, 1), floor)
        log.loss |= {(first, last, cause) for first, last, cause in fields["loss"]}
        log.drop_evicted()
    _compare(log, section)
    _with_place(section, lambda fields: meet_jobs(log, fields))
    _with_place(section, lambda fields: meet_routers(log.routes, fields, exact=log.durability != "ephemeral"))
    _with_place(section, lambda fields: meet_readers(log.readers, fields))
    _with_place(section, lambda fields: log.kept.meet(fields.get("states", []), fields.get("producers", [])))
    log.last_section = fields


def _with_place(section: Section, judge: Callable[[dict[str, Any]], None]) -> None:
    try:
        judge(section.fields)
    except ControlViolation as error:
        raise section.wrong(str(error)) from error


def _counts(log: Log, fields: dict[str, Any]) -> tuple[int, int]:
    """(records, bytes) that are live: according to the log, or, if it begins too late, according to the segments.

    The bytes of a segment are taken from its statement if that is an assumption, which no log can check.
    """
    segments: list[dict[str, Any]] = fields.get("segments", [])
    begin = 0 if log.complete else fields["absorbed"] + 1
    records = [record for record in log.records.values() if record.seq >= begin]
    count, size = len(records), sum(record.size for record in records)
    for one in segments:
        if not log.complete:
            count, size = count + one.get("live", 0), size + one.get("live_bytes", 0)
        elif one.get("assumed", False):
            inside = (record.size for record in records if one["first_seq"] <= record.seq < one["end_seq"])
            size += one.get("live_bytes", 0) - sum(inside)
    return count, size


def _compare(log: Log, section: Section) -> None:
    fields = section.fields
    names = ("name", "topic", "partition", "partitions", "epoch", "config", "paused")
    expected: dict[str, Any] = {name: getattr(log, name) for name in names}
    if log.durability != "ephemeral":
        count, size = _counts(log, fields)
        expected |= {
            "head_seq": log.head,
            "reserved": log.reserved,
            "floors": {cause: floor for cause, floor in log.floors.items() if floor > 1},
            "live_count": count,
            "live_bytes": size,
        }
        if log.last_append_ts is not None:
            expected["last_ts"] = log.last_append_ts
    for name, value in expected.items():
        found = fields[name]
        if name == "floors":
            found = {cause: floor for cause, floor in found.items() if floor > 1}
        if found != value:
            raise section.wrong(f"{name} is {found}, the frames below {section.as_of} come to {value}")
    if log.durability != "ephemeral" and _joined(fields["loss"]) != _joined(log.loss):
        raise section.wrong(f"loss is {fields['loss']}, the frames below {section.as_of} come to {sorted(log.loss)}")


def _joined(loss: Iterable[Any]) -> list[tuple[str, int, int]]:
    """(cause, from, to), with touching ranges of one cause merged."""
    joined: list[tuple[str, int, int]] = []
    for cause, first, last in sorted((cause, first, last) for first, last, cause in loss):
        if joined and joined[-1][0] == cause and first <= joined[-1][2] + 1:
            joined[-1] = (cause, joined[-1][1], max(last, joined[-1][2]))
        else:
            joined.append((cause, first, last))
    return joined
