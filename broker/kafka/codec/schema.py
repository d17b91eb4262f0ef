"""Declared messages, and the decoder and encoder of each version that follow from the declaration.

A message is a class with its fields in wire order. Each has a type, and `Since` or `Until` if not every version has it:

    @flexible(3)
    class FindCoordinatorRequest(Message):
        key: String = ""
        key_type: Annotated[Int8, Since(1)] = 0

A field that a version does not have gets its default when a message is decoded, and is omitted when it is encoded.
From version `flexible` on, strings, bytes and arrays are compact, and every structure ends with tagged fields. Received
tagged fields are skipped: the broker needs none of those in the versions that it serves. Bytes after the last field are
ignored (librdkafka sends some).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from broker.kafka.codec.wire import Buffer, Malformed, Reader, Writer

#: Higher than any version.
NEVER: Final = 1 << 15

Read: TypeAlias = Callable[[Reader], Any]
Write: TypeAlias = Callable[[Writer, Any], None]


class Since(NamedTuple):
    """The field exists from that version on."""

    version: int


class Until(NamedTuple):
    """The field exists up to and including that version."""

    version: int


class Kind(NamedTuple):
    """A primitive type: how to read and write it, and how in flexible versions."""

    read: Read
    write: Write
    compact_read: Read
    compact_write: Write


def _fixed(read: Read, write: Write) -> Kind:
    return Kind(read, write, read, write)


_STRING = Kind(Reader.string, Writer.string, Reader.compact_string, Writer.compact_string)
_DATA = Kind(Reader.data, Writer.data, Reader.compact_data, Writer.compact_data)

Int8: TypeAlias = Annotated[int, _fixed(Reader.int8, Writer.int8)]
Int16: TypeAlias = Annotated[int, _fixed(Reader.int16, Writer.int16)]
Int32: TypeAlias = Annotated[int, _fixed(Reader.int32, Writer.int32)]
Int64: TypeAlias = Annotated[int, _fixed(Reader.int64, Writer.int64)]
UInt16: TypeAlias = Annotated[int, _fixed(Reader.uint16, Writer.uint16)]
Bool: TypeAlias = Annotated[bool, _fixed(Reader.boolean, Writer.boolean)]
Uuid: TypeAlias = Annotated[bytes, _fixed(Reader.uuid, Writer.uuid)]
#: Types that may be null are declared with `| None`. A null of any other type is malformed.
String: TypeAlias = Annotated[str, _STRING]
NullableString: TypeAlias = Annotated[str | None, _STRING]
Bytes: TypeAlias = Annotated[bytes, _DATA]
NullableBytes: TypeAlias = Annotated[bytes | None, _DATA]


class Part(msgspec.Struct, kw_only=True):
    """A structure within a message."""


class Message(Part):
    """A whole request or response."""

    flexible_since: ClassVar[int] = NEVER


M = TypeVar("M", bound=Message)


def flexible(version: int) -> Callable[[type[M]], type[M]]:
    """Mark a message as flexible from that version on."""

    def marked(kind: type[M]) -> type[M]:
        kind.flexible_since = version
        return kind

    return marked


def decode(kind: type[M], version: int, frame: Buffer, position: int = 0) -> M:
    """Decode the message that begins at `position`. Raises Malformed."""
    read, _ = _structure(kind, version, version >= kind.flexible_since)
    return read(Reader(frame, position))


def encode(message: Message, version: int, errors: list[int] | None = None) -> bytes:
    """Encode the message in that version. Error codes in it, except 0, are added to `errors`."""
    kind = type(message)
    _, write = _structure(kind, version, version >= kind.flexible_since)
    writer = Writer()
    write(writer, message)
    if errors is not None:
        errors += writer.errors
    return writer.done()


@cache
def _structure(kind: type[Part], version: int, flexible: bool) -> tuple[Read, Write]:
    hints = get_type_hints(kind, include_extras=True)
    fields = [
        (name, *_typed(hints[name], version, flexible, f"{kind.__name__}.{name}"))
        for name in kind.__struct_fields__
        if _exists(hints[name], version)
    ]
    reads = [(name, read) for name, read, _ in fields]
    writes = [(name, write) for name, _, write in fields]
    has_error = "error_code" in kind.__struct_fields__

    def read_all(reader: Reader) -> Part:
        made = kind(**{name: read(reader) for name, read in reads})
        if flexible:
            reader.skip_tagged_fields()
        return made

    def write_all(writer: Writer, part: Any) -> None:
        for name, write in writes:
            write(writer, getattr(part, name))
        if has_error and part.error_code:
            writer.errors.append(part.error_code)
        if flexible:
            writer.no_tagged_fields()

    return read_all, write_all


def _exists(hint: Any, version: int) -> bool:
    for mark in get_args(hint)[1:] if get_origin(hint) is Annotated else ():
        if isinstance(mark, Since) and version < mark.version:
            return False
        if isinstance(mark, Until) and version > mark.version:
            return False
    return True


def _typed(hint: Any, version: int, flexible: bool, where: str) -> tuple[Read, Write]:
    """The functions that read and write a value of that type; `where` names its field in errors."""
    marks: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *rest = get_args(hint)
        marks = tuple(rest)
    plain, nullable = _without_none(hint)
    for mark in marks:
        if isinstance(mark, Kind):
            read = mark.compact_read if flexible else mark.read
            write = mark.compact_write if flexible else mark.write
            return (read if nullable else _not_null(read, where)), write
    if get_origin(plain) is list:
        return _array(get_args(plain)[0], nullable, version, flexible, where)
    parts = _structure(plain, version, flexible)
    return _or_null(*parts) if nullable else parts


def _or_null(read_one: Read, write_one: Write) -> tuple[Read, Write]:
    """The same for a structure that may be null: a byte before it says so."""

    def read(reader: Reader) -> Any:
        return read_one(reader) if reader.int8() >= 0 else None

    def write(writer: Writer, part: Part | None) -> None:
        writer.int8(-1 if part is None else 1)
        if part is not None:
            write_one(writer, part)

    return read, write


def _array(element: Any, nullable: bool, version: int, flexible: bool, where: str) -> tuple[Read, Write]:
    read_one, write_one = _typed(element, version, flexible, where)

    def read(reader: Reader) -> Any:
        return reader.compact_array(read_one) if flexible else reader.array(read_one)

    def write(writer: Writer, values: list[Any] | None) -> None:
        if flexible:
            writer.compact_array(values, write_one)
        else:
            writer.array(values, write_one)

    return (read if nullable else _not_null(read, where)), write


def _not_null(read: Read, where: str) -> Read:
    def checked(reader: Reader) -> Any:
        value = read(reader)
        if value is None:
            raise Malformed(f"{where} is null")
        return value

    return checked


def _without_none(hint: Any) -> tuple[Any, bool]:
    """The type without `| None`, and whether it had that."""
    if isinstance(hint, UnionType):
        left = [each for each in get_args(hint) if each is not NoneType]
        return left[0], len(left) < len(get_args(hint))
    return hint, False
