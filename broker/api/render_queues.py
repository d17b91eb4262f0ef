"""Jobs as JSON, by slicing: `data` and `meta` go out as the bytes they came in (see `render`)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from broker.api.render import Names, quoted, shown, to_be_shown
from broker.api.render_columns import job_objects
from storage.queues.lease_queue import ClaimedBatch, ClaimedJob
from storage.records.contiguous import ContiguousRecords, parts_of
from storage.state.queues.values import Settled

if TYPE_CHECKING:
    from storage.queues.lease_queue import Claimed

_JOB = b'{"$seq":%d,"lease_id":"lease_%016x","deadline":%d,"$ts":%d%b,"deliveries":%d,%b'
#: From so many jobs on it is quicker to write them all by one template.
_UNIFORM_PAYS = 4
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
    if isinstance(found, ClaimedBatch) and (text := _batch_objects(found)) is not None:
        return text
    names = Names(tags=True)
    text = _uniform_objects(found)
    if text is None:
        text = b",".join(
            [
                _JOB % (seq, lease_id, deadline, ts, names[node, tag] if node or tag else b"", deliveries, body[1:])
                for (seq, ts, node, tag, body), lease_id, deadline, deliveries in found
            ]
        )
    if not to_be_shown(text):
        return text
    return b",".join([_job(job, names) for job in found])


def _batch_objects(found: ClaimedBatch) -> bytes | None:
    """The same, of jobs whose records lie one behind the other; None of others."""
    texts: list[bytes] = []
    at = 0
    for part in parts_of(found.records):
        lease_ids = found.lease_ids[at : at + len(part)]
        text = job_objects(part, lease_ids, found.deadline) if isinstance(part, ContiguousRecords) else None
        if text is None:
            return None
        texts.append(text)
        at += len(part)
    return b",".join(texts)


def _uniform_objects(found: Sequence[ClaimedJob]) -> bytes | None:
    """The same, of jobs that differ in little, in one go; None of others."""
    if len(found) < _UNIFORM_PAYS:
        return None
    records, lease_ids, deadlines, deliveries = zip(*found, strict=True)
    seqs, stamps, nodes, tags, bodies = zip(*records, strict=True)
    if any(nodes) or any(tags) or len({*deadlines}) > 1 or len({*deliveries}) > 1:
        return None
    one = b'{"$seq":%%d,"lease_id":"lease_%%b","deadline":%d,"$ts":%%d,"deliveries":%d,%%b,'
    count = len(found)
    tokens = struct.pack(f">{count}Q", *lease_ids).hex(",", 8).encode().split(b",")
    parts = chain.from_iterable(zip(seqs, tokens, stamps, [body[1:] for body in bodies], strict=True))
    return ((one % (deadlines[0], deliveries[0])) * count)[:-1] % (*parts,)


def _job(job: ClaimedJob, names: Names) -> bytes:
    (seq, ts, node, tag, body), lease_id, deadline, deliveries = job
    labels = names[node, tag] if node or tag else b""
    return _JOB % (seq, lease_id, deadline, ts, labels, deliveries, shown(body)[1:])


def job_event(topic: bytes, job: ClaimedJob) -> bytes:
    """A job as an event of a stream; `topic` is the name as JSON."""
    text = _job(job, Names(tags=True))
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
