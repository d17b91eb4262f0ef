"""Verifying frames: valid frames are found, invalid ones never are, and nothing outside the range is read."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernel
from kernel import GroupKind, Header, Kind
from storage.format import FrameType, control, segment_frame, wal_frame
from storage.format.record import delivered_at, payload_size
from storage.records import StoredRecord
from tests.kernel.samples import Sample, batches, encoded, headers, log_of

pytestmark = pytest.mark.usefixtures("twin")

GOLDEN = Path(__file__).resolve().parents[1] / "golden/v1"
HEADER = Header(7, 100, 1_700_000_000_000, b"n1", 4)
BATCH = [
    Sample(b'{"a":1}', tag=b"t"),
    Sample(b"2", meta=b"3"),
    Sample(b"\x00\xff", kind=1),
    Sample(b'"x"', deliver_at=9),
]


def segment_of(log: bytes) -> bytes:
    """The same frames in a segment, encoded by the format's codec."""
    columns = kernel.scan(log).columns
    pairs = zip(columns.offsets, columns.sizes, strict=True)
    return b"".join(segment_frame.from_wal(log, offset, size) for offset, size in pairs)


@given(batches, headers)
def test_all_frames_of_the_log_are_found(batch: list[Sample], header: Header) -> None:
    log = log_of(batch, header)
    found = kernel.scan(log)
    assert (found.end, found.reason) == (len(log), "")
    columns = found.columns
    names = (columns.offsets, columns.types, columns.flags, columns.topic_ids, columns.seqs, columns.stamps)
    lengths = ([row[6] for row in columns], columns.tag_lens, columns.data_lens)
    frames, at = list[tuple[int, ...]](), 0
    while at < len(log):
        length, *fields = wal_frame.HEADER.unpack_from(log, at)
        frames.append((at, *fields))
        at += wal_frame.LENGTH.size + length
    assert [*zip(*names, *lengths, strict=True)] == frames
    assert sum(columns.sizes) == columns.end == len(log)
    assert kernel.cut(log, columns, kernel.Part.BODY) == [sample.body for sample in batch]
    assert kernel.cut(log, columns, kernel.Part.TAG) == [sample.tag or b"" for sample in batch]
    assert kernel.cut(log, columns, kernel.Part.NODE) == [sample.node or header.node for sample in batch]


@pytest.mark.parametrize("sizes", [[5000] + [3] * 300, [3] * 300 + [5000], [700, 3] * 40, [1], []])
@pytest.mark.parametrize("most", [None, 1, 100, 10_000])
def test_all_frames_are_found_whatever_the_size_of_the_first(sizes: list[int], most: int | None) -> None:
    log, _ = kernel.encode_appends([b"1" * size for size in sizes], None, None, HEADER) if sizes else (b"", 0)
    found = kernel.scan(log, max_frames=most) if most else kernel.scan(log)
    wanted = sizes[: most or len(sizes)]
    assert [size - 9 for size in found.columns.data_lens] == wanted
    assert found.reason == ("full" if len(wanted) < len(sizes) else "")
    assert found.end == sum(found.columns.sizes)


@given(batches, headers)
def test_all_frames_of_a_segment_are_found(batch: list[Sample], header: Header) -> None:
    data = bytearray(segment_of(log_of(batch, header)))
    columns = kernel.scan(data, Kind.SEGMENT).columns
    data[columns.sizes[0] - 1] = segment_frame.DELETED
    found = kernel.scan(data, Kind.SEGMENT)
    assert (found.end, found.reason, len(found.columns)) == (len(data), "", len(batch))
    assert found.columns.delete_bytes == bytes([segment_frame.DELETED]) + bytes(len(batch) - 1)
    assert kernel.cut(data, found.columns, kernel.Part.BODY) == [sample.body for sample in batch]


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("frame-*.bin")), ids=lambda path: path.name)
def test_golden_frames_of_the_log(path: Path) -> None:
    content = path.read_bytes()
    found = kernel.scan(content)
    assert (found.end, found.reason) == (len(content), "")
    _, topic_id, seq, ts, size, data_len, node_len, tag_len, type_, flags, _, _ = found.columns.row(0)
    fields = (size - wal_frame.LENGTH.size, type_, flags, topic_id, seq, ts, node_len, tag_len, data_len)
    assert wal_frame.HEADER.unpack_from(content) == fields


