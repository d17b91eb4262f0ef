"""Where instances are kept: the engine's durable states, by kind and key."""

from __future__ import annotations

from typing import Protocol


class States(Protocol):
    """Values by kind and key; on return of `put` and `delete` the change is durable."""

    def get(self, kind: str, key: str) -> bytes | None: ...

    def items(self, kind: str) -> list[tuple[str, bytes]]: ...

    async def put(self, kind: str, key: str, value: bytes) -> None: ...

    async def delete(self, kind: str, key: str) -> None: ...


class MemoryStates:
    """The same in memory only."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], bytes] = {}

    def get(self, kind: str, key: str) -> bytes | None:
        return self._values.get((kind, key))

    def items(self, kind: str) -> list[tuple[str, bytes]]:
        return [(key, value) for (of, key), value in self._values.items() if of == kind]

    async def put(self, kind: str, key: str, value: bytes) -> None:
        self._values[kind, key] = value

    async def delete(self, kind: str, key: str) -> None:
        self._values.pop((kind, key), None)
