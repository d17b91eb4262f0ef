"""The cluster that clients see: this one broker, at the address that they connected to, or the cells of its set.

Node n is cell n - 1. The cells of one machine have a port each at the same host. In a cluster, each owner of a cell is
another node, with a number of its own: clients keep the address of a node that they know. No seq is used twice, so the
leader epoch stays.

Source: docs/cluster.md#clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.auth import ADMIN, DELETE, READ, WRITE, Access, Forbidden, Scopes
from broker.kafka.errors import ErrorCode
from schemas import is_topic_name
from storage import NotMine, TopicNotFound
from storage.records import cell_of

if TYPE_CHECKING:
    from broker.cluster import ClusterMap
    from broker.kafka.call import Call
    from broker.kafka.node import Cells, Node
    from storage import Engine
    from storage.state import Topic

#: The only broker if there are no cells, and the first node of a set. Any node does what a controller does.
BROKER_ID: Final = 1
#: No log is ever cut off, so a client need not look for the end of an epoch.
LEADER_EPOCH: Final = 0
NO_LEADER: Final = -1
#: Node numbers are Int32.
_MOST_NODES: Final = 2**31 - 1
#: Topics in one page: a listing holds at most this many names in memory.
PAGE: Final = 500

#: The null id: the topic is not named by id.
NO_UUID: Final = bytes(16)

#: The prefix of all topic ids; the number of the topic follows.
_UUIDS: Final = b"topics\x00\x01"

#: Bit numbers of Kafka's operations, by the scopes that a key needs for them.
_TOPIC_OPERATIONS: Final[tuple[tuple[Scopes, tuple[int, ...]], ...]] = (
    (READ, (3, 8, 10)),  # read, describe, describe configs
    (WRITE, (4, 5)),  # write; create, by naming it
    (ADMIN, (7, 11)),  # alter, alter configs
    (DELETE, (6,)),
)
_CLUSTER_OPERATIONS: Final[tuple[tuple[Scopes, tuple[int, ...]], ...]] = (
    (READ, (8, 10)),
    (WRITE, (12,)),  # idempotent write
    (ADMIN, (5, 7, 9, 11)),  # create, alter, cluster action, alter configs
)
#: The prefixes of the key must also cover the topics of the group.
_GROUP_OPERATIONS: Final[tuple[tuple[Scopes, tuple[int, ...]], ...]] = (
    (READ, (3, 8, 10)),  # read, describe, describe configs
    (ADMIN, (11,)),  # alter configs
    (DELETE, (6,)),
)


class Member(NamedTuple):
    """A node of the cluster, and its address for a client."""

    node_id: int
    host: str
    port: int


class Leader(NamedTuple):
    """Of a partition. `node_id`: -1 if it cannot be reached. `replica`: the node that has the partition, and `offline`
    has it too if it is away."""

    error_code: ErrorCode
    node_id: int
    replica: int
    offline: list[int]


def node_id(broker: Node) -> int:
    """The number of this node, which leads all partitions that it has."""
    return BROKER_ID if broker.cells is None else _number(broker.cells, broker.cells.me, _known(broker.cells))


def cell_of_node(cells: Cells, number: int) -> int:
    """The cell that a node with this number is, or was."""
    return (number - BROKER_ID) % cells.count


def _known(cells: Cells | None) -> ClusterMap | None:
    return None if cells is None or cells.owners is None else cells.owners.read()


def _number(cells: Cells, cell: int, known: ClusterMap | None) -> int:
    owner = None if known is None else known.owner(cell)
    generation = 0 if owner is None else owner.generation % (_MOST_NODES // cells.count)
    return BROKER_ID + cell + cells.count * generation


def address(call: Call) -> tuple[str, int]:
    """Host and port of this node to advertise to the client: from the setting, or else those that it connected to."""
    cells = call.broker.cells
    return _address(call, 0 if cells is None else cells.me) or call.connection.local


def members(call: Call) -> list[Member]:
    """All nodes, also those that cannot be reached now; in a cluster without those whose owner is not known."""
    cells = call.broker.cells
    if cells is None:
        return [Member(BROKER_ID, *address(call))]
    known = _known(cells)
    found = ((_number(cells, cell, known), _address_in(call, cell, known)) for cell in range(cells.count))
    return [Member(number, *at) for number, at in found if at is not None]


def controller(call: Call, members: Iterable[Member]) -> int:
    """The number of the node for requests that change something, of these: any does. The one that was asked is there,
    and knows itself."""
    numbers = [each.node_id for each in members]
    me = node_id(call.broker)
    return me if me in numbers else numbers[0] if numbers else NO_LEADER


def coordinator(call: Call, group_id: str) -> Member | None:
    """The node that coordinates a group: the home cell of its name. None if its owner is not known."""
    cells = call.broker.cells
    if cells is None:
        return Member(BROKER_ID, *address(call))
    home, known = cells.home(group_id), _known(cells)
    found = _address_in(call, home, known)
    return None if found is None else Member(_number(cells, home, known), *found)


def _address(call: Call, cell: int) -> tuple[str, int] | None:
    return _address_in(call, cell, _known(call.broker.cells))


def _address_in(call: Call, cell: int, known: ClusterMap | None) -> tuple[str, int] | None:
    """The address of a cell, in a cluster that is known like this."""
    cells = call.broker.cells
    if cells is not None and cells.owners is not None:
        owner = None if known is None else known.owner(cell)
        return None if owner is None or owner.kafka is None else (owner.kafka.host, owner.kafka.port)
    advertised = call.broker.settings.kafka_advertised
    if advertised is not None:
        return advertised.host, advertised.port + cell
    host, port = call.connection.local
    if call.broker.cells is not None:
        port = call.broker.cells.role.kafka_ports[cell]
    return host.removeprefix("::ffff:"), port


def cluster_id(broker: Node) -> str:
    """The id of the cluster: of the directory, or of the set of cells."""
    return broker.engine.cluster_id if broker.cells is None else broker.cells.role.set_id


def cell_of_uuid(cells: Cells, uuid: bytes) -> int:
    """The cell that made the topic with this id; this one for an id that no cell made."""
    if not uuid.startswith(_UUIDS):
        return cells.me
    cell = cell_of(int.from_bytes(uuid[8:], "big"))
    return cell if cell < cells.count else cells.me


class Nodes(NamedTuple):
    """The nodes of all cells at one instant. `numbers` has one for each cell, and `away` those whose owner is not
    known: `members` has none of these."""

    me: int
    numbers: list[int]
    away: frozenset[int]


def nodes(call: Call) -> Nodes:
    """The nodes that lead partitions now."""
    cells = call.broker.cells
    if cells is None:
        return Nodes(0, [BROKER_ID], frozenset())
    known = _known(cells)
    numbers = [_number(cells, cell, known) for cell in range(cells.count)]
    away = (each for cell, each in enumerate(numbers) if _address_in(call, cell, known) is None)
    return Nodes(cells.me, numbers, frozenset(away))


def leader(topic: Topic, partition: int, nodes: Nodes) -> Leader:
    """Who leads a partition of a topic of this cell. Clients are told of no leader that is not among the brokers: some
    never recover from that."""
    return leader_in(nodes.me if topic.placement is None else topic.placement.cells[partition], nodes)


def leader_in(cell: int, nodes: Nodes) -> Leader:
    """Who leads the partitions of a cell."""
    node = nodes.numbers[cell]
    if node in nodes.away:
        return Leader(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, node, [node])
    return Leader(ErrorCode.NONE, node, node, [])


def require_mine(broker: Node, name: str) -> None:
    """Raises NotMine for a topic that another cell has, or would have."""
    cells = broker.cells
    if cells is not None and (owner := cells.owner(name)) != cells.me:
        raise NotMine(name, owner)


def may(access: Access, scopes: Scopes, *names: str) -> bool:
    """Whether the connection has these scopes for all of these names."""
    try:
        access.require(scopes, names)
    except Forbidden:
        return False
    return True


def topic_operations(access: Access, name: str) -> int:
    """The operations that the caller may use on a topic, as Kafka's bit field."""
    return _bits(access, _TOPIC_OPERATIONS, name)


