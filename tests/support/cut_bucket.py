"""A store in memory whose user is killed at a request, or loses the answer to one.

    bucket = CutBucket(objects, at=17, how=How.AFTER, on_kill=stop_the_machine)

The request with that number is carried out or not, as `how` says. A process that was killed sends nothing more: all of
its later requests raise SimCrash. One that lost an answer goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeVar

from storage.bucket import Unanswered
from tests.support.memory_bucket import MemoryBucket
from tests.support.sim_faults import SimCrash

T = TypeVar("T")


class How(StrEnum):
    BEFORE = "before"  # killed, and the request is never carried out
    AFTER = "after"  # killed, and the request is carried out
    LOST = "lost"  # carried out, and the answer is lost
    REFUSED = "refused"  # not carried out, and there is no answer


class Request(NamedTuple):
    kind: str
    key: str

    @property
    def changes(self) -> bool:
        return self.kind in ("create", "put", "delete")


class CutBucket(MemoryBucket):
    """See the module. `requests` are all but those of the check of the store, which come in any order."""

    def __init__(
        self,
        objects: dict[str, bytes],
        at: int = -1,
        how: How = How.BEFORE,
        *,
        on_kill: Callable[[], object] = lambda: None,
        is_dead: Callable[[], bool] = lambda: False,
    ) -> None:
        """`objects` is changed. `is_dead`: whether the process was killed by something else."""
        super().__init__()
        self.objects = objects
        self.requests: list[Request] = []
        self.cut = False
        self._at = at
        self._how = how
        self._on_kill = on_kill
        self._is_dead = is_dead
        self._killed = False
        self._numbering = threading.Lock()

    def create(self, key: str, data: bytes) -> bool:
        return self._cut("create", key, lambda: super(CutBucket, self).create(key, data))

    def get(self, key: str) -> bytes | None:
        return self._cut("get", key, lambda: super(CutBucket, self).get(key))

    def get_range(self, key: str, offset: int, size: int) -> bytes | None:
        return self._cut("get", key, lambda: super(CutBucket, self).get_range(key, offset, size))

    def put(self, key: str, data: bytes) -> None:
        self._cut("put", key, lambda: super(CutBucket, self).put(key, data))

    def stored_at(self, key: str) -> float | None:
        return self._cut("stat", key, lambda: super(CutBucket, self).stored_at(key))

    def delete(self, keys: Sequence[str]) -> None:
        self._cut("delete", keys[0] if keys else "", lambda: super(CutBucket, self).delete(keys))

    def names(self, prefix: str) -> list[str]:
        return self._cut("names", prefix, lambda: super(CutBucket, self).names(prefix))

    def _cut(self, kind: str, key: str, carry_out: Callable[[], T]) -> T:
        if self._killed or self._is_dead():
            raise SimCrash("the process was killed")
        if key.startswith("probe/"):
            return carry_out()
        with self._numbering:
            number = len(self.requests)
            self.requests.append(Request(kind, key))
        if number != self._at:
            return carry_out()
        self.cut = True
        found = carry_out() if self._how in (How.AFTER, How.LOST) else None
        if self._how in (How.LOST, How.REFUSED):
            raise Unanswered("the answer was lost")
        self._killed = True
        self._on_kill()
        del found
        raise SimCrash(f"the process was killed {self._how} {kind} {key}")
