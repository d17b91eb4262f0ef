"""The kernel in Python, row by row: used if the compiled kernel was not built, and as the reference in its tests.

It is written to be read beside docs/reference/format.md, not to be fast. Functions have the arguments and results that
`kernel` wraps: bytes for columns of numbers, rows as `kernel.rows` describes them.

Source: docs/reference/format.md.
"""

from __future__ import annotations

import re
import struct
from array import array
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import chain, repeat
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from xxhash import xxh3_64_digest
from xxhash import xxh3_64_intdigest as checksum

from kernel.plain_json import json_decimals, json_elements, json_integers, json_members, json_moments, json_texts
from kernel.rows import ROW, ROW_SIZE

Buffer: TypeAlias = bytes | bytearray | memoryview
#: The fields of a row; see `kernel.rows`.
_Row: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int]

__all__ = ["checksum", "json_decimals", "json_elements", "json_integers", "json_members", "json_moments", "json_texts"]

#: The version of the functions' arguments and results. kernel/src/kernel.h must have the same. Raise both when one
#: changes.
INTERFACE: Final = 6

_LOG_HEADER = struct.Struct("<IBBQQQHHI")
_SEGMENT_HEADER = struct.Struct("<IBQQQHHI")
_REST = struct.Struct("<BBQQQHHI")  # the header of a log frame without frame_len: the checksum begins with it
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_OVERHEAD: Final = 46
_APPEND: Final = 1
_HAS_TAG, _HAS_NODE, _MORE, _BINARY = 1, 2, 8, 16
_LIVE, _DELETED = 0x00, 0xD5
_U32_MAX, _U64_MAX = (1 << 32) - 1, (1 << 64) - 1
_MAX_HOLES: Final = 1 << 24

_ENTRY = struct.Struct("<IIQB")
_ENTRY_SIZE: Final = 20

# `kernel.Body`, `kernel.Part`, `kernel.RowShape`, `kernel.GroupKind`, and the numbers of `kernel.REASONS`.
_JSON, _AS_BINARY, _STORED_JSON = 0, 1, 2
_PART_DATA = 3
_TAGS, _META, _DATA, _STORED = 1, 2, 4, 8
_CONTROL, _BATCHED, _OF_DATA = 0, 1, 2
_END, _SHORT, _ZERO, _LENGTH, _CHECKSUM, _DELETE, _OTHER, _FULL = range(8)


# -- checksums ---------------------------------------------------------------------------------------------------------


def _crc_table() -> tuple[int, ...]:
    table: list[int] = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_CRC_TABLE: Final = _crc_table()


def _crc_by_table(buffer: Buffer) -> int:
    crc, table = 0xFFFFFFFF, _CRC_TABLE
    for byte in bytes(buffer):
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _crc_of_package() -> Callable[[Buffer], int]:
    """The CRC-32C of google-crc32c, which the Kafka port installs, or else one with a table."""
    try:
        value: Any = import_module("google_crc32c").value
    except ImportError:
        return _crc_by_table

    def crc(buffer: Buffer) -> int:
        return value(bytes(buffer))

    return crc


crc32c: Callable[[Buffer], int] = _crc_of_package()


# -- encoding ----------------------------------------------------------------------------------------------------------


def encode_appends(
    datas: Sequence[Buffer],
    metas: Sequence[Buffer | None] | None,
    tags: Sequence[Buffer | None] | Buffer | None,
    nodes: Sequence[Buffer | None] | None,
    deliver_ats: Sequence[int | None] | None,
    bodies: Buffer | None,
    body: int,
    topic_id: int,
    first_seq: int,
    ts: int,
    node: Buffer,
    flags: int,
    more: bool,
    apart: bool,
    around: Callable[[int], tuple[Buffer, Buffer]] | None,
) -> tuple[bytes, bytes]:
    """See `kernel.encode_appends`; sizes as u32."""
    count = len(datas)
    tag_of_all = tags if isinstance(tags, (bytes, bytearray, memoryview)) else None
    of_each = None if tag_of_all is not None else tags
    for column in (metas, of_each, nodes, deliver_ats, bodies):
        if column is not None and len(column) != count:
            raise ValueError(f"a column has {len(column)} values, there are {count} records")
    _check_seqs(first_seq, count)
    kinds = bytes((body,)) * count if bodies is None else bytes(bodies)
    texts = _bodies(datas, metas, deliver_ats, kinds)
    labels = [bytes(tag_of_all or b"")] * count if of_each is None else [bytes(tag or b"") for tag in of_each]
    own_nodes = [bytes(node)] * count if nodes is None else [bytes(own or node) for own in nodes]
    lengths = [[*map(len, column)] for column in (own_nodes, labels, texts)]
    if count and (max(*lengths[0], *lengths[1]) > 0xFFFF or sum(map(max, lengths)) > _U32_MAX - _OVERHEAD):
        for number, each in enumerate(zip(*lengths, strict=True)):
            if max(each[:2]) > 0xFFFF:
                raise ValueError(f"record {number}: a node or tag has more than 65,535 bytes")
            _check_size(number, _OVERHEAD + sum(each))
    flags_of_all = flags | (0 if apart else _MORE)
    if of_each is None and nodes is None and bodies is None:
        own_flags = [flags_of_all | _label_flags(bytes(tag_of_all or b""), node, body)] * count
    else:
        own_flags = [flags_of_all | own for own in map(_label_flags, labels, own_nodes, kinds)]
    if count and not more and not apart:
        own_flags[-1] ^= _MORE & ~flags
    seqs = range(first_seq, first_seq + count)
    rests = map(_REST.pack, repeat(_APPEND), own_flags, repeat(topic_id), seqs, repeat(ts), *lengths)
    covered = [*map(b"".join, zip(rests, own_nodes, labels, texts, strict=True))]
    frame_lens = [len(each) + _U64.size for each in covered]
    sums = struct.pack(f"<{count}Q", *map(checksum, covered))
    frames = chain.from_iterable(
        zip(
            struct.unpack("4s" * count, struct.pack(f"<{count}I", *frame_lens)),
            covered,
            struct.unpack("8s" * count, sums),
            strict=True,
        )
    )
    sizes = array("I", [frame_len + _U32.size for frame_len in frame_lens])
    front, behind = around(sum(sizes)) if around is not None else (b"", b"")
    return b"".join((front, *frames, behind)), sizes.tobytes()


