"""GET …/segments, and the files of one: for those who read a topic in bulk (source: api.md §8)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from broker.api import conditions, ranges, render
from broker.api.answers import NOT_MODIFIED, OK, PARTIAL_CONTENT, Answer, Streamed
from broker.api.query import parsed
from broker.api.request import Request
from broker.memory.memory import SMALL
from schemas.fields import parse_u64
from storage.segments.download import SegmentDownload, open_download
from storage.segments.names import DATA, IDX

OCTETS: Final = b"application/octet-stream"
#: So much of a file is read and sent in one go: what a download holds in memory, with what the transport has of it.
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
    # Not to be kept by caches: under the same tag, a record deleted later is blanked.
    headers = [(b"etag", tag), (b"accept-ranges", b"bytes"), (b"cache-control", b"no-store")]
    if conditions.has_it(request.headers, tag):
        return Answer(b"", status=NOT_MODIFIED, headers=headers)
    if request.scope["method"] == "HEAD":  # a Range is for GET alone
        return Streamed(b"", None, length=size, content_type=OCTETS, headers=headers)
    asked = ranges.parse(request.headers.get(b"range"), size) if conditions.range_counts(request.headers, tag) else None
    begin, end = asked or (0, size)
    if asked:
        headers.append((b"content-range", b"bytes %d-%d/%d" % (begin, end - 1, size)))
    # Held until it is sent: a piece at a time, or all of what was read as a whole.
    await request.room_for(max(SMALL + 1, min(PIECE_BYTES if ext == DATA else size, size)))
    # The first piece now: what is wrong with the files is mostly found by it, and can still be told.
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
