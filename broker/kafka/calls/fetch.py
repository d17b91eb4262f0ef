"""Fetch: reads that wait for a minimum of bytes.

Partitions are read in the order of the request, which clients rotate. Each is read up to its own limit and the rest of
the answer's limit. The first partition with records returns at least one, whatever its size. The others keep both
limits: a client may discard what exceeds them, and would request it forever.

Source: docs/guides/kafka.md#producing-and-consuming.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from broker.auth import READ
from broker.kafka import cluster
from broker.kafka.apis import ApiKey
from broker.kafka.call import Answer, Call, Handler, located, log_start_offset
from broker.kafka.codec import Buffer
from broker.kafka.codec.fetch import Fetched, FetchPartition, FetchRequest, read_fetch, write_fetched
from broker.kafka.errors import ErrorCode, code_of
from broker.kafka.fetching import OffsetOutOfRange, check_offset, read_from, stale_epoch
from broker.kafka.packed import packed
from broker.memory import MIN_READ_BYTES, PATIENCE_S, SMALL, Overloaded
from storage import NotMine, NotReady, ShuttingDown, TopicNotFound

if TYPE_CHECKING:
    from broker.memory import Hold

#: The longest wait.
MAX_WAIT_MS: Final = 60_000
#: The largest answer, unless its first batch is larger.
MAX_BYTES: Final = 64 << 20
#: Read this much if there is no memory for all requested bytes.
_SOME_BYTES: Final = 1 << 20
#: The most bytes that an answer counts when it is scheduled.
MAX_SLICE_BYTES: Final = 1 << 20


async def fetch(call: Call, body: memoryview) -> Answer:
    """Read records, and wait for them if there are too few. Raises Malformed."""
    request = read_fetch(call.version, body)
    if request.session_id:
        call.errors.append(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return write_fetched(call.version, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    deadline = monotonic() + min(max(request.max_wait_ms, 0), MAX_WAIT_MS) / 1000
    while True:
        found, full = await _read_in_room(call, request, deadline)
        if full or _is_enough(request, found) or not await _grown(call, request, found, deadline):
            break
        call.release()
    call.errors += [each.error for each in found if each.error]
    return write_fetched(call.version, 0, found)


async def _read_in_room(call: Call, request: FetchRequest, deadline: float) -> tuple[list[Fetched], bool]:
    """`_read_all` within the memory for answers: first a small part, then everything if there is more.

    Without memory for more, the part is the answer. If the first batch is larger than the part, and no memory becomes
    available in time, the answer is empty. Clients request the rest again.
    """
    memory = call.broker.memory
    most = min(request.max_bytes, MAX_BYTES, sum(max(0, wanted.max_bytes) for wanted in request.partitions))
    most = min(most, memory.answers.per_owner or most)
    # A single record may be large: without this wait, many clients at once would block the loop.
    await memory.acquire(MIN_READ_BYTES)
    found, full = await _read_all(call, request._replace(max_bytes=min(most, SMALL)))
    size = sum(each.uncompressed_size for each in found)
    if size <= SMALL and (most <= SMALL or not full):
        return found, full
    if size > SMALL:
        found = []  # release it before waiting for memory
        call.room = await _room(call, size, deadline)
        if call.room is None:
            return [(await _read_one(call, wanted, 0, 0))[0] for wanted in request.partitions], False
    answers, connection = memory.answers, call.connection
    room = call.room or answers.try_hold(connection, most) or answers.try_hold(connection, min(most, _SOME_BYTES))
    if room is None:
        return found, True
    call.room = room
    if room.size < most and answers.has_room(connection, most - room.size):
        room.resize(most)
    await memory.acquire(min(room.size, MAX_SLICE_BYTES))
    found, full = await _read_all(call, request._replace(max_bytes=min(most, room.size)))
    room.resize(sum(each.size for each in found))
    return found, full


async def _room(call: Call, size: int, deadline: float) -> Hold | None:
    """Reserve memory. None: none became available before the request timed out."""
    memory = call.broker.memory
    try:
        return await memory.answer(call.connection, size, max(0.0, min(PATIENCE_S, deadline - monotonic())))
    except Overloaded:
        await asyncio.sleep(max(0.0, deadline - monotonic()))
        return None


def _is_enough(request: FetchRequest, found: Sequence[Fetched]) -> bool:
    # Before compression: compressed bytes might never be enough, however much is read.
    return any(each.error for each in found) or sum(each.uncompressed_size for each in found) >= request.min_bytes


async def _read_all(call: Call, request: FetchRequest) -> tuple[list[Fetched], bool]:
    """Read all partitions. The flag: there are more records than fit the answer, so waiting is useless."""
    left = min(request.max_bytes, MAX_BYTES)
    answers: list[Fetched] = []
    empty, full = True, False
    for wanted in request.partitions:
        room = min(wanted.max_bytes, left)
        one, goes_on = await _read_one(call, wanted, max(room, int(empty)), int(empty))
        answers.append(one)
        full |= goes_on and left < wanted.max_bytes
        left -= one.size
        empty = empty and not one.batches
    return answers, full


async def _read_one(call: Call, wanted: FetchPartition, room: int, least: int) -> tuple[Fetched, bool]:
    """Read one partition; the flag says whether it has more records. With `room` 0 or less, only its bounds. At least
    `least` records are returned, whatever their size."""
    topic_id = wanted.topic_id
    if topic_id is None:
        return await _read_named(call, wanted, room, least)
    # Looked up at each read: the topic may have been deleted and created again.
    name = cluster.name_by_id(call, topic_id)
    if name is None:
        return Fetched("", wanted.partition, ErrorCode.UNKNOWN_TOPIC_ID, topic_id=topic_id), False
    answer, goes_on = await _read_named(call, wanted._replace(topic=name), room, least)
    return answer._replace(topic_id=topic_id), goes_on


async def _read_named(call: Call, wanted: FetchPartition, room: int, least: int) -> tuple[Fetched, bool]:
    name, partition = wanted.topic, wanted.partition
    try:
        partition_name, topic = located(call, READ, name, partition)
    except Exception as error:
        return Fetched(name, partition, code_of(error)), False
    try:
        stale = stale_epoch(wanted.leader_epoch)
        if stale is not None:
            return Fetched(name, partition, stale), False
        log = topic.log
        check_offset(topic, wanted.offset)
        batches: Sequence[Buffer] = ()
        uncompressed_size, next_offset = 0, wanted.offset
        if room > 0 and wanted.offset < log.head:
            read = await read_from(call.broker.engine, partition_name, topic, wanted.offset, room, least=least)
            found, next_offset = read
            uncompressed_size = sum(map(len, found))
            batches = await packed(call.broker, topic, found, call.version)
        answer = Fetched(name, partition, 0, log.head, log_start_offset(topic), batches, uncompressed_size)
        return answer, next_offset < log.head
    except OffsetOutOfRange:
        return Fetched(name, partition, ErrorCode.OFFSET_OUT_OF_RANGE, topic.log.head, log_start_offset(topic)), False
    except Exception as error:
        return Fetched(name, partition, code_of(error)), False


async def _grown(call: Call, request: FetchRequest, found: Sequence[Fetched], deadline: float) -> bool:
    """Wait until a partition has new records. False: the deadline has passed."""
    left_ms = (deadline - monotonic()) * 1000
    if left_ms <= 0:
        return False
    engine = call.broker.engine
    try:
        # All are looked up before the first wait: one may have been deleted while others were read.
        partition_names = [located(call, READ, each.topic, each.partition)[0] for each in found]
    except (TopicNotFound, NotMine, NotReady):
        return True
    call.flight.end()
    waits = [
        engine.wait_beyond(partition_name, each.high_watermark, left_ms)
        for partition_name, each in zip(partition_names, found, strict=True)
    ]
    if not waits:
        await asyncio.sleep(left_ms / 1000)
        return False
    try:
        return await (waits[0] if len(waits) == 1 else _any_of(waits))
    except ShuttingDown:
        return False  # there are records already
    except TopicNotFound:
        return True


async def _any_of(waits: Sequence[Coroutine[Any, Any, bool]]) -> bool:
    """The result of the first that completes. Raises its error."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return max([task.result() for task in done])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


HANDLERS: Final[dict[int, Handler]] = {ApiKey.FETCH: fetch}
