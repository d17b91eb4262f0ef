"""Checks whether a store does what the log in a bucket depends on, before a broker trusts it with a cell.

    several connections create one object at the same time      one of them succeeds, in each round
    it is created once more                                     refused
    it is read                                                  the winner's bytes
    a listing after a create, and after a delete                shows it, and does not

A store that fails is refused with the reason. A store that passes may still break its promise later. No test can prove
exclusion, so the documentation names the stores that promise it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from storage.bucket.driver import Bucket

RACERS: Final = 8
ROUNDS: Final = 4


class StoreRefused(Exception):
    """The store does not do what the log needs. The message says what it did."""


def probe(open_store: Callable[[], Bucket], prefix: str, nonce: str) -> None:
    """Raises StoreRefused, and Unanswered if the store cannot be asked. `open_store` returns a separate connection each
    time.

    Leaves nothing behind, except below `prefix` in a store that cannot delete.
    """
    stores = [open_store() for _ in range(RACERS)]
    with ThreadPoolExecutor(RACERS, thread_name_prefix="probe") as pool:
        for number in range(ROUNDS):
            _round(stores, pool, f"{prefix}/{nonce}/{number}")


def _round(stores: list[Bucket], pool: ThreadPoolExecutor, key: str) -> None:
    start = threading.Barrier(len(stores))

    def race(index: int) -> bool:
        start.wait()
        return stores[index].create(key, f"racer {index}".encode())

    winners = [index for index, won in enumerate(pool.map(race, range(len(stores)))) if won]
    first = stores[0]
    if len(winners) != 1:
        raise StoreRefused(f"{len(winners)} of {len(stores)} requests created the same object; exactly one must")
    if first.create(key, b"late"):
        raise StoreRefused("an object that existed was created once more")
    if first.get(key) != f"racer {winners[0]}".encode():
        raise StoreRefused("an object has other bytes than those of the request that created it")
    folder = key.rpartition("/")[0]
    if key not in first.names(f"{folder}/"):
        raise StoreRefused("a listing does not show an object that exists")
    first.delete([key])
    if first.get(key) is not None:
        raise StoreRefused("a deleted object is still there")
    if key in first.names(f"{folder}/"):
        raise StoreRefused("a listing shows an object that was deleted")
