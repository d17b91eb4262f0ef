"""A segment through its life, seen by one reader: written to, deleted from, rewritten, removed."""

from __future__ import annotations

import kernel
from storage.format import segment_frame, wal_frame
from storage.records.values import TagMatch
from storage.segments.flips import flip
from storage.segments.names import SegmentId
from storage.segments.reader import SegmentReader
from storage.segments.rewrite import remove, rewrite
from storage.segments.writer import ActiveSegment, Frames
from tests.support.sim_disk import SimDisk
from tests.unit.storage.segment.built import ROOT, TOPIC, TS, Built, build, numbered


def append(segment: ActiveSegment, built: Built) -> None:
    """Write all of a built segment's records."""
    buffer = b"".join(
        wal_frame.encode(1, 4, built.id.topic_id, seq, TS + each.ms, each.node, each.tag, each.data)
        for seq, each in enumerate(built.made, built.id.first_seq)
        if each is not None
    )
    segment.append([Frames(buffer, kernel.scan(buffer).columns, None)])


def seqs(reader: SegmentReader, id: SegmentId, end_seq: int) -> list[int]:
    """Seqs of the live records from first to last, each verified."""
    found = reader.read(id, end_seq, id.first_seq, 1000, 1 << 20)
    live = [(seq, entry) for seq, entry in enumerate(found.entries, found.first_seq) if entry.len]
    frames = [segment_frame.decode(found.data, entry.offset - found.base) for _, entry in live]
    assert [frame.seq for frame in frames] == [seq for seq, _ in live]
    return [frame.seq for frame in frames if not frame.deleted]


def test_a_reader_follows_a_segment_from_its_creation_to_its_removal() -> None:
    disk = SimDisk()
    disk.mkdir(ROOT)
    reader = SegmentReader(disk, ROOT, 4)
    id = SegmentId(TOPIC, 1)
    active = ActiveSegment.create(disk, ROOT, id)

    append(active, build(numbered(10, tag=b"t")))
    assert seqs(reader, id, 11) == list(range(1, 11))
    assert reader.tagged(id, 11, TagMatch(b"t")) == list(range(1, 11))

    append(active, build(numbered(10, tag=b"t"), first_seq=16))  # after five seqs without a record
    end = active.end_seq
    assert seqs(reader, id, end) == [*range(1, 11), *range(16, 26)]
    assert reader.tagged(id, end, TagMatch(b"t")) == [*range(1, 11), *range(16, 26)]
    assert reader.dead_bits(id, end) == 0b11111 << 10
    assert list(reader.sizes(id, end).payloads) == [1] * 10 + [0] * 5 + [1] * 10
    assert reader.ts_search(id, end, TS + 1) == 2
    active.close()

    flip(disk, ROOT, id, [0, 4, 24])
    live = [2, 3, 4, *range(6, 11), *range(16, 25)]
    assert seqs(reader, id, end) == live
    assert reader.tagged(id, end, TagMatch(b"t")) == live

    rewritten = rewrite(disk, ROOT, id, end, reader.dead_bits(id, end))
    remove(disk, ROOT, id)
    reader.forget(id)
    assert seqs(reader, rewritten.id, end) == live
    assert reader.tagged(rewritten.id, end, TagMatch(b"t")) == live
    assert reader.read(rewritten.id, end, 25, 9, 99).first_seq == end
    assert sum(reader.sizes(rewritten.id, end).payloads) == len(live)

    remove(disk, ROOT, rewritten.id)
    reader.forget(rewritten.id)
    reader.close()
    assert [name for name in disk.tree() if "seg-" in name] == []