def cluster_operations(access: Access) -> int:
    """The operations that the caller may use on the cluster, as Kafka's bit field."""
    return _bits(access, _CLUSTER_OPERATIONS)


_NAMES: Final = {
    3: "READ", 4: "WRITE", 5: "CREATE", 6: "DELETE", 7: "ALTER", 8: "DESCRIBE", 9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS", 11: "ALTER_CONFIGS", 12: "IDEMPOTENT_WRITE",
}  # fmt: skip


def named_operations(bits: int) -> list[str]:
    """The names of the operations in a bit field."""
    return [name for bit, name in _NAMES.items() if bits & 1 << bit]


def group_operations(access: Access) -> int:
    """The operations that the caller may use on a group that its key covers, as Kafka's bit field."""
    return _bits(access, _GROUP_OPERATIONS)


def _bits(access: Access, operations: tuple[tuple[Scopes, tuple[int, ...]], ...], *names: str) -> int:
    return sum(1 << bit for scopes, bits in operations if may(access, scopes, *names) for bit in bits)


def pages(engine: Engine, access: Access) -> Iterator[list[Topic]]:
    """All topics that this key covers, in pages, ordered by name. Topics may come and go between two pages."""
    for prefix in access.prefixes or ("",):
        after = ""
        while page := list(islice(engine.catalog.named(prefix, after), PAGE)):
            after = page[-1].name
            yield [topic for topic in page if not topic.provisional]


def topic(call: Call, name: str) -> Topic:
    """The topic of that name. Raises TopicNotFound, also for the name of a partition, and NotMine."""
    if not is_topic_name(name):
        raise TopicNotFound(name)
    require_mine(call.broker, name)
    return call.broker.engine.topic(name)


def with_uuid(engine: Engine, uuid: bytes) -> Topic | None:
    """The topic with that id; None if there is none."""
    found = engine.catalog.by_id.get(int.from_bytes(uuid[8:], "big")) if uuid.startswith(_UUIDS) else None
    return found if found is not None and not found.provisional and is_topic_name(found.name) else None


def name_by_id(call: Call, uuid: bytes) -> str | None:
    """The name of a topic with that id, of which this cell has partitions; None also if the key does not cover it."""
    found = known_by_id(call, uuid)
    if found is not None or not uuid.startswith(_UUIDS):
        return None if found is None else found.name
    parts = call.broker.engine.catalog.parts.get(int.from_bytes(uuid[8:], "big"), {})
    title = next((part.title for part in parts.values()), None)
    if title is None or not any(may(call.access, scopes, title) for scopes in (READ, WRITE, ADMIN, DELETE)):
        return None
    return title


def known_by_id(call: Call, uuid: bytes) -> Topic | None:
    """Like `with_uuid`, but also None for a topic that the key does not cover."""
    found = with_uuid(call.broker.engine, uuid)
    if found is None or not any(may(call.access, scopes, found.name) for scopes in (READ, WRITE, ADMIN, DELETE)):
        return None
    return found


def uuid_of(topic: Topic) -> bytes:
    """The topic's id, 16 bytes. It is never used again, not even for a later topic of the same name."""
    return _UUIDS + topic.topic_id.to_bytes(8, "big")
