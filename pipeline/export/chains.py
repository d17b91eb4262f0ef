"""Finds the chain of a topic's export: a table, or manifests as objects. An export cannot change its format."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from pipeline.batches import Shape
from pipeline.errors import BadOption, StoreRefused
from pipeline.export import names
from pipeline.export.catalogs import Catalogs
from pipeline.export.delta import DeltaChain
from pipeline.export.iceberg import IcebergChain
from pipeline.export.manifest import Chain, decode
from pipeline.export.marks import Mark, decode_mark, mark_of, table_folder
from pipeline.export.part_settings import DELTA, ICEBERG, TABLES
from pipeline.export.store import META, Store
from pipeline.export.task import Job


def chain_of(store: Store, topic: str) -> Chain:
    """The existing chain, or an empty one."""
    mark = mark_of(store, topic)
    if mark is None:
        return Chain(store, topic)
    if mark.format == DELTA:
        return DeltaChain(store, topic)
    return IcebergChain(store, topic, Catalogs(catalog=mark.catalog, namespace=mark.namespace))


def resolved(store: Store, topic: str, job: Job) -> Job:
    """The job with a format: the given one, or that of the existing export, or Delta.

    Raises BadOption if the topic is exported there in another format or to another catalog, or if a catalog is given
    for a format that has none.
    """
    mark = mark_of(store, topic)
    last = None if mark is not None else Chain(store, topic).newest()
    known = mark.format if mark is not None else last.format if last is not None else ""
    if known and job.parts.kind not in ("", known):
        raise BadOption(f"{topic} is exported there as {known}: use that format, or another --to.")
    given = Catalogs(catalog=job.catalog, namespace=job.namespace)
    kind = job.parts.kind or known or DELTA
    if kind == ICEBERG and mark is not None:
        there = Catalogs(catalog=mark.catalog, namespace=mark.namespace)
        if given not in (there, Catalogs()):
            raise BadOption(
                f"{topic} is a table of the catalog {there.catalog or 'in --to'}, namespace {there.namespace}: leave "
                "--catalog and --namespace out, or give another --to."
            )
        job = replace(job, catalog=there.catalog, namespace=there.namespace)
    if kind != ICEBERG and given != Catalogs():
        raise BadOption(
            f"{topic} is exported as {kind}, and --catalog and --namespace are about Iceberg tables: give --format "
            "iceberg as well, or leave them out."
        )
    return replace(job, parts=replace(job.parts, kind=kind))


def chain_for(store: Store, topic: str, job: Job) -> Chain:
    """The chain for an export with a resolved job. Raises BadOption if an existing table does not fit."""
    if job.parts.kind not in TABLES:
        return Chain(store, topic)
    schema = Shape(job.headers, values=job.values).schema()
    mark = Mark(topic, job.parts.kind)
    if job.parts.kind == DELTA:
        chain = DeltaChain(store, topic, schema=schema, parts=job.parts)
    else:
        mark = Mark(topic, ICEBERG, job.catalog, job.namespace)
        catalogs = Catalogs(catalog=job.catalog, namespace=job.namespace)
        chain = IcebergChain(store, topic, catalogs, schema=schema, parts=job.parts)
    chain.check()
    mark.folder = chain.folder
    is_new = store.create(names.mark(topic, job.parts.kind), msgspec.json.encode(mark) + b"\n")
    if not is_new and table_folder(store, topic) != chain.folder:
        raise StoreRefused(f"Another version has just begun to export {topic} to another folder: run this again.")
    return chain


def exported_topics(store: Store) -> list[str]:
    """The names of all exported topics, sorted. Raises ManifestDamaged."""
    found: set[str] = set()
    for key, _ in store.list(META):
        if names.number_of_manifest(key) == 1:
            found.add(decode(store.read(key) or b"", key).topic)
        elif key.rsplit("/", 1)[-1] in {f"{kind}.json" for kind in TABLES}:
            found.add(decode_mark(store.read(key) or b"", key).topic)
    return sorted(found)