@pytest.mark.parametrize("kind", list(Kind))
def test_a_change_of_any_byte_is_never_taken_for_a_record(kind: Kind) -> None:
    log = log_of(BATCH, HEADER)
    content = log if kind == Kind.LOG else segment_of(log)
    whole = kernel.scan(content, kind).columns
    delete_bytes = {offset + size - 1 for offset, size in zip(whole.offsets, whole.sizes, strict=True)}
    changed = bytearray(content)
    for at in range(len(content)):
        number = next(index for index, offset in enumerate([*whole.offsets, len(content)]) if offset > at) - 1
        for mask in (0x01, 0x80, 0xFF, segment_frame.DELETED):
            changed[at] ^= mask
            found = kernel.scan(changed, kind)
            changed[at] ^= mask
            if kind == Kind.SEGMENT and at in delete_bytes and mask == segment_frame.DELETED:
                assert found.reason == ""
                continue
            assert found.reason != ""
            assert (found.end, found.columns) == (whole.offsets[number], whole.between(0, number))


@pytest.mark.parametrize("kind", list(Kind))
def test_a_scan_that_ends_within_a_frame_stops_before_the_frame(kind: Kind) -> None:
    log = log_of(BATCH, HEADER)
    content = log if kind == Kind.LOG else segment_of(log)
    whole = kernel.scan(content, kind).columns
    ends = [*whole.offsets, len(content)]
    for stop in range(len(content) + 1):
        last = max(end for end in ends if end <= stop)
        for found in (kernel.scan(content, kind, 0, stop), kernel.scan(content[:stop], kind)):
            assert (found.end, found.reason) == (last, "" if last == stop else "short")
            assert found.columns == whole.between(0, ends.index(last))


@given(st.binary(max_size=400), st.sampled_from(list(Kind)))
def test_arbitrary_bytes_are_no_frames(content: bytes, kind: Kind) -> None:
    found = kernel.scan(content, kind)
    assert len(found.columns) == 0
    assert found.reason in ("", "short", "zero", "length", "checksum")


def test_each_reason_is_given() -> None:
    log = log_of(BATCH, HEADER)
    data = bytearray(segment_of(log))
    assert kernel.scan(b"").reason == ""
    assert kernel.scan(bytes(100)).reason == "zero"
    assert kernel.scan(b"\x01" * 100).reason == "length"
    assert kernel.scan(log + bytes(45)).reason == "short"
    assert kernel.scan(log[:4] + b"\x02" + log[5:]).reason == "checksum"
    data[kernel.scan(data, Kind.SEGMENT).columns.sizes[0] - 1] = 1
    assert kernel.scan(data, Kind.SEGMENT).reason == "delete"


def test_a_length_of_four_gigabytes_does_not_wrap() -> None:
    fields = (1, 0, 0, 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF)
    sums = 42 + 0xFFFF + 0xFFFF + 0xFFFFFFFF
    for length in (sums & 0xFFFFFFFF, 0xFFFFFFFF, (sums & 0xFFFFFFFF) + 4):
        content = wal_frame.HEADER.pack(length, *fields) + bytes(200)
        assert (kernel.scan(content).end, kernel.scan(content).reason) == (0, "length")
    content = wal_frame.HEADER.pack(0xFFFFFFFF, 1, 0, 0, 0, 0, 0, 0, 0xFFFFFFFF - 42) + bytes(200)
    assert kernel.scan(content).reason == "short"


def test_unverified_frames_are_still_measured() -> None:
    log = bytearray(log_of(BATCH, HEADER))
    log[60] ^= 1
    assert kernel.scan(log).reason == "checksum"
    assert len(kernel.scan(log, verify=False).columns) == len(BATCH)
    log[0] ^= 1
    assert kernel.scan(log, verify=False).reason == "length"


