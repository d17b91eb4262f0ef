"""Makes the frames of one batch at the destination from records of a source. Pure; bodies are sliced, never parsed.

Unchanged records, which are the most, are copied from frame to frame. All others are copied one by one.

Source: docs/reference/api.md#routers, docs/reference/format.md#frames.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, compress, groupby
from operator import attrgetter
from typing import ClassVar, NamedTuple

import kernel
from storage.format import DELIVER_AT, FURTHER, HOP_SHIFT, PLAIN_OVERHEAD, delivered_at, is_binary, payload_size
from storage.log import encode_stored
from storage.records import AppendedRecords, FrameRecords, StoredBodies, StoredRecord, parts_of
from storage.routers.windows import Picked
from storage.state.routers import MAX_HOPS, Definition
from storage.telemetry import HasBody


class Copies(ABC):
    """Records to copy, in the order of the source."""

    #: The longest time that copying one occupies the event loop, in ns.
    LOOP_NS: ClassVar[int]

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def seqs(self) -> Sequence[int]:
        """The seq of each record at the source."""

    @property
    @abstractmethod
    def sizes(self) -> array[int]:
        """Bytes of data and meta of each record, as sent."""

    @property
    @abstractmethod
    def records(self) -> Sequence[HasBody]:
        """The records as they will be at the destination."""

    @abstractmethod
    def between(self, begin: int, end: int) -> Copies:
        """The copies with numbers `begin` to `end`, counted from 0."""

    @abstractmethod
    def only(self, wanted: Callable[[int], bool]) -> Copies:
        """The copies whose seqs are wanted."""

    @abstractmethod
    def encode(self, head: kernel.Header) -> tuple[bytes, AppendedRecords]:
        """The Append frames, each of which is followed by another frame of the batch, and what the index needs."""


class Copy(NamedTuple):
    """A record to copy, as it will be at the destination. `seq` is its seq at the source, `size` its bytes as sent."""

    seq: int
    node: bytes
    tag: bytes
    body: bytes
    hops: int
    size: int
    deliver_at: int


class MixedCopies(Copies):
    """Copies of any records."""

    LOOP_NS = 5000

    def __init__(self, copies: Sequence[Copy]) -> None:
        self._copies = copies

    def __len__(self) -> int:
        return len(self._copies)

    @property
    def seqs(self) -> Sequence[int]:
        return [copy.seq for copy in self._copies]

    @property
    def sizes(self) -> array[int]:
        return array("I", [copy.size for copy in self._copies])

    @property
    def records(self) -> Sequence[HasBody]:
        return self._copies

    def between(self, begin: int, end: int) -> Copies:
        return MixedCopies(self._copies[begin:end])

    def only(self, wanted: Callable[[int], bool]) -> Copies:
        return MixedCopies([copy for copy in self._copies if wanted(copy.seq)])

    def encode(self, head: kernel.Header) -> tuple[bytes, AppendedRecords]:
        parts: list[bytes] = []
        done = AppendedRecords(head.first_seq, head.ts, array("I"), self.sizes, [])
        delayed: list[tuple[int, int]] = []
        for hops, group in groupby(self._copies, key=attrgetter("hops")):
            copies = [*group]
            first_seq = head.first_seq + len(done.sizes)
            bodies, nodes = [copy.body for copy in copies], [copy.node for copy in copies]
            stored = StoredBodies(bodies, [copy.tag for copy in copies], bytes(map(is_binary, bodies)), self.sizes)
            of_part = head._replace(first_seq=first_seq, node=b"")
            frames, appended = encode_stored(stored, of_part, more=True, hops=hops, nodes=nodes)
            parts.append(frames)
            done.sizes.extend(appended.sizes)
            done.tagged.extend(appended.tagged)
            delayed += [(seq, copy.deliver_at) for seq, copy in enumerate(copies, first_seq) if copy.deliver_at]
        done.delayed = delayed or ()
        return b"".join(parts), done


class FrameCopies(Copies):
    """First copies that equal their originals except for the header. `sizes`: see `Copies`."""

    LOOP_NS = 1000

    def __init__(self, frames: Sequence[FrameRecords], seqs: Sequence[int], sizes: array[int]) -> None:
        """`frames`: the originals, in order. `seqs`: their seqs."""
        self._frames = frames
        self._seqs = seqs
        self._sizes = sizes

    def __len__(self) -> int:
        return len(self._seqs)

    @property
    def seqs(self) -> Sequence[int]:
        return self._seqs

    @property
    def sizes(self) -> array[int]:
        return self._sizes

    @property
    def records(self) -> Sequence[HasBody]:
        found = zip(self._seqs, chain.from_iterable(self._frames), self._sizes, strict=True)
        return [Copy(seq, node, tag, body, 1, size, 0) for seq, (_, _, node, tag, body), size in found]

    def between(self, begin: int, end: int) -> Copies:
        if begin == 0 and end >= len(self):
            return self
        frames: list[FrameRecords] = []
        at = 0
        for part in self._frames:
            first, last = max(0, begin - at), min(len(part), end - at)
            if first < last:
                frames.append(part.between(first, last))
            at += len(part)
        return FrameCopies(frames, self._seqs[begin:end], self._sizes[begin:end])

    def only(self, wanted: Callable[[int], bool]) -> Copies:
        chosen = [*map(wanted, self._seqs)]
        if all(chosen):
            return self
        frames: list[FrameRecords] = []
        at = 0
        for part in self._frames:
            numbers = [number for number, each in enumerate(chosen[at : at + len(part)]) if each]
            if numbers:
                frames.append(FrameRecords(part.buffer, part.columns.take(numbers)))
            at += len(part)
        return FrameCopies(frames, [*compress(self._seqs, chosen)], array("I", compress(self._sizes, chosen)))

    def encode(self, head: kernel.Header) -> tuple[bytes, AppendedRecords]:
        made: list[bytes] = []
        done = AppendedRecords(head.first_seq, head.ts, array("I"), self._sizes, [])
        for part in self._frames:
            first_seq = head.first_seq + len(done.sizes)
            header = head._replace(first_seq=first_seq, node=b"", flags=head.flags | 1 << HOP_SHIFT)
            frames, sizes = kernel.encode_copies(part.buffer, part.columns, header, more=True)
            made.append(frames)
            done.sizes.extend(sizes)
            if any(part.columns.tag_lens):
                done.tagged.extend([(tag, seq) for seq, tag in enumerate(part.tags(), first_seq) if tag])
        return b"".join(made), done


def copies_of(
    records: Sequence[StoredRecord], hops: Mapping[int, int], definition: Definition, *, delays: bool, keep_delays: bool
) -> Copies:
    """The copies to make of these records. Records that have passed too many routers are left out.

    `delays`: the source is a queue, so records may be delayed. `keep_delays`: the destination is a queue too.
    """
    if records and not hops:
        copies = _verbatim(records, definition, delays=delays)
        if copies is not None:
            return copies
    return MixedCopies(_one_by_one(records, hops, definition, delays=delays, keep_delays=keep_delays))


def _verbatim(records: Sequence[StoredRecord], definition: Definition, *, delays: bool) -> FrameCopies | None:
    """Copies of records that were not copied before, if all of them stay unchanged."""
    if isinstance(records, Picked):
        window, numbers = records.window, records.numbers
        parts: Sequence[Sequence[StoredRecord]] = window.frames(numbers)
        seqs = [*map(window.seqs.__getitem__, numbers)]
        sizes = array("I", map(window.payloads.__getitem__, numbers))
    else:
        parts, seqs, sizes = parts_of(records), list[int](), array("I")
    keeps_labels = definition.preserve_node and definition.preserve_tag
    frames: list[FrameRecords] = []
    for part in parts:
        if not isinstance(part, FrameRecords) or not (keeps_labels or part.is_bare()):
            return None
        if delays and kernel.measure(part.buffer, part.columns).delayed:
            return None
        if not isinstance(records, Picked):
            seqs += part.seqs
            sizes += part.payloads()
        frames.append(part)
    return FrameCopies(frames, seqs, sizes)


def _one_by_one(
    records: Iterable[StoredRecord], hops: Mapping[int, int], definition: Definition, *, delays: bool, keep_delays: bool
) -> list[Copy]:
    keep_node, keep_tag = definition.preserve_node, definition.preserve_tag
    # A third of the cost of calling it.
    make: Callable[[tuple[int, bytes, bytes, bytes, int, int, int]], Copy] = partial(
        tuple.__new__,  # pyright: ignore[reportUnknownMemberType]
        Copy,
    )
    copies: list[Copy] = []
    add = copies.append
    for seq, _, node, tag, body in records:
        count = hops.get(seq, 0) + 1
        if count > MAX_HOPS:
            continue
        deliver_at = delivered_at(body, 0, len(body)) if delays else 0
        if deliver_at and not keep_delays:
            body, deliver_at = body[: body.rfind(DELIVER_AT)] + b"}", 0
        size = len(body) - PLAIN_OVERHEAD
        if b',"' in body:  # otherwise it certainly has only data
            for key in FURTHER:
                if key in body:
                    size = payload_size(body, 0, len(body))
                    break
        add(make((seq, node if keep_node else b"", tag if keep_tag else b"", body, count, size, deliver_at)))
    return copies
