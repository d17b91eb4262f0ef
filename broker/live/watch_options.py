"""The options of a watcher: topics and positions, and the form of records. Checked and clamped; pure values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from broker.content import Shape
from broker.live.cursor import Position
from broker.service import check_topic_name, partitions, reads
from schemas import MAX_PARTITION
from storage import Durability, InvalidRequest, TopicNotFound
from storage.records import split

if TYPE_CHECKING:
    from storage import Engine

MAX_TOPICS: Final = 256
MAX_LIMIT: Final = 1000
MAX_BATCH_BYTES: Final = 8 << 20
DEFAULT_HEARTBEAT_MS: Final = 15_000
MIN_HEARTBEAT_MS: Final = 1000
MAX_HEARTBEAT_MS: Final = 60_000


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How records are read and shown. Subscriptions with equal options share reads and renderings."""

    limit: int
    max_batch_bytes: int
    shape: Shape = Shape()
    exclude_nodes: frozenset[bytes] = frozenset()
    #: Deliver synced records only.
    strong: bool = False
    #: Continue after records that fail their checksum, and report them.
    skip_corrupt: bool = False


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Where to start in each of these partitions of a topic: after `from_seq`, or at the last `tail` seqs, or (neither)
    after the head. `field` is the one that named them."""

    from_seq: int | None = None
    tail: int | None = None
    partitions: tuple[int, ...] = (0,)
    field: str = "partition"


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a stream that apply to all of its topics."""

    options: Options
    heartbeat_ms: int


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A topic at the time of the request, and where watching it starts."""

    epoch: int
    from_seq: int
    head_seq: int
    earliest_seq: int

    @property
    def position(self) -> Position:
        return Position(self.epoch, self.from_seq)


def clamped(given: int, default: int, most: int) -> int:
    """The requested value within the limit; 0 means the default."""
    return min(given or default, most)


def nodes(given: str | list[str] | None) -> frozenset[bytes]:
    """The nodes whose own records are excluded."""
    return frozenset(node.encode() for node in reads.several(given))


def heartbeat_ms(given: int) -> int:
    """Clamped; 0 means the default."""
    return min(max(given or DEFAULT_HEARTBEAT_MS, MIN_HEARTBEAT_MS), MAX_HEARTBEAT_MS)


def check_topics(starts: dict[str, Start], field: str = "topics") -> None:
    """Raises InvalidRequest unless these are 1 to 256 valid topic names, with valid partition numbers, 256 in all at
    most."""
    if not 1 <= len(starts) <= MAX_TOPICS:
        raise InvalidRequest(f"{field}: expected 1 to {MAX_TOPICS} topics, got {len(starts)}.", field=field)
    for name, start in starts.items():
        check_topic_name(name, field)
        if not start.partitions or max(start.partitions) > MAX_PARTITION:
            where = f"{field}.{name}.{start.field}"
            raise InvalidRequest(f"{where}: must be 0 to {MAX_PARTITION}.", field=where)
    in_all = sum(len(start.partitions) for start in starts.values())
    if in_all > MAX_TOPICS:
        raise InvalidRequest(f"{field}: at most {MAX_TOPICS} partitions in all, got {in_all}.", field=field)


def addressed(engine: Engine, starts: dict[str, Start], *, lenient: bool) -> dict[str, Start]:
    """The same, by names of partitions in the engine. Raises InvalidRequest for a partition that does not exist."""
    found: dict[str, Start] = {}
    for name, start in starts.items():
        try:
            for number in start.partitions:
                found[partitions.at(engine, name, number, f"topics.{name}.{start.field}")] = start
        except TopicNotFound:
            if not lenient:
                raise
    return found


def open_topics(
    engine: Engine,
    starts: dict[str, Start],
    *,
    lenient: bool,
    strong: bool,
    heads: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Opened]:
    """Find where each topic starts. `heads`: heads to use instead of the current ones, if they are lower.

    Raises TopicNotFound, unless `lenient`: then unknown topics are skipped.
    """
    found: dict[str, Opened] = {}
    for name, start in starts.items():
        try:
            topic = engine.topic(name)
        except TopicNotFound:
            if lenient:
                continue
            raise
        if strong and topic.config.durability is Durability.EPHEMERAL:
            raise InvalidRequest(
                f"consistency: the ephemeral topic {name} is never synced, so strong would return nothing.",
                field="consistency",
            )
        log = topic.log
        found[name] = Opened(
            epoch=log.epoch,
            from_seq=_from_seq(start, min(log.head, heads.get(name, log.head)), log.earliest_seq),
            head_seq=log.head,
            earliest_seq=log.earliest_seq,
        )
    return found


def by_topic(opened: Mapping[str, Opened]) -> dict[str, dict[str, Any]]:
    """The answer to a client about these partitions, by topic: the first one, and each if there are several."""
    found: dict[str, list[dict[str, int]]] = {}
    for name, each in opened.items():
        topic, partition = split(name)
        seqs = {"from_seq": each.from_seq, "head_seq": each.head_seq, "earliest_seq": each.earliest_seq}
        found.setdefault(topic, []).append({"partition": partition, **seqs})
    return {
        topic: {
            **{field: seq for field, seq in each[0].items() if field != "partition"},
            **({"partitions": each} if len(each) > 1 else {}),
        }
        for topic, each in found.items()
    }


def _from_seq(start: Start, head_seq: int, earliest_seq: int) -> int:
    if start.from_seq is not None:
        return start.from_seq
    # Only existing records: for a watcher of the end, earlier losses are no gap.
    return max(head_seq - (start.tail or 0), earliest_seq - 1)
