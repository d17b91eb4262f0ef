"""The kernel's functions for JSON text in Python: see `kernel.plain`.

Strict: what is not JSON by RFC 8259, or not UTF-8, is nothing.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Final, NamedTuple, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

#: `kernel.JsonKind`.
_NONE, _NULL, _FALSE, _TRUE, _INTEGER, _NUMBER, _TEXT, _ESCAPED, _ARRAY, _OBJECT = range(10)
#: As in kernel/src/kernel.h.
_DEPTH: Final = 1024
_NAME_BYTES: Final = 1024
_TEXT_BYTES: Final = (1 << 31) - 1

_SPACES = re.compile(rb"[ \n\r\t]*")
_STRING = re.compile(rb'"((?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*)"')
_NUMERAL = re.compile(rb"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|([^u]))", re.DOTALL)
_WORDS = {b"n": (b"null", _NULL), b"t": (b"true", _TRUE), b"f": (b"false", _FALSE)}
_ESCAPES = dict(zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True))
_WHOLE = re.compile(rb"-?[0-9]+")


class _Piece(NamedTuple):
    start: int
    end: int
    kind: int


class _Unsound(Exception):
    """This is not JSON."""


class _Text:
    """Reads the JSON text in data[at:end]."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def spaces(self) -> None:
        self.at = _SPACES.match(self.data, self.at, self.end).end()  # type: ignore[union-attr]

    def next_is(self, byte: bytes) -> bool:
        found = self.at < self.end and self.data[self.at : self.at + 1] == byte
        self.at += found
        return found

    def string(self) -> _Piece:
        found = _STRING.match(self.data, self.at, self.end)
        if found is None:
            raise _Unsound
        try:
            found[1].decode()
        except UnicodeDecodeError:
            raise _Unsound from None
        self.at = found.end()
        return _Piece(found.start(1), found.end(1), _ESCAPED if b"\\" in found[1] else _TEXT)

    def scalar(self) -> _Piece:
        first = self.data[self.at : self.at + 1]
        if first == b'"':
            return self.string()
        start = self.at
        if first in _WORDS:
            word, kind = _WORDS[first]
            if self.data[start : min(self.end, start + len(word))] != word:
                raise _Unsound
            self.at += len(word)
            return _Piece(start, self.at, kind)
        found = _NUMERAL.match(self.data, start, self.end)
        # What follows a part of a number is neither a comma nor a bracket, so a shorter match is noticed later.
        if found is None:
            raise _Unsound
        self.at = found.end()
        return _Piece(start, self.at, _NUMBER if found[1] or found[2] else _INTEGER)

    def value(self, most: int) -> _Piece:
        """A value with the spaces before it, nested at most so deep."""
        self.spaces()
        if self.at == self.end:
            raise _Unsound
        start, first = self.at, self.data[self.at]
        if first not in b"[{":
            return self.scalar()
        if most < 1:
            raise _Unsound
        self.at += 1
        closing = [first == ord("{")]
        begun = True
        while closing:
            self.spaces()
            if self.next_is(b"}" if closing[-1] else b"]"):
                closing.pop()
                begun = False
                continue
            if not begun and not self.next_is(b","):
                raise _Unsound
            begun = False
            if closing[-1]:
                self.name()
            self.spaces()
            if self.at == self.end:
                raise _Unsound
            if self.data[self.at] in b"[{":
                if len(closing) == most:
                    raise _Unsound
                closing.append(self.data[self.at] == ord("{"))
                self.at += 1
                begun = True
            else:
                self.scalar()
        return _Piece(start, self.at, _OBJECT if first == ord("{") else _ARRAY)

    def name(self) -> _Piece:
        self.spaces()
        if self.at == self.end:
            raise _Unsound
        found = self.string()
        self.spaces()
        if not self.next_is(b":"):
            raise _Unsound
        return found

    def items(self) -> Iterator[tuple[_Piece | None, _Piece]]:
        """The elements of an array, or the members of an object with their names, up to the end of the text."""
        closing = b"}" if self.data[self.at] == ord("{") else b"]"
        self.at += 1
        begun = True
        while True:
            self.spaces()
            if self.next_is(closing):
                break
            if not begun and not self.next_is(b","):
                raise _Unsound
            begun = False
            name = self.name() if closing == b"}" else None
            yield name, self.value(_DEPTH - 1)
        self.finish()

    def finish(self) -> None:
        self.spaces()
        if self.at != self.end:
            raise _Unsound

    def begins_with(self, brackets: bytes) -> bool:
        self.spaces()
        return self.at < self.end and self.data[self.at] in brackets


