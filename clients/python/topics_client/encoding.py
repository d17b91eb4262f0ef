"""Encodes Python values as the JSON text of an append. Values that JSON cannot represent are refused."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from topics_client.errors import InvalidRequest
from topics_client.values import NewRecord, Record

_VALUE = msgspec.json.Decoder(msgspec.Raw)
#: Many times as fast as the standard library's. It writes null for NaN and infinity, and a `msgspec.Raw` as it is.
_FAST = msgspec.json.Encoder().encode
#: Says what JSON cannot represent, and knows subclasses of str, int and float. One for all: `json.dumps` makes one for
#: each value.
_EXACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=msgspec.to_builtins)
#: Values that are one record. Some of them can be iterated over.
_ONE = (str, bytes, bytearray, Mapping, NewRecord, Record)


def encode_records(items: Iterable[Any]) -> list[bytes]:
    """The JSON texts of an append's `records`. Raises InvalidRequest naming the item that cannot be sent."""
    if isinstance(items, _ONE):
        # The characters of a text and the keys of a dict would be records.
        raise InvalidRequest("records is a list of records. Append one as [record].", detail={"field": "records"})
    return [encode_record(item, index) for index, item in enumerate(items)]


def encode_record(item: object, index: int | None = None) -> bytes:
    """The JSON text of one record. `index` is its place among others, for an InvalidRequest."""
    # What most records are goes first, without anything that only the others or errors need.
    kind = type(item)
    if kind is dict or kind is str:
        # As `_quick`, without the call, and without a text of the value alone.
        try:
            text = _FAST({"data": item})
            if text.find(b"null") < 0:
                _VALUE.decode(text)
                return text
        except (TypeError, ValueError, RecursionError):
            pass
    if type(item) is bytes and why_not_json(item) is None:
        return b'{"data":%b}' % item
    field = "record" if index is None else f"records[{index}]"
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
        return _quick(value) or _EXACT.encode(value).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"{field} cannot be written as JSON: {error}.", detail={"field": field}) from error


def _quick(value: Any) -> bytes | None:
    """JSON text of a value; None: it is one for the other encoder, which takes its time, and says what is wrong."""
    try:
        text = _FAST(value)
        if text.find(b"null") < 0:
            _VALUE.decode(text)
            return text
    except (TypeError, ValueError, RecursionError):
        pass
    return None


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