def _label_flags(tag: Buffer, node: Buffer, kind: int) -> int:
    return (_HAS_TAG if tag else 0) | (_HAS_NODE if node else 0) | (_BINARY if kind & 1 else 0)


def _bodies(
    datas: Sequence[Buffer],
    metas: Sequence[Buffer | None] | None,
    deliver_ats: Sequence[int | None] | None,
    kinds: bytes,
) -> list[bytes]:
    if metas is None and deliver_ats is None and kinds == bytes((_JSON,)) * len(kinds):
        return [*map(b"".join, zip(repeat(b'{"data":'), map(bytes, datas), repeat(b"}"), strict=False))]
    all_metas: Iterable[Buffer | None] = repeat(None) if metas is None else metas
    due: Iterable[int | None] = repeat(None) if deliver_ats is None else deliver_ats
    return [*map(_body, kinds, map(bytes, datas), all_metas, due)]


def _check_seqs(first_seq: int, count: int) -> None:
    if count and first_seq + count - 1 > _U64_MAX:
        raise ValueError(f"{count} seqs from {first_seq} on end beyond 64 bits")


def _check_size(number: int, size: int) -> None:
    if size > _U32_MAX:
        raise ValueError(f"record {number}: its frame would have {size} bytes, more than {_U32_MAX}")


def _body(kind: int, data: bytes, meta: Buffer | None, deliver_at: int | None) -> bytes:
    if not 0 <= kind <= 3:
        raise ValueError(f"there is no body of kind {kind}")
    if kind != _JSON:
        if meta is not None or deliver_at is not None:
            raise ValueError("only a body made here of JSON takes a meta or a deliver_at")
        return b"\x81\xd9\x01v\xc6" + struct.pack(">I", len(data)) + data if kind == _AS_BINARY else data
    text = b'{"data":' + data
    if meta is not None:
        text += b',"meta":' + bytes(meta)
    if deliver_at is not None:
        if not 0 <= deliver_at <= _U64_MAX:
            raise OverflowError(f"a deliver_at of {deliver_at} is no number of 64 bits")
        text += b',"deliver_at":%d' % deliver_at
    return text + b"}"


def _frame(rest: bytes, node: bytes, tag: bytes, data: bytes) -> bytes:
    covered = b"".join((rest, node, tag, data))
    return _U32.pack(len(covered) + _U64.size) + covered + _U64.pack(checksum(covered))


def encode_copies(
    buffer: Buffer, rows: bytes, topic_id: int, first_seq: int, ts: int, flags: int, more: bool, apart: bool
) -> tuple[bytes, bytes]:
    """See `kernel.encode_copies`; sizes as u32."""
    count = len(rows) // ROW_SIZE
    _check_seqs(first_seq, count)
    frames, sizes = list[bytes](), array("I")
    for number, row in enumerate(_checked(buffer, rows)):
        own = flags | row[9] & (_HAS_TAG | _HAS_NODE | _BINARY)
        if not apart and (more or number < count - 1):
            own |= _MORE
        rest = _REST.pack(_APPEND, own, topic_id, first_seq + number, ts, row[6], row[7], row[5])
        frames.append(_frame(rest, *_parts_of(buffer, row)))
        sizes.append(len(frames[-1]))
    return b"".join(frames), sizes.tobytes()


# -- verifying ---------------------------------------------------------------------------------------------------------


