"""What RouterCreate, RouterDelete and RouterCursor frames say of the routers into a log, from the specification alone.

Readings, where the specification leaves a choice (docs/reference/format.md decides):

- A RouterCreate of a router that is there replaces its definition; its cursor stays.
- The last RouterCursor counts. It goes back only where salvage has lost what the source had, so never here.
- Copies have at least one hop and stand before the cursor in their batch; a batch is of one router's.
- A RouterCursor of a router that was deleted means nothing.
- A section may name a router whose source is gone, and need not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.spec_control import (
    ROUTER_CREATE,
    ROUTER_DELETE,
    ROUTER_NAME,
    ControlViolation,
    is_map,
    is_seq,
    is_u64,
)

_FIELDS = {"router_id", "name", "definition", "source_id", "cursor", "forwarded"}
_DEFINITION = {
    "source",
    "dest",
    "preserve_node",
    "preserve_tag",
    "create_dest",
    "filter",
    "allow_cycle",
    "guarantee",
    "from",
}


@dataclass(slots=True, kw_only=True)
class SpecRouter:
    """A router as its frames describe it."""

    name: str
    definition: dict[str, Any]
    source_id: int
    cursor: int
    forwarded: int = 0


@dataclass(slots=True)
class Routes:
    """The routers into one log by id. `partial`: frames about them are no longer in the log."""

    routers: dict[int, SpecRouter] = field(default_factory=dict[int, SpecRouter])
    deleted: set[int] = field(default_factory=set[int])
    partial: bool = False

    def take(self, kind: int, topic_id: int, fields: dict[str, Any], hops: Sequence[int]) -> None:
        """A frame in the log `topic_id`, after Appends with these hop counts in its batch. Raises Wrong."""
        router_id = fields["router_id"]
        if kind == ROUTER_CREATE:
            self._create(topic_id, fields)
        elif kind == ROUTER_DELETE:
            if self.routers.pop(router_id, None) is None and not self.partial:
                raise ControlViolation(f"router {router_id} is deleted, and was never made")
            self.deleted.add(router_id)
        else:
            self._move(router_id, fields["source_seq"], hops)

    def _create(self, topic_id: int, fields: dict[str, Any]) -> None:
        router_id, definition = fields["router_id"], fields["definition"]
        if fields["dest_id"] != topic_id or fields["source_id"] == topic_id:
            raise ControlViolation(f"in log {topic_id}, a router from {fields['source_id']} to {fields['dest_id']}")
        if router_id in self.deleted:
            raise ControlViolation(f"router {router_id} is made again")
        if definition.keys() != _DEFINITION:
            raise ControlViolation(f"the definition of router {router_id} has the keys {sorted(definition)}")
        known = self.routers.get(router_id)
        if known is None:
            self.routers[router_id] = SpecRouter(
                name=fields["name"],
                definition=definition,
                source_id=fields["source_id"],
                cursor=fields["source_cursor"],
            )
        elif (known.name, known.source_id) != (fields["name"], fields["source_id"]):
            raise ControlViolation(f"router {router_id} changes its name or source")
        else:
            known.definition = definition
            known.cursor = max(known.cursor, fields["source_cursor"])

    def _move(self, router_id: int, source_seq: int, hops: Sequence[int]) -> None:
        router = self.routers.get(router_id)
        if not all(hops):
            raise ControlViolation(f"what stands before the cursor of router {router_id} is no copy: hops {hops}")
        if router is None:
            if router_id not in self.deleted and not self.partial:
                raise ControlViolation(f"a cursor of router {router_id}, which was never made")
            return
        if source_seq < router.cursor:
            raise ControlViolation(f"router {router_id} goes back from {router.cursor} to {source_seq}")
        if len(hops) > source_seq - router.cursor:
            raise ControlViolation(f"router {router_id} makes {len(hops)} copies from {router.cursor} to {source_seq}")
        router.cursor = source_seq
        router.forwarded += len(hops)


def are_routers(value: Any) -> bool:
    """Whether this equals what a section says of routers."""
    return isinstance(value, list) and bool(value) and all(map(_is_router, value))


def _is_router(value: Any) -> bool:
    return (
        is_map(value)
        and value.keys() - {"source_epoch"} == _FIELDS
        and is_u64(value.get("source_epoch", 0))
        and ROUTER_NAME.fullmatch(value["name"]) is not None
        and is_map(value["definition"])
        and is_seq(value["router_id"])
        and is_seq(value["source_id"])
        and is_u64(value["cursor"])
        and is_u64(value["forwarded"])
    )


def meet_routers(routes: Routes, fields: dict[str, Any], *, exact: bool) -> None:
    """The replay has come to a section's `as_of`: take over what the log could not know, and compare the rest."""
    said = {
        one["router_id"]: SpecRouter(
            **{name: one[name] for name in ("name", "definition", "source_id", "cursor", "forwarded")}
        )
        for one in fields.get("routers", [])
    }
    if list(said) != sorted(said):
        raise ControlViolation(f"routers are not in order: {list(said)}")
    if routes.partial:
        routes.routers, routes.partial = said, False
    if unknown := said.keys() - routes.routers.keys():
        raise ControlViolation(f"routers {unknown} are in the section, and no frame has made them")
    for router_id, router in said.items():
        known = routes.routers[router_id]
        # The log does not tell of all copies that were made in memory.
        if exact and (replace(known, forwarded=router.forwarded) != router or known.forwarded > router.forwarded):
            raise ControlViolation(f"router {router_id} is {router}, the frames come to {known}")
    # What is missing went with its source, whose deletion is in another log.
    for router_id in routes.routers.keys() - said.keys():
        del routes.routers[router_id]
        routes.deleted.add(router_id)