def test_limits_end_a_scan_after_at_least_one_frame() -> None:
    log = log_of(BATCH, HEADER)
    sizes = [len(sample.body) for sample in BATCH]
    assert len(kernel.scan(log, max_frames=2).columns) == 2
    assert kernel.scan(log, max_frames=2).reason == "full"
    assert kernel.scan(log, max_frames=len(BATCH)).reason == ""
    assert len(kernel.scan(log, max_bytes=1).columns) == 1
    assert len(kernel.scan(log, max_bytes=sizes[0] + sizes[1]).columns) == 2
    assert len(kernel.scan(log, max_bytes=sizes[0] + sizes[1] - 1).columns) == 1
    # Nothing is reported about bytes beyond a limit.
    assert kernel.scan(log[: kernel.scan(log).columns.sizes[0]] + b"\x01" * 99, max_frames=1).reason == "full"


def test_frames_of_others_end_a_scan() -> None:
    log = log_of(BATCH, HEADER)
    assert kernel.scan(log, topic_id=7, first_seq=100).reason == ""
    assert kernel.scan(log, topic_id=8).reason == "other"
    assert kernel.scan(log, first_seq=101).reason == "other"
    jump = log + log_of(BATCH, HEADER._replace(first_seq=200))
    found = kernel.scan(jump, first_seq=100)
    assert (len(found.columns), found.reason) == (len(BATCH), "other")
    control = wal_frame.encode(wal_frame.FrameType.DELETE, 0, 7, 100, 1)
    assert kernel.scan(control, first_seq=100).reason == "other"


@pytest.mark.parametrize(("start", "stop"), [(-1, 5), (6, 5), (0, 101), (101, 101)])
def test_a_range_outside_the_buffer_is_refused(start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="100 bytes"):
        kernel.scan(bytes(100), Kind.LOG, start, stop)


@pytest.mark.parametrize("seqs", [[100, 101, 102], [100, 102, 103]])
def test_groups_of_batches_end_where_the_order_does(seqs: list[int]) -> None:
    frames = [log_of([Sample(b"1")], HEADER._replace(first_seq=seq, flags=8)) for seq in seqs]
    log = b"".join(frames)
    groups = kernel.groups(log, kernel.scan(log).columns, inside=True)
    assert {kind for _, _, kind in groups} == {GroupKind.BATCHED}
    assert len(groups) == (1 if seqs == [100, 101, 102] else 2)
    assert [groups[0][0], groups[-1][1]] == [0, 3]


PLAIN = [Sample(b"1"), Sample(b"22"), Sample(b"\x00", kind=1)]


def batch_frame(body: bytes, flags: int = 8) -> bytes:
    return wal_frame.encode(wal_frame.FrameType.BATCH, flags, 7, 0, 1, data=body)


def plain_batch(**changes: Any) -> bytes:
    """PLAIN, in a batch of its own."""
    inner = log_of(PLAIN, HEADER)
    fields: dict[str, Any] = {"frames": len(PLAIN), "body_bytes": len(inner), "first_seq": HEADER.first_seq, **changes}
    return batch_frame(control.encode_control(control.Batch(**fields))) + inner


def groups_of(log: bytes) -> list[tuple[int, int, int]]:
    return kernel.groups(log, kernel.scan(log).columns)


def test_groups_distinguish_batches_controls_and_units_of_data() -> None:
    opening, batch = batch_frame(b"x"), log_of(BATCH, HEADER)
    alone, _ = encoded([Sample(b"1"), Sample(b"2")], HEADER._replace(topic_id=9), apart=True)
    more = plain_batch() + log_of([Sample(b"3")], HEADER)
    assert groups_of(opening + batch + alone + more + log_of(BATCH[:1], HEADER) + opening + batch) == [
        (0, 1, GroupKind.CONTROL),
        (1, 5, GroupKind.BATCHED),
        (5, 13, GroupKind.DATA),
        (13, 14, GroupKind.CONTROL),
        (14, 18, GroupKind.BATCHED),
    ]
    assert groups_of(b"") == []


@pytest.mark.parametrize(
    "changes",
    [
        {"move": (1, 2)},
        {"key": "k", "hash": b"h" * 16, "move": (1, 2), "producer": (1, 2, 3)},
        {"producer": (-1, 2, 3)},
        *({"key": "k", "hash": b"h" * size} for size in (0, 15, 17, 256, 65_536)),
        {"frames": 2},
        {"frames": 4},
        {"frames": 0},
        {"frames": (1 << 64) - 1},
        {"body_bytes": 1},
        {"first_seq": 99},
        {"first_seq": (1 << 64) - 1},
        {"first_seq": None},
    ],
    ids=str,
)
def test_a_batch_that_says_more_or_something_else_is_not_data_alone(changes: dict[str, Any]) -> None:
    assert groups_of(plain_batch(**changes)) == [(0, 1, GroupKind.CONTROL), (1, 4, GroupKind.BATCHED)]


