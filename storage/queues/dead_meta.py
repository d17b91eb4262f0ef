"""Changes the meta of a job that moves to the dead letter topic, and back. Pure.

The meta is kept byte for byte where possible. The rest of the stored body does not change, including raw bytes and the
keys of Kafka clients; only a delay is removed.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from storage.format import (
    DELIVER_AT,
    META,
    PLAIN_OVERHEAD,
    are_data_alone,
    body_sizes,
    delivered_at,
    is_binary,
    meta_of,
    payload_size,
    with_meta,
)
from storage.records import StoredBodies, StoredRecord
from storage.state.queues import Move

PREFIX = "$dead_letter_"
FROM = "$dead_letter_from"
#: The field for a meta that is not an object.
OTHER = "$meta"

#: The end of a body that was made here for a job without a meta, and the name of its queue. Only a key of the body
#: itself can match: a quote within a text is escaped, and a nested object has more braces after it. The pattern takes
#: ASCII text without escapes; other text takes the general path.
_ADDED = re.compile(
    rb',"meta":\{"\$dead_letter_from":"([ !#-\[\]-~]*)","\$dead_letter_deliveries":"\d+",'
    rb'"\$dead_letter_src_seq":"\d+"(?:,"\$dead_letter_reason":"[ !#-\[\]-~]*")?\}\}'
)
_FROM = FROM.encode()

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_strings = msgspec.json.Decoder(str)


def copies_of(records: Sequence[StoredRecord], queue: str, moves: Sequence[Move]) -> StoredBodies:
    """The copies of these records, each as its move says, without their nodes."""
    tags = [record.tag for record in records]
    bodies = [record.body for record in records]
    made, sizes = _copy_uniform(records, bodies, queue, moves) or _made_each(records, queue, moves)
    return StoredBodies(made, tags if any(tags) else None, bytes(map(is_binary, made)), sizes)


def _copy_uniform(
    records: Sequence[StoredRecord], bodies: Sequence[bytes], queue: str, moves: Sequence[Move]
) -> tuple[list[bytes], array[int]] | None:
    """The copies, and the bytes that they count for, of jobs that have only data and go for one reason, as most do: the
    meta is put after the data or cut off, and nothing is parsed. None for other jobs."""
    causes = {(move.deliveries, move.reason) for move in moves}
    [deliveries, reason] = causes.pop()
    if causes:
        return None
    if not deliveries:
        found = [*map(_added_to, bodies)]
        made = [b"%b}" % each.string[: each.start()] for each in found if each is not None]
        return (made, body_sizes(made)) if all(found) and are_data_alone(made) else None
    if not are_data_alone(bodies):
        return None
    before, behind = _around_the_seq(queue, deliveries, reason)
    made = [b"%b%b%b%d%b}" % (record.body[:-1], META, before, record.seq, behind) for record in records]
    around = PLAIN_OVERHEAD + len(META)
    return made, array("I", [len(body) - around for body in made])


def _made_each(records: Sequence[StoredRecord], queue: str, moves: Sequence[Move]) -> tuple[list[bytes], array[int]]:
    bodies: list[bytes] = []
    for record, move in zip(records, moves, strict=True):
        uniform = _copy_uniform([record], [record.body], queue, [move])
        if uniform is not None:
            bodies += uniform[0]
        else:
            gone = move.deliveries > 0
            bodies.append(dead_lettered(record, queue, move.deliveries, move.reason) if gone else redriven(record))
    return bodies, array("I", [payload_size(body, 0, len(body)) for body in bodies])


@lru_cache(maxsize=256)
def _around_the_seq(queue: str, deliveries: int, reason: str | None) -> tuple[bytes, bytes]:
    """The text before and after the seq in the meta of a dead letter whose job had no meta."""
    seq = b'"$dead_letter_src_seq":"'
    before, _, behind = msgspec.json.encode(_added(queue, deliveries, 0, reason)).partition(seq + b"0")
    return before + seq, behind


def _added(queue: str, deliveries: int, seq: int, reason: str | None) -> dict[str, str]:
    added = {
        FROM: queue,
        "$dead_letter_deliveries": str(deliveries),
        "$dead_letter_src_seq": str(seq),
    }
    if reason:
        added["$dead_letter_reason"] = reason
    return added


def dead_lettered(record: StoredRecord, queue: str, deliveries: int, reason: str | None) -> bytes:
    """The body for the dead letter topic: unchanged, except for a meta that says where the job came from."""
    return _copy(record, _with(meta_of(record.body), _added(queue, deliveries, record.seq, reason)))


def redriven(record: StoredRecord) -> bytes:
    """The body of the job again, without what the dead letter added to its meta."""
    return _copy(record, _without(meta_of(record.body)))


def came_from(body: bytes) -> str | None:
    """The queue that a dead-lettered record was a job of. None if it was not a job."""
    if (added := _added_to(body)) is not None:
        return added[1].decode()
    if _FROM not in body:
        return None
    fields = _fields(meta_of(body))
    try:
        return _strings.decode(fields[FROM]) if fields is not None and FROM in fields else None
    except msgspec.DecodeError:
        return None


def _added_to(body: bytes) -> re.Match[bytes] | None:
    """The meta of a dead letter whose job had no meta, and the closing brace. None: use the general path."""
    return None if is_binary(body) else _ADDED.fullmatch(body, max(0, body.rfind(META)))


def _copy(record: StoredRecord, meta: bytes) -> bytes:
    body = record.body
    if delivered_at(body, 0, len(body)):
        body = body[: body.rfind(DELIVER_AT)] + b"}"
    return with_meta(body, meta)


def _fields(meta: bytes) -> dict[str, msgspec.Raw] | None:
    """The fields of a meta that is an object."""
    if not meta.lstrip(b" \t\r\n").startswith(b"{"):
        return None
    return _object.decode(meta)


def _with(meta: bytes, added: dict[str, str]) -> bytes:
    new = msgspec.json.encode(added)
    fields = _fields(meta)
    if fields is None:
        return new if not meta else b'{"$meta":%b,%b' % (meta, new[1:])
    if not any(name.startswith(PREFIX) for name in fields):
        # Before the fields of the existing meta, which stay as they were sent.
        rest = meta.lstrip(b" \t\r\n")[1:]
        return new if not fields else b"%b,%b" % (new[:-1], rest)
    remaining = {name: value for name, value in fields.items() if not name.startswith(PREFIX)}
    return _join({name: bytes(value) for name, value in remaining.items()} | _encoded(added))


def _encoded(added: dict[str, str]) -> dict[str, bytes]:
    return {name: msgspec.json.encode(value) for name, value in added.items()}


def _without(meta: bytes) -> bytes:
    fields = _fields(meta)
    if fields is None:
        return meta
    remaining = {name: bytes(value) for name, value in fields.items() if not name.startswith(PREFIX)}
    if len(remaining) == len(fields):
        return meta
    if not remaining:
        return b""
    return remaining[OTHER] if list(remaining) == [OTHER] else _join(remaining)


def _join(fields: dict[str, bytes]) -> bytes:
    return b"{%b}" % b",".join(msgspec.json.encode(name) + b":" + value for name, value in fields.items())
