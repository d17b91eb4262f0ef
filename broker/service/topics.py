"""Topics: creating, changing, listing, describing, deleting.

Source: docs/reference/api.md#topics.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from broker.auth import narrowed
from broker.scheduling import deliveries as scheduler
from broker.service import partitions
from broker.service.predicates import check_topic_name, tag_match
from schemas import TopicChange, TopicSettings
from storage import InvalidRequest, TopicConfig, TopicType
from storage.records import DeletedRecords, PartitionStates, TopicState

if TYPE_CHECKING:
    from storage import Engine
    from storage.state import Topic

DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 100, 1000


class Listed(NamedTuple):
    """A topic in a list. The counts of `state` are without the partitions that are offline."""

    state: TopicState
    offline: list[partitions.OfflinePartition]


def storage_config(topic: str, settings: TopicSettings, prefix: str = "") -> TopicConfig:
    """The settings in the engine's form, clamped. Raises InvalidRequest; `prefix`: before field names in errors."""
    _check_dead_letter(topic, settings.dead_letter, prefix)
    config = msgspec.convert(settings.resolved(), TopicConfig).clamped()
    _check_deliveries(config, prefix)
    return config


def _check_dead_letter(topic: str, dead_letter: str | None, prefix: str = "") -> None:
    if dead_letter is not None:
        field = f"{prefix}dead_letter"
        check_topic_name(dead_letter, field)
        if dead_letter == topic:
            raise InvalidRequest(f"{field}: a topic cannot be its own dead letter topic.", field=field)


def _check_deliveries(config: TopicConfig, prefix: str = "") -> None:
    """Refuse max_deliveries without a dead letter topic: it would have no effect."""
    if config.type is TopicType.QUEUE and config.max_deliveries and config.dead_letter is None:
        field = f"{prefix}max_deliveries"
        raise InvalidRequest(
            f"{field}: needs dead_letter, the topic for jobs that were delivered too often. 0 means no limit.",
            field=field,
        )


def _changed(config: TopicConfig, asked: TopicChange) -> TopicConfig:
    """The settings with these changes, clamped. Raises InvalidRequest."""
    changed = msgspec.convert(asked.applied_to(config.to_map()), TopicConfig).clamped()
    if asked.model_fields_set & {
        "max_deliveries",
        "dead_letter",
    }:  # only then, because a queue may be older than this check
        _check_deliveries(changed)
    return changed


def echoed_config(config: TopicConfig) -> dict[str, Any]:
    """All fields by name, as stored, and `durable`."""
    return {**config.to_map(), "durable": config.durable}


def effective_priority(engine: Engine, state: TopicState) -> int:
    """The current priority: the configured one, or one that falls with the time since the last write."""
    config = state.config
    return scheduler.effective_priority(
        config.priority, auto=config.auto_priority, last_write_ts=state.last_write_ts, now_ms=engine.now_ms()
    )


def priority_of(engine: Engine, topic: Topic) -> int:
    """The same for a topic of the engine."""
    config = topic.config
    return scheduler.effective_priority(
        config.priority, auto=config.auto_priority, last_write_ts=topic.log.last_write_ts, now_ms=engine.now_ms()
    )


def names_in(topic: str, settings: TopicSettings) -> list[str]:
    """The other topics that a topic's settings name. Raises InvalidRequest."""
    check_topic_name(topic)
    dead_letter = storage_config(topic, settings).dead_letter
    return [] if dead_letter is None else [dead_letter]


def names_in_change(topic: str, asked: TopicChange) -> list[str]:
    """The other topics that a change of a topic's settings names. Raises InvalidRequest."""
    check_topic_name(topic)
    _check_dead_letter(topic, asked.dead_letter)
    return [] if asked.dead_letter is None else [asked.dead_letter]


async def put(engine: Engine, topic: str, settings: TopicSettings) -> tuple[TopicState, bool]:
    """Create the topic or replace its settings. True: it was created. Durable on return."""
    check_topic_name(topic)
    config = storage_config(topic, settings)
    return await engine.put_topic(topic, config, keep_partitions="partitions" not in settings.model_fields_set)


