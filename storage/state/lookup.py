"""Finds the records in segments that a Delete frame removes, by tag or by seq.

Source: docs/reference/format.md#delete, docs/reference/format.md#tag-files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from storage.format import control
from storage.records import TagMatch
from storage.state.manifest import Access, Segment
from storage.state.retained import Retained


class FoundRecords(NamedTuple):
    """Live records in segments and their payload bytes, at the time when records up to `flushed` were in segments."""

    flushed: int
    seqs: list[int]
    sizes: list[int]

    def between(self, first_seq: int, last_seq: int) -> tuple[list[int], list[int]]:
        """Seqs and sizes from `first_seq` to `last_seq`, ascending, each once."""
        seqs = self.seqs
        # Most Deletes want consecutive seqs, all of them in range. Their number is compared first, because other seqs
        # may be far apart.
        follow = seqs and seqs[-1] - seqs[0] + 1 == len(seqs) and seqs == [*range(seqs[0], seqs[-1] + 1)]
        if follow and first_seq <= seqs[0] and seqs[-1] <= last_seq:
            return seqs, self.sizes
        wanted = {seq: size for seq, size in zip(seqs, self.sizes, strict=True) if first_seq <= seq <= last_seq}
        ascending = sorted(wanted)
        return ascending, [*map(wanted.__getitem__, ascending)]


class LookedUp(NamedTuple):
    """A Delete in flight, with the records found for it."""

    delete: control.Delete
    found: FoundRecords


class Wanted(NamedTuple):
    """The part of a Delete to look up in one segment."""

    segment: Segment
    match: TagMatch | None
    seqs: Sequence[int]


def plan(held: Retained, request: control.Delete, floor: int, last_seq: int) -> list[Wanted]:
    """The segments to look a Delete up in. Pure."""
    match = None if request.match is None else tag_match(request.match)
    wanted: list[Wanted] = []
    for segment in held.manifest.behind(floor):
        if segment.first_seq > last_seq:
            break
        seqs = [seq for seq in request.seqs or () if segment.first_seq <= seq < segment.end_seq]
        if segment.live and (match is not None or seqs):
            wanted.append(Wanted(segment, match, seqs))
    return wanted


def look_up(access: Access, topic_id: int, wanted: Wanted, floor: int, last_seq: int) -> tuple[list[int], list[int]]:
    """Live seqs and their payload bytes. Blocking; may run on another thread: the segment's bits are read once."""
    segment = wanted.segment
    seqs = wanted.seqs if wanted.match is None else access.tagged(topic_id, segment, wanted.match)
    alive = [seq for seq in seqs if floor <= seq <= last_seq and segment.holds(seq)]
    sizes = segment.sizes(alive)
    return alive, access.sizes(topic_id, segment, alive) if sizes is None else sizes


def find(held: Retained, request: control.Delete, floor: int, last_seq: int) -> FoundRecords:
    """Plan and look up a Delete in all segments at once. Blocking."""
    found = FoundRecords(held.flushed, [], [])
    for wanted in plan(held, request, floor, last_seq):
        assert held.access is not None
        seqs, sizes = look_up(held.access, held.topic_id, wanted, floor, last_seq)
        found.seqs.extend(seqs)
        found.sizes.extend(sizes)
    return found


def tag_match(predicate: list[str]) -> TagMatch:
    """The predicate as stored in a Delete frame: ["tag", "Eq", text] or ["tag", "Glob", text + "*"]."""
    _, operator, text = predicate
    if operator == "Glob":
        return TagMatch(text[:-1].encode(), True)
    return TagMatch(text.encode())


def tag_predicate(match: TagMatch) -> list[str]:
    """The stored form of a predicate."""
    text = match.text.decode()
    return ["tag", "Glob", text + "*"] if match.prefix else ["tag", "Eq", text]