def test_a_batch_that_is_not_whole_is_not_data_alone() -> None:
    log = plain_batch()
    columns = kernel.scan(log).columns
    assert kernel.groups(log, columns.between(0, 3)) == [(0, 1, GroupKind.CONTROL), (1, 3, GroupKind.BATCHED)]
    assert kernel.groups(log, columns, inside=True)[0] == (0, 1, GroupKind.CONTROL)
    assert {kind for _, _, kind in groups_of(log.replace(log[:4], log[:4], 1)[:-1])} == {
        GroupKind.CONTROL,
        GroupKind.BATCHED,
    }


@pytest.mark.parametrize(
    "inner",
    [
        log_of(PLAIN[:2], HEADER._replace(flags=8)) + log_of(PLAIN[2:], HEADER._replace(first_seq=103)),
        log_of(PLAIN[:2], HEADER._replace(flags=8)) + log_of(PLAIN[2:], HEADER._replace(first_seq=102, ts=5)),
        log_of(PLAIN[:2], HEADER._replace(flags=8)) + log_of(PLAIN[2:], HEADER._replace(first_seq=102, topic_id=8)),
        log_of(PLAIN, HEADER._replace(flags=8)),
        log_of(PLAIN, HEADER._replace(topic_id=8)),
    ],
)
def test_a_batch_of_other_records_is_not_data_alone(inner: bytes) -> None:
    body = control.encode_control(control.Batch(frames=3, body_bytes=len(inner), first_seq=HEADER.first_seq))
    assert groups_of(batch_frame(body) + inner)[0] == (0, 1, GroupKind.CONTROL)


@pytest.mark.parametrize(
    "number", [b"\x03", b"\xcc\x03", b"\xcd\0\x03", b"\xce\0\0\0\x03", b"\xcf" + bytes(7) + b"\x03"]
)
def test_numbers_of_any_width_are_read(number: bytes) -> None:
    body = control.encode_control(control.Batch(frames=3, body_bytes=len(log_of(PLAIN, HEADER)), first_seq=100))
    wider = body.replace(b"frames\x03", b"frames" + number)
    assert groups_of(batch_frame(wider) + log_of(PLAIN, HEADER)) == [(0, 4, GroupKind.DATA)]
    if len(number) > 1:
        cut = body.replace(b"frames\x03", b"frames" + number[:1])[: 8 + len(number) - 1]
        assert groups_of(batch_frame(cut) + log_of(PLAIN, HEADER))[0] == (0, 1, GroupKind.CONTROL)


FURTHER = (
    *({"key": "k" * size} for size in (0, 1, 31, 32, 255, 256, 65_535, 65_536)),
    {"key": "clé", "hash": b"h" * 16},
    {"hash": b"h" * 16},
    {"producer": (0, 1, 2)},
    {"producer": ((1 << 64) - 1, 1 << 16, 1 << 8)},
    {"key": "k", "hash": b"h" * 16, "producer": (1 << 32, 2, 3)},
)


@pytest.mark.parametrize("further", FURTHER, ids=lambda further: "-".join(further))
def test_a_batch_of_data_may_have_a_key_and_a_producer(further: dict[str, Any]) -> None:
    log = log_of([Sample(b"0")], HEADER._replace(first_seq=99)) + plain_batch(**further)
    assert groups_of(log) == [(0, 5, GroupKind.DATA)]
    (found,) = kernel.by_topic(log, kernel.scan(log).columns, array("I", range(5)), 0)
    written = (HEADER.first_seq, len(PLAIN), HEADER.ts)
    key, producer = further.get("key"), further.get("producer")
    assert found.keyed == ([] if key is None else [(*written, key.encode(), further.get("hash", b""))])
    assert found.sent == ([] if producer is None else [(*written, *producer)])


