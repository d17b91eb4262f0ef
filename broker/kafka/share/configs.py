"""What is set of share groups, durably: until it is set otherwise, over the deletion of a group, as in Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from broker.kafka.group_settings import GroupConfig

if TYPE_CHECKING:
    from storage.engine import Engine

#: Kind of the states: what is set of a group, a map of texts in JSON, by its id.
KIND: Final = "share_config"
_NOTHING: Final[GroupConfig] = {}


class Configs:
    """Of the groups of an engine. All methods belong to the loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._changing = asyncio.Lock()

    def of(self, group_id: str) -> GroupConfig:
        found = self._engine.states.get(KIND, group_id)
        return _NOTHING if found is None else _decoded(found)

    def groups(self) -> list[str]:
        """Those of which something is set."""
        return [group_id for group_id, _ in self._engine.states.items(KIND)]

    async def change(self, group_id: str, changed: Callable[[GroupConfig], GroupConfig]) -> None:
        """Durable on return. Raises what `changed` raises, LimitReached, StorageError."""
        async with self._changing:
            before = self.of(group_id)
            after = changed(before)
            if after == before:
                return
            if after:
                await self._engine.states.put(KIND, group_id, msgspec.json.encode(after))
            else:
                await self._engine.states.delete(KIND, group_id)


@lru_cache(maxsize=256)
def _decoded(value: bytes) -> GroupConfig:
    return msgspec.json.decode(value, type=dict[str, str])
