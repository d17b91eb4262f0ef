"""Finds the chain of a topic's export: manifests as objects, or a Delta table. An export cannot change its kind."""

from __future__ import annotations

import msgspec

from pipeline.errors import BadOption, ManifestDamaged
from pipeline.export import names
from pipeline.export.delta import DeltaChain
from pipeline.export.manifest import Chain, decode
from pipeline.export.store import META, Store
from pipeline.export.task import Job

DELTA = "delta"


class _Mark(msgspec.Struct):
    """Marks an export as a Delta table."""

    topic: str
    format: str = DELTA


def chain_of(store: Store, topic: str) -> Chain:
    """The existing chain, or an empty one."""
    return DeltaChain(store, topic) if store.size(names.delta_mark(topic)) is not None else Chain(store, topic)


def chain_for(store: Store, topic: str, job: Job) -> Chain:
    """The chain for an export. Raises BadOption if one of another format exists."""
    if job.parts.kind == DELTA:
        marked = store.size(names.delta_mark(topic)) is not None
        last = None if marked else Chain(store, topic).newest()
        if last is not None:
            raise BadOption(f"{topic} is exported there as {last.format}: use that format, or another --to.")
        chain = DeltaChain(store, topic, headers=job.headers, hourly=job.parts.hourly)
        chain.check()
        if not marked:
            store.create(names.delta_mark(topic), msgspec.json.encode(_Mark(topic)) + b"\n")
        return chain
    chain = chain_of(store, topic)
    last = chain.newest()
    known = DELTA if isinstance(chain, DeltaChain) else last.format if last is not None else job.parts.kind
    if known != job.parts.kind:
        raise BadOption(f"{topic} is exported there as {known}: use that format, or another --to.")
    return chain


def exported_topics(store: Store) -> list[str]:
    """The names of all exported topics, sorted. Raises ManifestDamaged."""
    found: set[str] = set()
    for key, _ in store.list(META):
        if names.number_of_manifest(key) == 1:
            found.add(decode(store.read(key) or b"", key).topic)
        elif key.endswith("/delta.json"):
            try:
                found.add(msgspec.json.decode(store.read(key) or b"", type=_Mark).topic)
            except msgspec.DecodeError as error:
                raise ManifestDamaged(f"{key} does not name its topic: {error}. Restore it.") from error
    return sorted(found)
