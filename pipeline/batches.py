"""Makes Arrow batches with the declared columns, from verified frames or from records of a read. Pure."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.frames import BINARY, HAS_NODE, HAS_TAG, Array, Frames, gathered, pieces
from pipeline.schema import CREATE_TIME, HEADERS, LOG_APPEND_TIME, TIMESTAMP, arrow_schema, ddl_of
from pipeline.values import DROP_MALFORMED, FAIL_FAST, Parsed, Tally, Texts, ValueShape, parse, refuse, with_zones
from storage.format import CT, DATA, DELIVER_AT, META, OPENING, PLAIN_OVERHEAD, SURE_ENDS, H, data_end, is_binary
from topics_client.column_types import Scalar

#: Fields that may follow data and meta.
_BEHIND = (DELIVER_AT, CT, H)
_SURE_ENDS = np.isin(np.arange(256), [*SURE_ENDS])
#: The start of a body with raw bytes and no other fields.
_PLAIN_BINARY = np.dtype([("opening", f"V{len(OPENING)}"), ("size", ">u4")])
_MS_IN_US = 1000


class Shape(NamedTuple):
    """The requested columns. `create_time`: `timestamp` is what Kafka's consumers get, else the commit time. `values`:
    typed columns. `columns`: only these, in this order; empty: all."""

    headers: bool = False
    create_time: bool = False
    values: ValueShape | None = None
    columns: tuple[str, ...] = ()

    def schema(self) -> pa.Schema:
        """The columns."""
        fields = [*arrow_schema(headers=self.headers), *(self.values.fields() if self.values is not None else [])]
        if not self.columns:
            return pa.schema(fields)
        by_name = {each.name: each for each in fields}
        return pa.schema([by_name[name] for name in self.columns])

    def types(self) -> dict[str, str]:
        """The type of each column in Spark's DDL, by name, in their order."""
        values = self.values
        typed = {each.name: str(each.type) for each in values.columns} if values is not None else {}
        if values is not None and values.corrupt:
            typed[values.corrupt] = "string"
        return {name: typed[name] if name in typed else ddl_of(name) for name in self.schema().names}

    def ddl(self) -> str:
        """The columns as Spark's DDL, with the same types whatever `spark.sql.timestampType` says."""
        typed = {each.name: each.type for each in self.values.columns} if self.values is not None else {}
        kinds = {name: with_zones(typed.get(name, Scalar(kind))) for name, kind in self.types().items()}
        return ", ".join("`" + name.replace("`", "``") + f"` {kind}" for name, kind in kinds.items())

    def wants(self, *names: str) -> bool:
        """Whether one of these columns is requested."""
        return not self.columns or any(name in self.columns for name in names)


class Row(NamedTuple):
    """A record of a read. `data` and `meta` are JSON text. `stored`: its body, if that contains more."""

    seq: int
    ts: int
    tag: bytes | None
    node: bytes | None
    data: bytes
    meta: bytes | None
    stored: bytes | None = None


class _Body(msgspec.Struct):
    data: msgspec.Raw
    meta: msgspec.Raw = msgspec.Raw()
    ct: int | None = None
    h: list[tuple[str, str | None]] | None = None


class _BinaryBody(msgspec.Struct):
    v: bytes | None = None
    k: bytes | None = None
    ct: int | None = None
    h: list[tuple[str, Any]] | None = None
    meta: str = ""


_body = msgspec.json.Decoder(_Body)
_binary_body = msgspec.msgpack.Decoder(_BinaryBody)