def scan(
    buffer: Buffer,
    kind: int,
    start: int,
    stop: int,
    max_frames: int,
    max_bytes: int,
    verify: bool,
    topic_id: int | None,
    first_seq: int | None,
) -> tuple[bytes, int, int]:
    """See `kernel.scan`: rows, end, the number of the reason."""
    if not 0 <= start <= stop <= len(buffer) or kind not in (0, 1):
        raise ValueError(f"[{start}, {stop}) of {len(buffer)} bytes, frames of kind {kind}")
    rows: list[bytes] = []
    at, total = start, 0
    while at < stop:
        available = stop - at
        if max_frames and len(rows) >= max_frames:
            return b"".join(rows), at, _FULL
        if available < _OVERHEAD:
            return b"".join(rows), at, _SHORT
        if kind:
            length, flags, topic, seq, ts, node_len, tag_len, data_len = _SEGMENT_HEADER.unpack_from(buffer, at)
            type_, header = _APPEND, _SEGMENT_HEADER.size
        else:
            length, type_, flags, topic, seq, ts, node_len, tag_len, data_len = _LOG_HEADER.unpack_from(buffer, at)
            header = _LOG_HEADER.size
        size = length + _U32.size
        if size != _OVERHEAD + node_len + tag_len + data_len:
            return b"".join(rows), at, _LENGTH if length else _ZERO
        if size > available:
            return b"".join(rows), at, _SHORT
        if size > _U32_MAX:
            return b"".join(rows), at, _LENGTH
        if max_bytes and rows and total + data_len > max_bytes:
            return b"".join(rows), at, _FULL
        sum_at = at + size - _U64.size - (1 if kind else 0)
        covered = bytes((_APPEND,)) + bytes(buffer[at + 4 : sum_at]) if kind else buffer[at + 4 : sum_at]
        if verify and checksum(covered) != _U64.unpack_from(buffer, sum_at)[0]:
            return b"".join(rows), at, _CHECKSUM
        delete_byte = bytes(buffer[at + size - 1 : at + size])[0] if kind else _LIVE
        if delete_byte not in (_LIVE, _DELETED):
            return b"".join(rows), at, _DELETE
        if (topic_id is not None and topic != topic_id) or (
            first_seq is not None and (type_ != _APPEND or seq != first_seq + len(rows))
        ):
            return b"".join(rows), at, _OTHER
        rows.append(ROW.pack(at, topic, seq, ts, size, data_len, node_len, tag_len, type_, flags, delete_byte, header))
        total += data_len
        at += size
    return b"".join(rows), at, _END


# -- columns -----------------------------------------------------------------------------------------------------------


def _checked(buffer: Buffer, rows: bytes) -> Iterator[_Row]:
    """The rows. Raises ValueError for a row that lies outside the buffer."""
    if len(rows) % ROW_SIZE:
        raise ValueError("the rows are cut short")
    for number, row in enumerate(ROW.iter_unpack(rows)):
        offset, size, data_len, node_len, tag_len, header = row[0], row[4], row[5], row[6], row[7], row[11]
        if (
            header not in (_LOG_HEADER.size, _SEGMENT_HEADER.size)
            or size != _OVERHEAD + node_len + tag_len + data_len
            or offset + size > len(buffer)
        ):
            raise ValueError(f"row {number} lies outside the buffer")
        yield row


def _parts_of(buffer: Buffer, row: _Row) -> tuple[bytes, bytes, bytes]:
    """Node, tag and body."""
    node_at = row[0] + row[11]
    tag_at = node_at + row[6]
    body_at = tag_at + row[7]
    return bytes(buffer[node_at:tag_at]), bytes(buffer[tag_at:body_at]), bytes(buffer[body_at : body_at + row[5]])


_BATCH: Final = 12
#: The content of a Batch frame with records: sizes as numbers of any width, a key, a hash, a producer.
_NUMBER: Final = rb"([\0-\x7f]|\xcc.|\xcd..|\xce.{4}|\xcf.{8})"
_SIZES = re.compile(rb"[\x83-\x86]\xa6frames%b\xa5bytes%b\xa9first_seq%b" % (_NUMBER, _NUMBER, _NUMBER), re.DOTALL)
_KEY = re.compile(rb"\xa3key(?:([\xa0-\xbf])|\xd9(.)|\xda(..)|\xdb(.{4}))", re.DOTALL)
_HASH = re.compile(rb"\xa4hash(?:\xc4\x10|\xc5\0\x10|\xc6\0\0\0\x10)(.{16})", re.DOTALL)
_PRODUCER = re.compile(rb"\xa8producer\x93%b%b%b" % (_NUMBER, _NUMBER, _NUMBER), re.DOTALL)


class _Said(NamedTuple):
    """The content of a Batch frame with records."""

    frames: int
    size: int
    first_seq: int
    key: bytes | None
    hash: bytes
    producer: tuple[int, ...]


def _said(body: bytes) -> _Said | None:
    """None if the body has other fields, or another form than the one that is written."""
    sizes = _SIZES.match(body)
    if sizes is None:
        return None
    end, found, text = sizes.end(), 0, None
    if key := _KEY.match(body, end):
        length = key[key.lastindex or 0]
        size = length[0] & 0x1F if key.lastindex == 1 else int.from_bytes(length, "big")
        text, end, found = body[key.end() : key.end() + size], key.end() + size, found + 1
        try:
            text.decode()
        except UnicodeDecodeError:
            return None
    if digest := _HASH.match(body, end):
        end, found = digest.end(), found + 1
    if producer := _PRODUCER.match(body, end):
        end, found = producer.end(), found + 1
    if end != len(body) or found != body[0] - 0x83:
        return None
    numbers = tuple(map(_packed_number, producer.groups())) if producer else ()
    frames, size, first_seq = map(_packed_number, sizes.groups())
    return _Said(frames, size, first_seq, text, digest[1] if digest else b"", numbers)


def _packed_number(text: bytes) -> int:
    return int.from_bytes(text[1:] or text, "big")


