"""Creates and deletes consumers and moves their cursors.

Operations on one name run one at a time. Operations on different names never wait for each other.

Source: docs/reference/api.md#consumers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from storage.consumers.checks import check_kind, start_seq
from storage.consumers.cursor_writer import CursorWriters
from storage.errors import ConsumerNotFound, InvalidRequest, LimitReached, TopicIncompatible, TopicNotFound
from storage.format import control
from storage.log import encode_controls
from storage.records import Durability, TopicConfig
from storage.state import OFFSET, Topic
from storage.state.consumers import Consumer, ConsumerConfig, Start, has_one
from storage.state.consumers.offset import CommittedOffset

if TYPE_CHECKING:
    from storage.log import Logs


class ConsumerAdmin:
    """Operations on whole consumers."""

    def __init__(self, logs: Logs, cursor_writers: CursorWriters) -> None:
        self._logs = logs
        self._cursor_writers = cursor_writers
        #: By name: the lock of its operations, and how many hold it or wait for it.
        self._busy: dict[tuple[int, str], tuple[asyncio.Lock, int]] = {}
        #: Consumers whose first frame is not durable yet, by topic_id.
        self._making: dict[int, set[asyncio.Future[int | None]]] = {}

    @asynccontextmanager
    async def _one_at_a_time(self, topic: Topic, name: str) -> AsyncGenerator[None]:
        key = (topic.topic_id, name)
        lock, count = self._busy.get(key, (asyncio.Lock(), 0))
        self._busy[key] = (lock, count + 1)
        try:
            async with lock:
                yield
        finally:
            lock, count = self._busy.pop(key)
            if count > 1:
                self._busy[key] = (lock, count - 1)

    async def _wait_unchanged(self, name: str) -> Topic:
        """The topic, once no change of it is in progress."""
        while True:
            topic = self._logs.topic(name)
            changing = self._logs.changing.get(topic.topic_id)
            if changing is not None:
                await asyncio.wait([changing])
            elif topic.log.topic_id in self._logs.unannounced_losses:
                await self._logs.announce_losses(topic.log)
            else:
                return topic

    async def put(
        self, topic_name: str, name: str, config: ConsumerConfig, start: Start, value: bytes | None = None
    ) -> tuple[Consumer, bool]:
        """Create the consumer, with `value` stored beside its cursor, or replace its config. True when created.
        Durable on return."""
        async with self._one_at_a_time(self._logs.topic(topic_name), name):
            topic = await self._wait_unchanged(topic_name)
            return await self._put(topic, name, config, start, value)

    async def alter(
        self, topic_name: str, name: str, changed: Callable[[ConsumerConfig], ConsumerConfig]
    ) -> tuple[Topic, Consumer]:
        """Replace the consumer's config by the result of `changed`, which gets the current one; durable on return.

        No other change comes between the read and the write. Raises ConsumerNotFound, and the errors of `changed` and
        `put`.
        """
        async with self._one_at_a_time(self._logs.topic(topic_name), name):
            topic = await self._wait_unchanged(topic_name)
            check_kind(topic)
            old = topic.log.consumers.by_name.get(name)
            if old is None:
                self._check_writable(topic)
                raise ConsumerNotFound(topic.name, name)
            consumer, _ = await self._put(topic, name, changed(old.config), 0, None)
            return topic, consumer

    async def _put(
        self, topic: Topic, name: str, config: ConsumerConfig, start: Start, metadata: bytes | None
    ) -> tuple[Consumer, bool]:
        check_kind(topic)
        logs, table = self._logs, topic.log.consumers
        shard = logs.shards[topic.log.shard]
        old = table.by_name.get(name)
        if old is not None and old.config == config and shard.log.failed is None:
            return old, False
        shard.refuse_when_full()
        seq = None
        if old is None:
            seq = start_seq(topic, start)
            self._check_limit()
        value = control.Consumer(
            consumer_id=logs.catalog.claim_id() if old is None else old.consumer_id,
            name=name,
            event="put",
            config=config.to_map(),
            seq=seq,
        )
        behind = [] if seq is None else _metadata_frames(name, metadata)
        encoded = encode_controls([value, *behind], topic.topic_id, logs.now_ms())
        done = logs.submit_controls(topic.log, encoded, generation=shard.generation)
        making = self._making.setdefault(topic.topic_id, set())
        making.add(done)
        try:
            await done
        finally:
            making.discard(done)
            if not making:
                self._making.pop(topic.topic_id, None)
        made = table.by_name.get(name)
        if made is None or logs.catalog.by_id.get(topic.topic_id) is not topic:
            raise TopicNotFound(topic.name)  # its deletion was in progress
        return made, old is None

    def _check_limit(self) -> None:
        limit = self._logs.options.max_consumers
        there = self._logs.catalog.usage.consumers + sum(map(len, self._making.values()))
        if limit and there >= limit:
            raise LimitReached(f"There are {limit} consumers, which is the limit.", limit="max_consumers", max=limit)

    async def delete(self, topic_name: str, name: str) -> bool:
        """Delete the consumer; durable on return. False when it does not exist."""
        async with self._one_at_a_time(self._logs.topic(topic_name), name):
            topic = self._logs.topic(topic_name)
            old = topic.log.consumers.by_name.get(name)
            if old is None:
                self._check_writable(topic)
                return False
            value = control.Consumer(consumer_id=old.consumer_id, name=name, event="delete")
            encoded = encode_controls([value], topic.topic_id, self._logs.now_ms())
            await self._logs.submit_controls(topic.log, encoded, frees=True)
            return True

    async def check_ephemeral(self, topic: Topic, config: TopicConfig) -> None:
        """Raises TopicIncompatible if the topic has consumers and is about to become ephemeral.

        The cursors would outlive the records. Nobody can create a consumer meanwhile, because the topic is being
        changed.
        """
        if config.durability is not Durability.EPHEMERAL:
            return
        while making := self._making.get(topic.topic_id):
            await asyncio.wait(list(making))
            await asyncio.sleep(0)
        if len(topic.log.consumers):
            raise TopicIncompatible(
                f"{topic.name} has {len(topic.log.consumers)} consumers; it cannot be made ephemeral before they are"
                " deleted.",
                field="durability",
            )

    # -- cursors -------------------------------------------------------------------------------------------------------

    async def commit(self, topic: Topic, consumer: Consumer, seq: int) -> None:
        """Mark everything up to `seq` as done; durable on return."""
        if not 0 <= seq <= topic.log.head:
            raise InvalidRequest(f"seq must be 0 to {topic.log.head}, the newest of {topic.name}.", field="seq")
        cursor_writer = self._cursor_writers.of(topic, consumer)
        async with cursor_writer.lock:
            cursor_writer.check()
            await cursor_writer.wait_written()
            if consumer.durable_seq < seq:
                await (await cursor_writer.write_cursor(seq, lambda: consumer.moved_to(seq)))
                cursor_writer.check()
            else:
                self._check_writable(topic)

    async def commit_offset(
        self, topic_name: str, name: str, config: ConsumerConfig, said: CommittedOffset
    ) -> tuple[Topic, Consumer]:
        """Move the cursor to the position of `said`, and store the metadata with it; create the consumer if it does not
        exist. Either all of this is durable on return, or nothing has changed."""
        topic = self._logs.topic(topic_name)
        consumer = topic.log.consumers.by_name.get(name)
        if consumer is None:
            seq = said.cursor_in(topic)
            consumer, created = await self.put(topic_name, name, config, seq, said.encode(seq))
            topic = self._logs.topic(topic_name)
            if created:
                return topic, consumer
        cursor_writer = self._cursor_writers.of(topic, consumer)
        async with cursor_writer.lock:
            cursor_writer.check()
            await cursor_writer.wait_written()
            seq = said.cursor_in(topic)
            value = said.encode(seq)
            back = seq < consumer.cursor_seq
            unchanged = consumer.durable_seq == seq and committed_metadata(topic, name) == value
            if not unchanged or has_one(topic.log.states, name):
                await (await cursor_writer.write_cursor(seq, consumer.reset, _metadata_frames(name, value)))
                cursor_writer.check()
            else:
                self._check_writable(topic)
                consumer.reset()
            if back:
                self._logs.publisher.look_again(topic.log.topic_id)
        return topic, consumer

    async def seek(self, topic: Topic, consumer: Consumer, target: Start) -> None:
        """Move the cursor to `target`; durable on return."""
        cursor_writer = self._cursor_writers.of(topic, consumer)
        async with cursor_writer.lock:
            cursor_writer.check()
            await cursor_writer.wait_written()
            seq = start_seq(topic, target, "seq")
            if consumer.durable_seq != seq or has_one(topic.log.states, consumer.name):
                await (await cursor_writer.write_cursor(seq, consumer.reset))
                cursor_writer.check()
            else:
                self._check_writable(topic)
                consumer.reset()
            # The cursor moved back: there may be records for waiting readers.
            self._logs.publisher.look_again(topic.log.topic_id)

    def _check_writable(self, topic: Topic) -> None:
        """Raises when the shard has stopped: the next start may find a frame that this process does not know."""
        shard = self._logs.shards[topic.log.shard]
        if shard.log.failed is not None:
            raise shard.log.failure()


def committed_metadata(topic: Topic, name: str) -> bytes | None:
    """The value stored beside a consumer's cursor; None when there is none."""
    states = topic.log.states
    return states.get(OFFSET, name) if states is not None else None


def _metadata_frames(name: str, value: bytes | None) -> list[control.State]:
    """The frame that stores the metadata. None needs no frame, because a cursor frame alone clears the metadata."""
    return [] if value is None else [control.State(kind=OFFSET, key=name, value=value)]
