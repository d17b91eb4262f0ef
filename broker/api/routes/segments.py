"""GET …/segments, and the files of a segment, for clients that read a topic in bulk.

Source: docs/reference/api.md#segments.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from broker.api import ranges
from broker.api.operation import NUMBER, PARTITION, TOPIC, Handler, Operation, in_header, in_path
from broker.api.query import parsed
from broker.api.request import Request
from broker.auth import READ, Rule
from broker.content import NOT_MODIFIED, OK, PARTIAL_CONTENT, Answer, Streamed, render
from broker.memory import SMALL
from schemas import SegmentsAnswer, parse_u64
from storage.segments import DATA, IDX, SegmentDownload, open_download

OCTETS: Final = b"application/octet-stream"
#: Bytes of a file that are read and sent at once: a download holds this much memory, the transport's buffer included.
PIECE_BYTES: Final = 512 * 1024


async def list_segments(request: Request) -> Answer:
    topic = request.address()
    await request.broker.engine.let_expire((topic,))
    return Answer(render.segments(request.broker.engine.segments_of(topic), request.started))


async def get_data(request: Request) -> Answer:
    return await _file(request, DATA)


async def get_idx(request: Request) -> Answer:
    return await _file(request, IDX)


async def _file(request: Request, ext: str) -> Answer:
    topic, seq_text = request.address(), request.values[1]
    first_seq = parsed(parse_u64, seq_text, "first_seq")
    download = await open_download(request.broker.engine, topic, first_seq, ext)
    tag, size = b'"%b"' % download.etag.encode(), download.size
    # Caches must not store it: a record deleted later is blanked, and the tag stays the same.
    headers = [(b"etag", tag), (b"accept-ranges", b"bytes"), (b"cache-control", b"no-store")]
    if ranges.has_it(request.headers, tag):
        return Answer(b"", status=NOT_MODIFIED, headers=headers)
    if request.scope["method"] == "HEAD":  # Range applies to GET only
        return Streamed(b"", None, length=size, content_type=OCTETS, headers=headers)
    asked = ranges.parse(request.headers.get(b"range"), size) if ranges.range_counts(request.headers, tag) else None
    begin, end = asked or (0, size)
    if asked:
        headers.append((b"content-range", b"bytes %d-%d/%d" % (begin, end - 1, size)))
    # Held until it is sent: one piece, or a whole file if that was read at once.
    await request.room_for(max(SMALL + 1, min(PIECE_BYTES if ext == DATA else size, size)))
    # The first piece is read before the answer begins: it shows most faults of the files while an error can be sent.
    border = min(end, begin + PIECE_BYTES)
    return Streamed(
        await download.read(begin, border),
        _pieces(download, border, end) if border < end else None,
        length=end - begin,
        status=PARTIAL_CONTENT if asked else OK,
        content_type=OCTETS,
        headers=headers,
    )


async def _pieces(download: SegmentDownload, begin: int, end: int) -> AsyncGenerator[bytes]:
    for at in range(begin, end, PIECE_BYTES):
        yield await download.read(at, min(end, at + PIECE_BYTES))


_FIRST_SEQ: Final = in_path("first_seq", NUMBER | {"examples": [1]}, "As listed.")
_HEADERS: Final = ("ETag", "Accept-Ranges", "Content-Range")


_CONDITIONS: Final = [
    in_header("Range", "One range of bytes. For several ranges, the whole file is sent."),
    in_header("If-Range", "The range applies only to this ETag. For another one, the whole file is sent."),
    in_header("If-Match", "Refuse with 412 unless one of these ETags is the current one."),
    in_header("If-None-Match", "Answer 304, without a body, if one of these ETags is the current one."),
]


def _download(name: str, ext: str, handler: Handler, summary: str, description: str, example: str) -> Operation:
    return Operation(
        method="GET",
        path=f"/v0/topics/{{topic}}/segments/{{first_seq}}/{ext}",
        name=name,
        handler=handler,
        rule=Rule(READ),
        tag="segments",
        summary=summary,
        description=description,
        answer=None,
        headers=_HEADERS,
        example=example,
        parameters=(TOPIC, _FIRST_SEQ, PARTITION, *_CONDITIONS),
        successes={OK: "The file.", PARTIAL_CONTENT: "The requested range."},
        refusals=(
            "invalid_request", "topic_not_found", "not_found", "precondition_failed", "range_not_satisfiable",
            "segment_corrupt", "storage_failed",
        ),
    )  # fmt: skip


OPERATIONS: Final = [
    Operation(
        method="GET",
        path="/v0/topics/{topic}/segments",
        name="list_segments",
        handler=list_segments,
        rule=Rule(READ),
        tag="segments",
        summary="List the segments of a topic",
        description="All values are of one instant. Read the records in the tail, and in segments that are not "
        "sealed, like any records.",
        answer=SegmentsAnswer,
        parameters=(
            TOPIC,
            PARTITION,
        ),
        successes={OK: "The segments."},
        refusals=("invalid_request", "topic_not_found"),
    ),
    _download(
        "get_segment_data",
        "data",
        get_data,
        "Download the records of a sealed segment",
        "The stored frames. The frame of a deleted record has the delete byte 0xD5, zeros for node, tag and data,"
        " and a matching checksum; lengths stay. Readers must verify each frame and skip seqs below earliest_seq."
        " If detail.reason of a 404 is active, the segment is not sealed yet.",
        "the frames, one after another",
    ),
    _download(
        "get_segment_index",
        "idx",
        get_idx,
        "Download the index of a sealed segment",
        "20 bytes for each seq: the position of its frame in data. Bit 2 of the flags means deleted. The ETag "
        "changes with each deletion.",
        "the entries, one after another",
    ),
]
