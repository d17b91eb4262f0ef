"""Strict JSON (RFC 8259): what the broker accepts, and how a refusal names the byte or the field.

msgspec checks grammar, control characters and surrogates, even in values that it skips. In those it does not check
UTF-8, and it bounds nesting by the interpreter's stack. So this module checks both, once for the whole body.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import math
import re
from typing import Any, Final, TypeVar

import msgspec

from broker.content import slices
from broker.content.whole_numbers import spelled_as_integers, whole
from storage import InvalidRequest

T = TypeVar("T")

#: Arrays and objects within each other; part of the API (docs/reference/api.md).
MAX_NESTING: Final = 256

_NOT_BRACKETS = bytes(code for code in range(256) if code not in b"[]{}")
_AS_SQUARE = bytes.maketrans(b"{}", b"[]")
#: Real documents are flat: removing the innermost brackets this many times leaves nothing.
_PEELS = 8
_LONGEST_INTEGER = 40
#: Bodies up to this size are checked for deep nesting on the event loop.
WALK_ON_LOOP_BYTES: Final = 256 * 1024
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]+|[\]}]+', re.DOTALL)
_LONE_SURROGATE = re.compile(
    rb"(?<!\\)(?:\\\\)*(?P<at>\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})))"
)
_AT_PATH = re.compile(r"^(?P<what>.*?)(?: - at `\$?(?P<path>[^`]*)`)?$", re.DOTALL)
_REQUIRED = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_FLOAT_FOR_INTEGER = re.compile(r"Expected `[^`]*\bint\b[^`]*`, got `float`")
_EXPECTED = re.compile(r"Expected (?P<expected>.+?), got (?P<got>.+)", re.DOTALL)

#: msgspec's names of types, in words.
_TYPES = {
    "object": "an object",
    "array": "an array",
    "str": "a string",
    "int": "an integer",
    "float": "a number with a fraction or exponent",
    "bool": "true or false",
}

_any_json: msgspec.json.Decoder[msgspec.Raw] = msgspec.json.Decoder(msgspec.Raw)


async def decode(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """The value in `body`. Raises InvalidRequest, which names the byte (not JSON) or the field (not of its type)."""
    if len(body) <= slices.LARGE_BYTES:
        check_utf8(body)
        if may_be_deep(body):
            await _check_nesting(body)
        return decoded(body, decoder)
    async with slices.exclusive():
        await _check_utf8_in_slices(body)
        if await _large_may_be_deep(body):
            await _check_nesting(body)
        await slices.yield_to_loop()
        return decoded(body, decoder)


def decode_sync(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Like `decode`, without waiting, for bodies of at most `WALK_ON_LOOP_BYTES`."""
    check_utf8(body)
    if may_be_deep(body):
        at = _deep_at(body)
        if at is not None:
            raise _too_deep(at)
    return decoded(body, decoder)


async def check(body: bytes) -> None:
    """Raises InvalidRequest unless `body` is one JSON value; for callers that parse it elsewhere."""
    await decode(body, _any_json)