def _spans(buffer: Buffer, starts: Buffer, ends: Buffer) -> tuple[bytes, list[tuple[int, int]]]:
    data, columns = bytes(buffer), (array("Q", bytes(starts)), array("Q", bytes(ends)))
    if len(columns[0]) != len(columns[1]):
        raise ValueError("starts and ends differ in length")
    spans = list(zip(*columns, strict=True))
    for number, (start, end) in enumerate(spans):
        if not start <= end <= len(data):
            raise ValueError(f"span {number} lies outside the buffer")
    return data, spans


def unescaped(text: bytes) -> bytes | None:
    """The text of a string without its escapes. None: it has half of a surrogate pair, or an unknown escape."""
    found = bytearray()
    at, high = 0, 0
    while at < len(text):
        if text[at] != ord("\\"):
            if high:
                return None
            found.append(text[at])
            at += 1
            continue
        match = _ESCAPE.match(text, at)
        if match is None:
            return None
        at = match.end()
        unit = int(match[1], 16) if match[1] else 0
        if high:
            if not 0xDC00 <= unit < 0xE000:
                return None
            found += chr(0x10000 + (high - 0xD800 << 10) + unit - 0xDC00).encode()
            high = 0
        elif 0xD800 <= unit < 0xDC00:
            high = unit
        elif 0xDC00 <= unit < 0xE000:
            return None
        elif match[1]:
            found += chr(unit).encode()
        elif match[2][0] in _ESCAPES:
            found.append(_ESCAPES[match[2][0]])
        else:
            return None
    return None if high else bytes(found)


def json_members(buffer: Buffer, starts: Buffer, ends: Buffer, names: Sequence[bytes], sure: bool) -> tuple[bytes, ...]:
    """See `kernel.json_members`. All is checked here, even if it is sure."""
    data, spans = _spans(buffer, starts, ends)
    if any(len(name) > _NAME_BYTES for name in names):
        raise ValueError(f"a name has more than {_NAME_BYTES} bytes")
    order = {name: at for at, name in reversed([*enumerate(names)])}
    count = len(spans)
    kinds = bytearray(count)
    cells = [_Piece(0, 0, _NONE)] * (count * len(names))
    for row, (start, end) in enumerate(spans):
        text, found = _Text(data, start, end), dict[int, _Piece]()
        try:
            if text.begins_with(b"{"):
                for name, piece in text.items():
                    assert name is not None
                    key = data[name.start : name.end]
                    at = order.get(key if name.kind == _TEXT else unescaped(key) or b"\xff", -1)
                    if at >= 0:
                        found[at] = piece
                kinds[row] = _OBJECT
            else:
                kind = text.value(_DEPTH).kind
                text.finish()
                kinds[row] = kind
        except _Unsound:
            continue
        for at, piece in found.items():
            cells[at * count + row] = piece
    return bytes(kinds), *_columns(cells)


def _columns(cells: Sequence[_Piece]) -> tuple[bytes, bytes, bytes]:
    starts = array("Q", [each.start for each in cells]).tobytes()
    return starts, array("Q", [each.end for each in cells]).tobytes(), bytes(each.kind for each in cells)


def json_elements(buffer: Buffer, starts: Buffer, ends: Buffer) -> tuple[bytes, ...]:
    """See `kernel.json_elements`."""
    data, spans = _spans(buffer, starts, ends)
    counts: list[int] = []
    pieces: list[_Piece] = []
    names: list[_Piece] = []
    for start, end in spans:
        text = _Text(data, start, end)
        try:
            items = list(text.items()) if text.begins_with(b"[{") else []
        except _Unsound:
            items = []
        counts.append(len(items))
        names += [name or _Piece(0, 0, _NONE) for name, _ in items]
        pieces += [piece for _, piece in items]
    return array("Q", counts).tobytes(), *_columns(pieces), *_columns(names)


def _leaves(buffer: Buffer, starts: Buffer, ends: Buffer, kinds: Buffer) -> list[tuple[int, bytes]]:
    data, spans = _spans(buffer, starts, ends)
    if len(bytes(kinds)) != len(spans):
        raise ValueError("kinds and spans differ in length")
    return [(kind, data[start:end]) for kind, (start, end) in zip(bytes(kinds), spans, strict=True)]


