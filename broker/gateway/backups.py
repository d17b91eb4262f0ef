"""Backups of all cells. Each cell writes to its own directory below that of the request, as of its own instant."""

from __future__ import annotations

import os
from typing import Any, Final

import msgspec

from broker.api import Request
from broker.content import Answer
from broker.gateway.asking import Asking, Part, refused

#: The largest body of a request that carries no records.
_MOST_BYTES: Final = 1 << 20
_SUMMED: Final = (
    "done_bytes",
    "total_bytes",
    "topics",
    "segments",
    "copied_bytes",
    "reused_bytes",
    "referenced_segments",
    "referenced_bytes",
)
_HIGHEST: Final = ("number", "seconds")
#: The state of the whole backup is the first of these that some cell reports.
_STATES: Final = ("failed", "running", "none", "done")


class Backups:
    """The backups of a set."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def begin(self, request: Request) -> Answer:
        """Start a backup in each cell."""
        body = await request.read_body(max_bytes=_MOST_BYTES) or b"{}"
        wanted = _decoded(body)
        if wanted is None or not isinstance(wanted.get("directory", ""), str | None):
            return (await self._asking.ask(request, 0, body=body)).to_client(request)  # this cell answers the error
        below = wanted.get("directory") or ""
        parts = [
            await self._asking.ask(
                request, number, body={**wanted, "directory": os.path.join(below, directory_of(number))}
            )
            for number in range(self._asking.cells)
        ]
        return _merged(request, parts)

    async def get(self, request: Request) -> Answer:
        """The state of the backup in every cell."""
        return _merged(request, await request.unless_gone(self._asking.ask_all(request)))


def directory_of(cell: int) -> str:
    """The directory of one cell, in the directory of a set or of its backup."""
    return f"cell-{cell:02d}"


def _merged(request: Request, parts: list[Part]) -> Answer:
    if (refusal := refused(parts)) is not None:
        return refusal.to_client(request)
    decoded: list[dict[str, Any]] = [msgspec.json.decode(part.body) for part in parts]
    states = {each["state"] for each in decoded}
    answer: dict[str, Any] = {"state": next(state for state in _STATES if state in states)}
    if directory := next((each["directory"] for each in decoded if "directory" in each), None):
        answer["directory"] = os.path.dirname(directory)
    for name in (*_SUMMED, *_HIGHEST):
        values = [each[name] for each in decoded if name in each]
        if values:
            answer[name] = sum(values) if name in _SUMMED else max(values)
    heads: dict[str, int] = {}
    for each in decoded:
        heads.update(each.get("heads", {}))
    if any("heads" in each for each in decoded):
        answer["heads"] = heads
    taken = [
        {"cell": part.cell, "taken_ms": each["taken_ms"]}
        for part, each in zip(parts, decoded, strict=True)
        if "taken_ms" in each
    ]
    if taken:
        answer["taken_ms"] = min(each["taken_ms"] for each in taken)
        answer["cells"] = taken
    if error := next((each["error"] for each in decoded if "error" in each), None):
        answer["error"] = error
    answer["performance"] = {"server_total_ms": round(request.elapsed_ms(), 3)}
    return Answer(msgspec.json.encode(answer))


def _decoded(body: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) else None  # pyright: ignore[reportUnknownVariableType]