async def change(engine: Engine, topic: str, asked: TopicChange) -> TopicState:
    """Change the given settings. Durable on return. Raises TopicNotFound, TopicIncompatible."""
    check_topic_name(topic)
    _check_dead_letter(topic, asked.dead_letter)
    return await engine.change_topic(topic, lambda config: _changed(config, asked))


async def describe(engine: Engine, topic: str, *, touch: bool, complete: bool) -> tuple[TopicState, PartitionStates]:
    """The state of a topic, and those of its partitions. `touch`: this counts as a read, also in the returned state.

    Partitions of a cell that is away are missing; with `complete` it raises NotReady.
    """
    check_topic_name(topic)
    await engine.let_expire((topic,))
    if touch:
        engine.touch(topic)
    found = await partitions.states(engine, topic, complete=complete)
    return partitions.summed(found), found


async def page(
    engine: Engine, *, prefix: str, page_size: int | None, cursor: str | None, only: tuple[str, ...] = ()
) -> tuple[list[Listed], str | None]:
    """A page of topics, ordered by name, and the cursor of the next page, if there is one.

    `only`: allowed beginnings of names; () = any.
    """
    size = min(page_size or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
    after = decode_cursor(cursor) if cursor else ""
    names = narrowed(only, prefix)
    found = list(islice(_named(engine, names, after, size + 1), size + 1))
    if await engine.let_expire([state.topic for state in found if state.config.ttl_ms]):
        found = list(islice(_named(engine, names, after, size + 1), size + 1))
    shown = await _summed(engine, found[:size])
    return shown, None if len(found) <= size else encode_cursor(shown[-1].state.topic)


def _named(engine: Engine, prefixes: tuple[str, ...], after: str, limit: int) -> Iterator[TopicState]:
    # The prefixes are sorted and none is within another, so the names of one prefix after the other are sorted, too.
    for prefix in prefixes:
        yield from engine.topics(prefix=prefix, after=after, limit=limit)


async def _summed(engine: Engine, states: list[TopicState]) -> list[Listed]:
    """The same topics, with the counts of all partitions."""
    several = [state.topic for state in states if state.config.partitions > 1]
    found = dict(zip(several, await engine.states_of(several), strict=True))
    return [
        Listed(partitions.summed(found[state.topic]), partitions.offline(found[state.topic]))
        if state.topic in found
        else Listed(state, [])
        for state in states
    ]


async def delete(engine: Engine, topic: str, *, if_empty: bool) -> list[str] | None:
    """Delete a topic. Returns the routers deleted with it; None: the topic did not exist. Durable on return."""
    check_topic_name(topic)
    return await engine.remove_topic(topic, if_empty=if_empty)


def encode_cursor(name: str) -> str:
    """Make a cursor: the last name of a page with a checksum, URL-safe."""
    raw = name.encode()
    return base64.urlsafe_b64encode(zlib.crc32(raw).to_bytes(4, "little") + raw).rstrip(b"=").decode()


def decode_cursor(cursor: str) -> str:
    """The name in a cursor. Raises InvalidRequest if `encode_cursor` did not make it."""
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        if zlib.crc32(raw[4:]).to_bytes(4, "little") != raw[:4]:
            raise ValueError("checksum")
        return raw[4:].decode()
    except (ValueError, binascii.Error):
        raise InvalidRequest("cursor: not a cursor of this broker.", field="cursor") from None


async def delete_records(engine: Engine, topic: str, *, before_seq: int | None, match: Any) -> DeletedRecords:
    """Delete the records before `before_seq` that also match `match`. At least one of them is required.

    On return the deletion is as durable as the topic's class defines.
    """
    predicate = tag_match(match, "match")
    if before_seq is None and predicate is None:
        raise InvalidRequest("before_seq or match is required.", field="before_seq")
    await engine.let_expire((topic,))  # so that expired records are not counted
    return await engine.delete_records(topic, before_seq, predicate)