def _is_data(row: _Row) -> bool:
    return row[8] == _APPEND and (not row[9] & _HAS_TAG) == (not row[7])


def _unit_of_data(buffer: Buffer, rows: list[_Row], number: int) -> int:
    """How many rows from here on are one unit of data; 0: none."""
    opening = rows[number]
    if not opening[9] & _MORE:
        return int(_is_data(opening))
    said = _said(_parts_of(buffer, opening)[2]) if opening[8] == _BATCH else None
    if said is None:
        return 0
    frames, size, first_seq, *_ = said
    if not 0 < frames < len(rows) - number or first_seq > _U64_MAX - frames:
        return 0
    inner = rows[number + 1 : number + 1 + frames]
    end, ts = opening[0] + opening[4], inner[0][3]
    for seq, row in enumerate(inner, first_seq):
        more = bool(row[9] & _MORE)
        if not _is_data(row) or (row[0], row[1], row[2], row[3]) != (end, opening[1], seq, ts):
            return 0
        if more != (seq + 1 < first_seq + frames):
            return 0
        end += row[4]
    return frames + 1 if end - opening[0] - opening[4] == size else 0


def groups(buffer: Buffer, rows: bytes, inside: bool) -> list[tuple[int, int, int]]:
    """See `kernel.groups`."""
    table, found = [*_checked(buffer, rows)], list[tuple[int, int, int]]()
    number, first, kind_before, before = 0, 0, -1, None
    while number < len(table):
        _, topic_id, seq, ts, *_ = row = table[number]
        taken = 0 if inside else _unit_of_data(buffer, table, number)
        kind = _OF_DATA if taken else _BATCHED if row[8] == _APPEND else _CONTROL
        goes_on = kind == kind_before and (
            kind == _OF_DATA or (kind == _BATCHED and inside and before == (topic_id, seq - 1, ts))
        )
        if not goes_on:
            if number:
                found.append((first, number, kind_before))
            first = number
        kind_before, before, inside = kind, (topic_id, seq, ts), not taken and bool(row[9] & _MORE)
        number += taken or 1
    if table:
        found.append((first, len(table), kind_before))
    return found


class _Lists(NamedTuple):
    """As in `kernel.Batches`; the tags by column."""

    topic_id: int
    seqs: array[int]
    stamps: array[int]
    lsns: array[int]
    leads: array[int]
    sizes: array[int]
    payloads: array[int]
    tag_seqs: array[int]
    tag_lens: array[int]
    tags: bytearray
    keyed: list[tuple[int, int, int, bytes, bytes]]
    sent: list[tuple[int, ...]]

    @classmethod
    def of(cls, topic_id: int) -> _Lists:
        return cls(topic_id, *map(array, "QQQIIIQH"), bytearray(), [], [])  # type: ignore[arg-type, misc]


def by_topic(buffer: Buffer, rows: bytes, payloads: array[int], base: int) -> list[tuple[Any, ...]]:
    """See `kernel.by_topic`; the fields of `_Lists`, columns as bytes."""
    table = [*_checked(buffer, rows)]
    if len(payloads) != len(table):
        raise ValueError(f"{len(payloads)} payloads, {len(table)} rows")
    lists: list[_Lists] = []
    open_: dict[int, tuple[int, _Lists]] = {}
    inside, opening = False, None
    for row, payload in zip(table, payloads, strict=True):
        offset, topic_id, seq, ts, size, *_ = row
        begins, inside = not inside, row[8] == _APPEND and bool(row[9] & _MORE)
        if row[8] != _APPEND:
            opening = row
            continue
        if topic_id not in open_ or open_[topic_id][0] != seq - 1:
            begins = True
            lists.append(_Lists.of(topic_id))
            open_[topic_id] = seq, lists[-1]
        found = open_[topic_id][1]
        if begins:
            if (
                opening is not None
                and opening[8] == _BATCH
                and (said := _said(_parts_of(buffer, opening)[2])) is not None
            ):
                written = said.first_seq, said.frames, ts
                if said.key is not None:
                    found.keyed.append((*written, said.key, said.hash))
                if said.producer:
                    found.sent.append((*written, *said.producer))
            found.seqs.append(seq)
            found.stamps.append(ts)
            found.lsns.append((base + offset) & _U64_MAX)
            found.leads.append(opening[4] if opening is not None else 0)
        found.sizes.append(size)
        found.payloads.append(payload)
        if row[7]:
            found.tag_seqs.append(seq)
            found.tag_lens.append(row[7])
            found.tags.extend(_parts_of(buffer, row)[1])
        open_[topic_id], opening = (seq, found), None
    return [(each.topic_id, *map(bytes, each[1:10]), each.keyed, each.sent) for each in lists]


def measure(buffer: Buffer, rows: bytes) -> tuple[bytes, list[tuple[int, int]], int]:
    """See `kernel.measure`; payloads as u32."""
    payloads, delayed, bad = array("I"), list[tuple[int, int]](), -1
    for number, row in enumerate(_checked(buffer, rows)):
        if row[8] != _APPEND:
            payloads.append(0)
            continue
        body = _parts_of(buffer, row)[2]
        payload = _payload(body)
        if payload < 0:
            payload = max(0, len(body) - _PLAIN_OVERHEAD)
            bad = number if bad < 0 else bad
        payloads.append(payload)
        if deliver_at := _delivered_at(body):
            delayed.append((number, deliver_at))
    return payloads.tobytes(), delayed, bad