def json_texts(buffer: Buffer, starts: Buffer, ends: Buffer, kinds: Buffer) -> tuple[bytes, bytes, bytes]:
    """See `kernel.json_texts`."""
    leaves = _leaves(buffer, starts, ends, kinds)
    if sum(len(text) for kind, text in leaves if kind > _NULL) > _TEXT_BYTES:
        raise ValueError("the texts have more than 2 GiB")
    offsets, texts, fits = array("i", [0]), bytearray(), bytearray()
    for kind, text in leaves:
        shown = unescaped(text) if kind == _ESCAPED else text if kind > _NULL else b""
        fits.append(shown is not None)
        texts += shown or b""
        offsets.append(len(texts))
    return offsets.tobytes(), bytes(texts), bytes(fits)


def json_integers(buffer: Buffer, starts: Buffer, ends: Buffer, kinds: Buffer, bits: int) -> tuple[bytes, bytes]:
    """See `kernel.json_integers`."""
    numbers, fits = array("q"), bytearray()
    for kind, text in _leaves(buffer, starts, ends, kinds):
        digits = text.removeprefix(b"-").lstrip(b"0")
        number = None
        if kind == _INTEGER and _WHOLE.fullmatch(text) and len(digits) < 20:
            number = int(digits or b"0") * (-1 if text.startswith(b"-") else 1)
        fits.append(number is not None and -(1 << bits) <= number < 1 << bits)
        numbers.append(number if number is not None and fits[-1] else 0)
    return numbers.tobytes(), bytes(fits)


def json_decimals(
    buffer: Buffer, starts: Buffer, ends: Buffer, kinds: Buffer, precision: int, scale: int
) -> tuple[bytes, bytes]:
    """See `kernel.json_decimals`."""
    numbers, fits = bytearray(), bytearray()
    for kind, text in _leaves(buffer, starts, ends, kinds):
        is_number = kind in (_INTEGER, _NUMBER, _TEXT) and _NUMERAL.fullmatch(text)
        number = _scaled(text, precision, scale) if is_number else None
        fits.append(number is not None)
        numbers += (number or 0).to_bytes(16, "little", signed=True)
    return bytes(numbers), bytes(fits)


def _scaled(text: bytes, precision: int, scale: int) -> int | None:
    mantissa, _, exponent = text.lower().partition(b"e")
    whole, _, fraction = mantissa.lstrip(b"-").partition(b".")
    digits = (whole + fraction).lstrip(b"0")
    if not digits:
        return 0
    # `keep` of the digits are before the point of the result.
    keep = len(digits) - len(fraction) + _bounded(exponent) + scale
    if keep > precision:
        return None
    if keep < 0:
        return 0
    number = int(digits[:keep].ljust(keep, b"0") or b"0") + (digits[keep : keep + 1] >= b"5")
    return None if number >= 10**precision else -number if mantissa.startswith(b"-") else number


def _bounded(exponent: bytes) -> int:
    digits = exponent.lstrip(b"+-").lstrip(b"0")
    number = int(digits) if 0 < len(digits) < 16 else 1 << 50 if digits else 0
    return -number if exponent.startswith(b"-") else number


#: `kernel.Moment`.
_NO_MOMENT, _DATE, _LOCAL, _ZONED = range(4)
_MOMENT = re.compile(
    rb"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    rb"(?:[Tt ]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:(?<=:[0-9]{2}:[0-9]{2})\.([0-9]{1,9}))?"
    rb"(Z|z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def json_moments(buffer: Buffer, starts: Buffer, ends: Buffer, kinds: Buffer) -> tuple[bytes, bytes]:
    """See `kernel.json_moments`."""
    micros, found = array("q"), bytearray()
    for kind, text in _leaves(buffer, starts, ends, kinds):
        moment = _moment(text) if kind == _TEXT else (0, _NO_MOMENT)
        micros.append(moment[0])
        found.append(moment[1])
    return micros.tobytes(), bytes(found)


def _moment(text: bytes) -> tuple[int, int]:
    match = _MOMENT.fullmatch(text)
    if match is None:
        return 0, _NO_MOMENT
    date, time, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{date.decode()} {(time or b'00:00').decode()}")
        moment = moment.replace(microsecond=int((fraction or b"")[:6].ljust(6, b"0")), tzinfo=_offset(zone or b"Z"))
        micros = (moment.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        return 0, _NO_MOMENT
    return micros, _DATE if time is None else _LOCAL if zone is None else _ZONED


def _offset(zone: bytes) -> timezone:
    """Raises ValueError if it is not an offset of less than a day."""
    if zone in (b"Z", b"z"):
        return UTC
    minute = int(zone[3:].lstrip(b":") or b"0")
    if minute > 59:
        raise ValueError("a zone has at most 59 minutes")
    return timezone(timedelta(minutes=int(zone[1:3]) * 60 + minute) * (-1 if zone.startswith(b"-") else 1))
