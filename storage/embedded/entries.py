"""Turns a program's values into records: bytes stay bytes, all other values become JSON. Pure.

Source: docs/guides/embedding.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from storage.errors import InvalidRequest
from storage.records import BinaryRecord, NewRecord, PlainBinary, PlainRecords

#: Bytes are stored as they are. `msgspec.Raw` is JSON text, stored unchanged; its creator guarantees that it is valid.
#: A `NewRecord` or `BinaryRecord` may have a tag or a node. All other values that msgspec can encode become JSON,
#: except NaN and infinities.
Value: TypeAlias = bytes | bytearray | memoryview | str | int | float | dict[str, Any] | msgspec.Raw | NewRecord | None
#: A list is one JSON array if it cannot be mistaken for several records.
Entry: TypeAlias = Value | list[Any]

_BYTES = (bytes, bytearray, memoryview)
_encode = msgspec.json.Encoder().encode


def records_of(entries: Iterable[Entry]) -> PlainRecords | Sequence[NewRecord]:
    """One record for each entry. Raises InvalidRequest naming an entry that is not JSON."""
    if isinstance(entries, PlainRecords):
        return entries
    if isinstance(entries, (str, dict, *_BYTES)):
        raise InvalidRequest("append_batch takes several entries, this is one.", field="records")
    listed = entries if isinstance(entries, list) else [*entries]
    kinds = {*map(type, listed)}
    if kinds == {bytes}:
        return PlainBinary(cast("list[msgspec.Raw]", listed))
    if kinds == {msgspec.Raw}:
        return PlainRecords(cast("list[msgspec.Raw]", listed))
    if not any(issubclass(kind, (NewRecord, *_BYTES)) for kind in kinds):
        return PlainRecords([_json(each, index) for index, each in enumerate(listed)])
    return [_record(each, index) for index, each in enumerate(listed)]


def one_record(value: Value | Sequence[NewRecord]) -> PlainRecords | Sequence[NewRecord]:
    """The argument of `append`: one value, or prepared records. Raises InvalidRequest for any other list."""
    if isinstance(value, NewRecord):
        return [value]
    if isinstance(value, (list, tuple)):
        made = cast("Sequence[NewRecord]", value)
        if made and not isinstance(made[0], NewRecord):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidRequest(
                "append takes one record, but a list may mean several: append_batch takes a list of records, and "
                "each of them may be a list.",
                field="records",
            )
        return made
    return records_of([cast("Entry", value)])


def _record(entry: Entry, index: int) -> NewRecord:
    if isinstance(entry, NewRecord):
        return entry
    if isinstance(entry, _BYTES):
        return BinaryRecord(cast("msgspec.Raw", bytes(entry)))
    return NewRecord(_json(entry, index))


def _json(value: Any, index: int) -> msgspec.Raw:
    if isinstance(value, msgspec.Raw):
        return value
    try:
        text = _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidRequest(f"records[{index}] is no JSON value: {error}.", field=f"records[{index}]") from None
    # The encoder writes null for numbers that JSON does not have.
    if b"null" in text and _without_number(value):
        raise InvalidRequest(
            f"records[{index}] holds a NaN or an infinity, which JSON does not have.", field=f"records[{index}]"
        )
    return msgspec.Raw(text)


def _without_number(value: Any) -> bool:
    """Whether the value contains a float that JSON cannot represent."""
    if isinstance(value, float):
        return not math.isfinite(value)
    found: Any = msgspec.to_builtins(value)
    if isinstance(found, dict):
        return any(map(_without_number, cast("dict[str, Any]", found).values()))
    if isinstance(found, list):
        return any(map(_without_number, cast("list[Any]", found)))
    return isinstance(found, float) and not math.isfinite(found)
