"""An owner that reads damaged bytes while it renews its time ends, so that another process goes on."""

from __future__ import annotations

from pathlib import Path

from storage.bucket import Candidate
from storage.bucket.requests import Unanswered
from storage.cells.owner import CellOwner, begin
from tests.support.memory_bucket import MemoryBucket
from tests.unit.storage.bucket.test_owner import CELL, SMALL, TTL_S, until


class Store(MemoryBucket):
    silent = False
    damaged = 0

    def put(self, key: str, data: bytes) -> None:
        if self.silent:
            raise Unanswered("no answer")
        super().put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        made = super().create(key, data)
        if self.silent and "/log/" in key:
            self.silent, self.damaged = False, 1
            raise Unanswered("the answer is lost")  # and the object is there
        return made

    def get(self, key: str) -> bytes | None:
        found = super().get(key)
        if self.damaged and "/log/" in key and found is not None:
            self.damaged -= 1
            return found[:-1]  # once
        return found


async def test_an_owner_that_reads_a_damaged_seal_ends(tmp_path: Path) -> None:
    store, lost = Store(), list[Exception]()
    begin(store, CELL, Candidate("init", "00" * 16))
    owner = CellOwner(
        store, CELL, str(tmp_path), Candidate("a", "ab" * 16), options=SMALL, ttl_s=TTL_S, on_lost=lost.append
    )
    await owner.start()
    store.silent = True  # so its time is over, and it creates another seal
    await until(lambda: not owner.may_answer())
    try:
        await until(lambda: bool(lost))
    finally:
        await owner.abandon()
