"""Compares the files below topics/ with what the log says of them. From the specification alone.

Readings, where the specification leaves a choice:

- Bytes and entries behind the newest mark are the rest of a write; files that no manifest names are left over.
- In a segment the delete byte may be ahead of the .idx where the log says that the record is gone: its flag is on its
  way. Never the other way round.
- What the log says of a record that is absorbed is what its segment holds, as far as its Append is still in the log.
- A tag file that is damaged, or of other bytes than the segment has now, says nothing; any other says all of it.
- A len file says nothing or all of it by the same rule, deleted records included. A hot segment may have one: it is
  made before `.data` moves.
- A segment of tier cold is its `.data` in the cold store and its files here. Without the store it cannot be read.
- A section's count of a segment's live records is that of the files, as long as no frame of the log lies behind it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from tests.support.spec_cold import ColdStore
from tests.support.spec_control import decode_binary, decode_body
from tests.support.spec_frames import SpecViolation
from tests.support.spec_len import decode_len_file
from tests.support.spec_manifest import Named
from tests.support.spec_packed import PackedViolation, decode_packed
from tests.support.spec_replay import Log, Record
from tests.support.spec_segment import (
    ENTRY_BYTES,
    SegmentRecord,
    SegmentViolation,
    decode_idx,
    decode_segment,
)
from tests.support.spec_tag import decode_tag_file

Files: TypeAlias = Mapping[str, Callable[[], bytes]]

SEGMENT_NAME = re.compile(r"topics/[0-9a-f]{16}/seg-[0-9]{20}(?:\.[1-9][0-9]*)?\.(?:data|zdata|idx|tag|len)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """The records of a segment by seq, and the bytes of .data that they take."""

    records: dict[int, SegmentRecord]
    data_bytes: int


def take_segments(files: Files, logs: Iterable[Log], cold: ColdStore | None) -> tuple[str, ...]:
    """Give each log the records of its segments. Returns the names of files that no log names. Raises SpecViolation."""
    named: set[str] = set()
    for log in logs:
        live: dict[int, Record] = {}
        for segment in log.manifest.segments.values():
            path = f"topics/{log.topic_id:016x}/{segment.stem}"
            records = ("zdata",) if segment.packed else ("data",)
            kept = ("idx", "tag", "len", *(records if segment.tier == "hot" else ()))
            named |= {f"{path}.{ending}" for ending in kept}
            if segment.end_seq > segment.first_seq:
                held = _read(files, path, log, segment, cold)
                _judge_tags(files, f"{path}.tag", segment, held)
                found = {seq: _record(path, one) for seq, one in held.records.items()}
                _judge_lengths(files, f"{path}.len", segment, held.data_bytes, found)
                live |= {seq: found[seq] for seq, one in held.records.items() if _lives(log, one)}
        _merge(log, live)
        _judge_topic_file(log, live, cold)
        _compare_counts(log)
    return tuple(sorted(name for name in files if SEGMENT_NAME.fullmatch(name) and name not in named))


def _read(files: Files, path: str, log: Log, segment: Named, cold: ColdStore | None) -> _Held:
    is_cold = segment.tier == "cold"
    for ending in ("idx",) if is_cold else ("zdata" if segment.packed else "data", "idx"):
        if f"{path}.{ending}" not in files:
            raise SpecViolation(f"{path}.{ending}", 0, "the log names it, and it is not there")
    size = (segment.end_seq - segment.first_seq) * ENTRY_BYTES
    idx = files[f"{path}.idx"]()[:size]
    if is_cold:
        data = _cold_data(path, segment, idx, cold)
    elif segment.packed:
        data = _packed_data(path, log, segment, idx, files[f"{path}.zdata"]())
    else:
        data = files[f"{path}.data"]()
    try:
        if len(idx) < size:
            raise SegmentViolation(f"{path}.idx", len(idx), f"{size} bytes were marked")
        last = decode_idx(idx[-ENTRY_BYTES:], f"{path}.idx")[0]
        end = last.offset + last.size
        if len(data) < end or segment.data_bytes not in (None, end):
            raise SegmentViolation(
                f"{path}.data", len(data), f"{end} bytes by .idx, {segment.data_bytes} by the log, {len(data)} there"
            )
        records = decode_segment(
            data[:end],
            idx,
            topic_id=log.topic_id,
            first_seq=segment.first_seq,
            end_seq=segment.end_seq,
            name=path,
            being_flagged=lambda record: record.seq < log.floor or log.deletes_say_gone(record.seq, record.tag),
            idx_decides=is_cold,
        )
    except SegmentViolation as error:
        raise SpecViolation(error.file, error.offset, error.reason) from error
    return _Held(records=records, data_bytes=end)


def _packed_data(path: str, log: Log, segment: Named, idx: bytes, content: bytes) -> bytes:
    """The .data with its delete bytes, where a .data has them."""
    try:
        found = decode_packed(content)
    except PackedViolation as error:
        raise SpecViolation(f"{path}.zdata", 0, str(error)) from error
    if len(content) != segment.packed or found[:3] != (log.topic_id, segment.first_seq, segment.gen):
        raise SpecViolation(f"{path}.zdata", 0, f"{len(content)} bytes of {found[:3]}, the log says {segment}")
    data = bytearray(found.data)
    entries = decode_idx(idx, f"{path}.idx")
    if len(found.delete_bytes) != len(entries):
        raise SpecViolation(f"{path}.zdata", 48, f"{len(found.delete_bytes)} delete bytes, {len(entries)} entries")
    for entry, byte in zip(entries, found.delete_bytes, strict=True):
        if entry.size:
            data[entry.offset + entry.size - 1] |= byte
        elif byte:
            raise SpecViolation(f"{path}.zdata", 48, "a seq without a record has been deleted")
    return bytes(data)


def _cold_data(path: str, segment: Named, idx: bytes, cold: ColdStore | None) -> bytes:
    if cold is None:
        raise SpecViolation(f"{path}.data", 0, "it is in the cold store, and that is not at hand")
    data = cold.get(f"{path}.data")
    if len(data) != segment.data_bytes:
        raise SpecViolation(f"{path}.data", len(data), f"{segment.data_bytes} bytes moved to the cold store")
    cold.judge_idx(f"{path}.idx", idx)
    return data


def _lives(log: Log, record: SegmentRecord) -> bool:
    return record.seq >= log.floor and not record.deleted and not log.deletes_say_gone(record.seq, record.tag)


def _record(path: str, stored: SegmentRecord) -> Record:
    try:
        body = decode_body(stored.data) if stored.data.startswith(b"{") else decode_binary(stored.data)
    except (ValueError, msgspec.DecodeError) as error:
        raise SpecViolation(f"{path}.data", stored.offset, str(error)) from error
    return Record(
        seq=stored.seq,
        ts=stored.ts,
        node=stored.node,
        tag=stored.tag,
        data=body.data,
        meta=body.meta,
        extra=body.extra,
        size=body.size,
    )


def _judge_tags(files: Files, name: str, segment: Named, held: _Held) -> None:
    if name not in files:
        return
    try:
        tags = decode_tag_file(files[name](), name)
    except SpecViolation:
        return
    if (tags.first_seq, tags.gen, tags.data_bytes) != (segment.first_seq, segment.gen, held.data_bytes):
        return
    listed = {seq: tag for tag, seqs in tags.seqs.items() for seq in seqs}
    for seq, record in held.records.items():
        if listed.pop(seq, b"") != record.tag and not record.deleted:
            raise SpecViolation(name, 0, f"record {seq} has the tag {record.tag!r}, and the file does not say so")
    if listed:
        raise SpecViolation(name, 0, f"there is no record {min(listed)}")


def _judge_lengths(files: Files, name: str, segment: Named, data_bytes: int, records: dict[int, Record]) -> None:
    if name not in files:
        return
    try:
        lengths = decode_len_file(files[name](), name)
    except SpecViolation:
        return
    if (lengths.first_seq, lengths.gen, lengths.data_bytes) != (segment.first_seq, segment.gen, data_bytes):
        return
    seqs = range(segment.first_seq, segment.end_seq)
    expected = tuple(records[seq].size if seq in records else 0 for seq in seqs)
    if lengths.payloads != expected:
        raise SpecViolation(name, 0, f"{lengths.payloads}, though the records have {expected}")


def _judge_topic_file(log: Log, live: dict[int, Record], cold: ColdStore | None) -> None:
    found = cold.topic_file(log.topic_id) if cold is not None else None
    if found is None:
        return
    if (found.name, found.partition) != (log.name, log.partition):
        raise SpecViolation(found.key, 0, f"of {found.name!r}, and log {log.topic_id} is {log.name!r}")
    for first_seq, end_seq, gen in found.segments:
        mine = log.manifest.segments.get(first_seq)
        if mine is not None and (mine.end_seq, mine.gen, mine.tier) != (end_seq, gen, "cold"):
            raise SpecViolation(found.key, 0, f"[{first_seq}, {end_seq}), generation {gen}: the log says {mine}")
    for seq in live:
        if seq < found.end_seq and not any(first_seq <= seq < end for first_seq, end, _ in found.segments):
            raise SpecViolation(found.key, 0, f"record {seq} lives below {found.end_seq}, and in no segment it names")


def _merge(log: Log, live: dict[int, Record]) -> None:
    """Check that the records in segments, and after them those in the log, are the records of the topic."""
    absorbed = log.manifest.absorbed
    place = f"topics/{log.topic_id:016x}"
    for seq, record in log.records.items():
        if seq <= absorbed and live.get(seq) != record:
            raise SpecViolation(place, 0, f"record {seq} is {record} by the log, {live.get(seq)} in its segment")
    if log.complete and (more := live.keys() - log.records.keys()):
        raise SpecViolation(place, 0, f"records {sorted(more)} live in segments, and the log says they do not")
    if above := [seq for seq in live if seq > absorbed]:
        raise SpecViolation(place, 0, f"records {above} are in segments, and {absorbed} is absorbed")
    later = {seq: record for seq, record in log.records.items() if seq > absorbed}
    log.records = dict(sorted((live | later).items()))


def live_in(log: Log, segment: dict[str, Any]) -> tuple[int, int]:
    """(records, bytes of data and meta) that are live, for a segment in a section."""
    inside = [log.records[seq] for seq in range(segment["first_seq"], segment["end_seq"]) if seq in log.records]
    return len(inside), sum(one.size for one in inside)


def _compare_counts(log: Log) -> None:
    for segment in (log.last_section or {}).get("segments", []):
        told, found = (segment.get("live", 0), segment.get("live_bytes", 0)), live_in(log, segment)
        if segment.get("assumed", False):
            told = told[0], found[1]  # nobody has measured them
        if told != found and log.durability != "ephemeral":
            raise SpecViolation(
                "meta", 0, f"log {log.topic_id}: {told} live in the segment from {segment['first_seq']}, found {found}"
            )
