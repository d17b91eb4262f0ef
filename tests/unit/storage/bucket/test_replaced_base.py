"""A reader whose base is deleted while it reads goes on with a newer one, however often that happens. A base that is
missing without a newer one is damage."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from storage.bucket import BaseMissing, Candidate, Driver, keys, read_cell
from storage.bucket.base import Head, Manifest, Named, encode_head
from storage.bucket.slot import encode_seal
from storage.platform import SystemClock
from tests.support.memory_bucket import MemoryBucket

CELL = "cell-00"
OWNER = Candidate("a", "1f" * 16)


class Owned(MemoryBucket):
    """Whose owner puts two bases, and deletes the one before them, whenever a manifest is asked for: so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times
        self.newest = -1
        self.create(keys.slot(CELL, 0), encode_seal(OWNER.seal(0, 1)))
        self.put_base()

    def put_base(self) -> None:
        self.newest += 1
        body = msgspec.json.encode(Manifest((), (0,)))
        named = Named.of(keys.manifest(CELL, self.newest, OWNER.nonce, 1), body)
        self.objects[named.key] = body
        self.objects[keys.head(CELL, self.newest)] = encode_head(
            Head(self.newest, 1, OWNER.seal(0, 1), OWNER.nonce, named)
        )

    def get(self, key: str) -> bytes | None:
        if key == keys.manifest(CELL, self.newest, OWNER.nonce, 1) and self.times:
            self.times -= 1
            del self.objects[key]
            self.put_base()
            self.put_base()
        return super().get(key)


def read(bucket: MemoryBucket) -> Any:
    driver = Driver(bucket, SystemClock())
    try:
        return driver.run(read_cell(CELL))
    finally:
        driver.close()


@pytest.mark.parametrize("times", [0, 1, 5])
def test_a_base_that_newer_ones_replaced_is_not_missing(times: int) -> None:
    found = read(Owned(times))
    assert (found.base.head.number, found.end) == (2 * times, 1)


@pytest.mark.parametrize("newer", [0, 1])
def test_a_base_that_is_missing_without_two_newer_ones_is_damage(newer: int) -> None:
    bucket = Owned(0)
    for _ in range(newer):
        bucket.put_base()
    del bucket.objects[keys.manifest(CELL, newer, OWNER.nonce, 1)]
    with pytest.raises(BaseMissing, match=f"base {newer}"):
        read(bucket)
