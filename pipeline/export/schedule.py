"""Compacts and vacuums topics from time to time, beside their export.

The time of the last maintenance is that of the object `_topics/<topic>/maintained.json`. It decides nothing: if it is
lost, a topic is compacted once more.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.export import names
from pipeline.export.chains import chain_of
from pipeline.export.maintenance import Compacted, compact, vacuum
from pipeline.export.part_settings import JSON
from pipeline.export.store import Store


@dataclass(frozen=True, slots=True)
class Schedule:
    """How often, and how long older versions of tables can be read."""

    every_s: float
    retain_s: float

    def run(self, store: Store, topic: str, *, version: str, now_s: float) -> tuple[Compacted, int] | None:
        """The compaction, and the number of removed files. None: the time has not come. Raises PipelineError."""
        key = f"{names.chain_folder(topic)}/maintained.json"
        put_s = next((put_s for found, put_s in store.list(names.chain_folder(topic)) if found == key), None)
        if put_s is not None and now_s < put_s + self.every_s:
            return None
        last = chain_of(store, topic).newest()
        if last is None:
            return None
        unchanged = Compacted(0, 0, 0, None)
        done = unchanged if last.format == JSON else compact(store, topic, version=version)
        gone = vacuum(store, topic, retain_s=self.retain_s, now_s=now_s)
        store.replace(key, b"{}\n")
        return done, gone
