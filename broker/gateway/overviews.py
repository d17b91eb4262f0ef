"""The figures of all cells as one: sums, and the largest value where a sum says nothing.

Cells that do not answer are left out, so that the others can be seen. `GET /v0/cluster` names them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from itertools import chain
from typing import Any, Final

import msgspec

from broker.api import EVENT_STREAM, EVENT_STREAM_HEADERS, PATIENCE_S, RETRY, Request, check_accept
from broker.cells import PeerUnavailable
from broker.content import Answer, Streamed
from broker.gateway.asking import Asking, Part, refused
from broker.overview import EVENT_S, Busy, busiest

_OVERVIEW: Final = b"/v0/overview"
#: How long a cell may take.
_PATIENCE_S: Final = 5.0
_LARGEST: Final = frozenset(
    {"ts", "pressure", "pressure_step", "loop_lag_ms", "routers", "routers_blocked", "uptime_ms"}
)
#: Series of the history of which the largest value counts.
_LARGEST_SERIES: Final = frozenset({"oldest_job_ms", "consumer_lag", "router_lag", "pressure"})
#: The disk with the least room counts.
_DISK: Final = ("disk_free_bytes", "disk_bytes")


class Overviews:
    """The merged figures of one gateway."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def overview(self, request: Request) -> Answer:
        """The figures now."""
        return await self._merged(request, merged)

    async def history(self, request: Request) -> Answer:
        """The last hour."""
        return await self._merged(request, merged_history)

    async def _merged(self, request: Request, merge: Any) -> Answer:
        parts = await request.unless_gone(self._ask(request))
        if (refusal := refused(parts)) is not None:
            return refusal.to_client(request)
        found = merge([msgspec.json.decode(part.body) for part in parts])
        found["performance"] = {"server_total_ms": round(request.elapsed_ms(), 3)}
        return Answer(msgspec.json.encode(found))

    async def _ask(self, request: Request, target: bytes | None = None) -> list[Part]:
        """The answers of the cells that answer. Raises PeerUnavailable if none does."""
        asked = (self._try_ask(request, cell, target) for cell in range(self._asking.cells))
        found = await asyncio.gather(*asked)
        parts = [part for part in found if isinstance(part, Part)]
        if not parts:
            raise next(part for part in found if isinstance(part, PeerUnavailable))
        return parts

    async def _try_ask(self, request: Request, cell: int, target: bytes | None) -> Part | PeerUnavailable:
        try:
            return await self._asking.ask(request, cell, target=target, patience_s=_PATIENCE_S)
        except PeerUnavailable as error:
            return error

    async def stream(self, request: Request) -> Answer:
        """The figures again and again: the gateway asks the cells for each event."""
        check_accept(request)
        parts = await request.unless_gone(self._ask(request, _OVERVIEW))
        if (refusal := refused(parts)) is not None:
            return refusal.to_client(request)
        first, rest = b"", None
        if request.scope["method"] != "HEAD":
            rest = self._stream(request, parts)
            first = await anext(rest)
        return Streamed(
            first,
            rest,
            length=None,
            patience_s=PATIENCE_S,
            content_type=EVENT_STREAM,
            headers=EVENT_STREAM_HEADERS,
        )

    async def _stream(self, request: Request, parts: list[Part]) -> AsyncGenerator[bytes]:
        with request.hold_stream():
            yield RETRY
            while True:
                if parts and refused(parts) is None:
                    found = merged([msgspec.json.decode(part.body) for part in parts])
                    yield b"event: overview\ndata: %b\n\n" % msgspec.json.encode(found)
                await asyncio.sleep(EVENT_S)
                try:
                    parts = await self._ask(request, _OVERVIEW)
                except PeerUnavailable:
                    parts = []
                    yield b": no cell answers\n\n"


def merged(each: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of several cells as one."""
    found: dict[str, Any] = {}
    for name, first in each[0].items():
        if name == "performance" or name in _DISK:
            continue
        values: list[Any] = [one[name] for one in each]
        if isinstance(first, bool):
            found[name] = all(values) if name == "ready" else any(values)
        elif name == "busiest":
            found[name] = _busiest(values)
        elif isinstance(first, dict):
            found[name] = max(values, key=lambda value: value["value"])
        elif name in _LARGEST:
            found[name] = max(values)
        else:
            found[name] = _sum(values)
    fullest = min(each, key=lambda one: one["disk_free_bytes"] or 0)
    return found | {name: fullest[name] for name in _DISK}


def _busiest(lists: Iterable[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Partitions of a topic may be in several cells: their rates are added."""
    rates: Counter[str] = Counter()
    for each in chain.from_iterable(lists):
        rates[each["topic"]] += each["appended_per_s"]
    return msgspec.to_builtins(busiest(Busy(topic, round(rate, 1)) for topic, rate in rates.items()))


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def merged_history(each: list[dict[str, Any]]) -> dict[str, Any]:
    """The histories of several cells as one. Points of the same age count as one moment."""
    series: dict[str, list[float]] = {}
    for name in each[0]["series"]:
        merge = max if name in _LARGEST_SERIES else min if name == "disk_free_bytes" else sum
        newest_first = [one["series"][name][::-1] for one in each]
        longest = max(map(len, newest_first))
        moments = ([values[at] for values in newest_first if at < len(values)] for at in range(longest))
        series[name] = [round(float(merge(values)), 3) for values in moments][::-1]
    return {
        "interval_ms": each[0]["interval_ms"],
        "until_ts": max(one["until_ts"] for one in each),
        "series": series,
    }
