"""Encodes Python values as the JSON text of an append. Values that JSON cannot represent are refused."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from topics_client.errors import InvalidRequest
from topics_client.values import NewRecord, Record

_VALUE = msgspec.json.Decoder(msgspec.Raw)
#: The standard library's encoder on purpose: msgspec writes null for NaN and infinity. One encoder for all:
#: `json.dumps` creates one for each value.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=msgspec.to_builtins)


def encode_records(items: Iterable[Any]) -> bytes:
    """The JSON array of an append's `records`. Raises InvalidRequest naming the item that cannot be sent."""
    return b"[" + b",".join([encode_record(item, f"records[{index}]") for index, item in enumerate(items)]) + b"]"


def encode_record(item: Any, field: str) -> bytes:
    """The JSON text of one record. `field` is its name in an InvalidRequest."""
    if type(item) is bytes and why_not_json(item) is None:
        # The fast path of bulk loads, without anything that only errors need.
        return b'{"data":' + item + b"}"
    if isinstance(item, NewRecord):
        extra = {"tag": item.tag, "node": item.node, "delay_ms": item.delay_ms, "deliver_at": item.deliver_at}
        return _object(item.data, item.meta, extra, field)
    if isinstance(item, Record):
        return _object(item.data_raw, item.meta_raw, {"tag": item.tag, "node": item.node}, field)
    return b'{"data":' + json_text(item, f"{field}.data") + b"}"


def _object(data: Any, meta: Any, extra: dict[str, Any], field: str) -> bytes:
    parts = [b'{"data":' + json_text(data, f"{field}.data")]
    if meta is not None:
        parts.append(b'"meta":' + json_text(meta, f"{field}.meta"))
    parts += [
        b'"%s":%s' % (name.encode(), json_text(value, f"{field}.{name}"))
        for name, value in extra.items()
        if value is not None
    ]
    return b",".join(parts) + b"}"


def json_text(value: Any, field: str) -> bytes:
    """JSON text of a value; `bytes` are checked and kept unchanged. Raises InvalidRequest naming the field."""
    if isinstance(value, bytes | bytearray):
        raw = bytes(value)
        reason = why_not_json(raw)
        if reason is None:
            return raw
        raise InvalidRequest(f"{field} is not valid JSON: {reason}.", detail={"field": field})
    try:
        return _ENCODER.encode(value).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"{field} cannot be written as JSON: {error}.", detail={"field": field}) from error


def why_not_json(raw: bytes) -> str | None:
    """The reason why JSON text is invalid, naming the byte. None if it is valid UTF-8 and exactly one JSON value."""
    try:
        if not raw.isascii():
            # The parser below does not check the inside of strings.
            raw.decode("utf-8")
        _VALUE.decode(raw)
    except UnicodeDecodeError as error:
        return f"it is not UTF-8 (byte {error.start})"
    except RecursionError:
        return "it is nested too deeply"
    except msgspec.DecodeError as error:
        return _in_words(str(error))
    return None


def _in_words(reason: str) -> str:
    if reason == "Input data was truncated":
        return "it ends too early"
    return reason.removeprefix("JSON is malformed: ")
