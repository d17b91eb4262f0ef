"""What a job becomes on its way to the dead letter topic and back: another meta, and else what it was. Pure.

Meta is verbatim where it can be. All else that is stored of the job goes with it as it is, raw bytes and what a Kafka
client sent with its record too; only the time that it was delayed to is over.

Source: api.md §6 (dead letter, redrive).
"""

from __future__ import annotations

from array import array

import msgspec

from storage.format.binary import is_binary
from storage.format.meta import meta_of, with_meta
from storage.format.record import DELIVER_AT, delivered_at, payload_size
from storage.records import StoredBodies, StoredRecord

PREFIX = "$dead_letter_"
FROM = "$dead_letter_from"
#: Where a meta that is no object goes.
OTHER = "$meta"

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_strings = msgspec.json.Decoder(str)


def dead_lettered(record: StoredRecord, queue: str, deliveries: int, reason: str | None) -> StoredBodies:
    """The copy for the dead letter topic: as it is, but for a meta with where it comes from. Its node is not in it."""
    added = {
        FROM: queue,
        "$dead_letter_deliveries": str(deliveries),
        "$dead_letter_src_seq": str(record.seq),
    }
    if reason:
        added["$dead_letter_reason"] = reason
    return _copy(record, _with(meta_of(record.body), added))


def redriven(record: StoredRecord) -> StoredBodies:
    """The job again, without what its way here had added to its meta. Its node is not in it."""
    return _copy(record, _without(meta_of(record.body)))


def came_from(body: bytes) -> str | None:
    """The queue that a dead-lettered record was a job of; None: it is none."""
    if FROM.encode() not in body:
        return None
    fields = _fields(meta_of(body))
    try:
        return _strings.decode(fields[FROM]) if fields is not None and FROM in fields else None
    except msgspec.DecodeError:
        return None


def _copy(record: StoredRecord, meta: bytes) -> StoredBodies:
    body = record.body
    if delivered_at(body, 0, len(body)):
        body = body[: body.rfind(DELIVER_AT)] + b"}"
    body = with_meta(body, meta)
    tags = [record.tag] if record.tag else None
    return StoredBodies([body], tags, bytes((is_binary(body),)), array("I", [payload_size(body, 0, len(body))]))


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
        # In front of what there is, which stays as it was sent.
        rest = meta.lstrip(b" \t\r\n")[1:]
        return new if not fields else b"%b,%b" % (new[:-1], rest)
    kept = {name: value for name, value in fields.items() if not name.startswith(PREFIX)}
    return _join({name: bytes(value) for name, value in kept.items()} | _encoded(added))


def _encoded(added: dict[str, str]) -> dict[str, bytes]:
    return {name: msgspec.json.encode(value) for name, value in added.items()}


def _without(meta: bytes) -> bytes:
    fields = _fields(meta)
    if fields is None:
        return meta
    kept = {name: bytes(value) for name, value in fields.items() if not name.startswith(PREFIX)}
    if len(kept) == len(fields):
        return meta
    if not kept:
        return b""
    return kept[OTHER] if list(kept) == [OTHER] else _join(kept)


def _join(fields: dict[str, bytes]) -> bytes:
    return b"{%b}" % b",".join(msgspec.json.encode(name) + b":" + value for name, value in fields.items())
