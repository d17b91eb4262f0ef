"""What is told of a router."""

from __future__ import annotations

import msgspec

from storage.state.routers.router import Definition


class RouterState(msgspec.Struct, kw_only=True):
    """A router as it is now. `lag`: seqs of the source that are still to be examined. `forwarded_total`: copies, ever.

    `blocked`: code of the error that keeps it from going on. `lost` counts loss ranges that it wrote to dest since the
    start, `hop_limited` records that had come too far.
    """

    name: str
    definition: Definition
    cursor_seq: int
    lag: int
    forwarded_total: int
    blocked: str | None
    lost: int
    hop_limited: int
