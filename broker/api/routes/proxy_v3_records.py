"""REST v3: records in, a receipt for each.

The body of `…/records` is one object after another. Each is written when it arrives, and the receipts stream back while
the client is still sending. A client that repeats a request must avoid duplicates itself, or send an Idempotency-Key,
which is for the whole body.

Source: docs/guides/rest-proxy.md.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

import msgspec

from broker.api.intake import is_json_type
from broker.api.request import Request
from broker.api.routes.proxy_v3 import cluster_of
from broker.content import JSON, Answer, ApiError, Slices, Streamed, UnsupportedMediaType, yield_to_loop
from broker.proxy import (
    BadRequest,
    Batch,
    Entry,
    ProducedRecord,
    ProxyError,
    Splitter,
    answer_v3,
    producing,
    v3_records,
)
from storage import InvalidRequest, RequestError, StorageError

MULTI_STATUS: Final = 207
#: Room for Base64, and for the text around a record, in the longest object.
_AROUND_BYTES: Final = 64 * 1024
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
#: A body that has arrived as a whole is processed in pieces of this size.
_PIECE_BYTES: Final = 256 * 1024
_MAX_BATCH: Final = 1000
#: The most records of a stream that are written and answered at a time.
_AT_ONCE: Final = 1000
#: This much of a piece is split at a time: a record may have as few as two bytes.
_STEP_BYTES: Final = 4 * 1024


async def produce(request: Request) -> Answer:
    """Answer one receipt per line. The status is 200 as soon as the first record may have been written."""
    cluster_of(request)
    content_type = request.headers.get(b"content-type", b"application/json")
    if not is_json_type(content_type):
        raise UnsupportedMediaType
    rest = None
    if b"content-encoding" in request.headers:
        text = await request.read_body()
        rest = _receipts(request, _once(text))
    else:
        rest = _receipts(request, request.pieces())
    return Streamed(b"", rest, length=None, patience_s=30.0, content_type=JSON, takes_body=True)


async def _once(text: bytes) -> AsyncGenerator[bytes]:
    for begin in range(0, len(text), _PIECE_BYTES):
        yield text[begin : begin + _PIECE_BYTES]
        await yield_to_loop()


async def _receipts(request: Request, pieces: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    splitter = Splitter(2 * request.broker.engine.options.max_record_bytes + _AROUND_BYTES)
    count = 0
    work = Slices()
    try:
        async for piece in pieces:
            entries, wrong = await _entries(splitter, piece, work)
            for begin in range(0, len(entries), _AT_ONCE):
                some = entries[begin : begin + _AT_ONCE]
                yield await _written(request, some, count, work)
                count += len(some)
            if wrong is not None:
                raise wrong
        splitter.end()
        if not count:
            raise BadRequest("The body has no records.")
    except (ProxyError, StorageError, ApiError) as error:
        yield answer_v3(error, request_id=request.request_id.decode()).body + b"\r\n"


async def _entries(
    splitter: Splitter, piece: bytes, work: Slices
) -> tuple[list[Entry], ProxyError | StorageError | None]:
    """The records that are complete so far, and the error after them, if any."""
    entries: list[Entry] = []
    try:
        for begin in range(0, len(piece), _STEP_BYTES):
            await work.done(_STEP_BYTES)
            for text in splitter.feed(piece[begin : begin + _STEP_BYTES]):
                await work.done(len(text))
                entries.append(v3_records.entry_of(text))
    except (ProxyError, InvalidRequest) as error:
        return entries, error
    return entries, None


async def _written(request: Request, entries: Sequence[Entry], before: int, work: Slices) -> bytes:
    """Write records, and return their receipts."""
    receipts: list[bytes] = []
    for each in await _produced(request, entries, before, work):
        await work.done(0)
        receipts.append(msgspec.json.encode(each) + b"\r\n")
    return b"".join(receipts)


async def produce_batch(request: Request) -> Answer:
    """Write all records. For each record that was not written, the answer has the reason."""
    cluster_of(request)
    entries = await v3_records.entries_of(await request.read_body())
    ids = [each.id for each in entries]
    if not entries or len(entries) > _MAX_BATCH:
        raise BadRequest(f"entries: 1 to {_MAX_BATCH}.")
    if len(set(ids)) != len(ids) or not all(id and _ID.fullmatch(id) for id in ids):
        raise BadRequest("entries: an id is 1 to 80 of A-Z a-z 0-9 _ -, and all ids are different.")
    successes: list[dict[str, Any]] = []
    failures: list[dict[str, Any]] = []
    for entry, receipt in zip(entries, await _produced(request, entries, 0, Slices()), strict=True):
        if receipt["error_code"] == 200:
            del receipt["error_code"]
            successes.append({"id": entry.id, **receipt})
        else:
            failures.append({"id": entry.id, **receipt})
    body = msgspec.json.encode({"successes": successes, "failures": failures})
    return Answer(body, status=MULTI_STATUS)


async def _produced(request: Request, entries: Sequence[Entry], before: int, work: Slices) -> list[dict[str, Any]]:
    """The receipt of each record; `before`: the number of records of the request before these."""
    cluster, topic = request.values
    batch = Batch([], [], [], [], [])
    refused: dict[int, dict[str, Any]] = {}
    for index, entry in enumerate(entries):
        await work.done(v3_records.size_of(entry))
        try:
            v3_records.add(batch, entry)
        except BadRequest as error:
            refused[index] = {"error_code": error.number, "message": error.message}
    results: list[ProducedRecord] = []
    if batch.keys:
        key = request.headers.get(b"idempotency-key", b"").decode("utf-8", "replace")
        key = f"{key}:{before}" if key and before else key
        try:
            results = await producing.produce(
                request.broker, topic, batch, idempotency_key=key or None, one_record=True
            )
        except (ProxyError, RequestError) as error:
            failure = msgspec.json.decode(answer_v3(error, request_id=request.request_id.decode()).body)
            results = [ProducedRecord(None, None, failure["error_code"], failure["message"])] * len(batch.keys)
    written = iter(zip(results, batch.keys, batch.values, strict=True))
    receipts: list[dict[str, Any]] = []
    work = Slices()  # it had to wait, like others that continue at the same time
    for index, entry in enumerate(entries):
        await work.done(0)
        if index in refused:
            receipts.append(refused[index])
            continue
        each, record_key, value = next(written)
        sizes = (len(record_key or b""), len(value or b""))
        receipts.append(v3_records.receipt(entry, each, sizes, cluster, topic))
    return receipts
