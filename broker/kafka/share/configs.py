"""Configs of share groups: durable until changed, even after the group is deleted, as in Kafka.

A config that was set by a key with prefixes applies only to topics with these prefixes. Group ids have no prefixes: a
group with that id may belong to others, and the config must not delete their jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from broker.kafka.group_settings import GroupConfig

if TYPE_CHECKING:
    from storage import Engine

#: The kind of the states: a `ShareGroupConfig` in JSON, by group id.
KIND: Final = "share_config"


class ShareGroupConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`set`: texts by name. `prefixes`: of the key that set them; (): all topics."""

    set: dict[str, str] = {}
    prefixes: tuple[str, ...] = ()

    def is_within(self, prefixes: tuple[str, ...]) -> bool:
        """Whether a key with these prefixes covers it. (): the key covers everything."""
        return not prefixes or bool(self.prefixes and all(each.startswith(prefixes) for each in self.prefixes))

    def is_shown_to(self, prefixes: tuple[str, ...]) -> bool:
        """Whether a key with these prefixes may see it. All keys may see a config for all topics."""
        return not self.prefixes or self.is_within(prefixes)


NOTHING: Final = ShareGroupConfig()


class Configs:
    """The configs of the groups of an engine. All methods run on the loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._changing = asyncio.Lock()

    def of(self, group_id: str, topics: Collection[str]) -> GroupConfig:
        """The group's config if it applies to all of these topics; otherwise an empty one."""
        config = self.config_of(group_id)
        holds = not config.prefixes or all(name.startswith(config.prefixes) for name in topics)
        return config.set if holds else NOTHING.set

    def config_of(self, group_id: str) -> ShareGroupConfig:
        found = self._engine.states.get(KIND, group_id)
        return NOTHING if found is None else _decoded(found)

    def groups(self) -> list[tuple[str, ShareGroupConfig]]:
        """The groups with a config."""
        return [(group_id, _decoded(value)) for group_id, value in self._engine.states.items(KIND)]

    async def change(
        self, group_id: str, prefixes: tuple[str, ...], changed: Callable[[GroupConfig], GroupConfig]
    ) -> bool:
        """Change a config on behalf of a key with these prefixes. Durable on return. False: unchanged, because a key
        for more topics has set it.

        Raises the errors of `changed`, LimitReached, StorageError.
        """
        async with self._changing:
            before = self.config_of(group_id)
            if before.set and not before.is_within(prefixes):
                return False
            after = ShareGroupConfig(set=dict(changed(before.set)), prefixes=prefixes)
            if not after.set:
                if before.set:
                    await self._engine.states.delete(KIND, group_id)
            elif after != before:
                await self._engine.states.put(KIND, group_id, msgspec.json.encode(after))
            return True


@lru_cache(maxsize=256)
def _decoded(value: bytes) -> ShareGroupConfig:
    return msgspec.json.decode(value, type=ShareGroupConfig)