class _Bodies:
    """Values, metas, headers, and keys that are not tags, of many records, as columns."""

    def __init__(self, count: int) -> None:
        self.values: list[bytes | None] = [None] * count
        self.metas: list[str | None] = [None] * count
        self.given: dict[int, list[tuple[str, bytes | None]]] = {}
        self.keys: dict[int, bytes] = {}
        self.created: dict[int, int] = {}
        self.any_meta = False

    def take(self, index: int, body: bytes, binary: bool) -> None:
        if binary:
            more = _binary_body.decode(body)
            self.values[index] = more.v
            if more.ct is not None:
                self.created[index] = more.ct
            if more.k is not None:
                self.keys[index] = more.k
            if more.meta:
                self.metas[index] = more.meta
                self.any_meta = True
            if more.h is not None:
                self.given[index] = [(name, _bytes_of(value)) for name, value in more.h]
            return
        found = _body.decode(body)
        if found.ct is not None:
            self.created[index] = found.ct
        self.values[index] = body[len(DATA) : data_end(body, bytes(found.data))]
        if meta := bytes(found.meta):
            self.metas[index] = meta.decode()
            self.any_meta = True
        if found.h is not None:
            self.given[index] = [(name, None if text is None else b64decode(text)) for name, text in found.h]


def _bytes_of(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else str(value).encode()


def from_frames(frames: Frames, topic: str, partition: int, shape: Shape, tally: Tally | None = None) -> pa.RecordBatch:
    """Make a batch of all frames; with mode dropmalformed, of those whose values fit. `tally` counts the others.

    Raises ValueError (msgspec's) for a body that is not a record, and ValueMalformed.
    """
    data = bytes(frames.data)
    bodies = _Bodies(len(frames))
    binary = (frames.flags & BINARY) != 0
    starts, ends = frames.bodies + len(DATA), frames.ends - 1
    if binary.any():
        starts = np.where(binary, frames.bodies + _PLAIN_BINARY.itemsize, starts)
        ends = np.where(binary, frames.ends, ends)
    elif (batch := _only_values(frames, data, starts, ends, topic, partition, shape, tally)) is not None:
        return batch
    odd = _more_than_data(data, frames, binary)
    values: pa.Array | None = None
    if not len(odd):
        if shape.wants("value"):
            values = _column(data, starts, ends)
        texts = _texts_of(data, starts, ends, sure=not binary.any())
    else:
        bodies.values[:] = pieces(data, starts, ends)
        for index, body in zip(odd.tolist(), pieces(data, frames.bodies[odd], frames.ends[odd]), strict=True):
            bodies.take(index, body, bool(binary[index]))
        values = pa.array(bodies.values, pa.binary())
        texts = Texts.of(values)

    def keys() -> pa.Array:
        tags = _optional(data, frames.tags, frames.bodies, (frames.flags & HAS_TAG) != 0, pa.binary())
        if not bodies.keys:
            return tags
        return pa.array([bodies.keys.get(index, tag) for index, tag in enumerate(tags.to_pylist())], pa.binary())

    def nodes() -> pa.Array:
        return _optional(data, frames.nodes, frames.tags, (frames.flags & HAS_NODE) != 0, pa.string())

    stored = _Stored(frames.seqs, frames.stamps, keys, nodes, values, bodies)
    return _batch(stored, texts, topic, partition, shape, tally)


def _only_values(
    frames: Frames,
    data: bytes,
    starts: Array,
    ends: Array,
    topic: str,
    partition: int,
    shape: Shape,
    tally: Tally | None,
) -> pa.RecordBatch | None:
    """A batch of typed columns, made without looking for what a body has beside data. No frame is binary. None: it
    cannot be made so.

    If a body has more, what is taken for its data ends behind the data, and is not JSON: a comma follows a value.
    """
    values = shape.values
    if values is None or not shape.columns or shape.wants("key", "value", "meta", "headers"):
        return None
    if shape.create_time and shape.wants("timestamp"):
        return None
    texts = _texts_of(data, starts, ends, sure=True)
    if not len(frames) or not parse(values, texts.first()).is_json:
        return None
    parsed = parse(values, texts)
    if not parsed.is_json:
        return None

    def nodes() -> pa.Array:
        return _optional(data, frames.nodes, frames.tags, (frames.flags & HAS_NODE) != 0, pa.string())

    stored = _Stored(frames.seqs, frames.stamps, nodes, nodes, None, _Bodies(0))
    return _batch(stored, texts, topic, partition, shape, tally, parsed)


def _texts_of(data: bytes, starts: Array, ends: Array, *, sure: bool) -> Texts:
    # Offsets are not negative.
    return Texts(data, starts.view(np.uint64), ends.view(np.uint64), np.ones(len(starts), np.bool_), sure)


def _more_than_data(data: bytes, frames: Frames, binary: Array) -> Array:
    """The indexes of frames whose body must be parsed. The others contain only data."""
    odd = frames.ends - frames.bodies <= PLAIN_OVERHEAD  # too short for a record: parsing reports it
    if binary.any():
        raw = gathered(data, frames.bodies[binary], _PLAIN_BINARY)
        sizes = (frames.ends - frames.bodies)[binary] - _PLAIN_BINARY.itemsize
        odd[binary] |= (raw["opening"] != np.void(OPENING)) | (raw["size"] != sizes)
    unsure = ~binary & ~_SURE_ENDS[np.frombuffer(data, np.uint8)[frames.ends - 2]]
    odd |= _with_any(data, frames, (META,)) & ~binary
    if unsure.any():
        odd |= _with_any(data, frames, _BEHIND) & unsure
    return np.flatnonzero(odd)


def from_rows(
    rows: Sequence[Row], topic: str, partition: int, shape: Shape, tally: Tally | None = None
) -> pa.RecordBatch:
    """Make a batch of records of a read: the same as from their frames."""
    bodies = _Bodies(len(rows))
    for index, row in enumerate(rows):
        if row.stored is not None:
            bodies.take(index, row.stored, is_binary(row.stored))
            continue
        bodies.values[index] = row.data
        if row.meta:
            bodies.metas[index] = row.meta.decode()
            bodies.any_meta = True
    values = pa.array(bodies.values, pa.binary())

    def keys() -> pa.Array:
        return pa.array([bodies.keys.get(index, row.tag) for index, row in enumerate(rows)], pa.binary())

    def nodes() -> pa.Array:
        return pa.array([None if row.node is None else row.node.decode() for row in rows], pa.string())

    stored = _Stored(
        np.fromiter((row.seq for row in rows), np.int64, len(rows)),
        np.fromiter((row.ts for row in rows), np.int64, len(rows)),
        keys,
        nodes,
        values,
        bodies,
    )
    return _batch(stored, Texts.of(values), topic, partition, shape, tally)


def _with_any(data: bytes, frames: Frames, keys: Iterable[bytes]) -> Array:
    """For each frame, whether its body contains one of these texts."""
    found = np.zeros(len(frames), bool)
    offsets: list[int] = []
    for key in keys:
        at = data.find(key)
        while at >= 0:
            offsets.append(at)
            at = data.find(key, at + 1)
    if offsets and len(frames):
        at_all = np.array(offsets, np.int64)
        owners = frames.bodies.searchsorted(at_all, "right") - 1
        inside = (owners >= 0) & (at_all < frames.ends[owners])
        found[owners[inside]] = True
    return found


def _column(data: bytes, starts: Array, ends: Array) -> pa.Array:
    """The pieces, in ascending order in the data, as one binary column, without an object for each piece."""
    if not len(starts):
        return pa.array([], pa.binary())
    # The data as an alternation of pieces and gaps: every other one is taken.
    small = len(data) < 1 << 31
    borders = np.empty(2 * len(starts), np.int32 if small else np.int64)
    borders[0::2], borders[1::2] = starts, ends
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(data)]
    kind = pa.binary() if small else pa.large_binary()
    every = pa.Array.from_buffers(kind, len(borders) - 1, buffers)
    return every.take(pa.array(np.arange(0, len(borders), 2))).cast(pa.binary())


