"""All topics of an engine as plain lists, and what a power cut may leave of them.

A shard loses writes from the end, never from the middle. After a cut its topics are as they were at some moment since
everything was last known to be durable, at the same moment for all of them, and no seq is used twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from tests.property.topic_model import TopicModel

World = dict[str, TopicModel]


class Worlds:
    """`now`: the topics as they are. `since`: for each shard, the topics before each change that may still be lost."""

    def __init__(self) -> None:
        self.now: World = {}
        self.shard_of: dict[str, int] = {}
        self._since: defaultdict[int, list[World]] = defaultdict(list)

    def of_shard(self, shard: int) -> World:
        return {name: topic for name, topic in self.now.items() if self.shard_of[name] == shard}

    def remember(self, shard: int) -> None:
        """Called before a change that a power cut may undo."""
        self._since[shard].append({name: topic.copy() for name, topic in self.of_shard(shard).items()})

    def hardened(self, shard: int | None = None) -> None:
        """What has happened in that shard, or in all shards, can no longer be lost."""
        if shard is None:
            self._since.clear()
        else:
            self._since.pop(shard, None)

    def settle(self, shard: int, fits: Callable[[World], World | None]) -> bool:
        """After a cut: go back to the latest moment that fits what was found. False if there is none."""
        for world in [self.of_shard(shard), *reversed(self._since[shard])]:
            found = fits({name: topic.copy() for name, topic in world.items()})
            if found is not None:
                self.now |= found
                return True
        return False

    def add(self, name: str, topic: TopicModel, shard: int) -> None:
        self.now[name], self.shard_of[name] = topic, shard

    def remove(self, name: str) -> None:
        del self.now[name], self.shard_of[name]
