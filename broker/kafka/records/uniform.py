"""Reads records of a batch that differ in little more than their bytes: one size, no headers. Pure.

Much of what is produced in bulk is like that. Such records lie in a grid, of which the columns that must be alike are
compared, and those that are wanted are cut out, with next to no Python a record. A range ends where a column changes:
where deltas take another byte, too. Whatever else there is, is read record by record.
"""

from __future__ import annotations

from itertools import chain
from typing import Final, NamedTuple

from broker.kafka.records.writing import varint, varints
from storage.format.blocks import field, split_block

#: So few records in one stretch are read faster one by one.
_FEW: Final = 16
_MAX_VARINT_BYTES: Final = 5
#: Deltas of offsets take another byte from each of these on.
_WIDER_AT: Final = (64, 8192, 1 << 20, 1 << 27, 1 << 34)
_LAST, _NOT_LAST = bytes(range(0x80)), bytes(range(0x80, 0x100))


class UniformRecords(NamedTuple):
    """Columns of records that have no headers; `keys` None: all are null."""

    keys: list[bytes] | None
    values: list[bytes]
    deltas: list[int]


class _Layout(NamedTuple):
    """Where the fields of a record are, from its beginning on. `key_size` -1: null."""

    size: int
    time_at: int
    offset_at: int
    key_at: int
    key_size: int
    value_at: int
    value_size: int


def read_uniform(data: bytes, at: int, count: int) -> UniformRecords | None:
    """The `count` records from data[at] to its end, numbered one by one; None: they are not all like that."""
    keys: list[list[bytes]] = []
    values: list[list[bytes]] = []
    deltas: list[int] = []
    number = 0
    while number < count:
        layout = _layout(data, at)
        if layout is None:
            return None
        wider = next(each for each in _WIDER_AT if number < each)
        most = min(count, wider) - number
        found = min(most, (len(data) - at) // layout.size)
        found = _same(data, at, layout, found)
        if found < min(_FEW, most) or not _numbered(data, at, layout, number, found):
            return None
        grid = memoryview(data)[at : at + found * layout.size]
        values.append(_column(grid, layout.size, layout.value_at, layout.value_size))
        if layout.key_size >= 0:
            keys.append(_column(grid, layout.size, layout.key_at, layout.key_size))
        deltas += _numbers(data, at + layout.time_at, layout.size, found, layout.offset_at - layout.time_at)
        at += found * layout.size
        number += found
    if at != len(data) or (keys and len(keys) != len(values)):
        return None
    return UniformRecords([*chain.from_iterable(keys)] if keys else None, [*chain.from_iterable(values)], deltas)


def _layout(data: bytes, at: int) -> _Layout | None:
    """Of the record at data[at]; None: it is not one of those read here."""
    try:
        length, position = read_varint(data, at)
        body = position
        if length < 0 or data[position] != 0:
            return None
        time_at = position + 1
        _, offset_at = read_varint(data, time_at)
        _, position = read_varint(data, offset_at)
        key_size, key_at = read_varint(data, position)
        position = key_at + max(0, key_size)
        value_size, value_at = read_varint(data, position)
        end = value_at + value_size
        if key_size < -1 or value_size < 0 or end + 1 != body + length or data[end] != 0:
            return None
    except IndexError:
        return None
    return _Layout(end + 1 - at, time_at - at, offset_at - at, key_at - at, key_size, value_at - at, value_size)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A signed one, and where it ends. Longer ones than lengths and deltas take are read as something too large."""
    value = shift = 0
    for position in range(at, at + _MAX_VARINT_BYTES):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), position + 1
        shift += 7
    return 1 << 62, at + _MAX_VARINT_BYTES


def _same(data: bytes, at: int, layout: _Layout, count: int) -> int:
    """How many records from the first on have its layout, `count` at most."""
    size = layout.size
    fixed = [*range(layout.time_at), *range(layout.key_at - len(varint(layout.key_size)), layout.key_at)]
    key_end = layout.key_at + max(0, layout.key_size)
    fixed += [*range(key_end, layout.value_at), size - 1]
    for column in fixed:
        begin = at + column
        count = _leading(data, begin, size, count, data[begin : begin + 1])
    times = range(layout.time_at, layout.offset_at)
    for column in times:
        count = _leading(data, at + column, size, count, _LAST if column == times[-1] else _NOT_LAST)
    return count


def _leading(data: bytes, begin: int, size: int, count: int, allowed: bytes) -> int:
    """How many bytes of a column from the first on are among those allowed, `count` at most."""
    column = data[begin : begin + (count - 1) * size + 1 : size] if count else b""
    return len(column) - len(column.lstrip(allowed))


def _numbered(data: bytes, at: int, layout: _Layout, number: int, count: int) -> bool:
    """Whether these records say that they are `number` and those behind it."""
    first = varint(number)
    expected = b"".join(varints(range(number, number + count)))
    return len(expected) == len(first) * count and (
        field(data, at + layout.offset_at, layout.size, count, len(first)) == expected
    )


def _column(grid: memoryview, width: int, begin: int, size: int) -> list[bytes]:
    return [*split_block(grid, width, f"{begin}x{size}s{width - begin - size}x")]


def _numbers(data: bytes, at: int, width: int, count: int, size: int) -> list[int]:
    """The varints of `size` bytes each in a column."""
    pieces = [*split_block(field(data, at, width, count, size), size)]
    known = {piece: read_varint(piece, 0)[0] for piece in {*pieces}}
    return [*map(known.__getitem__, pieces)]
