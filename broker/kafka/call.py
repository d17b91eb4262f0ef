"""A request as its handler sees it, and the forms of its answer.

A handler gets the call and the raw body of its request, without the header. The requests of a connection are started
one after another, in the order in which they came: each one when the handler of the previous one has returned. A
handler may return a `Later`, an answer that comes later: so a produce request that waits for its commit holds up no
other request, and answers are still sent in order.
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
    """An answer that comes later: awaiting it returns the body, or None."""

    body: Awaitable[Body | None]


#: None: the request gets no answer (a produce request with acks=0).
Answer: TypeAlias = Body | Later | None


class Peer:
    """One connection, as its calls see it.

    `access`: its permissions; None until it has authenticated. `local`: the host and port that it connected to.
    """

    __slots__ = ("access", "address", "local", "mechanism", "raw_tokens", "rejected", "software", "when_gone")

    def __init__(self, access: Access | None, local: tuple[str, int], address: str) -> None:
        #: Callbacks for the end of the connection, by their purpose.
        self.when_gone: dict[object, Callable[[], None]] = {}
        self.access = access
        self.local = local
        self.address = address
        #: The client's own statement of its name and version; "": none.
        self.software = ""
        #: The agreed SASL mechanism.
        self.mechanism: str | None = None
        #: SaslHandshake v0: the next frame is a token without any header.
        self.raw_tokens = False
        #: Authentication failed: the connection ends after that answer.
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
        #: The error codes in the answer, for the metrics; handlers of raw bodies add theirs.
        self.errors: list[int] = []
        #: Counts it among the requests of its key that are under way; ends when it is done, or waits for something.
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
    """The partition's address in the engine, and the partition. Raises Forbidden, TopicNotFound."""
    access = call.connection.access
    assert access is not None
    if access.owner is not None:  # otherwise nothing is refused
        access.require(scopes, (name,))
    if partition >= 0 and "/" not in name:  # only addresses have a "/"
        partition_name = address(name, partition)
        topic = call.broker.engine.catalog.topics.get(partition_name)
        if topic is not None and not topic.provisional:
            return partition_name, topic
    raise TopicNotFound(name)


def log_start_offset(topic: Topic) -> int:
    """The offset of the first record; in an empty log, of the next one."""
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
    """Make a handler of raw bodies from a handler of messages. It raises Malformed for an invalid body.

    `large` answers are encoded on a thread, so that the loop goes on meanwhile. `room`: the bytes by which an answer in
    that version is padded.
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
