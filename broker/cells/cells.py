"""What one cell knows about the set of cells: its own number, which names belong to it, and how to call the others.

Source: docs/cells.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from broker.cells.addresses import address_in
from broker.cells.neighbours import PeerNeighbours
from broker.cells.peers import Method, Peers, PeerServer
from broker.cluster import Owner, OwnersFile
from storage import NotMine, home_cell
from storage.records import address

if TYPE_CHECKING:
    from storage import Engine

_log = structlog.get_logger("broker.cells")

#: How often the owners are looked at.
_LOOK_S: Final = 0.02
#: A node writes within seconds what its processes answer. If that takes longer, a line of the log says so.
KNOWN_S: Final = 30.0


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor tells a process of the set."""

    set_id: str
    #: How many cells the set has.
    count: int
    #: The folder of the sockets.
    run: str
    #: The process id of the supervisor. This process ends when the supervisor does.
    parent: int
    #: The number of this cell. None for a gateway.
    cell: int | None = None
    #: Inherited listening sockets: the HTTP port of a gateway, or of a cell that has one, and the Kafka port of a cell.
    http_fd: int | None = None
    kafka_fd: int | None = None
    #: The ports for HTTP clients that go to the cells directly, by cell. Empty if the set has none.
    http_ports: tuple[int, ...] = ()
    #: The ports for Kafka clients, by cell. Empty if the set has none.
    kafka_ports: tuple[int, ...] = ()
    #: In a cluster: the name of the node, and of a cell's process what its seals call it.
    node: str = ""
    nonce: str = ""

    @property
    def process(self) -> str:
        """The name of the process in logs."""
        return "gateway" if self.cell is None else f"cell-{self.cell:02d}"

    @property
    def owners(self) -> OwnersFile | None:
        """In a cluster: a new reader of the owners of the cells."""
        return OwnersFile(Path(self.run)) if self.node else None

    def http_socket(self, cell: int) -> Path:
        """The socket on which a cell accepts HTTP requests from gateways."""
        return Path(self.run) / f"cell-{cell:02d}.http"

    def peer_socket(self, cell: int) -> Path:
        """The socket on which a cell accepts calls from other cells."""
        return Path(self.run) / f"cell-{cell:02d}.peer"


class Cells:
    """See the module. Used only on the event loop of its engine."""

    def __init__(self, role: Role, engine: Engine, may_answer: Callable[[], bool] | None = None) -> None:
        """`may_answer`: whether this process may answer other cells, and call them; None: always."""
        assert role.cell is not None
        self.role = role
        self.me = role.cell
        self.count = role.count
        self._engine = engine
        #: In a cluster: the owners of the cells.
        self.owners = role.owners
        others = {cell: role.peer_socket(cell) for cell in range(role.count) if cell != self.me}
        self.peers = Peers(others, self.owners, may_answer)
        #: The methods that other cells may call, by name. Complete before `start`.
        self.handlers: dict[str, Method] = {"ready": _ready, **engine.methods_for_neighbours}
        self._server = PeerServer(role.peer_socket(self.me), self.handlers, may_answer)
        engine.admin.check_home = self.check_mine
        engine.placements.is_on = True
        engine.join(PeerNeighbours(self.me, self.count, self.owner, self.home, self.peers))

    async def start(self) -> None:
        """Accept calls from other cells. Called when the engine is ready."""
        await self._server.start()

    async def known(self, generation: int) -> None:
        """Return when this node knows that this process owns the cell, in that generation or a later one. Only in a
        cluster."""
        loop = asyncio.get_running_loop()
        late_at: float | None = loop.time() + KNOWN_S
        while not self._is_known(generation):
            if late_at is not None and loop.time() >= late_at:
                late_at, owner = None, self._known_owner()
                known = "" if owner is None else f"{owner.node} in generation {owner.generation}"
                _log.warning("cell_not_known", generation=generation, known=known)
            await asyncio.sleep(_LOOK_S)

    def _is_known(self, generation: int) -> bool:
        owner = self._known_owner()
        return owner is not None and owner.node == self.role.node and owner.generation >= generation

    def _known_owner(self) -> Owner | None:
        found = None if self.owners is None else self.owners.read()
        return None if found is None else found.owner(self.me)

    @property
    def accepts_calls(self) -> bool:
        """Whether other cells can call this one."""
        return self._server.is_started

    async def stop(self) -> None:
        """Stop accepting calls, and stop making them."""
        await self._server.stop()
        await self.peers.close()

    def home(self, name: str) -> int:
        """The cell that decides whether this name exists."""
        return home_cell(name, self.count)

    def owner(self, topic: str) -> int:
        """The cell that has this topic, or would have it. This cell knows that for its own topics and for names whose
        home it is. For any other name it returns the home cell."""
        return self._engine.placing.owner(topic)

    def cell_of(self, topic: str, partition: int) -> int:
        """The cell that has this partition, as far as this cell knows: that of the topic knows it."""
        at, topics = address(topic, partition), self._engine.catalog.topics
        if at in topics:
            return self.me
        root = topics.get(topic)
        placement = None if root is None else root.placement
        if placement is not None and 0 <= partition < len(placement.cells):
            return placement.cells[partition]
        return self.owner(topic)

    def is_mine(self, topic: str, query: bytes = b"") -> bool:
        """Whether this cell has this topic, or would have it, or the partition of it that the query names."""
        return self.owner(topic) == self.me or self._has_part(topic, query)

    def check_mine(self, topic: str, query: bytes = b"") -> None:
        """Raises NotMine if another cell has this topic, or would have it. A request whose query names a partition may
        also come to the cell that has it."""
        owner = self.owner(topic)
        if owner != self.me and not self._has_part(topic, query):
            raise NotMine(topic, owner)

    def _has_part(self, topic: str, query: bytes) -> bool:
        at = address_in(topic, query)
        return at != topic and at in self._engine.catalog.topics

    def check_home(self, name: str) -> None:
        """Raises NotMine if another cell is the home of this name."""
        if self.home(name) != self.me:
            raise NotMine(name, self.home(name))

    def check_first(self, what: str) -> None:
        """Raises NotMine if this is not cell 0, which decides about `what`."""
        if self.me:
            raise NotMine(what, 0)


async def _ready(argument: object) -> bool:
    """Answers that this cell serves. Until then it accepts no calls."""
    return True
