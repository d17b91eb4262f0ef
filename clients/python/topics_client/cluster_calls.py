"""The calls of operators of a cluster: requests, and parsers of the answers. No I/O."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from topics_client import answers
from topics_client.calls import sending
from topics_client.wire import Call, Request


class PlannedCell(msgspec.Struct, frozen=True, kw_only=True):
    """A cell, and the node at which it is wanted."""

    cell: int
    node: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What operators want. `plan`: its number, which grows with each order. `drained`: nodes that have no cells."""

    plan: int
    cells: list[PlannedCell] = []
    drained: list[str] = []


def move_cell(cell: int, node: str) -> Call[Plan]:
    return _plan(sending("PUT", _cell(cell), {"node": node}))


def move_anywhere(cell: int) -> Call[Plan]:
    return _plan(Request(method="DELETE", target=_cell(cell)))


def drain(node: str) -> Call[Plan]:
    return _plan(sending("PUT", _drain(node), {}))


def fill(node: str) -> Call[Plan]:
    return _plan(Request(method="DELETE", target=_drain(node)))


class Finalized(msgspec.Struct, frozen=True, kw_only=True):
    """The format that a cluster has. `revision`: the number of its object `cluster`."""

    format: int
    revision: int


def finalize() -> Call[Finalized]:
    return Call(request=sending("POST", "/v0/cluster/finalize", {}), parse=answers.json_value(Finalized))


def _plan(request: Request) -> Call[Plan]:
    return Call(request=request, parse=answers.json_value(Plan))


def _cell(cell: int) -> str:
    return f"/v0/cluster/cells/{cell}/node"


def _drain(node: str) -> str:
    return f"/v0/cluster/nodes/{quote(node, safe='')}/drain"
