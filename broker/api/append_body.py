"""The body of an append, decoded: the one place for HTTP and WebSocket. Payloads stay raw, byte for byte.

`schemas.records.AppendRequest` is the model that documents it. A test compares the two field by field; this is a second
form of the same because making a model of each record would cost more than storing them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta, Raw
from pydantic import ValidationError

from broker.api import slices, strict_json
from broker.api.errors import wrong_model
from schemas.config import TopicSettings
from schemas.fields import MAX_U64
from storage.errors import InvalidRequest
from storage.records.values import NewRecord, PlainRecords

Natural = Annotated[int, Meta(ge=0)]
#: What msgspec leaves in a field of raw JSON that is absent: it takes nothing else for a Raw next to None.
_ABSENT: Final = Raw()
_NULL: Final = Raw(b"null")
#: A value of less than that cannot be nested too deeply, with what stands around it.
_SURELY_FLAT_BYTES: Final = 2 * (strict_json.MAX_NESTING - 8)


class _PlainRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    data: Raw


class _Record(NewRecord, gc=False):
    meta: Raw = _ABSENT  # pyright: ignore[reportIncompatibleVariableOverride]


class _Options(msgspec.Struct, kw_only=True, gc=False):
    node: str | None = None
    idempotency_key: str | None = None
    idempotency_strict: bool | None = None
    create: bool | None = None
    config: Raw = _ABSENT
    expected_seq: Natural | None = None
    disable_backpressure: bool | None = None


class PlainBody(_Options, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A write with nothing but data in its records: most are, and they are the fastest to decode."""

    records: list[_PlainRecord]


class AnyBody(_Options, kw_only=True, gc=False):
    """Any write."""

    records: list[_Record]


AppendBody: TypeAlias = PlainBody | AnyBody
Records: TypeAlias = list[NewRecord] | PlainRecords

_plain_body: Final = msgspec.json.Decoder(PlainBody)
_any_body: Final = msgspec.json.Decoder(AnyBody)


class MayBeDeep(Exception):
    """It takes a longer look to tell whether the body is nested too deeply: use `decode_any`."""


def decode(raw: bytes) -> tuple[AppendBody, Records]:
    """The body and its records, without waiting: for one of at most `slices.LARGE_BYTES`.

    Raises InvalidRequest naming the byte or the field; MayBeDeep.
    """
    try:
        raw.decode()
        plain = _plain_body.decode(raw)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        # It has more than data, as mostly the first record shows: little was decoded in vain. Or something is wrong.
        strict_json.check_utf8(raw)
        if strict_json.may_be_deep(raw):
            raise MayBeDeep from None
        return _taken_apart(strict_json.decoded(raw, _any_body))
    records = PlainRecords([record.data for record in plain.records])
    # Only in data and config can anything nest here, and what is short cannot be deep.
    if len(raw) > _SURELY_FLAT_BYTES:
        largest = max(records.sizes(), default=0)
        if (largest > _SURELY_FLAT_BYTES or plain.config) and strict_json.may_be_deep(raw):
            raise MayBeDeep
    if plain.expected_seq is not None:
        _check_seq(plain.expected_seq)
    return plain, records


async def decode_any(raw: bytes) -> tuple[AppendBody, Records]:
    """The same of any body; a large one in slices, with others in between. Raises InvalidRequest."""
    if len(raw) <= slices.LARGE_BYTES:
        try:
            return decode(raw)
        except MayBeDeep:
            pass
    return _taken_apart(await strict_json.decode(raw, _any_body))


def _taken_apart(body: AnyBody) -> tuple[AnyBody, list[NewRecord]]:
    if body.expected_seq is not None:
        _check_seq(body.expected_seq)
    for record in body.records:
        meta = record.meta
        if not meta or meta == _NULL:
            record.meta = None  # pyright: ignore[reportAttributeAccessIssue]
    return body, [*body.records]


def _check_seq(expected_seq: int) -> None:
    if expected_seq > MAX_U64:
        raise InvalidRequest(f"expected_seq: expected an integer from 0 to {MAX_U64}.", field="expected_seq")


def settings(body: AppendBody) -> TopicSettings | None:
    """The inline config: rare, so it takes the same way as the body of a PUT. Raises InvalidRequest."""
    if not body.config or body.config == _NULL:
        return None
    try:
        return TopicSettings.model_validate(strict_json.loads(bytes(body.config)))
    except ValidationError as error:
        first: Any = error.errors()[0]
        raise wrong_model(first, ("config",), "config") from None
