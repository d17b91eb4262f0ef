"""Marks, which say that an export is a table, and in which folder its files are."""

from __future__ import annotations

import msgspec

from pipeline.errors import ManifestDamaged
from pipeline.export import names
from pipeline.export.part_settings import DELTA, TABLES
from pipeline.export.store import Store


class Mark(msgspec.Struct):
    """The mark of a topic. `folder` is empty in marks of earlier versions: see `names.earlier_table_component`."""

    topic: str
    format: str = DELTA
    catalog: str = ""
    namespace: str = ""
    folder: str = ""


def mark_of(store: Store, topic: str) -> Mark | None:
    """The mark of a topic; None: its export is no table, or has not begun. Raises ManifestDamaged."""
    for kind in TABLES:
        key = names.mark(topic, kind)
        data = store.read(key)
        if data is not None:
            return decode_mark(data, key)
    return None


def decode_mark(data: bytes, key: str) -> Mark:
    """The mark in an object. Raises ManifestDamaged."""
    try:
        return msgspec.json.decode(data, type=Mark)
    except msgspec.DecodeError as error:
        raise ManifestDamaged(f"{key} does not name its topic: {error}. Restore it.") from error


def table_folder(store: Store, topic: str) -> str:
    """The folder of a topic's table. Raises ManifestDamaged."""
    now, earlier = names.table_component(topic), names.earlier_table_component(topic)
    if now == earlier or (mark := mark_of(store, topic)) is None:
        return now
    return mark.folder or earlier


__all__ = ["Mark", "decode_mark", "mark_of", "table_folder"]
