"""One request for its handler, and the forms of an answer.

A handler gets the call and the raw body of the request, without the header. A connection starts its requests in order:
each one after the handler of the previous one has returned. A handler may return a `Later`, an answer that is not known
yet. A produce request that waits for its commit therefore delays no later request. Answers are sent in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from broker.auth import UNCOUNTED, Flight
from broker.kafka import cluster
from broker.kafka.codec import Buffer, Message, decode, encode, padded
from storage import TopicNotFound
from storage.records import address

if TYPE_CHECKING:
    from broker.auth import Access, Scopes
    from broker.kafka.node import Node
    from broker.memory import Hold
    from storage.state import Topic

#: Larger requests are decoded on a thread: more than a millisecond or two.
LARGE_REQUEST_BYTES: Final = 16 * 1024
#: A request with this many topics or partitions has a large list.
LIST_ITEMS: Final = 100

#: The bytes of a body, in one piece or several.
Body: TypeAlias = Buffer | Sequence[Buffer]


class Later(NamedTuple):
    """An answer that is not known yet. Awaiting `body` returns it, or None for no answer."""

    body: Awaitable[Body | None]


#: None: the request gets no answer (a produce request with acks=0).
Answer: TypeAlias = Body | Later | None


class Peer:
    """The connection of a call.

    `access`: its permissions; None until it has authenticated. `local`: the host and port that it connected to.
    """

    __slots__ = ("access", "address", "local", "mechanism", "raw_tokens", "rejected", "software", "when_gone")

    def __init__(self, access: Access | None, local: tuple[str, int], address: str) -> None:
        #: Called when the connection ends; the key names the purpose.
        self.when_gone: dict[object, Callable[[], None]] = {}
        self.access = access
        self.local = local
        self.address = address
        #: The name and version that the client stated; "": none.
        self.software = ""
        #: The agreed SASL mechanism.
        self.mechanism: str | None = None
        #: After SaslHandshake v0: the next frame is a token without a header.
        self.raw_tokens = False
        #: Authentication failed: the connection ends after the answer.
        self.rejected = False


class Call:
    """One request."""

    __slots__ = ("api_key", "broker", "client_id", "connection", "errors", "flight", "hops", "room", "version")

    def __init__(self, api_key: int, version: int, client_id: str | None, connection: Peer, broker: Node) -> None:
        self.api_key = api_key
        self.version = version
        self.client_id = client_id
        self.connection = connection
        self.broker = broker
        #: How often another cell has passed it on.
        self.hops = 0
        #: The error codes in the answer, for the metrics. Handlers that encode their answer themselves add theirs.
        self.errors: list[int] = []
        #: Counts it as a request of its key in flight, until it is done or waits for an event.
        self.flight: Flight = UNCOUNTED
        #: The memory that its answer holds until it is written to the transport.
        self.room: Hold | None = None

    def release(self) -> None:
        """Release the memory of the answer."""
        if self.room is not None:
            self.room.release()
            self.room = None

    @property
    def access(self) -> Access:
        """The permissions of the connection; every call except those of SASL has them."""
        access = self.connection.access
        assert access is not None
        return access


def located(call: Call, scopes: Scopes, name: str, partition: int) -> tuple[str, Topic]:
    """The name of the partition in the engine, and the partition. Raises Forbidden, TopicNotFound, NotMine."""
    access = call.connection.access
    assert access is not None
    if access.owner is not None:  # without an owner, everything is allowed
        access.require(scopes, (name,))
    if partition >= 0 and "/" not in name:  # only names of partitions contain "/"
        partition_name = address(name, partition)
        topic = call.broker.engine.catalog.topics.get(partition_name)
        if topic is not None and not topic.provisional:
            return partition_name, topic
        cluster.require_mine(call.broker, name)
        call.broker.engine.logs.check_elsewhere(partition_name)
    raise TopicNotFound(name)


def log_start_offset(topic: Topic) -> int:
    """The offset of the first record, or of the next one in an empty log."""
    return topic.log.earliest_seq - 1


Handler: TypeAlias = Callable[[Call, memoryview], Awaitable[Answer]]

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


def decoded(
    kind: type[Q],
    handle: Callable[[Call, Q], Awaitable[R]],
    *,
    lists: Callable[[Q], bool] | None = None,
    before: Callable[[Call, Q], Awaitable[None]] | None = None,
    room: Callable[[R, int], int] | None = None,
) -> Handler:
    """Make a handler of raw bodies from a handler of messages. It raises Malformed for an invalid body.

    `before`: what a request for a large list waits for, without delaying others. `lists`: whether a request asks for a
    large list. One of those is handled at a time, since it takes memory until it is encoded, which is done on a thread;
    its handler must not wait for other clients. Large requests are decoded on a thread, also one at a time: two would
    leave the loop a third of a processor. `room`: the bytes by which an answer in that version is padded.
    """

    async def handler(call: Call, body: memoryview) -> Answer:
        one_at_a_time = call.broker.kafka_lists
        if len(body) > LARGE_REQUEST_BYTES:
            async with one_at_a_time:
                request = await asyncio.to_thread(decode, kind, call.version, body)
        else:
            request = decode(kind, call.version, body)
        if lists is not None and lists(request):
            if before is not None:
                await before(call, request)
            async with one_at_a_time:
                answer = await handle(call, request)
                written = await asyncio.to_thread(encode, answer, call.version, call.errors)
        else:
            answer = await handle(call, request)
            written = encode(answer, call.version, call.errors)
        size = 0 if room is None else room(answer, call.version)
        return padded(written, size) if size else written

    return handler
