"""Which segments a log has, according to Segment frames, CheckpointMarks and sections. From the specification alone.

Readings, where the specification leaves a choice:

- The last segment may be active, all others are sealed. `opened` begins behind what is absorbed, empty, with files of
  generation 0. A mark moves the end of the active one to the seq behind it, and never goes back or beyond head.
- `sealed`, `rewritten` and `dropped` say the end_seq and, but for `rewritten`, the generation that the segment has by
  then; `rewritten` the next generation. Only a segment that is sealed or empty is dropped.
- Only the `tier` of a sealed segment changes, and only by the event of that name.
- A mark belongs to no log, so a section may know of one above its `as_of`; that one then stands in the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.spec_control import ControlViolation, Fits, checked_map, is_flag, is_seq, is_u64

SEGMENT_FIELDS: dict[str, Fits] = {
    "first_seq": is_seq,
    "end_seq": is_seq,
    "gen?": is_u64,
    "sealed?": is_flag,
    "tier?": lambda value: value in ("hot", "cold"),
    "live?": is_u64,
    "live_bytes?": is_u64,
    "data_bytes?": is_u64,
    "first_ts?": is_u64,
    "last_ts?": is_u64,
    "assumed?": is_flag,
    "packed?": is_u64,
}


@dataclass(slots=True, kw_only=True)
class Named:
    """A segment; `data_bytes` is None while nothing says how long its .data is."""

    first_seq: int
    end_seq: int
    gen: int = 0
    sealed: bool = False
    tier: str = "hot"
    data_bytes: int | None = None
    #: Bytes of the .zdata, 0 where there is none.
    packed: int = 0

    @property
    def stem(self) -> str:
        """The beginning of the names of its files."""
        return f"seg-{self.first_seq:020d}" + (f".{self.gen}" if self.gen else "")


@dataclass(slots=True, kw_only=True)
class Manifest:
    """The segments of a log by first_seq, ascending. `announced`: how far marks will go according to a section."""

    absorbed: int = 0
    announced: int = 0
    segments: dict[int, Named] = field(default_factory=dict)

    @property
    def active(self) -> Named | None:
        last = next(reversed(self.segments.values()), None)
        return None if last is None or last.sealed else last

    def mark(self, seq: int, head: int) -> None:
        """A CheckpointMark. Raises Wrong."""
        if seq <= self.absorbed:
            return  # a section knows of it already
        if seq > head:
            raise ControlViolation(f"a mark at {seq}, beyond head {head}")
        if self.active is None:
            raise ControlViolation(f"a mark at {seq}, but there is no active segment")
        self.active.end_seq = seq + 1
        self.absorbed = seq

    def take(self, frame: dict[str, Any]) -> None:
        """A Segment frame. Raises Wrong."""
        first_seq, event = frame["first_seq"], frame["event"]
        if event == "opened":
            self._open(frame)
            return
        segment = self.segments.get(first_seq)
        if segment is None:
            raise ControlViolation(f"{event}: there is no segment that begins with {first_seq}")
        if frame["end_seq"] != segment.end_seq:
            raise ControlViolation(f"{event}: end_seq is {frame['end_seq']}, the marks come to {segment.end_seq}")
        if frame["gen"] != segment.gen + (event == "rewritten"):
            raise ControlViolation(f"{event}: generation {frame['gen']}, the segment has {segment.gen}")
        if event == "sealed" and segment.sealed:
            raise ControlViolation("sealed a second time")
        if event == "dropped":
            if not segment.sealed and segment.end_seq != first_seq:
                raise ControlViolation("an active segment with records is never dropped")
            del self.segments[first_seq]
            return
        if event == "tier" and not segment.sealed:
            raise ControlViolation("an active segment never moves to another tier")
        if event != "tier" and frame["tier"] != segment.tier:
            raise ControlViolation(f"{event}: tier {frame['tier']}, the segment is {segment.tier}")
        segment.gen, segment.tier, segment.data_bytes = frame["gen"], frame["tier"], frame["bytes"]
        segment.sealed = segment.sealed or event == "sealed"
        segment.packed = frame.get("packed", 0)
        if segment.packed and (event != "rewritten" or segment.tier != "hot" or not segment.sealed):
            raise ControlViolation(f"{event}: packed, and only a rewriting of a sealed hot segment packs it")

    def _open(self, frame: dict[str, Any]) -> None:
        first_seq = frame["first_seq"]
        if self.active is not None:
            raise ControlViolation(
                f"opened at {first_seq}, though the one that begins with {self.active.first_seq} is not sealed"
            )
        if first_seq <= self.absorbed or first_seq < max((one.end_seq for one in self.segments.values()), default=1):
            raise ControlViolation(f"opened at {first_seq}, though records up to {self.absorbed} are in segments")
        if (frame["end_seq"], frame["gen"], frame["bytes"], frame["live"]) != (first_seq, 0, 0, 0):
            raise ControlViolation("a new segment is empty and of generation 0")
        self.segments[first_seq] = Named(first_seq=first_seq, end_seq=first_seq)

    def meet(self, section: dict[str, Any]) -> None:
        """Check that a section says what the frames below its `as_of` result in, except for later marks. Raises
        Wrong."""
        told = manifest_of(section)
        if told.absorbed < self.absorbed:
            raise ControlViolation(f"absorbed is {told.absorbed}, the frames below as_of come to {self.absorbed}")
        if told.segments.keys() != self.segments.keys():
            raise ControlViolation(
                f"segments begin with {[*told.segments]}, the frames below as_of come to {[*self.segments]}"
            )
        for found, expected in zip(told.segments.values(), self.segments.values(), strict=True):
            ahead = not expected.sealed and found.end_seq >= expected.end_seq
            same = (found.gen, found.sealed, found.tier, found.packed) == (
                expected.gen,
                expected.sealed,
                expected.tier,
                expected.packed,
            )
            length = not expected.sealed or found.data_bytes == expected.data_bytes
            if not same or not length or not (ahead or found.end_seq == expected.end_seq):
                raise ControlViolation(f"segment {found}, the frames below as_of come to {expected}")
        self.announced = max(self.announced, told.absorbed)


def manifest_of(section: dict[str, Any]) -> Manifest:
    """What a section says. Raises Wrong."""
    absorbed = section["absorbed"]
    segments: dict[int, Named] = {}
    end_seq = 0
    for fields in section.get("segments", []):
        checked_map(fields, SEGMENT_FIELDS)
        one = Named(
            first_seq=fields["first_seq"],
            end_seq=fields["end_seq"],
            gen=fields.get("gen", 0),
            sealed=fields.get("sealed", False),
            tier=fields.get("tier", "hot"),
            data_bytes=fields.get("data_bytes", 0) if fields.get("sealed") else None,
            packed=fields.get("packed", 0),
        )
        if not max(end_seq, 1) <= one.first_seq <= one.end_seq <= max(absorbed + 1, one.first_seq):
            raise ControlViolation(
                f"segment [{one.first_seq}, {one.end_seq}) behind {end_seq}, absorbed up to {absorbed}"
            )
        end_seq = one.end_seq
        segments[one.first_seq] = one
    if any(not one.sealed for one in [*segments.values()][:-1]):
        raise ControlViolation("a segment that is not the last one is not sealed")
    manifest = Manifest(absorbed=absorbed, segments=segments)
    if manifest.active is not None and manifest.active.end_seq not in (absorbed + 1, manifest.active.first_seq):
        raise ControlViolation(f"the active segment ends with {manifest.active.end_seq}, absorbed is {absorbed}")
    return manifest
