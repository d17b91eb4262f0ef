"""Checks and filters the frames that a read has fetched, and stops when it has enough.

Every frame from a file is checked: topic_id, seq and checksum. A frame that fails is never served, and never skipped
silently.

Source: docs/reference/api.md#records.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Container, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import kernel
from kernel import Columns, Kind, Part, total
from storage.errors import RecordCorrupt, SegmentIncomplete
from storage.format import HOP_SHIFT, idx_entry
from storage.log import split
from storage.records import SMALL_BUFFER, FrameRecords, ReadQuery, StoredRecord, chain_records
from storage.segments import SegmentId, SegmentSlice, names
from storage.state import BatchSlice, Topic

#: If fewer records of a piece are wanted, they become single records at once: keeping the piece's bytes costs more.
_FEW = 16
#: Small pieces are merged into no more than so many bytes.
_MERGED_BYTES = 256 * 1024
_ROUTED = bytes(flags for flags in range(256) if flags >> HOP_SHIFT)
_IS_DELETED = bytes(bool(flags & idx_entry.DELETED) for flags in range(256))


class _Given(NamedTuple):
    """Consecutive frames from seq `first_seq` on, of `sizes` bytes each. `skipped`: a byte per frame, not 0 to skip the
    frame, valid or not; `deleted`: the same for frames that a segment's index calls deleted. None: no frame is."""

    data: bytes
    kind: Kind
    sizes: array[int]
    first_seq: int
    verified: bool
    skipped: bytes | None
    deleted: bytes | None


class Piece(NamedTuple):
    """Consecutive frames of one batch, and the bytes that contain them."""

    slice: BatchSlice
    data: bytes
    start: int
    verified: bool
    dead: bytes | None


#: A read ends after skipping this many damaged records, so that the list of them stays small.
MAX_CORRUPT = 10_000


def limit_slice(slice_: BatchSlice, max_records: int, max_bytes: int) -> tuple[BatchSlice, int]:
    """The first records of the slice within both limits, at least one; and the bytes of their frames."""
    sizes = slice_.sizes[: max(1, max_records)] if len(slice_.sizes) > max_records else slice_.sizes
    size = total(sizes)
    if size > max_bytes:
        sizes = sizes[: max(1, bisect_right([*accumulate(sizes)], max_bytes))]
        size = total(sizes)
    return slice_ if len(sizes) == len(slice_.sizes) else slice_._replace(sizes=sizes), size


