"""Frames of the log are byte for byte those of the format's codec."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernel
from kernel import Body, Header
from storage.format import wal_frame
from tests.kernel.samples import Sample, batches, encoded, frames_of, headers, log_of

pytestmark = pytest.mark.usefixtures("twin")

HEADER = Header(7, 100, 1_700_000_000_000, b"", 4)


@given(batches, headers, st.booleans(), st.booleans())
def test_frames_are_the_frames_of_the_codec(batch: list[Sample], header: Header, more: bool, apart: bool) -> None:
    expected = frames_of(batch, header, more=more, apart=apart)
    assert encoded(batch, header, more=more, apart=apart) == (b"".join(expected), [len(frame) for frame in expected])


@given(batches, headers)
def test_stored_bodies_become_the_same_frames(batch: list[Sample], header: Header) -> None:
    kinds = bytes([Body.STORED_BINARY if sample.kind else Body.STORED_JSON for sample in batch])
    nodes, tags = [sample.node for sample in batch], [sample.tag for sample in batch]
    frames, _ = kernel.encode_appends([sample.body for sample in batch], None, tags, header, nodes=nodes, bodies=kinds)
    assert frames == log_of(batch, header)


@given(batches, headers)
def test_copies_keep_labels_and_bodies(batch: list[Sample], header: Header) -> None:
    log = log_of(batch, header)
    columns = kernel.scan(log).columns
    target = Header(9, 500, 5, b"", 4 | 1 << 5)
    labelled = [sample._replace(node=sample.node or header.node) for sample in batch]
    expected = frames_of(labelled, target, more=True)
    data, _ = kernel.to_segment(log, columns)
    segment = kernel.scan(data, kernel.Kind.SEGMENT).columns
    for buffer, found in ((log, columns), (data, segment)):
        frames, sizes = kernel.encode_copies(buffer, found, target, more=True)
        assert frames == b"".join(expected)
        assert sizes.tolist() == [len(frame) for frame in expected]


def test_around_is_called_once_with_the_size_of_the_frames() -> None:
    asked: list[int] = []

    def around(size: int) -> tuple[bytes, memoryview]:
        asked.append(size)
        return b"front", memoryview(b"behind")

    frames, sizes = kernel.encode_appends([b"1", b"22"], None, None, HEADER, around=around)
    plain, _ = kernel.encode_appends([b"1", b"22"], None, None, HEADER)
    assert frames == b"front" + plain + b"behind"
    assert asked == [len(plain)] == [sum(sizes)]


def test_any_buffer_serves_as_data() -> None:
    expected, _ = kernel.encode_appends([b"12"] * 3, [b"3"] * 3, b"t", HEADER)
    datas = [msgspec.Raw(b"12"), bytearray(b"12"), memoryview(b"x12")[1:]]
    frames, _ = kernel.encode_appends(
        datas, [memoryview(b"3"), bytearray(b"3"), b"3"], [b"t", bytearray(b"t"), b"t"], HEADER
    )
    assert frames == expected


def test_no_records_are_no_frames() -> None:
    assert kernel.encode_appends([], None, None, HEADER)[0] == b""


def test_large_batches_are_the_same_frames() -> None:
    batch = [Sample(b'"%d-%b"' % (number, b"y" * 900)) for number in range(300)]
    assert encoded(batch, HEADER)[0] == log_of(batch, HEADER)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"datas": [b"1", b"2"], "metas": [b"1"]}, ValueError),
        ({"tags": [b"1", b"2"]}, ValueError),
        ({"tags": [b"x" * 65_536]}, ValueError),
        ({"tags": b"x" * 65_536}, ValueError),
        ({"nodes": [b"x" * 65_536]}, ValueError),
        ({"nodes": []}, ValueError),
        ({"bodies": b""}, ValueError),
        ({"bodies": b"\x04"}, ValueError),
        ({"body": 4}, ValueError),
        ({"body": Body.BINARY, "metas": [b"1"]}, ValueError),
        ({"body": Body.STORED_JSON, "deliver_ats": [5]}, ValueError),
        ({"header": HEADER._replace(first_seq=(1 << 64) - 1), "datas": [b"1", b"2"]}, ValueError),
        ({"deliver_ats": [-1]}, OverflowError),
        ({"deliver_ats": [1 << 64]}, OverflowError),
        ({"datas": [None]}, TypeError),
        ({"around": lambda size: (b"",)}, ValueError),
    ],
)
def test_arguments_that_do_not_fit_are_refused(options: dict[str, object], error: type[Exception]) -> None:
    arguments = {"datas": [b"1"], "metas": None, "tags": None, "header": HEADER} | options
    with pytest.raises(error, match=r"."):
        kernel.encode_appends(**arguments)


def test_an_error_of_the_caller_passes_through() -> None:
    def around(size: int) -> tuple[bytes, bytes]:
        raise LookupError(str(size))

    with pytest.raises(LookupError):
        kernel.encode_appends([b"1"], None, None, HEADER, around=around)


def test_rows_outside_the_buffer_are_refused() -> None:
    log = log_of([Sample(b"1"), Sample(b"2")], HEADER)
    columns = kernel.scan(log).columns
    for buffer in (b"", log[:-1]):
        with pytest.raises(ValueError, match="outside"):
            kernel.encode_copies(buffer, columns, HEADER)


def test_seqs_and_times_are_as_the_header_says() -> None:
    frames, sizes = kernel.encode_appends([b"1"] * 20, None, None, HEADER._replace(first_seq=(1 << 32) - 10))
    decoded, at = [], 0
    for size in sizes:
        decoded.append(wal_frame.HEADER.unpack_from(frames, at))
        at += size
    assert all(after[4] == before[4] + 1 for before, after in pairwise(decoded))
    assert {ts for _, _, _, _, _, ts, *_ in decoded} == {HEADER.ts}