_PLAIN_OVERHEAD: Final = len(b'{"data":}')
_DELIVER_AT: Final = b',"deliver_at":'
_META_KEY: Final = b',"meta":'


def _payload(body: bytes) -> int:
    """Payload bytes of the body; -1 if it is not a record."""
    if not body.startswith(b"{"):
        return max(0, len(body) - _PLAIN_OVERHEAD) if body else -1
    if _META_KEY not in body and _DELIVER_AT not in body:
        return max(-1, len(body) - _PLAIN_OVERHEAD)
    parts = _split(body)
    if parts is None:
        return -1
    data, meta, ct, h = parts
    return len(data) + len(meta or b"") + (len(b',"ct":' + ct) if ct else 0) + (len(b',"h":' + h) if h else 0)


def _delivered_at(body: bytes) -> int:
    at = body.rfind(_DELIVER_AT, max(0, len(body) - len(_DELIVER_AT) - 21)) if body.startswith(b"{") else -1
    digits = body[at + len(_DELIVER_AT) : -1] if at >= 0 else b""
    return int(digits) if digits.isdigit() else 0


def cut(buffer: Buffer, rows: bytes, part: int) -> list[bytes]:
    """See `kernel.cut`."""
    if not 0 <= part <= _PART_DATA:
        raise ValueError(f"a frame has no part {part}")
    if part < _PART_DATA:
        return [_parts_of(buffer, row)[part] for row in _checked(buffer, rows)]
    return [_data_of(_parts_of(buffer, row)[2], number) for number, row in enumerate(_checked(buffer, rows))]


def _data_of(body: bytes, number: int) -> bytes:
    if not body.startswith(b"{"):
        return _binary_parts(body)[0]
    if body.startswith(b'{"data":') and body[-2] in _SURE_ENDS and _META_KEY not in body:
        data: bytes | None = body[len(b'{"data":') : -1].lstrip(_SPACE) if body.endswith(b"}") else None
    else:
        data = (_split(body) or (None,))[0]
    if not data:
        raise ValueError(f"row {number} holds no record")
    return data


# -- segments ----------------------------------------------------------------------------------------------------------


def to_segment(
    buffer: Buffer, rows: bytes, data_offset: int, next_seq: int, last_ts: int, dead: Buffer | None
) -> tuple[bytes, bytes]:
    """See `kernel.to_segment`."""
    if dead is not None and len(dead) != len(rows) // ROW_SIZE:
        raise ValueError(f"{len(dead)} bytes say which frames are dead, there are {len(rows) // ROW_SIZE}")
    data, entries = list[bytes](), list[bytes]()
    at, holes = data_offset, 0
    for number, row in enumerate(_checked(buffer, rows)):
        offset, _, seq, ts, size = row[:5]
        head = _U32.pack(size - _U32.size) + bytes((_APPEND,))
        if row[8] != _APPEND or row[11] != _LOG_HEADER.size or bytes(buffer[offset : offset + 5]) != head:
            raise ValueError(f"row {number} is no Append frame of the log")
        if seq < next_seq or seq == _U64_MAX:
            raise ValueError(f"row {number} has seq {seq}, which is less than {next_seq}")
        holes += seq - next_seq
        if holes > _MAX_HOLES:
            raise ValueError(f"{holes} seqs without a frame, more than {_MAX_HOLES}")
        entries += [_entry(at, 0, last_ts, 0)] * (seq - next_seq)
        next_seq = seq + 1
        if dead is not None and dead[number]:
            entries.append(_entry(at, 0, last_ts, 0))
            continue
        if at + size > _U32_MAX:
            raise ValueError(f".data would end at {at + size}, beyond {_U32_MAX}")
        data += (head[:4], bytes(buffer[offset + 5 : offset + size]), b"\0")
        entries.append(_entry(at, size, ts, row[9] & (_HAS_TAG | _HAS_NODE)))
        at, last_ts = at + size, ts
    return b"".join(data), b"".join(entries)


def _entry(offset: int, size: int, ts: int, flags: int) -> bytes:
    fields = _ENTRY.pack(offset, size, ts, flags)
    return fields + xxh3_64_digest(fields)[:4:-1]  # big-endian: the low 24 bits, lowest first


def build_index(
    lens: Buffer | array[int], stamps: Buffer | array[int], flags: Buffer, data_offset: int, last_ts: int
) -> bytes:
    """See `kernel.build_index`; columns as u32 and u64."""
    sizes, times, at = memoryview(lens).cast("B").cast("I"), memoryview(stamps).cast("B").cast("Q"), data_offset
    if not len(sizes) == len(times) == len(flags):
        raise ValueError(f"{len(sizes)} lens, {len(times)} stamps and {len(flags)} flags")
    entries: list[bytes] = []
    for size, ts, own in zip(sizes, times, bytes(flags), strict=True):
        if at + size > _U32_MAX:
            raise ValueError(f".data would end at {at + size}, beyond {_U32_MAX}")
        last_ts = ts if size else last_ts
        entries.append(_entry(at, size, last_ts, own if size else 0))
        at += size
    return b"".join(entries)