def _optional(data: bytes, starts: Array, ends: Array, there: Array, kind: pa.DataType) -> pa.Array:
    """The pieces where `there` is set, null elsewhere."""
    if not there.any():
        return pa.nulls(len(there), kind)
    found = _column(data, starts, ends)
    if not there.all():
        found = pc.call_function("if_else", [pa.array(there), found, pa.scalar(None, pa.binary())])
    return found.cast(kind)


class _Stored(NamedTuple):
    """What is stored of the records. Keys, nodes and values are made when they are requested."""

    seqs: Array
    stamps: Array
    keys: Callable[[], pa.Array]
    nodes: Callable[[], pa.Array]
    values: pa.Array | None
    bodies: _Bodies


def _batch(
    stored: _Stored,
    texts: Texts,
    topic: str,
    partition: int,
    shape: Shape,
    tally: Tally | None,
    parsed: Parsed | None = None,
) -> pa.RecordBatch:
    made: dict[str, pa.Array] = {}
    dropped: Array | None = None
    if (values := shape.values) is not None:
        parsed = parsed or parse(values, texts)
        made |= zip((each.name for each in values.fields()), parsed.arrays, strict=True)
        if parsed.bad.any():
            if tally is not None:
                tally.malformed += int(parsed.bad.sum())
            if values.mode == FAIL_FAST:
                refuse(values, texts, parsed.bad, stored.seqs, topic, partition)
            dropped = parsed.bad if values.mode == DROP_MALFORMED else None
    schema = shape.schema()
    columns = [
        made[name] if name in made else _column_of(stored, name, topic, partition, shape) for name in schema.names
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    return batch if dropped is None else batch.filter(pa.array(~dropped))


def _column_of(stored: _Stored, name: str, topic: str, partition: int, shape: Shape) -> pa.Array:
    """One column of the record itself."""
    count, bodies = len(stored.seqs), stored.bodies
    if name == "value":
        return stored.values if stored.values is not None else pa.nulls(count, pa.binary())
    if name == "topic":
        return pa.repeat(pa.scalar(topic, pa.string()), count)
    if name == "partition":
        return pa.array(np.full(count, partition, np.int32))
    if name == "timestamp":
        stamps = stored.stamps
        if shape.create_time and bodies.created:
            stamps = stamps.copy()
            stamps[list(bodies.created)] = list(bodies.created.values())
        return pa.array(stamps * _MS_IN_US).cast(TIMESTAMP)
    if name == "timestampType":
        return pa.array(np.full(count, CREATE_TIME if shape.create_time else LOG_APPEND_TIME, np.int32))
    if name == "headers":
        return _headers(bodies, stored.nodes())
    if name == "meta":
        return pa.array(bodies.metas, pa.string()) if bodies.any_meta else pa.nulls(count, pa.string())
    if name in ("seq", "offset"):
        return pa.array(stored.seqs - (name == "offset"))
    return stored.keys() if name == "key" else stored.nodes()


def _headers(bodies: _Bodies, nodes: pa.Array) -> pa.Array:
    """Kafka's headers: those of the record; without any, the strings in meta, and node, which takes precedence."""
    rows: list[list[dict[str, Any]] | None] = []
    for index, (meta, node) in enumerate(zip(bodies.metas, cast("list[str | None]", nodes.to_pylist()), strict=True)):
        pairs = bodies.given.get(index)
        if pairs is None:
            pairs = headers_of(meta, node)
        rows.append([{"key": name, "value": value} for name, value in pairs] or None)
    return pa.array(rows, HEADERS)


def headers_of(meta: str | None, node: str | None) -> list[tuple[str, bytes | None]]:
    """The headers of a record without headers of its own. `meta`: JSON text."""
    found: dict[str, bytes | None] = {name: value.encode() for name, value in _members(meta) if isinstance(value, str)}
    if node is not None:
        found["node"] = node.encode()
    return list(found.items())


def kafka_form(row: Row) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """Key, value and own headers of a record of a read, byte for byte."""
    if row.stored is None:
        return row.tag, row.data, []
    bodies = _Bodies(1)
    bodies.take(0, row.stored, is_binary(row.stored))
    return bodies.keys.get(0, row.tag), bodies.values[0], bodies.given.get(0, [])


def _members(meta: str | None) -> list[tuple[str, Any]]:
    if meta is None:
        return []
    decoded = msgspec.json.decode(meta)
    return list(cast("dict[str, Any]", decoded).items()) if isinstance(decoded, dict) else []


__all__ = ["Row", "Shape", "from_frames", "from_rows", "headers_of", "kafka_form"]
