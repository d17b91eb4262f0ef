"""Exports to a bucket: the same chain of manifests, with conditional creates."""

from __future__ import annotations

import pytest

from pipeline.errors import StoreRefused
from pipeline.export.store import open_store, prove
from tests.pipeline.exports import Exports
from tests.support.small_segments import SmallSegments


def test_an_export_to_a_bucket(broker: SmallSegments, bucket: str) -> None:
    broker.append("t", 700)
    store = open_store(bucket)
    prove(store)
    with Exports(broker.url, bucket) as exports:
        assert exports.export("t").records == 700
        broker.append("t", 10, first=700)
        assert exports.export("t").manifests == [2]
        assert exports.seqs("t") == list(range(1, 711))
        assert [key for key, _ in store.list("_topics/t")] == [f"_topics/t/{n:020d}.json" for n in (1, 2)]


def test_only_one_create_of_a_key_succeeds(bucket: str) -> None:
    store = open_store(bucket)
    assert store.create("a/b", b"mine")
    assert not store.create("a/b", b"theirs")
    assert store.read("a/b") == b"mine"
    # An answer was lost: a create with the same content counts as the same.
    assert store.create("a/b", b"mine")


def test_store_without_exclusive_create_is_refused(bucket: str) -> None:
    store = open_store(bucket)

    def create(key: str, data: bytes) -> bool:
        store.replace(key, data)
        return True

    with pytest.raises(StoreRefused, match="does not refuse"):
        prove(_With(store, create))  # pyright: ignore[reportArgumentType]
    assert not any("probe" in key for key, _ in store.list("_topics"))


class _With:
    def __init__(self, store: object, create: object) -> None:
        self._store = store
        self.create = create

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)
