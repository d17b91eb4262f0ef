"""All routers of an engine, and one `apply` of their frames for live path and recovery.

No I/O and no clock. Recovery reads the logs of different shards one after the other. So the source or dest of a
router may not exist (yet, or any more), and two routers may have the same name. `storage.recovery.reconcile` resolves
this at the end.

Source: docs/reference/format.md#frames, docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from itertools import islice

from storage.format import control
from storage.state.routers.router import Definition, Router


class Routes:
    """Routers by id, by name, and by the topic_ids of source and dest."""

    def __init__(self) -> None:
        self.by_id: dict[int, Router] = {}
        self.by_name: dict[str, Router] = {}
        self._names: list[str] = []  # sorted
        #: Routers out of a topic, and into it. No entry is empty.
        self.out_of: dict[int, list[Router]] = {}
        self.into: dict[int, list[Router]] = {}
        #: How often a write has waited for a router that was far behind.
        self.held_back = 0
        #: Called with each router that is removed.
        self.on_drop: Callable[[Router], None] | None = None

    def named(self, prefix: str = "", after: str = "") -> Iterator[Router]:
        """Routers whose name begins with `prefix`, in bytewise order, after the name `after`."""
        first = bisect_left(self._names, prefix) if prefix > after else bisect_right(self._names, after)
        for name in islice(self._names, first, None):
            if not name.startswith(prefix):
                return
            yield self.by_name[name]

    def create(self, dest_id: int, value: control.RouterCreate) -> Router:
        """Apply a RouterCreate frame in the log `dest_id`: a new router, or a new definition of an existing one."""
        router = self.by_id.get(value.router_id)
        definition = Definition.from_map(value.definition)
        if router is not None:
            router.definition = definition
            # The former definition examined these records and skipped some: after a crash the new one must not copy
            # them.
            router.cursor = max(router.cursor, value.source_cursor)
            router.position = max(router.position, router.cursor)
            return router
        router = Router(value.router_id, value.name, definition, value.source_id, dest_id, value.source_cursor)
        router.source_epoch = value.source_epoch or 0
        return self.add(router)

    def add(self, router: Router) -> Router:
        """Add a router. When two have the same name, the name finds the one with the higher id."""
        self.by_id[router.router_id] = router
        self.out_of.setdefault(router.source_id, []).append(router)
        self.into.setdefault(router.dest_id, []).append(router)
        other = self.by_name.get(router.name)
        if other is None:
            insort(self._names, router.name)
        if other is None or other.router_id < router.router_id:
            self.by_name[router.name] = router
        return router

    def behind(self, topic_id: int, head: int) -> Router | None:
        """A router out of this topic that is too far behind for another write. `head`: the last seq assigned there."""
        for router in self.out_of.get(topic_id, ()):
            if router.holds_back(head):
                return router
        return None

    def moved(self, value: control.RouterCursor, copies: int) -> None:
        """Apply a RouterCursor frame that follows this many copies. The last frame counts."""
        router = self.by_id.get(value.router_id)
        if router is not None:
            router.cursor = value.source_seq
            router.source_epoch = value.source_epoch or router.source_epoch
            router.forwarded += copies

    def drop(self, router: Router) -> None:
        """The router was deleted."""
        if self.by_id.pop(router.router_id, None) is None:
            return
        _leave(self.out_of, router.source_id, router)
        _leave(self.into, router.dest_id, router)
        if self.by_name.get(router.name) is router:
            del self.by_name[router.name]
            del self._names[bisect_left(self._names, router.name)]
        if self.on_drop is not None:
            self.on_drop(router)

    def forget_topic(self, topic_id: int) -> list[Router]:
        """The topic was deleted, and with it the routers out of it and into it; returns these routers."""
        gone = [*self.out_of.get(topic_id, ()), *self.into.get(topic_id, ())]
        for router in gone:
            self.drop(router)
        return gone


def _leave(table: dict[int, list[Router]], topic_id: int, router: Router) -> None:
    table[topic_id].remove(router)
    if not table[topic_id]:
        del table[topic_id]
