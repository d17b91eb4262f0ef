"""Routers: their options, and their state in answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import msgspec


class RouterOptions(TypedDict, total=False):
    """Options of a router; omitted = the default, also for an existing one.

    `filter`: a tag, or a predicate such as ["tag", "Glob", "order.*"]. `start`: "head" or "earliest".
    """

    preserve_node: bool
    preserve_tag: bool
    create_dest: bool
    filter: str | Sequence[str] | None
    allow_cycle: bool
    guarantee: str
    start: str


class RouterPut(msgspec.Struct, frozen=True, kw_only=True, rename={"start": "from"}):
    """The outcome of `put_router`: the definition as stored."""

    router: str
    created: bool
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    create_dest: bool
    filter: list[str] | None
    allow_cycle: bool
    guarantee: str
    start: str


class Router(msgspec.Struct, frozen=True, kw_only=True, rename={"start": "from"}):
    """A router as it is now. `cursor_seq`: everything of the source up to here is copied, or is not to be copied;
    `lag`: seqs after that. `blocked`: the code of the error that stops it."""

    router: str
    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: list[str] | None = None
    allow_cycle: bool = False
    guarantee: str = "at_least_once"
    start: str = "head"
    cursor_seq: int = 0
    lag: int = 0
    forwarded_total: int = 0
    blocked: str | None = None


class RouterPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list of routers; `next_cursor` is set when more follow."""

    routers: list[Router]
    next_cursor: str | None = None


class RouterDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of `delete_router`; `deleted` is False when it did not exist."""

    router: str
    deleted: bool
