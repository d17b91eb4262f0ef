"""Committed offsets of groups: the cursors of consumers named `group:<id>`, one in each partition.

The committed offset is the next one to be read, which is the seq of the last record that is done with. Source:
kafka.md §1, §2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from storage.config import Durability, TopicType
from storage.errors import ConsumerNotFound
from storage.partitions import address

if TYPE_CHECKING:
    from broker.proxy.assignment import Partition
    from storage.engine import Engine

_PREFIX: Final = "group:"
_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-")


def consumer_name(group: str) -> str:
    """What the consumers of a group are called: bytes that are not plain as %XX."""
    return _PREFIX + "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in group.encode())


def group_of(consumer: str) -> str | None:
    """The group that a consumer belongs to; None: it is one of /v0 only."""
    if not consumer.startswith(_PREFIX):
        return None
    raw = bytearray()
    text = consumer[len(_PREFIX) :]
    at = 0
    while at < len(text):
        if text[at] == "%":
            try:
                raw.append(int(text[at + 1 : at + 3], 16))
            except ValueError:
                return None
            at += 3
        else:
            raw.append(ord(text[at]))
            at += 1
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def keeps_offsets(engine: Engine, topic: str) -> bool:
    """Whether a topic has consumers at all: neither queues nor topics in memory only have. Raises TopicNotFound."""
    config = engine.topic(topic).config
    return config.type is TopicType.LOG and config.durability is not Durability.EPHEMERAL


def committed(engine: Engine, group: str, partition: Partition) -> int | None:
    """The offset that the group reads next; None: nothing is committed. Raises TopicNotFound."""
    if not keeps_offsets(engine, partition[0]):
        return None
    try:
        return engine.consumers.state(address(*partition), consumer_name(group)).cursor_seq
    except ConsumerNotFound:
        return None


async def commit(engine: Engine, group: str, partition: Partition, offset: int) -> None:
    """The group reads from `offset` on next, forward or back. Durable on return.

    Raises InvalidRequest for one beyond the end or a topic without consumers, TopicNotFound, Unavailable.
    """
    where, name = address(*partition), consumer_name(group)
    try:
        await engine.consumers.seek(where, name, seq=offset)
    except ConsumerNotFound:
        _, made = await engine.consumers.put(where, name, start=offset)
        if not made:  # another one was faster
            await engine.consumers.seek(where, name, seq=offset)
