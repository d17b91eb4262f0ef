"""The state of a router, as operations return it."""

from __future__ import annotations

import msgspec

from storage.state.routers import Definition


class RouterState(msgspec.Struct, kw_only=True):
    """The present state of a router. `lag`: seqs of the source still to be examined. `forwarded_total`: all copies so
    far.

    `blocked`: the code of the error that stops it. `lost`: loss ranges that it has written to the destination since the
    start. `hop_limited`: records that it has not copied because they had passed too many routers.
    """

    name: str
    definition: Definition
    cursor_seq: int
    lag: int
    forwarded_total: int
    blocked: str | None
    lost: int
    hop_limited: int