class Scan:
    """Takes frames until the query is satisfied."""

    def __init__(
        self, topic: Topic, query: ReadQuery, now_ms: int, max_scan: int, missing: Container[int] = ()
    ) -> None:
        """`missing`: numbers of WAL files that do not exist; their pieces come without bytes."""
        self._topic = topic
        self._missing = missing
        self._max_scan = max_scan
        self._query = query
        # An empty node excludes nothing: records without a node have it.
        self._exclude = query.exclude_nodes - {b""} if topic.config.dedupe_node else frozenset[bytes]()
        self._oldest_ts = now_ms - topic.config.ttl_ms if topic.config.ttl_ms else 0
        #: The records found so far: `_parts`, then the records examined one by one; and their number.
        self._parts: list[Sequence[StoredRecord]] = []
        self.count = 0
        self._separate: list[StoredRecord] = []
        self.corrupt: list[int] = []
        self.hops: dict[int, int] = {}
        #: First seqs of the cold segments that were read.
        self.cold: set[int] = set()
        self.scanned = 0
        self.size = 0
        self.done = False

    @property
    def records(self) -> Sequence[StoredRecord]:
        """The records found so far."""
        if not self._parts:
            return self._separate
        if len(self._parts) == 1 and not self._separate:
            return self._parts[0]
        return chain_records([*self._parts, self._separate] if self._separate else self._parts)

    def fetch_limits(self) -> tuple[int, int]:
        """How many records and bytes to fetch next: the rest of the limit, or more if many records were skipped."""
        skipped = self.scanned - self.count
        wanted = self._query.limit - self.count
        return max(wanted, min(4096, 2 * skipped)), max(1, self._query.max_bytes - self.size) + 65536

    def take_all(self, pieces: Sequence[Piece]) -> int:
        """Examine the frames of these pieces in order until the query is satisfied; returns the last seq examined.

        Small pieces are merged: examining each separately costs more than copying its bytes.
        """
        at = last = 0
        while at < len(pieces) and not self.done:
            end = self._mergeable(pieces, at) if at + 1 < len(pieces) else at + 1
            last = self.take(pieces[at]) if end == at + 1 else self._take_merged(pieces[at:end])
            at = end
        return last

    def _mergeable(self, pieces: Sequence[Piece], begin: int) -> int:
        """The end of the pieces that can be merged with the piece at `begin`."""
        verified, next_seq, size = pieces[begin].verified, pieces[begin].slice.first_seq, 0
        for index in range(begin, len(pieces)):
            (_, _, _, first_seq, ts, sizes), data, start, is_verified, dead = pieces[index]
            count, here = len(sizes), sum(sizes)
            if (
                count >= _FEW
                or dead is not None
                or is_verified is not verified
                or first_seq != next_seq
                or ts < self._oldest_ts
                or start + here > len(data)
                or (size and size + here > _MERGED_BYTES)
            ):
                return max(index, begin + 1)
            next_seq += count
            size += here
        return len(pieces)

    def _take_merged(self, pieces: Sequence[Piece]) -> int:
        sizes = pieces[0].slice.sizes[:0]  # an empty array of the same kind
        parts: list[bytes] = []
        for (_, _, _, _, _, of_piece), data, start, _, _ in pieces:
            sizes += of_piece
            parts.append(data[start : start + sum(of_piece)])

        def damaged(seq: int, at: int) -> None:
            number = bisect_right([piece.slice.first_seq for piece in pieces], seq) - 1
            self._damaged(pieces[number], seq, pieces[number].start + at - sum(map(len, parts[:number])))

        first = pieces[0]
        given = _Given(b"".join(parts), Kind.LOG, sizes, first.slice.first_seq, first.verified, None, None)
        return self._examine(given, 0, damaged)

    def take(self, piece: Piece) -> int:
        """Examine the frames of a piece; returns the last seq examined."""
        slice_ = piece.slice
        if slice_.ts < self._oldest_ts:
            return slice_.first_seq + len(slice_.sizes) - 1
        data, start = piece.data, piece.start
        if len(data) > SMALL_BUFFER and 2 * (size := sum(slice_.sizes)) < len(data):
            # Its bytes alone, so that the others do not stay in memory with what is found.
            data, start = data[start : start + size], 0
        given = _Given(data, Kind.LOG, slice_.sizes, slice_.first_seq, piece.verified, piece.dead, None)
        return self._examine(given, start, lambda seq, at: self._damaged(piece, seq, piece.start + at - start))

    def take_slice(self, id: SegmentId, found: SegmentSlice, dead: int, end_seq: int) -> int:
        """Examine records of a segment; returns the last seq examined. `dead` has a bit for each record."""
        count = min(len(found.entries), end_seq - found.first_seq)
        if count < 1:
            return end_seq - 1
        entries = found.entries.between(0, count)
        skipped = bytes([dead >> number & 1 for number in range(count)]) if dead & ((1 << count) - 1) else None
        if self._oldest_ts and entries.stamps[0] < self._oldest_ts:
            expired = [ts < self._oldest_ts and size > 0 for ts, size in zip(entries.stamps, entries.lens, strict=True)]
            skipped = bytes([a or b for a, b in zip(skipped or bytes(count), expired, strict=True)])
        deleted = entries.flags.translate(_IS_DELETED)
        given = _Given(
            found.data, Kind.SEGMENT, entries.lens, found.first_seq, False, skipped, deleted if any(deleted) else None
        )
        return self._examine(given, entries.offsets[0] - found.base, lambda seq, _: self._damaged_entry(id, found, seq))

    def _examine(self, given: _Given, at: int, damaged: Callable[[int, int], None]) -> int:
        """Take the wanted ones of these frames, the first of which begins at `at`. Calls `damaged` with seq and offset
        of each invalid frame. Returns the last seq examined."""
        data, kind, sizes, first_seq, _, skipped, deleted = given
        query, number, count = self._query, 0, len(sizes)
        scan = partial(
            kernel.scan, data, kind, verify=not given.verified, topic_id=self._topic.topic_id
        )  # the frames from a position on, as far as they are valid and within the limits
        plain = skipped is None and not self._exclude and query.tag is None and query.from_ts is None
        while number < count:
            most = min(count - number, self._max_scan - self.scanned)
            max_bytes = 0
            if plain:
                most = min(most, query.limit - self.count)
                max_bytes = max(1, query.max_bytes - self.size)
            frames, end, reason = scan(
                min(at, len(data)), max_frames=max(1, most), max_bytes=max_bytes, first_seq=first_seq + number
            )
            if reason == "full" and frames.count < most:
                # The next frame does not fit; if it is damaged, report that first.
                behind = number + frames.count
                following = scan(end, max_frames=1, first_seq=first_seq + behind).columns
                if not following.count or not _alive(following, behind, skipped, deleted):
                    reason = "damaged"
            if kind == Kind.SEGMENT:
                alive = _alive(frames, number, skipped, deleted)
                if alive < frames.count:
                    frames, reason = frames.between(0, alive), "delete"
                    end = frames.end or at
            if frames.count:
                numbers = None
                if not plain:
                    numbers = self._wanted(data, frames, skipped[number : number + frames.count] if skipped else None)
                is_full = reason == "full" and frames.count < most
                last = self._take(data, frames, first_seq + number, numbers, full=is_full)
                number += frames.count
                at = end
                if self.done:
                    return last
            if number < count and reason != "full":
                self.scanned += 1
                if skipped is None or not skipped[number]:
                    damaged(first_seq + number, at)
                at += sizes[number]
                number += 1
                self.done = self.done or self.scanned >= self._max_scan
                if self.done:
                    break
        return first_seq + number - 1

    def _take(self, data: bytes, frames: Columns, first_seq: int, numbers: list[int] | None, *, full: bool) -> int:
        """Take these valid frames, from `first_seq` on, as far as they are wanted and fit; returns the last seq
        examined. `numbers`: of those wanted; None: all. `full`: the next frame does not fit."""
        query, count = self._query, frames.count
        taken = frames if numbers is None else frames.take(numbers)
        examined, room = count, query.limit - self.count
        if taken.count >= room:
            examined = room if numbers is None else numbers[room - 1] + 1
            if taken.count > room:
                taken = taken.between(0, room)
            self.done = True
        size = taken.body_bytes
        if self.size + size > query.max_bytes:
            fitting = bisect_right([*accumulate(taken.data_lens)], query.max_bytes - self.size)
            fitting = max(fitting, 0 if self.count else 1)
            if fitting < taken.count:
                examined, full = fitting if numbers is None else numbers[fitting], True
                taken = taken.between(0, fitting)
                size = taken.body_bytes
        self.scanned += examined
        self.size += size
        if taken.count:
            flags = taken.flags if query.routing else b""
            if len(flags.translate(None, _ROUTED)) < len(flags):
                hops = zip(taken.seqs, flags, strict=True)
                self.hops.update((seq, each >> HOP_SHIFT) for seq, each in hops if each >> HOP_SHIFT)
            self.count += taken.count
            part = FrameRecords(data, taken)
            if taken.count < _FEW and (self._parts or self._separate):
                self._separate += part
            else:
                if self._separate:
                    self._parts.append(self._separate)
                    self._separate = []
                self._parts.append(part.own())
        if full and (examined < count or not self.done):
            self.scanned += 1  # the frame that does not fit
            self.done = True
        self.done = self.done or self.scanned >= self._max_scan
        return first_seq + examined - 1

    def _wanted(self, data: bytes, frames: Columns, skipped: bytes | None) -> list[int] | None:
        """The numbers of the frames that no filter excludes; None: all."""
        query, tests = self._query, list[Sequence[bool]]()
        if skipped is not None and any(skipped):
            tests.append([not each for each in skipped])
        if self._exclude:
            tests.append([node not in self._exclude for node in kernel.cut(data, frames, Part.NODE)])
        if query.tag is not None:
            tests.append([*map(query.tag.matches, kernel.cut(data, frames, Part.TAG))])
        if (from_ts := query.from_ts) is not None:
            tests.append([ts >= from_ts for ts in frames.stamps])
        return [number for number, found in enumerate(zip(*tests, strict=True)) if all(found)] if tests else None

    def _damaged(self, piece: Piece, seq: int, at: int) -> None:
        if piece.dead is not None and piece.dead[seq - piece.slice.first_seq]:
            return
        file, offset = split(piece.slice.lsn)
        self.damaged(seq, f"WAL file {file}", offset + piece.slice.offset + (at - piece.start), number=file)

    def damaged(self, seq: int, file: str, offset: int, number: int | None = None) -> None:
        """Report a record that cannot be served: raises RecordCorrupt, or notes it when the reader skips damage."""
        self.scanned += 1 if number is None else 0
        if not self._query.skip_corrupt:
            self._topic.log.usage.corrupt_reads += 1
            gone = number is not None and number in self._missing
            what = "cannot be read: the file is missing" if gone else "fails its checksum"
            raise RecordCorrupt(
                f"Record {seq} of {self._topic.name} {what} ({file}, offset {offset}).",
                topic=self._topic.name,
                seq=seq,
                file=file.rpartition("/")[2] if number is None else number,
                offset=offset,
            )
        self._pass_over([seq])

    def _pass_over(self, seqs: Sequence[int]) -> None:
        self._topic.log.usage.corrupt_reads += len(seqs)
        self.corrupt += seqs
        self.done = self.done or len(self.corrupt) >= MAX_CORRUPT

    def missing_in_segment(self, seqs: Sequence[int], last_seq: int, error: SegmentIncomplete) -> int:
        """These live records up to `last_seq` are missing in their segment: raises the error, or notes them all.

        Returns the last seq examined, after at most MAX_CORRUPT of `seqs`. Without seqs, the records were deleted
        during the read.
        """
        if not seqs:
            return last_seq
        if not self._query.skip_corrupt:
            self._topic.log.usage.corrupt_reads += 1
            detail = {**error.detail, "topic": self._topic.name, "seq": seqs[0], "from_seq": seqs[0]}
            which = f"Records {seqs[0]} to {detail['to_seq']} of {self._topic.name}"
            raise SegmentIncomplete(f"{which} are not there. {error.message}", **detail)
        seqs = seqs[: MAX_CORRUPT - len(self.corrupt)]
        self.scanned += len(seqs)
        self._pass_over(seqs)
        self.done = self.done or self.scanned >= self._max_scan
        return seqs[-1] if self.done else last_seq

    def _damaged_entry(self, id: SegmentId, found: SegmentSlice, seq: int) -> None:
        entry = found.entries[seq - found.first_seq]
        self.scanned -= 1
        ext = id.records_ext if entry.len else names.IDX
        self.damaged(seq, names.file_name(id.first_seq, id.gen, ext), entry.offset)


def _alive(frames: Columns, number: int, skipped: bytes | None, deleted: bytes | None) -> int:
    """How many frames there are before the first one that is deleted but not in `skipped`. `number`: of the first
    frame; `deleted`: a byte per frame from the index."""
    marks = frames.delete_bytes
    if deleted is None and marks.count(0) == len(marks):
        return len(marks)
    for index, mark in enumerate(marks):
        at = number + index
        if (mark or (deleted is not None and deleted[at])) and (skipped is None or not skipped[at]):
            return index
    return len(marks)
