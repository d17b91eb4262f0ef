"""Jobs as JSON, by slicing: `data` and `meta` go out as the bytes they came in (see `render`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

import kernel
from broker.api.render import quoted
from storage.queues.lease_queue import ClaimedBatch, ClaimedJob
from storage.records.frame_records import FrameRecords, parts_of
from storage.state.queues.values import Settled

if TYPE_CHECKING:
    from storage.queues.lease_queue import Claimed

_LINE_BREAKS = bytes.maketrans(b"\r\n", b"  ")


def claimed(claim: Claimed, started: float) -> bytes:
    """The answer to a claim; `started` is when its request came, by perf_counter."""
    text = jobs(claim.jobs)
    return b'{"topic":%b,"claimed":[%b],"count":%d,"ready":%d,"performance":{"server_total_ms":%.3f}}' % (
        quoted(claim.topic),
        text,
        len(claim.jobs),
        claim.ready,
        (perf_counter() - started) * 1000,
    )


def jobs(found: Sequence[ClaimedJob]) -> bytes:
    """The jobs as JSON objects, separated by commas."""
    if isinstance(found, ClaimedBatch):
        return b",".join([*_batch_objects(found)])
    if not found:
        return b""
    records, lease_ids, deadlines, deliveries = zip(*found, strict=True)
    return kernel.render_jobs(records, lease_ids, deadlines, deliveries)


def _batch_objects(found: ClaimedBatch) -> Iterator[bytes]:
    at = 0
    for part in parts_of(found.records):
        lease_ids = found.lease_ids[at : at + len(part)]
        if isinstance(part, FrameRecords):
            yield kernel.render_job_rows(part.buffer, part.columns, lease_ids, found.deadline, 1)
        else:
            yield kernel.render_jobs(part, lease_ids, found.deadline, 1)
        at += len(part)


def job_event(topic: bytes, job: ClaimedJob) -> bytes:
    """A job as an event of a stream; `topic` is the name as JSON."""
    text = jobs([job])
    if b"\n" in text or b"\r" in text:  # between tokens, where a space is as good; a line of an event ends there
        text = text.translate(_LINE_BREAKS)
    return b'event: job\nid: %d\ndata: {"topic":%b,%b\n\n' % (job.record.seq, topic, text[1:])


def ack_answer(done: Settled, counted: bytes, started: float) -> bytes:
    """The answer to an ack, nack or extend, whose count goes by the name of `counted`."""
    deadlines = b',"deadlines":%b' % msgspec.json.encode(done.deadlines) if counted == b"extended" else b""
    return (b'{"topic":%b,"%b":%d,"skipped":%b%b,"ready":%d,"in_flight":%d,"performance":{"server_total_ms":%.3f}}') % (
        quoted(done.topic),
        counted,
        len(done.done),
        msgspec.json.encode(done.skipped),
        deadlines,
        done.ready,
        done.in_flight,
        (perf_counter() - started) * 1000,
    )