@pytest.mark.parametrize("further", FURTHER, ids=lambda further: "-".join(further))
def test_a_batch_frame_cut_or_changed_anywhere_is_read_alike_or_not_at_all(further: dict[str, Any]) -> None:
    inner = log_of(PLAIN, HEADER)
    body = control.encode_control(control.Batch(frames=3, body_bytes=len(inner), first_seq=100, **further))
    places = [*range(min(len(body), 100)), len(body) - 1]
    changed = [body[:at] + bytes([body[at] ^ flip]) + body[at + 1 :] for at in places for flip in (1, 2, 0x20, 0x80)]
    for each in [*(body[:at] for at in places), body + b"\x01", b"\x87" + body[1:], *changed]:
        if groups_of(batch_frame(each) + inner) == [(0, 4, GroupKind.DATA)]:
            said = control.decode_control(12, each)  # does not raise
            assert (said.frames, said.body_bytes, said.first_seq) == (3, len(inner), 100)
            assert len(each) == len(body)


def test_units_are_sorted_by_topic_and_lists_end_where_seqs_do() -> None:
    order = [(1, 10), (2, 5), (1, 11), (2, 6), (1, 20), (1, 21), (2, 7), (3, 0), (3, 0)]
    log = b"".join(wal_frame.encode(1, 0, topic_id, seq, seq, data=b"x") for topic_id, seq in order)
    columns = kernel.scan(log).columns
    found = kernel.by_topic(log, columns, array("I", range(9)), 1000)
    assert [(each.topic_id, each.seqs.tolist(), each.payloads.tolist()) for each in found] == [
        (1, [10, 11], [0, 2]),
        (2, [5, 6, 7], [1, 3, 6]),
        (1, [20, 21], [4, 5]),
        (3, [0], [7]),
        (3, [0], [8]),
    ]
    assert [each.lsns[-1] - 1000 for each in found] == [columns.offsets[row] for row in (2, 6, 5, 7, 8)]
    assert {size for each in found for size in each.sizes} == {47}
    with pytest.raises(ValueError, match="payloads"):
        kernel.by_topic(log, columns, array("I", [1]), 0)


def test_a_batch_after_its_batch_frame_is_one_unit() -> None:
    single, batch = log_of([Sample(b"0")], HEADER._replace(first_seq=99)), plain_batch()
    log = single + batch + log_of([Sample(b"4")], HEADER._replace(first_seq=103, ts=9))
    columns = kernel.scan(log).columns
    (found,) = kernel.by_topic(log, columns, array("I", [5, 0, 6, 7, 8, 9]), 1 << 40)
    sizes = columns.sizes.tolist()
    assert found.seqs.tolist() == [99, 100, 103]
    assert found.stamps.tolist() == [HEADER.ts, HEADER.ts, 9]
    assert found.lsns.tolist() == [(1 << 40) + columns.offsets[row] for row in (0, 2, 5)]
    assert found.leads.tolist() == [0, sizes[1], 0]
    assert found.sizes.tolist() == [sizes[0], *sizes[2:]]
    assert found.payloads.tolist() == [5, 6, 7, 8, 9]
    assert (found.keyed, found.sent) == ([], [])
    assert not found.tags.seqs


def test_tags_of_units_of_data_are_found() -> None:
    samples = [Sample(b"1", tag=b"red"), Sample(b"2"), Sample(b"3", tag="größe".encode())]
    inner = log_of(samples, HEADER)
    fields = control.Batch(frames=3, body_bytes=len(inner), first_seq=HEADER.first_seq)
    other = log_of([Sample(b"0", tag=b"x")], HEADER._replace(topic_id=9))
    log = batch_frame(control.encode_control(fields)) + inner + other
    assert groups_of(log) == [(0, 5, GroupKind.DATA)]
    found, apart = kernel.by_topic(log, kernel.scan(log).columns, array("I", range(5)), 0)
    assert (found.tags.seqs.tolist(), found.tags.lens.tolist()) == ([100, 102], [3, 7])
    assert found.tags.text.decode() == "redgröße"
    assert (apart.tags.seqs.tolist(), apart.tags.text) == ([100], b"x")


def test_a_flag_without_its_tag_is_not_data_alone() -> None:
    assert groups_of(wal_frame.encode(1, 1, 7, 1, 1, data=b"x")) == [(0, 1, GroupKind.BATCHED)]