def parse_index(buffer: Buffer) -> tuple[bytes, bytes, bytes, bytes, int]:
    """See `kernel.parse_index`; columns as u32, u32, u64."""
    offsets, lens, stamps, flags, damaged = array("I"), array("I"), array("Q"), bytearray(), -1
    whole = len(buffer) // _ENTRY_SIZE
    for number in range(whole):
        at = number * _ENTRY_SIZE
        offset, size, ts, own = _ENTRY.unpack_from(buffer, at)
        if damaged < 0 and _entry(offset, size, ts, own) != bytes(buffer[at : at + _ENTRY_SIZE]):
            damaged = number
        offsets.append(offset)
        lens.append(size)
        stamps.append(ts)
        flags.append(own)
    if damaged < 0 and len(buffer) % _ENTRY_SIZE:
        damaged = whole
    return offsets.tobytes(), lens.tobytes(), stamps.tobytes(), bytes(flags), damaged


# -- a stored body -----------------------------------------------------------------------------------------------------

_SPACE: Final = b" \t\r\n"
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SCALAR = re.compile(rb"[^,}\] \t\r\n\"{\[:]+")
_SPACES = re.compile(rb"[ \t\r\n]*")
_BRACKETS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["{}\[\]]', re.DOTALL)
_Parts: TypeAlias = tuple[bytes, bytes | None, bytes | None, bytes | None]


def _split(body: bytes) -> _Parts | None:
    """The values of `data`, `meta`, `ct` and `h` of a JSON object, as written. None if it is not such an object.

    If a key is repeated, the last one counts. In values only brackets and strings are checked: the rest was checked
    before it was stored.
    """
    found: dict[bytes, bytes] = {}
    at = _behind_spaces(body, 0)
    if body[at : at + 1] != b"{":
        return None
    while True:
        at = _behind_spaces(body, at + 1)
        key = _STRING.match(body, at)
        if key is None:
            return None
        at = _behind_spaces(body, key.end())
        if body[at : at + 1] != b":":
            return None
        begin = _behind_spaces(body, at + 1)
        at = _value_end(body, begin)
        if at < 0:
            return None
        found[key[0][1:-1]] = body[begin:at]
        at = _behind_spaces(body, at)
        if body[at : at + 1] != b",":
            break
    if body[at : at + 1] != b"}" or _behind_spaces(body, at + 1) != len(body) or b"data" not in found:
        return None
    return found[b"data"], found.get(b"meta"), found.get(b"ct"), found.get(b"h")


def _behind_spaces(text: bytes, at: int) -> int:
    match = _SPACES.match(text, at)
    return match.end() if match else at


def _value_end(text: bytes, at: int) -> int:
    """Where the value that begins at `at` ends; -1 if there is no value."""
    opening = text[at : at + 1]
    if opening == b'"':
        match = _STRING.match(text, at)
        return match.end() if match else -1
    if opening not in (b"{", b"["):
        match = _SCALAR.match(text, at)
        return match.end() if match else -1
    depth = 0
    for token in _BRACKETS.finditer(text, at):
        if token[0] in (b"{", b"["):
            depth += 1
        elif token[0] in (b"}", b"]"):
            depth -= 1
            if not depth:
                return token.end()
        elif token[0] == b'"':  # a string without an end
            return -1
    return -1


class _Map(msgspec.Struct):
    """A MessagePack body, as `storage.format.binary` describes it."""

    v: bytes | None = None
    meta: str = ""


_map = msgspec.msgpack.Decoder(_Map)
_OPENING: Final = b"\x81\xd9\x01v\xc6"


def _binary_parts(body: bytes) -> tuple[bytes, bytes]:
    """Value and meta (JSON text, b"" = none)."""
    if body.startswith(_OPENING) and body[5:9] == struct.pack(">I", max(0, len(body) - 9)):
        return body[9:], b""
    try:
        found = _map.decode(body)
    except msgspec.DecodeError as error:
        raise ValueError(f"a body is no record: {error}") from None
    return found.v or b"", found.meta.encode()


def _json_parts(body: bytes) -> tuple[bytes, bytes | None]:
    """Data and meta as readers of JSON see them. Raises ValueError."""
    if not body.startswith(b"{"):
        value, meta = _binary_parts(body)
        return b'{"$base64":"%b"}' % b64encode(value), meta or None
    parts = _split(body)
    if parts is None:
        raise ValueError("a body is no record")
    return parts[:2]


# -- showing -----------------------------------------------------------------------------------------------------------

#: How bodies without anything after data and meta end. The fields that are stored there and not shown to readers all
#: end in a digit or a bracket, before the brace.
_SURE_ENDS: Final = frozenset(b'"}el')
_STAMPED = re.compile(rb',"ct":-?[0-9]+}\Z')
_DUE = re.compile(rb',"deliver_at":[0-9]{1,20}}\Z')


def _shown(body: bytes) -> bytes:
    """The members of a stored body's object that readers see, and the brace after them."""
    if body.startswith(b"{") and len(body) >= 2 and body[-2] in _SURE_ENDS:
        return body[1:]
    if not body.startswith(b"{") or b',"h":' in body:
        data, meta = _json_parts(body)
        return b'"data":%b%b}' % (data, b"" if meta is None else b',"meta":' + meta)
    return _DUE.sub(b"}", _STAMPED.sub(b"}", body))[1:]


def _members(body: bytes, shape: int) -> bytes:
    """The part of a row after its labels, with the brace."""
    if shape & (_META | _DATA | _STORED) == _META | _DATA:
        return b"," + _shown(body)
    data, meta = _json_parts(body)
    text = b""
    if shape & _STORED:
        said = b'{"data":%b%b}' % (data, b"" if meta is None else b',"meta":' + meta)
        text = b"" if said == body else b',"$stored":"%b"' % b64encode(body)
    if shape & _DATA:
        text += b',"data":' + data
    if shape & _META and meta is not None:
        text += b',"meta":' + meta
    return text + b"}"


def _labels(node: bytes, tag: bytes, tags: bool) -> bytes:
    text = b',"$node":' + msgspec.json.encode(node.decode()) if node else b""
    return text + b',"$tag":' + msgspec.json.encode(tag.decode()) if tag and tags else text


def render_records(records: Sequence[tuple[int, int, bytes, bytes, bytes]], shape: int) -> bytes:
    """See `kernel.render_records`."""
    return b",".join(
        [
            b'{"$seq":%d,"$ts":%d%b%b' % (seq, ts, _labels(node, tag, bool(shape & _TAGS)), _members(body, shape))
            for seq, ts, node, tag, body in records
        ]
    )


def render_rows(buffer: Buffer, rows: bytes, shape: int) -> bytes:
    """See `kernel.render_rows`."""
    return render_records(_records(buffer, rows), shape)


def _records(buffer: Buffer, rows: bytes) -> list[tuple[int, int, bytes, bytes, bytes]]:
    return [(row[2], row[3], *_parts_of(buffer, row)) for row in _checked(buffer, rows)]


def render_jobs(
    records: Sequence[tuple[int, int, bytes, bytes, bytes]],
    lease_ids: array[int],
    deadlines: array[int],
    deliveries: array[int],
) -> bytes:
    """See `kernel.render_jobs`; columns as u64."""
    if not len(records) == len(lease_ids) == len(deadlines) == len(deliveries):
        raise ValueError(f"{len(records)} records, {len(lease_ids)} lease ids")
    return b",".join(
        [
            b'{"$seq":%d,"lease_id":"lease_%016x","deadline":%d,"$ts":%d%b,"deliveries":%d,%b'
            % (seq, lease_id, deadline, ts, _labels(node, tag, True), times, _shown(body))
            for (seq, ts, node, tag, body), lease_id, deadline, times in zip(
                records, lease_ids, deadlines, deliveries, strict=True
            )
        ]
    )


def render_job_rows(
    buffer: Buffer, rows: bytes, lease_ids: array[int], deadlines: array[int], deliveries: array[int]
) -> bytes:
    """See `kernel.render_job_rows`."""
    return render_jobs(_records(buffer, rows), lease_ids, deadlines, deliveries)


# -- JSON --------------------------------------------------------------------------------------------------------------

_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


def check_json(body: Buffer, max_depth: int) -> tuple[int, int, int]:
    """See `kernel.check_json`."""
    text, invalid_at = bytes(body), -1
    try:
        text.decode()
    except UnicodeDecodeError as error:
        invalid_at = error.start
        text = text[:invalid_at]
    depth, deepest, deep_at = 0, 0, -1
    for token in _TOKENS.finditer(text):
        if token[0] in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
            if depth > max_depth and deep_at < 0:
                deep_at = token.start()
        elif token[0] in (b"]", b"}"):
            depth = max(0, depth - 1)
    return deepest, deep_at, invalid_at


# -- Kafka -------------------------------------------------------------------------------------------------------------

_BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
_LOG_OVERHEAD: Final = 12
_CRC_AT, _ATTRIBUTES_AT = 17, 21
_LEAST_RECORD: Final = 7
_I32_END, _I64_END = 1 << 31, 1 << 63


class _Reader:
    """Reads fields in sequence, and never beyond `end`."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def byte(self) -> int:
        if self.at >= self.end:
            raise ValueError("a record ends too early")
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > _U64_MAX:
                    break
                return value >> 1 ^ -(value & 1)
        raise ValueError("a number has more than 64 bits")

    def field(self) -> bytes | None:
        size = self.varint()
        if size < 0:
            return None
        if size > self.end - self.at:
            raise ValueError("a field is longer than its record")
        self.at += size
        return self.data[self.at - size : self.at]


def read_kafka(
    records: Buffer, count: int, max_headers: int
) -> tuple[list[bytes | None] | None, list[bytes | None], list[list[tuple[str, bytes | None]]] | None, bytes, bytes]:
    """See `kernel.read_kafka`; deltas as i64."""
    data = bytes(records)
    if not 0 <= count <= len(data) // _LEAST_RECORD:
        raise ValueError(f"{count} records do not fit into {len(data)} bytes")
    keys, values, headers = list[bytes | None](), list[bytes | None](), list[list[tuple[str, bytes | None]]]()
    time_deltas, offset_deltas, all_headers, at = array("q"), array("q"), 0, 0
    for _ in range(count):
        reader = _Reader(data, at, len(data))
        length = reader.varint()
        if not 0 <= length <= reader.end - reader.at:
            raise ValueError("a record is longer than what is left")
        reader.end = at = reader.at + length
        reader.byte()  # attributes: no bit has a meaning
        time_deltas.append(reader.varint())
        offset_deltas.append(reader.varint())
        keys.append(reader.field())
        values.append(reader.field())
        number = reader.varint()
        if number < 0:
            raise ValueError("a record has a negative number of headers")
        all_headers += number
        if all_headers > max_headers:
            raise OverflowError(f"the records have more than {max_headers} headers")
        own: list[tuple[str, bytes | None]] = []
        for _ in range(number):
            name = reader.field()
            if name is None:
                raise ValueError("a header has no name")
            own.append((name.decode(), reader.field()))
        headers.append(own)
        if reader.at != reader.end:
            raise ValueError("a record is longer than its fields")
    if at != len(data):
        raise ValueError("there are bytes after the last record")
    return (
        keys if any(key is not None for key in keys) else None,
        values,
        headers if any(headers) else None,
        time_deltas.tobytes(),
        offset_deltas.tobytes(),
    )


_MAP_ALONE = re.compile(rb"\x81\xd9\x01v\xc6(.{4})(.*)", re.DOTALL)
_MAP_STAMPED = re.compile(rb"\x82\xd9\x01v\xc6(.{4})(.*)\xa2ct\xd3(.{8})", re.DOTALL)
_STAMPED_TEXT = re.compile(rb'{"data":(.*),"ct":(-?[0-9]{1,18})}', re.DOTALL)
_FURTHER: Final = (_META_KEY, _DELIVER_AT, b',"ct":', b',"h":')
_NO_TIME: Final = -1


def kafka_values(bodies: Sequence[bytes], nodes: Sequence[bytes], stamps: Any) -> tuple[list[Any], bytes, list[int]]:
    """See `kernel.kafka_values`; stamps as i64."""
    given = array("q", bytes(memoryview(stamps).cast("B")))
    if not len(bodies) == len(nodes) == len(given):
        raise ValueError(f"a column has other than {len(bodies)} values: {len(nodes)} nodes, {len(given)} stamps")
    values: list[bytes | None] = [None] * len(bodies)
    for number, (body, node) in enumerate(zip(bodies, nodes, strict=True)):
        alone, stamped, text = (form.fullmatch(body) for form in (_MAP_ALONE, _MAP_STAMPED, _STAMPED_TEXT))
        if stamped and int.from_bytes(stamped[1], "big") == len(stamped[2]):
            values[number] = stamped[2]
            stamp = int.from_bytes(stamped[3], "big", signed=True)
            given[number] = given[number] if stamp == _NO_TIME else stamp
        elif alone and int.from_bytes(alone[1], "big") == len(alone[2]) and not node:
            values[number] = alone[2]
        elif text:
            values[number], given[number] = text[1], int(text[2])
        elif body.startswith(b'{"data":') and body.endswith(b"}") and len(body) > 8 and not node:
            values[number] = None if any(key in body for key in _FURTHER) else body[8:-1]
    return values, given.tobytes(), [number for number, value in enumerate(values) if value is None]


def write_kafka(
    base_offset: int,
    offset_deltas: array[int],
    keys: Sequence[Buffer | None] | None,
    values: Sequence[Buffer | None],
    headers: Sequence[Sequence[tuple[str, Buffer | None]]] | None,
    stamps: array[int],
    leader_epoch: int,
) -> bytes:
    """See `kernel.write_kafka`."""
    count = len(values)
    for column in (offset_deltas, stamps, keys, headers):
        if column is not None and len(column) != count:
            raise ValueError(f"a column has {len(column)} values, there are {count} records")
    if not count:
        raise ValueError("a batch has at least one record")
    if not -_I32_END <= leader_epoch < _I32_END:
        raise ValueError(f"{leader_epoch} has more than 32 bits")
    records = bytearray()
    for number in range(count):
        body = b"\0" + _varint(stamps[number] - stamps[0]) + _varint(offset_deltas[number])
        body += _field(None if keys is None else keys[number]) + _field(values[number])
        own = () if headers is None else headers[number]
        body += _varint(len(own)) + b"".join([_field(name.encode()) + _field(value) for name, value in own])
        records += _varint(len(body)) + body
    length = _BATCH_HEADER.size - _LOG_OVERHEAD + len(records)
    if length >= _I32_END:
        raise ValueError("a batch is larger than 2 GiB")
    batch = bytearray(
        _BATCH_HEADER.pack(
            base_offset,
            length,
            leader_epoch,
            2,
            0,
            0,
            offset_deltas[-1],
            stamps[0],
            max(stamps),
            -1,
            -1,
            -1,
            count,
        )
    )
    batch += records
    struct.pack_into(">I", batch, _CRC_AT, crc32c(memoryview(batch)[_ATTRIBUTES_AT:]))
    return bytes(batch)


def _varint(number: int) -> bytes:
    if not -_I64_END <= number < _I64_END:
        raise ValueError(f"{number} has more than 64 bits")
    number = number << 1 if number >= 0 else ~number << 1 | 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _field(field: Buffer | None) -> bytes:
    return b"\x01" if field is None else _varint(len(field)) + bytes(field)
