"""The parts of a broker that its Kafka port uses. `broker.wiring.Broker` implements it."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from broker.auth import Gate
    from broker.cluster import OwnersFile
    from broker.kafka.codecs import Codecs
    from broker.kafka.described import Described
    from broker.kafka.groups import Coordinator, Offsets
    from broker.kafka.metrics import KafkaMetrics
    from broker.kafka.packed import Packed
    from broker.kafka.share import Shares
    from broker.memory import Memory
    from broker.net import Arrivals
    from broker.pressure import Pressure
    from broker.scheduling import Heavy
    from broker.settings import Settings
    from storage import Engine


class ProxiedGroup(Protocol):
    """A consumer group whose members are consumer instances of the REST Proxy."""

    @property
    def owner(self) -> tuple[str, ...]:
        """The prefixes of the key that created the group; empty: a key for all topics, or no key."""
        ...

    def topics(self) -> set[str]:
        """The topics that its members subscribe to or are assigned."""
        ...


class ProxiedGroups(Protocol):
    """The consumer groups of the REST Proxy."""

    def groups(self) -> Mapping[str, ProxiedGroup]:
        """The groups that have members, by id."""
        ...


class Peers(Protocol):
    """The other cells of a set."""

    async def call(self, cell: int, method: str, argument: Any, *, timeout_s: float = 30.0) -> Any:
        """The result of a method of that cell. Raises PeerUnavailable, PeerError."""
        ...


class Role(Protocol):
    """The role that the supervisor gave to the cell."""

    @property
    def set_id(self) -> str: ...
    @property
    def kafka_ports(self) -> tuple[int, ...]:
        """The port for Kafka clients of each cell."""
        ...


class Cells(Protocol):
    """The set of cells, as one of them sees it. `me`: its number."""

    @property
    def me(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def role(self) -> Role: ...
    @property
    def peers(self) -> Peers: ...
    @property
    def owners(self) -> OwnersFile | None:
        """In a cluster: the owners of the cells."""
        ...

    @property
    def handlers(self) -> MutableMapping[str, Callable[[Any], Awaitable[Any]]]:
        """What other cells may call, by name."""
        ...

    def home(self, name: str) -> int:
        """The cell that decides about a name."""
        ...

    def cell_of(self, topic: str, partition: int) -> int:
        """The cell that has this partition, as far as this cell knows. The topic's cell knows it for certain."""
        ...

    def owner(self, topic: str) -> int:
        """The cell that has, or would have, a topic, as far as this one knows."""
        ...


class Node(Protocol):
    """One broker."""

    @property
    def cells(self) -> Cells | None:
        """The set that this broker is a cell of; None: it is alone."""
        ...

    @property
    def arrivals(self) -> Arrivals: ...
    @property
    def engine(self) -> Engine: ...
    @property
    def may_answer(self) -> Callable[[], bool] | None:
        """Whether an answer that was computed may be sent; None: always."""
        ...

    @property
    def settings(self) -> Settings: ...
    @property
    def gate(self) -> Gate | None: ...
    @property
    def memory(self) -> Memory: ...
    @property
    def pressure(self) -> Pressure: ...
    @property
    def unpacking(self) -> Heavy: ...
    @property
    def kafka_codecs(self) -> Codecs: ...
    @property
    def kafka_described(self) -> Described: ...
    @property
    def kafka_groups(self) -> Coordinator: ...
    @property
    def kafka_lists(self) -> asyncio.Lock: ...
    @property
    def kafka_metrics(self) -> KafkaMetrics: ...
    @property
    def kafka_offsets(self) -> Offsets: ...
    @property
    def kafka_packed(self) -> Packed: ...
    @property
    def kafka_shares(self) -> Shares: ...
    @property
    def proxy(self) -> ProxiedGroups: ...
