"""Reads and writes the members' objects in the bucket. Blocking calls run on threads.

A member counts as there while its object changes, by this process's own clock. Rounds that the store does not answer
say nothing about the others: they count as seen in the first round that is answered again.

Source: docs/cluster.md#nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from broker.cluster.members import PREFIX, SILENT_S, Member, key
from broker.cluster.plan import Plan, newest
from storage.bucket import Unanswered

if TYPE_CHECKING:
    from storage.bucket import Bucket

#: Names are listed this often, and more often while `hurried`.
LIST_S: Final = 10.0
HURRIED_LIST_S: Final = 1.0
#: A member writes its object every second. It is late if the object has been the same for LATE_S, and a suspect after
#: SUSPECT_S: others get ready to take its cells over. For a member that was a suspect and came back, that time is
#: twice as long, up to SILENT_S, until it has not been one for FORGET_S.
LATE_S: Final = 1.4
SUSPECT_S: Final = 2.0
FORGET_S: Final = 600.0
T = TypeVar("T")

_THREADS: Final = 8
_decode = msgspec.json.Decoder(Member).decode


class NameTaken(Exception):
    """Another process is a node of this name."""


class Roll:
    """See the module. `members`: those that are there, without this node; `silent`: the others. `plan`: the newest."""

    def __init__(self, bucket: Bucket, node: str, nonce: str, clock: Callable[[], float] = monotonic) -> None:
        self._bucket = bucket
        self._node = node
        self._nonce = nonce
        self._clock = clock
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="members")
        self._names: set[str] = set()
        self._listed_at: float | None = None
        #: What was read last of each object, and when that changed.
        self._seen: dict[str, tuple[Member, float]] = {}
        self._is_blind = False
        self._count = 0
        #: When the set of members that are there changed last.
        self.changed_at = clock()
        self.members: dict[str, Member] = {}
        self.silent: dict[str, Member] = {}
        #: Those of `members` that may have ended.
        self.suspects: frozenset[str] = frozenset()
        self._patience: dict[str, float] = {}
        self._suspected_at: dict[str, float] = {}
        #: How long the last round took: members that wait for the store look late.
        self._took_s = 0.0
        self.plan = Plan()
        #: When another plan was found.
        self.planned_at = clock()

    async def enter(self, wait_s: float) -> None:
        """Raises NameTaken if another process of this name shows a sign of life within `wait_s`; Unanswered."""
        before = await self._call(self._bucket.get, key(self._node))
        if before is None:
            return
        await asyncio.sleep(wait_s)
        if await self._call(self._bucket.get, key(self._node)) != before:
            raise NameTaken(f"Another process is node {self._node} of this cluster.")

    async def round(self, mine: Member, *, hurried: bool) -> None:
        """Write this node's object, and read the others'. Raises Unanswered: then nothing new is known of some; and
        NameTaken."""
        began = now = self._clock()
        every_s = HURRIED_LIST_S if hurried else LIST_S
        try:
            if self._listed_at is None or now - self._listed_at >= every_s:
                self._names |= {name.removeprefix(PREFIX) for name in await self._call(self._bucket.names, PREFIX)} - {
                    self._node
                }
                self._listed_at = now
            await self._show(mine)
            plan = await self._call(newest, self._bucket, self.plan)
            names = sorted(self._names)
            answers = await asyncio.gather(*(self._call(self._bucket.get, key(name)) for name in names))
        except Unanswered:
            self._is_blind = True
            raise
        for name, data in zip(names, answers, strict=True):
            self._note(name, data)
        self._is_blind = False
        if plan != self.plan:
            self.plan, self.planned_at = plan, self._clock()
        now, before = self._clock(), set(self.members)
        self.members = {name: each for name, (each, at) in self._seen.items() if now - at < SILENT_S}
        self.silent = {name: each for name, (each, _) in self._seen.items() if name not in self.members}
        if before != set(self.members):
            self.changed_at = now
        self._took_s = now - began
        self._suspect(now)

    async def _show(self, mine: Member) -> None:
        if self._count:
            there = await self._call(self._bucket.get, key(self._node))
            if there is not None and msgspec.json.decode(there, type=Member).nonce != self._nonce:
                raise NameTaken(f"Another process became node {self._node} of this cluster.")
        self._count += 1
        shown = msgspec.structs.replace(mine, count=self._count)
        await self._call(self._bucket.put, key(self._node), msgspec.json.encode(shown))

    def _note(self, name: str, data: bytes | None) -> None:
        if data is None:  # it has left
            self._names.discard(name)
            self._seen.pop(name, None)
            return
        try:
            member = _decode(data)
        except msgspec.DecodeError:
            return  # of a version that this one does not read
        old = self._seen.get(name)
        if old is None or old[0] != member or self._is_blind:
            self._seen[name] = member, self._clock()

    def _suspect(self, now: float) -> None:
        found: set[str] = set()
        for name in self.members:
            patience_s = self._patience.get(name, SUSPECT_S)
            if self.age_s(name) >= patience_s + 2 * self._took_s:
                found.add(name)
                self._suspected_at[name] = now
            elif name in self.suspects:
                self._patience[name] = min(SILENT_S, 2 * patience_s)
            elif now - self._suspected_at.get(name, now) >= FORGET_S:
                self._patience.pop(name, None)
        self.suspects = frozenset(found)

    @property
    def is_anyone_late(self) -> bool:
        """Whether the object of a member has not changed when it should have."""
        return any(self.age_s(name) >= LATE_S for name in self.members)

    def age_s(self, node: str) -> float:
        """Seconds since the object of a node changed last; 0 for this node, and for one that is not known."""
        found = self._seen.get(node)
        return 0.0 if found is None else self._clock() - found[1]

    async def leave(self) -> None:
        """Delete this node's object. Raises Unanswered."""
        await self._call(self._bucket.delete, key(self._node))

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)
