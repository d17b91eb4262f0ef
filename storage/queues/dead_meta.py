"""What a job's meta becomes on its way to the dead letter topic and back. Pure; bytes verbatim where they can be.

Source: api.md §6 (dead letter, redrive).
"""

from __future__ import annotations

import msgspec

from storage.format.record import split_body
from storage.records import NewRecord, StoredRecord

PREFIX = "$dead_letter_"
FROM = "$dead_letter_from"
#: Where a meta that is no object goes.
OTHER = "$meta"

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_strings = msgspec.json.Decoder(str)


def dead_lettered(record: StoredRecord, queue: str, deliveries: int, reason: str | None) -> NewRecord:
    """The copy for the dead letter topic: data, tag and node as they are, meta with where it comes from."""
    body = split_body(record.body)
    added = {
        FROM: queue,
        "$dead_letter_deliveries": str(deliveries),
        "$dead_letter_src_seq": str(record.seq),
    }
    if reason:
        added["$dead_letter_reason"] = reason
    return _copy(record, body.data, _with(bytes(body.meta), added))


def redriven(record: StoredRecord) -> NewRecord:
    """The job again, without what its way here had added to its meta."""
    body = split_body(record.body)
    return _copy(record, body.data, _without(bytes(body.meta)))


def came_from(body: bytes) -> str | None:
    """The queue that a dead-lettered record was a job of; None: it is none."""
    if FROM.encode() not in body:
        return None
    fields = _fields(bytes(split_body(body).meta))
    try:
        return _strings.decode(fields[FROM]) if fields is not None and FROM in fields else None
    except msgspec.DecodeError:
        return None


def _copy(record: StoredRecord, data: msgspec.Raw, meta: bytes | None) -> NewRecord:
    return NewRecord(
        data=msgspec.Raw(bytes(data)),
        meta=None if meta is None else msgspec.Raw(meta),
        tag=record.tag.decode() if record.tag else None,
        node=record.node.decode() if record.node else None,
    )


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


def _without(meta: bytes) -> bytes | None:
    fields = _fields(meta)
    if fields is None:
        return meta or None
    kept = {name: bytes(value) for name, value in fields.items() if not name.startswith(PREFIX)}
    if len(kept) == len(fields):
        return meta
    if not kept:
        return None
    return kept[OTHER] if list(kept) == [OTHER] else _join(kept)


def _join(fields: dict[str, bytes]) -> bytes:
    return b"{%b}" % b",".join(msgspec.json.encode(name) + b":" + value for name, value in fields.items())
