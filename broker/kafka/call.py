"""What a request is to those who handle it, and how they answer.

A handler gets the call and the raw body of its request, behind the header. Requests of a connection are started one
after the other, in the order in which they came: the next one when the handler of the one before has returned. What it
returned may be on its way still, a `Later`: so a produce request that waits for its commit holds up nobody, while
answers go out in order all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from broker.auth import UNCOUNTED, Flight
from broker.kafka.codec import Buffer, Message, decode, encode, padded
from storage import TopicNotFound
from storage.records import address

if TYPE_CHECKING:
    from broker.auth import Access, Scopes
    from broker.kafka.node import Node
    from broker.memory import Hold
    from storage.state import Topic

#: The bytes of a body, as one piece or several.
Body: TypeAlias = Buffer | Sequence[Buffer]


class Later(NamedTuple):
    """An answer on its way. What is awaited gives the body, or None."""

    body: Awaitable[Body | None]


#: None: this request gets no answer at all (a produce request with acks=0).
Answer: TypeAlias = Body | Later | None


class Peer:
    """One connection as its calls see it.

    `access`: what it may do; None until it has said who it is. `local` is the address that it has reached: host, port.
    """

    __slots__ = ("access", "address", "local", "mechanism", "raw_tokens", "rejected", "software", "when_gone")

    def __init__(self, access: Access | None, local: tuple[str, int], address: str) -> None:
        #: What is to be done when it ends, by what for.
        self.when_gone: dict[object, Callable[[], None]] = {}
        self.access = access
        self.local = local
        self.address = address
        #: Name and version of the client, as it says; "": it has not.
        self.software = ""
        #: What it has agreed to say it by.
        self.mechanism: str | None = None
        #: SaslHandshake v0: the next frame is a token without any header.
        self.raw_tokens = False
        #: It has said who it is, and is not: the connection ends with that answer.
        self.rejected = False


class Call:
    """One request."""

    __slots__ = ("api_key", "broker", "client_id", "connection", "errors", "flight", "room", "version")

    def __init__(self, api_key: int, version: int, client_id: str | None, connection: Peer, broker: Node) -> None:
        self.api_key = api_key
        self.version = version
        self.client_id = client_id
        self.connection = connection
        self.broker = broker
        #: Error codes within the answer, for the metrics: handlers of raw bodies add theirs.
        self.errors: list[int] = []
        #: Its place among the requests of its key that are under way: ended when it is done, or waits for something.
        self.flight: Flight = UNCOUNTED
        #: The memory that its answer holds until the transport has taken it.
        self.room: Hold | None = None

    def release(self) -> None:
        """Its answer is not there any more."""
        if self.room is not None:
            self.room.release()
            self.room = None

    @property
    def access(self) -> Access:
        """What the connection may do; there when any call but those of SASL is made."""
        access = self.connection.access
        assert access is not None
        return access


def located(call: Call, scopes: Scopes, name: str, partition: int) -> tuple[str, Topic]:
    """The partition's address in the engine, and what is there. Raises Forbidden, TopicNotFound."""
    access = call.connection.access
    assert access is not None
    if access.owner is not None:  # else nothing is refused
        access.require(scopes, (name,))
    if partition >= 0 and "/" not in name:  # which is in addresses only
        partition_name = address(name, partition)
        topic = call.broker.engine.catalog.topics.get(partition_name)
        if topic is not None and not topic.provisional:
            return partition_name, topic
    raise TopicNotFound(name)


def log_start_offset(topic: Topic) -> int:
    """The offset of the first record there is, or would be."""
    return topic.log.earliest_seq - 1


Handler: TypeAlias = Callable[[Call, memoryview], Awaitable[Answer]]

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


def decoded(
    kind: type[Q],
    handle: Callable[[Call, Q], Awaitable[R]],
    *,
    large: Callable[[R], bool] | None = None,
    room: Callable[[R, int], int] | None = None,
) -> Handler:
    """A handler of raw bodies from one of messages. It raises Malformed on bytes that are no such request.

    Answers that are `large` are written on a thread, so that the loop goes on meanwhile. `room`: by how many bytes an
    answer in that version is made longer than it is.
    """

    async def handler(call: Call, body: memoryview) -> Answer:
        answer = await handle(call, decode(kind, call.version, body))
        if large is not None and large(answer):
            written = await asyncio.to_thread(encode, answer, call.version, call.errors)
        else:
            written = encode(answer, call.version, call.errors)
        size = 0 if room is None else room(answer, call.version)
        return padded(written, size) if size else written

    return handler
