"""Turns records of a source into the frames of one batch at dest. Pure; bodies are sliced, never parsed.

Records that are data alone, as most are, are copied by columns, with next to no Python a record; any others one by one.

Source: docs/reference/api.md#routers, docs/reference/format.md#frames.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import compress, groupby, repeat
from operator import attrgetter, itemgetter
from typing import NamedTuple

from storage.format.binary import is_binary
from storage.format.record import DELIVER_AT, FURTHER, PLAIN_OVERHEAD, delivered_at, payload_size, payload_sizes
from storage.log.contents import encode_stored
from storage.log.encode import WriteHeader
from storage.records.batches import AppendedRecords
from storage.records.contiguous import ContiguousRecords, parts_of
from storage.records.labelled import LENGTHS
from storage.records.values import StoredBodies, StoredRecord
from storage.routers.windows import Picked
from storage.state.routers.router import MAX_HOPS, Definition
from storage.tracing import HasBody

_JSON = frozenset(b"{")


class Copies(ABC):
    """What is to be copied, in the order of the source."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def seqs(self) -> Sequence[int]:
        """Of each, at the source."""

    @property
    @abstractmethod
    def sizes(self) -> array[int]:
        """Of each, bytes of data and meta as sent."""

    @property
    @abstractmethod
    def records(self) -> Sequence[HasBody]:
        """As they will be at dest."""

    @abstractmethod
    def between(self, begin: int, end: int) -> Copies:
        """Those of these numbers, counted from 0."""

    @abstractmethod
    def only(self, wanted: Callable[[int], bool]) -> Copies:
        """Those whose seqs are wanted."""

    @abstractmethod
    def encode(self, head: WriteHeader) -> tuple[bytes, AppendedRecords]:
        """The Append frames, of which each is followed by another frame of the batch, and what the index needs."""


class Copy(NamedTuple):
    """A record to be copied, as it will be at dest. `seq` is that at the source, `size` data and meta as sent."""

    seq: int
    node: bytes
    tag: bytes
    body: bytes
    hops: int
    size: int
    deliver_at: int


class MixedCopies(Copies):
    """Copies of any records."""

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

    def encode(self, head: WriteHeader) -> tuple[bytes, AppendedRecords]:
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
        return b"".join(parts), done._replace(delayed=delayed or ())


class UniformCopies(Copies):
    """First copies of records without delay, all from one node or from none; `tags` of each, None: there are none."""

    def __init__(
        self,
        seqs: Sequence[int],
        bodies: list[bytes],
        sizes: array[int],
        tags: list[bytes] | None = None,
        node: bytes = b"",
    ) -> None:
        self._seqs = seqs
        self._bodies = bodies
        self._sizes = sizes
        self._tags = tags
        self._node = node

    def __len__(self) -> int:
        return len(self._bodies)

    @property
    def seqs(self) -> Sequence[int]:
        return self._seqs

    @property
    def sizes(self) -> array[int]:
        return self._sizes

    @property
    def records(self) -> Sequence[HasBody]:
        columns = zip(self._seqs, self._tags or repeat(b""), self._bodies, self._sizes, strict=False)
        return [Copy(seq, self._node, tag, body, 1, size, 0) for seq, tag, body, size in columns]

    def between(self, begin: int, end: int) -> Copies:
        if begin == 0 and end >= len(self):
            return self
        tags = None if self._tags is None else self._tags[begin:end]
        return UniformCopies(self._seqs[begin:end], self._bodies[begin:end], self._sizes[begin:end], tags, self._node)

    def only(self, wanted: Callable[[int], bool]) -> Copies:
        found = [number for number, seq in enumerate(self._seqs) if wanted(seq)]
        if len(found) == len(self):
            return self
        seqs, bodies = [self._seqs[number] for number in found], [self._bodies[number] for number in found]
        tags = None if self._tags is None else [self._tags[number] for number in found]
        return UniformCopies(seqs, bodies, array("I", [self._sizes[number] for number in found]), tags, self._node)

    def encode(self, head: WriteHeader) -> tuple[bytes, AppendedRecords]:
        json = _JSON.issuperset(map(itemgetter(0), self._bodies))
        binary = None if json else bytes(map(is_binary, self._bodies))
        stored = StoredBodies(self._bodies, self._tags, binary, self._sizes)
        return encode_stored(stored, head._replace(node=self._node), more=True, hops=1)


