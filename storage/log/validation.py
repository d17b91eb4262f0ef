"""Checks what a write contains: names, sizes, counts. Every limit has a name in Options.

Source: docs/reference/api.md#conventions, docs/reference/api.md#records.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence

import msgspec

from kernel import largest
from storage.errors import BatchTooLarge, InvalidRequest, RecordTooLarge
from storage.options import Options
from storage.records import (
    BinaryRecord,
    CleanupPolicy,
    NewRecord,
    PlainRecords,
    RecordColumns,
    Retention,
    StoredBodies,
    TopicConfig,
    is_address,
)

TOPIC_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,254}")
_DROPPING = ("ttl_ms", "cap_records", "cap_bytes", "retention")
MAX_DELAY_MS = 366 * 86_400_000
MAX_U64 = (1 << 64) - 1
_meta_keys = msgspec.json.Decoder(dict[str, msgspec.Raw])


def check_topic_name(name: str) -> None:
    """Raises InvalidRequest for a name that breaks the pattern."""
    if not TOPIC_NAME.fullmatch(name):
        raise InvalidRequest(
            "A topic name is 1 to 255 characters from A-Z a-z 0-9 . _ : - and begins with a letter, a digit or _.",
            field="topic",
        )


def check_address(address: str) -> None:
    """Raises InvalidRequest unless it is the name of a topic or the address of a partition."""
    if not TOPIC_NAME.fullmatch(address) and not is_address(address):
        check_topic_name(address)


def check_cleanup(config: TopicConfig, within: str = "") -> None:
    """Raises InvalidRequest when a cleanup_policy that keeps everything comes with settings that drop records.

    `within`: the path of the config, for the field in the error.
    """
    if config.cleanup_policy not in (CleanupPolicy.COMPACT, CleanupPolicy.NONE):
        return
    drops = (config.ttl_ms, config.cap_records, config.cap_bytes, config.retention is Retention.CONSUMED)
    for field, dropping in zip(_DROPPING, drops, strict=True):
        if dropping:
            where = f"{within}{field}"
            raise InvalidRequest(
                f"{where} drops records, which cleanup_policy {config.cleanup_policy} forbids.", field=where
            )


def check_text(value: str, field: str, max_bytes: int) -> bytes:
    """A node, tag or key as UTF-8; raises InvalidRequest when empty, too long or not encodable."""
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{field} is not valid Unicode text.", field=field) from None
    if not 0 < len(encoded) <= max_bytes:
        raise InvalidRequest(f"{field} must have 1 to {max_bytes} bytes, this has {len(encoded)}.", field=field)
    return encoded


def is_plain(records: Sequence[NewRecord]) -> bool:
    """Whether every record has only data. Most writes are like this, and then all records are checked at once."""
    for record in records:
        if (
            record.meta is not None
            or record.tag is not None
            or record.node is not None
            or record.delay_ms is not None
            or record.deliver_at is not None
            or record.__class__ is BinaryRecord
        ):
            return False
    return True


def check_plain(datas: PlainRecords, options: Options) -> array[int]:
    """`check_records` for records with only data."""
    _check_count(len(datas), options)
    sizes = datas.sizes()
    limit = options.max_record_bytes
    if largest(sizes) > limit:
        index = next(index for index, size in enumerate(sizes) if size > limit)
        raise _too_large(index, sizes[index], limit)
    return sizes


def check_stored(stored: StoredBodies, options: Options) -> None:
    """`check_records` for stored bodies. Raises ValueError for columns of different lengths."""
    count = len(stored)
    _check_count(count, options)
    if not (len(stored.payloads) == count == len(stored.tags or stored.bodies) == len(stored.binary or stored.bodies)):
        raise ValueError("the columns of a write have different lengths")
    limit = options.max_record_bytes
    if largest(stored.payloads) > limit:
        index = next(index for index, size in enumerate(stored.payloads) if size > limit)
        raise _too_large(index, stored.payloads[index], limit)
    if stored.tags is not None:
        _check_tags(stored.tags, options)


def fit(columns: RecordColumns, options: Options) -> bool:
    """Whether `check_records` would accept these. If not, `check_records` raises the reason."""
    if not 0 < len(columns) <= options.max_batch_records or max(columns.payloads) > options.max_record_bytes:
        return False
    if columns.bodies is not None:  # raw bytes have neither meta nor delay: each record must be checked
        return False
    for texts, limit in ((columns.tags, options.max_tag_bytes), (columns.nodes, options.max_node_bytes)):
        if texts is not None and max(map(len, texts)) > limit:
            return False
    for meta in columns.metas or ():
        if meta is None:
            continue
        if len(meta) > options.max_meta_bytes:
            return False
        # A colon follows every key: mostly there are so few that no key has to be decoded.
        if bytes(meta).count(b":") > options.max_meta_keys and _keys_of(meta) > options.max_meta_keys:
            return False
    return True


def _check_tags(tags: list[bytes], options: Options) -> None:
    try:
        # One check for all; the zero bytes keep two halves of a character apart.
        b"\0".join(tags).decode()
        fit = max(map(len, tags)) <= options.max_tag_bytes
    except UnicodeDecodeError:
        fit = False
    if fit:
        return
    for index, tag in enumerate(tags):
        try:
            tag.decode()
        except UnicodeDecodeError:
            raise InvalidRequest("A tag is text in UTF-8.", field=f"records[{index}].tag") from None
        if len(tag) > options.max_tag_bytes:
            check_text(tag.decode(), f"records[{index}].tag", options.max_tag_bytes)


def _check_count(count: int, options: Options) -> None:
    if not count:
        raise InvalidRequest("records must hold at least one record.", field="records")
    if count > options.max_batch_records:
        raise BatchTooLarge(
            f"One write takes at most {options.max_batch_records} records, this has {count}.",
            field="records",
            max=options.max_batch_records,
        )


def _too_large(index: int, size: int, limit: int) -> RecordTooLarge:
    return RecordTooLarge(
        f"records[{index}] has {size} bytes of data and meta, the limit is {limit}.",
        field=f"records[{index}]",
        max=limit,
    )


def check_records(records: Sequence[NewRecord], options: Options) -> array[int]:
    """Payload sizes (data + meta as sent, bytes) of a batch within all limits."""
    _check_count(len(records), options)
    limit = options.max_record_bytes
    sizes = array("I")
    for index, record in enumerate(records):
        size = len(record.data)
        if record.__class__ is BinaryRecord:
            _check_binary(record, index)
        if record.meta is not None:
            size += _check_meta(record.meta, index, options)
        if size > limit:
            raise _too_large(index, size, limit)
        if record.tag:
            check_text(record.tag, f"records[{index}].tag", options.max_tag_bytes)
        if record.node:
            check_text(record.node, f"records[{index}].node", options.max_node_bytes)
        sizes.append(size)
    return sizes


def _check_binary(record: NewRecord, index: int) -> None:
    for field in ("meta", "delay_ms", "deliver_at"):
        if getattr(record, field) is not None:
            raise InvalidRequest(f"A record of raw bytes has no {field}.", field=f"records[{index}].{field}")


def _check_meta(meta: msgspec.Raw, index: int, options: Options) -> int:
    field = f"records[{index}].meta"
    size = len(meta)
    if size > options.max_meta_bytes:
        raise InvalidRequest(f"{field} has {size} bytes, the limit is {options.max_meta_bytes}.", field=field)
    keys = _keys_of(meta)
    if keys > options.max_meta_keys:
        raise InvalidRequest(f"{field} has {keys} keys, the limit is {options.max_meta_keys}.", field=field)
    return size


def _keys_of(meta: msgspec.Raw) -> int:
    """How many keys an object has; 0 for anything else."""
    return len(_meta_keys.decode(meta)) if bytes(meta).lstrip(b" \t\r\n").startswith(b"{") else 0


def check_delays(records: Sequence[NewRecord], now_ms: int) -> str:
    """Name of the first delay field used ('' = none). Raises InvalidRequest for one out of range."""
    used = ""
    for index, record in enumerate(records):
        if record.delay_ms is None and record.deliver_at is None:
            continue
        name = "delay_ms" if record.delay_ms is not None else "deliver_at"
        field = f"records[{index}].{name}"
        if record.delay_ms is not None and record.deliver_at is not None:
            raise InvalidRequest(f"records[{index}] has both delay_ms and deliver_at; give one.", field=field)
        at = record.deliver_at if record.deliver_at is not None else now_ms + (record.delay_ms or 0)
        if (record.delay_ms or 0) < 0 or at < 0:
            raise InvalidRequest(f"{field} must not be negative.", field=field)
        if at > now_ms + MAX_DELAY_MS:
            raise InvalidRequest(f"{field} must be at most 366 days ({MAX_DELAY_MS} ms) ahead.", field=field)
        used = used or field
    return used
