"""The tail cache: the newest batches of all logs, never more memory than allowed, and the oldest are dropped first."""

from __future__ import annotations

import tracemalloc

import pytest

from storage.log.publisher import CACHE_ENTRY_BYTES, TailCache
from storage.state.log import Log
from storage.state.usage import Usage


@pytest.fixture
def log() -> Log:
    return Log(1, shard=0, epoch=1, usage=Usage())


def test_the_cache_holds_batches_within_its_limit(log: Log) -> None:
    cache = TailCache(30 + 2 * CACHE_ENTRY_BYTES)
    cache.add(log, 1, b"x" * 10, 0)
    cache.add(log, 4, b"y" * 20, 7)
    assert (cache.bytes, log.cached) == (30 + 2 * CACHE_ENTRY_BYTES, {1: (b"x" * 10, 0), 4: (b"y" * 20, 7)})


def test_a_byte_over_the_limit_evicts_the_oldest_batch(log: Log) -> None:
    cache = TailCache(30 + 3 * CACHE_ENTRY_BYTES)
    for seq, size in ((1, 10), (2, 10), (3, 11)):
        cache.add(log, seq, b"x" * size, 0)
    assert (cache.bytes, list(log.cached)) == (21 + 2 * CACHE_ENTRY_BYTES, [2, 3])


def test_the_oldest_batch_of_any_log_is_evicted_first(log: Log) -> None:
    other = Log(2, shard=0, epoch=2, usage=Usage())
    cache = TailCache(20 + 2 * CACHE_ENTRY_BYTES)
    cache.add(log, 1, b"x" * 10, 0)
    cache.add(other, 1, b"x" * 10, 0)
    cache.add(other, 2, b"x" * 10, 0)
    assert (list(log.cached), list(other.cached)) == ([], [1, 2])


@pytest.mark.parametrize("limit", [0, 9 + CACHE_ENTRY_BYTES])
def test_a_batch_larger_than_the_cache_is_not_cached(log: Log, limit: int) -> None:
    cache = TailCache(limit)
    cache.add(log, 1, b"x" * 10, 0)
    assert (cache.bytes, log.cached) == (0, {})


def test_a_batch_removed_from_its_log_is_skipped_by_the_eviction(log: Log) -> None:
    cache = TailCache(15 + CACHE_ENTRY_BYTES)
    cache.add(log, 1, b"x" * 10, 0)
    del log.cached[1]
    cache.add(log, 2, b"x" * 10, 0)
    assert (cache.bytes, list(log.cached)) == (10 + CACHE_ENTRY_BYTES, [2])


def test_small_batches_are_counted_with_their_overhead(log: Log) -> None:
    cache = TailCache(1 << 60)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for seq in range(1, 20_001):
            cache.add(log, seq, bytes(100), 0)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.8 * taken < cache.bytes < 1.2 * taken
