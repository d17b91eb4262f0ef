"""Orders of operators: move a cell, drain a node. They become the next plan in the bucket, which all nodes follow.

Source: docs/cluster.md#moving-cells-and-draining-nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from broker.api import Request
from broker.auth import Forbidden
from broker.cluster import ClusterMap, NodeState, Plan, order
from broker.content import Answer, strict_json
from storage import InvalidRequest, Unavailable
from storage.bucket import FORMATS, Cluster, Driver, Location, Unanswered, parse_location, read_cluster, revise
from storage.platform import SystemClock

if TYPE_CHECKING:
    from broker.gateway.gateway import Gateway
    from storage.bucket import Bucket

CELL_PATH: Final = "/v0/cluster/cells/{cell}/node"
FINALIZE_PATH: Final = "/v0/cluster/finalize"
DRAIN_PATH: Final = "/v0/cluster/nodes/{node}/drain"
#: The bucket has this time for one request.
TIMEOUT_S: Final = 5.0
_MOST_BYTES: Final = 1 << 16


class _Wanted(msgspec.Struct, forbid_unknown_fields=True):
    node: Annotated[str, msgspec.Meta(min_length=1)]


_wanted = msgspec.json.Decoder(_Wanted)


class StoreSilent(Unavailable):
    """The bucket of the cluster does not answer now: the order may have been taken, or not. Repeat it."""

    code = "not_ready"

    def __init__(self) -> None:
        super().__init__(outcome="unknown")
        self.outcome = "unknown"  # pyright: ignore[reportAttributeAccessIssue]


class Ordering:
    """Takes the orders at one gateway."""

    def __init__(self, gateway: Gateway, open_store: Callable[[], Bucket] | None) -> None:
        """`open_store`: opens the bucket of the cluster; called at the first order. None: there is no cluster."""
        self._gateway = gateway
        url = gateway.settings.cluster_url
        self._location = None if url is None else parse_location(url)
        self._open_store = open_store
        self._store: Bucket | None = None

    async def move(self, request: Request) -> Answer:
        """Say at which node a cell belongs."""
        known, cell = self._known(request), self._cell(request)
        wanted = strict_json.decode_sync(await request.read_body(max_bytes=_MOST_BYTES), _wanted)
        return await self._order(known, lambda plan: moved(plan, known, cell, wanted.node))

    async def move_anywhere(self, request: Request) -> Answer:
        """Say that a cell belongs at no node in particular."""
        known, cell = self._known(request), self._cell(request)
        return await self._order(known, lambda plan: plan.moved(cell, None))

    async def drain(self, request: Request) -> Answer:
        """Say that a node has no cells."""
        known, node = self._known(request), request.values[0]
        return await self._order(known, lambda plan: drained(plan, known, node))

    async def fill(self, request: Request) -> Answer:
        """Say that a node may have cells again."""
        known, node = self._known(request), request.values[0]
        return await self._order(known, lambda plan: plan.draining(node, drain=False))

    async def finalize(self, request: Request) -> Answer:
        """Begin the newest format that all nodes read."""
        known = self._known(request)
        newest = finalized(known)
        try:
            cluster = await asyncio.to_thread(self._finalize, newest)
        except Unanswered:
            raise StoreSilent from None
        return Answer(msgspec.json.encode({"format": cluster.format, "revision": cluster.revision}))

    def _finalize(self, newest: int) -> Cluster:
        assert self._location is not None
        with closing(Driver(self._opened(), SystemClock())) as driver:
            return finalize(driver, self._location, newest)

    def _known(self, request: Request) -> ClusterMap:
        """Raises Forbidden, InvalidRequest."""
        if request.access.prefixes:
            raise Forbidden("This concerns all topics, but this key covers only some of them.")
        known = None if self._gateway.cluster is None else self._gateway.cluster.read()
        if known is None or self._open_store is None:
            raise InvalidRequest("This broker is not a node of a cluster: cells have no other node to go to.")
        return known

    def _cell(self, request: Request) -> int:
        given, count = request.values[0], len(self._gateway.upstreams)
        if not given.isascii() or not given.isdigit() or int(given) >= count:
            raise InvalidRequest(f"cell must be a number from 0 to {count - 1}.", field="cell")
        return int(given)

    async def _order(self, known: ClusterMap, change: Callable[[Plan], Plan]) -> Answer:
        try:
            plan = await asyncio.to_thread(self._change, known.plan, change)
        except Unanswered:
            raise StoreSilent from None
        return Answer(msgspec.json.encode(shown(plan)))

    def _change(self, known: Plan, change: Callable[[Plan], Plan]) -> Plan:
        return order(self._opened(), known, change)

    def _opened(self) -> Bucket:
        if self._store is None:
            assert self._open_store is not None
            self._store = self._open_store()
        return self._store


def finalize(driver: Driver, location: Location, newest: int) -> Cluster:
    """Begin this format, unless the cluster has it or a newer one. Blocking. Raises Unanswered, OpenError."""
    while True:
        cluster = driver.run(read_cluster(location))
        if cluster.format >= newest:
            return cluster
        if (made := driver.run(revise(cluster, format=newest))) is not None:
            return made


def finalized(known: ClusterMap) -> int:
    """The newest format that this program reads. Raises InvalidRequest if a node does not: it could not go on."""
    newest = max(FORMATS)
    old = [each.node for each in known.nodes if newest not in each.formats]
    if old:
        raise InvalidRequest(
            f"Not all nodes read format {newest}: {', '.join(old)}. Start them with this release first. Of a node that "
            f"is gone for good, delete the object members/<node> in the bucket."
        )
    return newest


def shown(plan: Plan) -> dict[str, object]:
    """The plan in an answer."""
    cells = [{"cell": cell, "node": node} for cell, node in sorted(plan.cells.items())]
    return {"plan": plan.number, "cells": cells, "drained": plan.drained}


def moved(plan: Plan, known: ClusterMap, cell: int, node: str) -> Plan:
    """The plan with the cell at that node. Raises InvalidRequest if it cannot have it now."""
    _check_node(known, node)
    if node in plan.drained:
        raise InvalidRequest(f"Node {node} is drained: take that back first (DELETE {_drain(node)}).", field="node")
    if any(each.node == node and each.state is not NodeState.ALIVE for each in known.nodes):
        raise InvalidRequest(f"Node {node} is not there, or stops. Start it first.", field="node")
    return plan.moved(cell, node)


def drained(plan: Plan, known: ClusterMap, node: str) -> Plan:
    """The plan with the node drained. Raises InvalidRequest if no other one takes cells."""
    _check_node(known, node)
    takers = [each.node for each in known.nodes if each.state is NodeState.ALIVE]
    if not [each for each in takers if each != node and each not in plan.drained]:
        raise InvalidRequest(f"No other node than {node} takes cells now. Start one first.", field="node")
    return plan.draining(node, drain=True)


def _check_node(known: ClusterMap, node: str) -> None:
    names = [each.node for each in known.nodes]
    if node not in names:
        raise InvalidRequest(f"There is no node of that name. The nodes are {', '.join(names)}.", field="node")


def _drain(node: str) -> str:
    return DRAIN_PATH.format(node=node)
