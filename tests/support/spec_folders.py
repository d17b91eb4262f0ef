"""The files below topics/, held against what the log says of them. From the specification alone.

Readings, where the specification leaves a choice:

- Bytes and entries behind the newest mark are the rest of a write; files that no manifest names are left over.
- In a segment the delete byte may be ahead of the .idx where the log says that the record is gone: its flag is on its
  way. Never the other way round.
- What the log says of a record that is absorbed is what its segment holds, as far as its Append is still in the log.
- A tag file that is damaged, or of other bytes than the segment has now, says nothing; any other says all of it.
- A section's count of a segment's live records is that of the files, as long as no frame of the log lies behind it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.support.spec_control import decode_body
from tests.support.spec_frames import SpecViolation
from tests.support.spec_manifest import Named
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

SEGMENT_NAME = re.compile(r"topics/[0-9a-f]{16}/seg-[0-9]{20}(?:\.[1-9][0-9]*)?\.(?:data|idx|tag)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """The records of a segment by seq, and the bytes of .data they take."""

    records: dict[int, SegmentRecord]
    data_bytes: int


def take_segments(files: Files, logs: Iterable[Log]) -> tuple[str, ...]:
    """Give each log the records of its segments; names of the files that no log names. Raises SpecViolation."""
    named: set[str] = set()
    for log in logs:
        live: dict[int, Record] = {}
        for segment in log.manifest.segments.values():
            path = f"topics/{log.topic_id:016x}/{segment.stem}"
            named |= {f"{path}.{ending}" for ending in ("data", "idx", "tag")}
            if segment.end_seq > segment.first_seq:
                held = _read(files, path, log, segment)
                _judge_tags(files, f"{path}.tag", segment, held)
                live |= {seq: _record(path, one) for seq, one in held.records.items() if _lives(log, one)}
        _merge(log, live)
        _compare_counts(log)
    return tuple(sorted(name for name in files if SEGMENT_NAME.fullmatch(name) and name not in named))


def _read(files: Files, path: str, log: Log, segment: Named) -> _Held:
    if segment.tier != "hot":
        raise SpecViolation(path, 0, f"tier {segment.tier}, and this version has but one")
    for ending in ("data", "idx"):
        if f"{path}.{ending}" not in files:
            raise SpecViolation(f"{path}.{ending}", 0, "the log names it, and it is not there")
    size = (segment.end_seq - segment.first_seq) * ENTRY_BYTES
    idx = files[f"{path}.idx"]()[:size]
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
        )
    except SegmentViolation as error:
        raise SpecViolation(error.file, error.offset, error.reason) from error
    return _Held(records=records, data_bytes=end)


def _lives(log: Log, record: SegmentRecord) -> bool:
    return record.seq >= log.floor and not record.deleted and not log.deletes_say_gone(record.seq, record.tag)


def _record(path: str, stored: SegmentRecord) -> Record:
    try:
        body = decode_body(stored.data)
    except ValueError as error:
        raise SpecViolation(f"{path}.data", stored.offset, str(error)) from error
    return Record(
        seq=stored.seq,
        ts=stored.ts,
        node=stored.node,
        tag=stored.tag,
        data=body.data,
        meta=body.meta,
        extra=body.extra,
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


def _merge(log: Log, live: dict[int, Record]) -> None:
    """What lies in segments, and behind them in the log, is what the log holds."""
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
    """(records, bytes of data and meta) that live in a section's segment."""
    inside = [log.records[seq] for seq in range(segment["first_seq"], segment["end_seq"]) if seq in log.records]
    return len(inside), sum(one.size for one in inside)


def _compare_counts(log: Log) -> None:
    for segment in (log.last_section or {}).get("segments", []):
        told, found = (segment.get("live", 0), segment.get("live_bytes", 0)), live_in(log, segment)
        if told != found and log.durability != "ephemeral":
            raise SpecViolation(
                "meta", 0, f"log {log.topic_id}: {told} live in the segment from {segment['first_seq']}, found {found}"
            )