@given(batches, headers)
def test_payload_sizes_and_delays_follow_the_format(batch: list[Sample], header: Header) -> None:
    log = log_of(batch, header)
    measured = kernel.measure(log, kernel.scan(log).columns)
    assert measured.bad == -1
    assert measured.payloads.tolist() == [payload_size(sample.body, 0, len(sample.body)) for sample in batch]
    delays = [(number, delivered_at(sample.body, 0, len(sample.body))) for number, sample in enumerate(batch)]
    assert measured.delayed == [delay for delay in delays if delay[1]]


@pytest.mark.parametrize("body", [b"", b"{", b'{"meta":1,"meta":2}', b'{"data":1,"meta":', b'{"x":1,"deliver_at":5}'])
def test_an_invalid_body_is_named(body: bytes) -> None:
    log, _ = kernel.encode_appends([b'{"data":1}', body], None, None, HEADER, body=kernel.Body.STORED_JSON)
    assert kernel.measure(log, kernel.scan(log).columns).bad == 1


@given(batches, headers)
def test_data_are_cut_out_as_appended(batch: list[Sample], header: Header) -> None:
    log, _ = encoded(batch, header)
    data = kernel.cut(log, kernel.scan(log).columns, kernel.Part.DATA)
    assert data == [StoredRecord(1, 1, b"", b"", sample.body).data for sample in batch]


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (b'{"data": 1 }', b"1"),
        (b'{"data": "x" }', b'"x"'),
        (b'{"data":\t{"meta":2,"meta":3}\n}', b'{"meta":2,"meta":3}'),
        (b'{"data":{"a":"x"},"ct":5,"h":[["a",null]]}', b'{"a":"x"}'),
        (b"\x82\xd9\x01v\xc4\x01a\xa1k\xc4\x00", b"a"),
        (b"\x81\xd9\x01v\xc0", b""),
        (b'{"data":"x"]', None),
        (b'{"meta":"x"}', None),
        (b'{"data":}', None),
        (b"{", None),
        (b"", None),
        (b"\x81\xd9\x01v\xc6\x00\x00\x00\x02a", None),
    ],
)
def test_data_of_unusual_bodies_is_found(body: bytes, data: bytes | None) -> None:
    log, _ = kernel.encode_appends([body], None, None, HEADER, body=kernel.Body.STORED_JSON)
    columns = kernel.scan(log).columns
    if data is None:
        with pytest.raises(ValueError, match="record"):
            kernel.cut(log, columns, kernel.Part.DATA)
    else:
        assert kernel.cut(log, columns, kernel.Part.DATA) == [data]


def test_control_frames_have_no_payload() -> None:
    control = wal_frame.encode(FrameType.DELETE, 0, 1, 0, 5, data=b'{"x":1,"deliver_at":5}')
    batch = log_of(BATCH, HEADER)
    log = control + batch + control
    measured, alone = kernel.measure(log, kernel.scan(log).columns), kernel.measure(batch, kernel.scan(batch).columns)
    assert measured.payloads.tolist() == [0, *alone.payloads, 0]
    assert measured.delayed == [(number + 1, due) for number, due in alone.delayed]
    assert measured.bad == -1


@pytest.mark.parametrize("part", [-1, 4])
def test_frames_have_no_other_parts(part: int) -> None:
    log = log_of(BATCH, HEADER)
    with pytest.raises(ValueError, match="no part"):
        kernel.cut(log, kernel.scan(log).columns, part)


def test_columns_are_cut_and_chosen() -> None:
    columns = kernel.scan(log_of(BATCH, HEADER)).columns
    assert columns.between(1, 3).seqs.tolist() == [101, 102]
    assert columns.take([3, 0]).seqs.tolist() == [103, 100]
    assert columns.between(0, 99) is columns
    assert len(columns.between(2, 2)) == 0
    assert kernel.Columns().end == 0


@pytest.mark.parametrize("rows", [b"x", b"x" * 48, bytes(48)])
def test_foreign_rows_are_refused(rows: bytes) -> None:
    for call in (kernel.measure, kernel.render_rows, kernel.to_segment):
        with pytest.raises(ValueError, match="row"):
            call(bytes(1000), kernel.Columns(rows))
