"""Checks the maps of control frames and the JSON object of an Append, from the storage specification alone.

Readings, where the specification leaves a choice:

- A writer of this version writes no control field the specification does not name, though a reader would ignore it.
- A tag predicate in Delete has the API's shapes: "x", ["tag","Eq","x"] or ["tag","Glob","x*"].
- EvictWatermark is {floors: {cause: seq}, loss: [[from, to, cause]]}; what has nothing new may be left out.
  Causes are written by name.
- Batch.hash is the 16 digest bytes of xxh3_128; it comes with `key` and only with it. A key is text.
- SyncPoint.file is the file's number.
- Segment has fields of docs/reference/format.md besides: live_bytes, data and meta as sent of the live records, and
  packed.
- `config` names every setting of the topic with its value; at least `type` and `durability` are needed to read a log.
- Inside Append data no space stands around the verbatim values, and the values themselves are trimmed of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec.msgpack

(
    APPEND,
    TOPIC_CREATE,
    TOPIC_DELETE,
    ROUTER_CREATE,
    ROUTER_DELETE,
    DELETE,
    EVICT_WATERMARK,
    CHECKPOINT_MARK,
    CONFIG_UPDATE,
    LEASE,
    HEAD_WATERMARK,
    BATCH,
    ROUTER_CURSOR,
    CONSUMER,
    SEGMENT,
    SYNC_POINT,
    STATE,
    MOVED,
) = range(1, 19)

CAUSES = frozenset({"cap", "ttl", "delete", "consumed", "crash", "source_trim", "salvage"})
LOSS_CAUSES = frozenset({"crash", "salvage", "source_trim"})
DURABILITIES = frozenset({"ephemeral", "memory", "disk", "fsync"})
TOPIC_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,254}")
ROUTER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:>-]{0,254}")
CONSUMER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:%-]{0,511}")


class ControlViolation(Exception):
    """A violation without an offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The parts of an Append's JSON object, byte for byte. `extra`: the other keys, decoded. For a MessagePack map,
    `data` is the whole map. `size`: the bytes that the record counts for."""

    data: bytes
    meta: bytes | None
    extra: dict[str, Any]
    size: int


Fits: TypeAlias = Callable[[Any], bool]


def is_u64(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64


def is_seq(value: Any) -> bool:
    return is_u64(value) and value >= 1


def _text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def is_map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) for key in value)


def is_name(value: Any) -> bool:
    return isinstance(value, str) and TOPIC_NAME.fullmatch(value) is not None


def _router_name(value: Any) -> bool:
    return isinstance(value, str) and ROUTER_NAME.fullmatch(value) is not None


def is_consumer_name(value: Any) -> bool:
    return isinstance(value, str) and CONSUMER_NAME.fullmatch(value) is not None


def is_config(value: Any) -> bool:
    return is_map(value) and value.get("durability") in DURABILITIES and value.get("type") in ("log", "queue")


def _match(value: Any) -> bool:
    if isinstance(value, list):
        return (
            len(value) == 3
            and value[0] == "tag"
            and _text(value[2])
            and (value[1] == "Eq" or (value[1] == "Glob" and value[2].endswith("*")))
        )
    return _text(value)


def is_floors(value: Any) -> bool:
    return isinstance(value, dict) and all(cause in CAUSES and is_seq(seq) for cause, seq in value.items())


def is_loss(value: Any) -> bool:
    """Whether this is a list of [from, to, cause]."""
    return isinstance(value, list) and all(
        isinstance(one, list)
        and len(one) == 3
        and is_seq(one[0])
        and is_u64(one[1])
        and one[0] <= one[1]
        and one[2] in LOSS_CAUSES
        for one in value
    )


def _seqs(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(is_seq(seq) for seq in value)


def _absorbed(value: Any) -> bool:
    return isinstance(value, dict) and all(is_seq(topic_id) and is_u64(seq) for topic_id, seq in value.items())


def _jobs(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(job, list) and len(job) == 6 and is_seq(job[0]) and all(map(is_u64, job)) for job in value
    )


def _move(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and is_seq(value[0]) and is_seq(value[1])


def _moved(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 1 and all(map(is_seq, value)) and len({*value}) == len(value)


def _producer(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(is_u64, value)) and value[2] < 1 << 31


def _digest(value: Any) -> bool:
    return isinstance(value, bytes) and len(value) == 16


def _one_of(*words: str) -> Callable[[Any], bool]:
    return lambda value: value in words


def _bytes(value: Any) -> bool:
    return isinstance(value, bytes)


_TOPIC = {
    "name": is_name,
    "topic": is_seq,
    "partition": is_u64,
    "partitions": is_seq,
    "epoch": is_seq,
    "config": is_config,
    "paused?": is_flag,
}

#: Field name (with ? when it may be absent) → what its value must be.
CONTROL_FIELDS: dict[int, dict[str, Fits]] = {
    TOPIC_CREATE: _TOPIC,
    CONFIG_UPDATE: {**_TOPIC, "renewed_at?": is_u64},
    TOPIC_DELETE: {"name": is_name},
    ROUTER_CREATE: {
        "router_id": is_seq,
        "name": _router_name,
        "definition": is_map,
        "source_id": is_seq,
        "dest_id": is_seq,
        "source_cursor": is_u64,
        "source_epoch?": is_u64,
    },
    ROUTER_DELETE: {"router_id": is_seq},
    DELETE: {"before_seq?": is_u64, "match?": _match, "seqs?": _seqs, "bound_head": is_u64, "ack?": is_flag},
    EVICT_WATERMARK: {"floors?": is_floors, "loss?": is_loss, "jobs?": is_u64},
    CHECKPOINT_MARK: {"absorbed": _absorbed},
    LEASE: {
        "event": _one_of("claimed", "released", "extended", "acked", "expired", "dead"),
        "jobs": _jobs,
        "attempt_key?": _text,
        "dest_id?": is_seq,
        "reason?": _text,
    },
    HEAD_WATERMARK: {"reserved": is_u64},
    BATCH: {
        "frames": is_seq,
        "bytes": is_seq,
        "first_seq?": is_seq,
        "key?": _text,
        "hash?": _digest,
        "move?": _move,
        "producer?": _producer,
    },
    ROUTER_CURSOR: {"router_id": is_seq, "source_seq": is_u64, "source_epoch?": is_u64},
    CONSUMER: {
        "consumer_id": is_seq,
        "name": is_consumer_name,
        "event": _one_of("put", "cursor", "delete"),
        "config?": is_map,
        "seq?": is_u64,
    },
    SEGMENT: {
        "first_seq": is_seq,
        "end_seq": is_seq,
        "event": _one_of("opened", "sealed", "tier", "rewritten", "dropped"),
        "gen": is_u64,
        "live": is_u64,
        "bytes": is_u64,
        "tier": _text,
        "live_bytes?": is_u64,
        "packed?": is_u64,
    },
    SYNC_POINT: {"file": is_seq, "at": is_u64, "offset": is_u64},
    STATE: {"kind": _text, "key": _text, "value?": _bytes},
    MOVED: {"source_id": is_seq, "seqs": _moved},
}


def decode_control(kind: int, data: bytes) -> dict[str, Any]:
    """The map of a control frame, every field checked for presence and shape."""
    try:
        fields = msgspec.msgpack.decode(data)
    except msgspec.DecodeError as error:
        raise ControlViolation(f"control data is not MessagePack: {error}") from error
    return checked_map(fields, CONTROL_FIELDS[kind])


def checked_map(fields: Any, table: dict[str, Fits]) -> dict[str, Any]:
    """The same map, after checking that it has every required field of the table and no other, and that each fits."""
    if not is_map(fields):
        raise ControlViolation("not a map with named keys")
    known = {name.rstrip("?") for name in table}
    if unknown := sorted(fields.keys() - known):
        raise ControlViolation(f"fields the specification does not name: {unknown}")
    for name, fits in table.items():
        plain = name.rstrip("?")
        if plain not in fields:
            if plain == name:
                raise ControlViolation(f"field {name!r} is missing")
        elif not fits(fields[plain]):
            raise ControlViolation(f"field {plain!r} does not fit: {fields[plain]!r}")
    return fields


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


# Numbers stay text: the storage does not interpret them.
_VALUES = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse_constant)


def decode_body(data: bytes) -> Body:
    """Split one stored JSON object into its verbatim parts. Raises ValueError."""
    text = data.decode("utf-8")
    if not text.startswith('{"data":'):
        raise ValueError('the object does not begin with {"data":')
    parts: dict[str, str] = {}
    position = 1
    while True:
        key, position = _VALUES.raw_decode(text, position)
        if not isinstance(key, str) or text[position : position + 1] != ":":
            raise ValueError(f"no key at character {position}")
        start = position + 1
        _, position = _VALUES.raw_decode(text, start)
        if key in parts:
            raise ValueError(f"key {key!r} twice")
        if key == "meta" and list(parts) != ["data"]:
            raise ValueError("meta does not follow data")
        parts[key] = text[start:position]
        if text[position : position + 1] == "}":
            break
        if text[position : position + 1] != ",":
            raise ValueError(f"neither comma nor end at character {position}")
        position += 1
    if position + 1 != len(text):
        raise ValueError("bytes behind the object")
    extra = {key: json.loads(value) for key, value in parts.items() if key not in ("data", "meta")}
    if unknown := sorted(extra.keys() - {"deliver_at", "ct", "h"}):
        raise ValueError(f"keys the specification does not name: {unknown}")
    meta = parts.get("meta")
    counted = {"data": 0, "meta": 0, "ct": len(',"ct":'), "h": len(',"h":')}
    size = sum(counted[key] + len(value.encode()) for key, value in parts.items() if key in counted)
    return Body(data=parts["data"].encode(), meta=None if meta is None else meta.encode(), extra=extra, size=size)


def decode_binary(data: bytes) -> Body:
    """One stored MessagePack map. Raises ValueError."""
    fields = msgspec.msgpack.decode(data)
    if not is_map(fields) or not isinstance(fields.get("v"), bytes | None):
        raise ValueError("binary data is one MessagePack map with the bytes of v")
    if unknown := sorted(fields.keys() - {"k", "v", "h", "ct"}):
        raise ValueError(f"keys the specification does not name: {unknown}")
    return Body(data=data, meta=None, extra={}, size=max(0, len(data) - 9))
