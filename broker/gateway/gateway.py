"""The state that the parts of a gateway share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.endpoint import Endpoint
from broker.gateway.links import Cell
from broker.gateway.owners import Owners
from broker.gateway.state import State

if TYPE_CHECKING:
    from broker.cluster import OwnersFile
    from broker.settings import Settings

#: How often idle connections are closed.
LOOK_S: Final = 1.0


class Gateway(Endpoint):
    """The public side of a set of cells. It has no engine and forwards requests to the cells.

    The cells check keys, which they get with each request. The checks here only refuse earlier.
    """

    __slots__ = (
        "cluster",
        "http_ports",
        "kafka_ports",
        "owners",
        "restarts",
        "run_folder",
        "set_id",
        "states",
        "upstreams",
    )

    def __init__(
        self,
        settings: Settings,
        sockets: Sequence[Path],
        set_id: str,
        *,
        http_ports: Sequence[int] = (),
        kafka_ports: Sequence[int] = (),
        cluster: OwnersFile | None = None,
    ) -> None:
        """`sockets`: the HTTP socket of each cell. `http_ports`, `kafka_ports`: the ports of the cells for clients that
        go to them directly; empty if they have none. `cluster`: the owners of the cells, if this is a node of one."""
        # The cells count the requests of each key.
        super().__init__(settings.model_copy(update={"max_inflight_per_key": 0}))
        self.set_id = set_id
        self.http_ports = http_ports
        self.kafka_ports = kafka_ports
        self.cluster = cluster
        self.upstreams = [Cell(number, path, settings.keep_alive_s / 2, cluster) for number, path in enumerate(sockets)]
        self.owners = Owners(len(self.upstreams))
        #: The state of each cell when it was last asked.
        self.states = [State.DOWN] * len(self.upstreams)
        self.run_folder = sockets[0].parent
        #: How often each process of the set was restarted, by its name.
        self.restarts: dict[str, int] = {}

    def check_serving(self) -> None:
        """Does nothing: a gateway serves from its start until its sockets close."""

    async def run(self) -> None:
        """Close idle connections and ask the cells for their state, forever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            for cell in self.upstreams:
                cell.close_idle(loop.time())
                cell.look()

    def close(self) -> None:
        for cell in self.upstreams:
            cell.close()
