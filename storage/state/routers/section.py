"""Routers in the snapshot section of their dest's log: capture and restore. Pure.

Source: docs/reference/format.md#snapshots, docs/reference/format.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from storage.state.routers.router import Definition, Router


class RouterSection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One router: everything that frames of its dest's log say about it."""

    router_id: int
    name: str
    definition: dict[str, Any]
    source_id: int
    cursor: int
    forwarded: int
    source_epoch: int = 0


def capture(routers: Iterable[Router]) -> list[RouterSection]:
    """The routers, ordered by id."""
    return [
        RouterSection(
            router_id=each.router_id,
            name=each.name,
            definition=each.definition.to_map(),
            source_id=each.source_id,
            cursor=each.cursor,
            forwarded=each.forwarded,
            source_epoch=each.source_epoch,
        )
        for each in sorted(routers, key=lambda router: router.router_id)
    ]


def restore(section: RouterSection, dest_id: int) -> Router:
    definition = Definition.from_map(section.definition)
    router = Router(section.router_id, section.name, definition, section.source_id, dest_id, section.cursor)
    router.forwarded = section.forwarded
    router.source_epoch = section.source_epoch
    return router
