"""The versions of an export: which seqs each has added."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.export.chains import chain_of
from pipeline.export.iceberg import IcebergChain
from pipeline.export.store import Store
from pipeline.export.tables import TableChain, Version, seqs_of


def versions(store: Store, topic: str) -> Iterator[Version]:
    """The versions of a table that can still be read, or the manifests of plain files, the oldest first."""
    chain = chain_of(store, topic)
    if isinstance(chain, TableChain):
        yield from chain.versions()
        return
    before: dict[str, int] = {}
    for each in chain.all():
        rows = sum(entry.rows for entry in each.added)
        yield Version(str(each.number), each.created_ms, each.kind, rows, seqs_of(each, before))
        before |= each.end


def whereabouts_of(store: Store, topic: str) -> str:
    """What a reader opens: the folder, or for an Iceberg table its current metadata."""
    chain = chain_of(store, topic)
    return chain.metadata() if isinstance(chain, IcebergChain) else f"{store.url}/{chain.folder}"