class Verbatim(Copies):
    """First copies that are in all but the header what their originals are."""

    def __init__(
        self, seqs: list[int], contents: list[bytes], flags: bytes, tags: list[bytes], sizes: array[int]
    ) -> None:
        """`contents` and `flags`: see `encode_copies`."""
        self._seqs = seqs
        self._contents = contents
        self._flags = flags
        self._tags = tags
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
        return self._copies()

    def _copies(self) -> list[Copy]:
        made: list[Copy] = []
        for seq, size, content in zip(self._seqs, self._sizes, self._contents, strict=True):
            node_len, tag_len, _ = LENGTHS.unpack_from(content)
            tag_at = LENGTHS.size + node_len
            body_at = tag_at + tag_len
            node, tag, body = content[LENGTHS.size : tag_at], content[tag_at:body_at], content[body_at:]
            made.append(Copy(seq, node, tag, body, 1, size, 0))
        return made

    def between(self, begin: int, end: int) -> Copies:
        if begin == 0 and end >= len(self):
            return self
        here = slice(begin, end)
        return Verbatim(self._seqs[here], self._contents[here], self._flags[here], self._tags[here], self._sizes[here])

    def only(self, wanted: Callable[[int], bool]) -> Copies:
        copied_tags = [*map(wanted, self._seqs)]
        if all(copied_tags):
            return self
        seqs, contents, tags = (
            [*compress(self._seqs, copied_tags)],
            [*compress(self._contents, copied_tags)],
            [*compress(self._tags, copied_tags)],
        )
        return Verbatim(
            seqs,
            contents,
            bytes(compress(self._flags, copied_tags)),
            tags,
            array("I", compress(self._sizes, copied_tags)),
        )

    def encode(self, head: WriteHeader) -> tuple[bytes, AppendedRecords]:
        copies = self._copies()
        nodes, bodies = [copy.node for copy in copies], [copy.body for copy in copies]
        stored = StoredBodies(bodies, self._tags, bytes(map(is_binary, bodies)), self._sizes)
        return encode_stored(stored, head._replace(node=b""), more=True, hops=1, nodes=nodes)


def copies_of(
    records: Sequence[StoredRecord], hops: Mapping[int, int], definition: Definition, *, delays: bool, keep_delays: bool
) -> Copies:
    """What is to be copied of these; records that have come as far as they may are left out.

    `delays`: the source is a queue, so records may be delayed; `keep_delays`: so is dest.
    """
    if records and not hops:
        copies = _verbatim(records, definition, delays=delays) or _uniform(records, definition, delays=delays)
        if copies is not None:
            return copies
    return MixedCopies(_one_by_one(records, hops, definition, delays=delays, keep_delays=keep_delays))


def _verbatim(records: Sequence[StoredRecord], definition: Definition, *, delays: bool) -> Verbatim | None:
    """Copies of records that were picked out of a window, if all are to stay as they are."""
    if not isinstance(records, Picked) or not (definition.preserve_node and definition.preserve_tag):
        return None
    contents = records.contents
    if delays and any(DELIVER_AT in each for each in contents):
        return None
    return Verbatim(records.seqs, contents, records.flags, records.tags, records.payloads)


def _uniform(records: Sequence[StoredRecord], definition: Definition, *, delays: bool) -> UniformCopies | None:
    """Copies of records of which none has been copied before, if all of them are of that kind."""
    seqs: list[int] = []
    bodies: list[bytes] = []
    tags: list[bytes] = []
    nodes: set[bytes] = set()
    for part in parts_of(records):
        if isinstance(part, ContiguousRecords):  # neither node nor tag
            seqs += part.seqs
            bodies += part.bodies()
            nodes.add(b"")
            tags += repeat(b"", len(part))
            continue
        of_part, _, nodes_of_part, tags_of_part, stored = zip(*part, strict=True)
        nodes.update(nodes_of_part)
        if definition.preserve_node and len(nodes) > 1:
            return None
        seqs += of_part
        tags += tags_of_part
        bodies += stored
    node = b""
    if definition.preserve_node:
        if len(nodes) > 1:
            return None
        node = next(iter(nodes))
    if delays and any(DELIVER_AT in body for body in bodies):
        return None
    copied_tags = tags if definition.preserve_tag and any(tags) else None
    return UniformCopies(seqs, bodies, payload_sizes(bodies), copied_tags, node)


def _one_by_one(
    records: Iterable[StoredRecord], hops: Mapping[int, int], definition: Definition, *, delays: bool, keep_delays: bool
) -> list[Copy]:
    keep_node, keep_tag = definition.preserve_node, definition.preserve_tag
    # A third of what calling it costs.
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
        if b',"' in body:  # else it is data alone for sure
            for key in FURTHER:
                if key in body:
                    size = payload_size(body, 0, len(body))
                    break
        add(make((seq, node if keep_node else b"", tag if keep_tag else b"", body, count, size, deliver_at)))
    return copies