def decoded(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Like `decode`, for text whose UTF-8 and nesting have been checked."""
    try:
        try:
            return decoder.decode(body)
        except msgspec.ValidationError as error:
            if not _FLOAT_FOR_INTEGER.match(str(error)):
                raise
            return decoder.decode(spelled_as_integers(body, decoder.type))
    except msgspec.ValidationError as error:
        raise _wrong_field(str(error)) from None
    except RecursionError:
        raise _too_deep(_deep_at(body)) from None
    except msgspec.DecodeError as error:
        raise _not_json(str(error), body) from None


def loads(text: bytes) -> Any:
    """The Python value of text that is known to be valid JSON, for models. Numbers that are too large are infinite."""
    return json.loads(text, parse_int=_integer, parse_float=_number)


def _number(text: str) -> int | float:
    # 1.0 is an integer, as in JSON Schema.
    number = whole(text.encode())
    return float(text) if number is None else number


def _integer(digits: str) -> int | float:
    # int() refuses very long text, and takes quadratic time below that.
    return int(digits) if len(digits) <= _LONGEST_INTEGER else math.inf


def check_utf8(body: bytes) -> None:
    """Raises InvalidRequest, which names the first byte that is not UTF-8."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        message = f"The body is not valid UTF-8 (byte {error.start})."
        raise InvalidRequest(message, field="body", byte=error.start) from None


async def _check_utf8_in_slices(body: bytes) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    size = slices.LARGE_BYTES
    try:
        for start in range(0, len(body), size):
            decoder.decode(body[start : start + size], start + size >= len(body))
            await asyncio.sleep(0)
    except UnicodeDecodeError:
        check_utf8(body)  # names the byte


def check_flat(body: bytes) -> None:
    """The check of `decode`, for callers that treat deep nesting in another way. Raises InvalidRequest."""
    if may_be_deep(body):
        raise _too_deep(None)


def may_be_deep(body: bytes) -> bool:
    """A quick check that decides nearly all bodies. False: not deeper than the bound; True: only a full walk can tell.

    It removes the innermost pairs of brackets, one layer at a time, and counts brackets within strings too. Those can
    make a document look flatter than it is, never deeper; to skip them would cost as much as decoding. A document that
    slips through is still bounded by the decoder, and harmless: payloads are not parsed.
    """
    if len(body) <= 2 * MAX_NESTING or body.count(b"[") + body.count(b"{") <= MAX_NESTING:
        return False
    brackets = body.translate(_AS_SQUARE, _NOT_BRACKETS)
    for peeled in range(_PEELS):
        if len(brackets) <= 2 * (MAX_NESTING - peeled):
            return False
        brackets = brackets.replace(b"[]", b"")
    return len(brackets) > 2 * (MAX_NESTING - _PEELS)


async def _large_may_be_deep(body: bytes) -> bool:
    """Like `may_be_deep`, in slices."""
    size = slices.LARGE_BYTES
    parts: list[bytes] = []
    for start in range(0, len(body), size):
        parts.append(body[start : start + size].translate(_AS_SQUARE, _NOT_BRACKETS))
        await asyncio.sleep(0)
    brackets = b"".join(parts)
    for peeled in range(_PEELS):
        if len(brackets) <= 2 * (MAX_NESTING - peeled):
            return False
        brackets = brackets.replace(b"[]", b"")
        await slices.yield_to_loop()
    return len(brackets) > 2 * (MAX_NESTING - _PEELS)


async def _check_nesting(body: bytes) -> None:
    if len(body) <= WALK_ON_LOOP_BYTES:
        at = _deep_at(body)
    else:
        at = await asyncio.to_thread(_deep_at, body)
    if at is not None:
        raise _too_deep(at)


def _deep_at(body: bytes) -> int | None:
    """The position where the nesting first exceeds the bound; None if it never does. Correct for well-formed text."""
    depth = 0
    for token in _TOKENS.finditer(body):
        start, end = token.span()
        first = body[start]
        if first in b"[{":
            depth += end - start
            if depth > MAX_NESTING:
                return end - 1 - (depth - MAX_NESTING - 1)
        elif first != 0x22:
            depth -= end - start
    return None


def _too_deep(at: int | None) -> InvalidRequest:
    where = "" if at is None else f" (byte {at})"
    detail: dict[str, Any] = {} if at is None else {"byte": at}
    return InvalidRequest(f"The body is nested more than {MAX_NESTING} levels deep{where}.", field="body", **detail)


def _not_json(reason: str, body: bytes) -> InvalidRequest:
    at_byte = re.search(r"\(byte (\d+)\)", reason)
    if at_byte:
        at = int(at_byte[1])
        reason = reason.removeprefix("JSON is malformed: ").removesuffix(at_byte[0]).strip()
    else:
        # msgspec also says "Input data was truncated" of an escaped surrogate too near the end for its other half.
        surrogate = _LONE_SURROGATE.search(body)
        at = surrogate.start("at") if surrogate else len(body)
        reason = "unpaired surrogate" if surrogate else "it ends too early"
    return InvalidRequest(f"The body is not valid JSON: {reason} (byte {at}).", field="body", byte=at)


def _wrong_field(reason: str) -> InvalidRequest:
    """Turn msgspec's message into one that begins with the name of the field."""
    parts = _AT_PATH.match(reason)
    what, path = (parts["what"], parts["path"]) if parts else (reason, None)
    field = (path or "").lstrip(".")
    required = _REQUIRED.match(what)
    if required:
        field = f"{field}.{required['name']}".lstrip(".")
        return InvalidRequest(f"{field}: required.", field=field)
    field = field or "body"
    expected = _EXPECTED.match(what)
    if expected:
        wanted = expected["expected"].replace("`", "").replace(" | null", "").split(" | ")
        named = " or ".join(_TYPES.get(kind, kind) for kind in wanted)
        what = f"expected {named}, got {_TYPES.get(expected['got'].strip('`'), expected['got'].strip('`'))}"
    else:
        what = what.replace("`", "")
        what = what[:1].lower() + what[1:]
    return InvalidRequest(f"{field}: {what}.", field=field)
