"""`topics cluster`: shows the cells of a set; moves cells of a cluster, and drains its nodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from click.exceptions import Exit

from topics_client import cluster_calls
from topics_client.blocking import Client
from topics_client.cluster_calls import Plan
from topics_client.commands.connection import JsonOption, broker
from topics_client.commands.declaring import Argument, Group, Option
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.terminal import (
    BOLD,
    EXIT_CODES_HELP,
    ExitCode,
    Grid,
    amount,
    emit,
    fail,
    note,
    printable,
    say,
    show,
)
from topics_client.errors import ConnectionFailed, NotFound, NotReady
from topics_client.values import Cell, Cluster, ClusterNode

cluster = Group("cluster", "Show a set of cells, and operate a cluster.", EXIT_CODES_HELP)

_LOOK_EVERY_S = 0.25
#: Without any change for this long, a command says what it waits for.
_SLOW_S = 15.0
NoWaitOption = Annotated[bool, Option("--no-wait", help="Do not wait until it is done.")]
TimeoutOption = Annotated[
    float,
    Option("--timeout", min=0, metavar="SECONDS", help="Wait no longer. The order stays.", show_default="no limit"),
]


@cluster.add("status", EXIT_CODES_HELP)
def status(as_json: JsonOption = False, reach: Reach = ANY) -> None:
    """Show the cells of a set: the state of each, how often it was restarted, and its own addresses.

    Of a cluster, show also the owner of each cell with the generation, the node to which `topics cluster move` ordered
    it, and the nodes with the age of their last sign of life. A drained node has no cells and takes none.

    Exit status 3 if a cell is not ready, 1 if the broker is not a set of cells. With --json: one object, as GET
    /v0/cluster answers it.
    """
    with broker(reach, as_json) as client:
        try:
            found = client.cluster()
        except NotFound as error:
            message = f"The broker at {client.url} is not a set of cells."
            fail(message, ExitCode.REFUSED, as_json=as_json, error=error if as_json else None)
        if as_json:
            emit(msgspec.json.encode(_given(found)))
        else:
            say(f"{client.url}  set {found.set_id}", BOLD)
            wanted = any(cell.wanted for cell in found.cells)
            owned = ("NODE", *(("WANTED",) if wanted else ()), ">GENERATION") if found.nodes else ()
            table = Grid(">CELL", "STATE", ">RESTARTS", *owned, "HTTP", "KAFKA")
            for cell in found.cells:
                generation = "-" if cell.generation is None else f"{cell.generation:,}"
                table.add_row(
                    str(cell.cell),
                    printable(_state(cell)),
                    f"{cell.restarts:,}",
                    *((printable(cell.node or "-"),) if found.nodes else ()),
                    *((printable(cell.wanted or "-"),) if found.nodes and wanted else ()),
                    *((generation,) if found.nodes else ()),
                    printable(cell.http or "-"),
                    printable(cell.kafka or "-"),
                )
            show(table)
            restarts = ", ".join(f"{each.restarts:,}" for each in found.gateways)
            if found.gateways:
                say(f"{amount(len(found.gateways), 'gateway')}, restarts: {restarts}")
            if found.nodes:
                nodes = Grid("NODE", "STATE", ">SEEN", "CELLS", "HTTP", "VERSION")
                for node in found.nodes:
                    cells = ", ".join(str(number) for number in node.cells) or "-"
                    nodes.add_row(
                        printable(node.node),
                        printable(_node_state(node)),
                        f"{node.age_ms / 1000:.1f} s ago",
                        cells,
                        printable(node.http or "-"),
                        printable(node.version or "-"),
                    )
                show(nodes)
        if any(cell.state != "ready" for cell in found.cells):
            raise Exit(ExitCode.UNREACHABLE)


def _state(cell: Cell) -> str:
    """Of a cell that is not ready: with what is done about it."""
    if cell.takeover is None or cell.state == "ready":
        return cell.state
    progress = f" {cell.takeover.progress:.0%}" if cell.takeover.state == "recovering" else ""
    return f"{cell.state} ({cell.takeover.node}: {cell.takeover.state}{progress})"


def _node_state(node: ClusterNode) -> str:
    return f"{node.state}, drain" if node.drain and node.state == "silent" else node.state


@cluster.add("move", EXIT_CODES_HELP)
def move(
    cell: Annotated[int, Argument(metavar="CELL", min=0, help="Number of the cell.")],
    node: Annotated[str, Argument(metavar="NODE", help="Name of the node that shall have it.")] = "",
    undo: Annotated[bool, Option("--undo", help="Let the cell be at any node again, instead of NODE.")] = False,
    no_wait: NoWaitOption = False,
    timeout: TimeoutOption = 0.0,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Move a cell of a cluster to a node, and wait until it is there. Needs a key with admin for all topics.

    The cell stays there until --undo. If the node is lost, the cell goes to another one, and comes back when the node
    has been there for 10 seconds. Exit status 3 if it is not there in time. With --json: the orders in force, {"plan",
    "cells": [{"cell", "node"}], "drained"}.
    """
    if bool(node) == undo:
        fail("Give either NODE or --undo.", ExitCode.USAGE, as_json=as_json)
    with broker(reach, as_json) as client:
        if undo:
            plan = client.run(cluster_calls.move_anywhere(cell))
            _finish(plan, f"Cell {cell} may be at any node.", as_json=as_json)
            return
        plan = client.run(cluster_calls.move_cell(cell, node))
        if no_wait:
            _finish(plan, f"Cell {cell} was ordered to {node}.", as_json=as_json)
            return
        _wait(client, lambda found: [cell] if _is_elsewhere(found, cell, node) else [], timeout, as_json=as_json)
        _finish(plan, f"Cell {cell} is at {node}.", as_json=as_json)


@cluster.add("drain", EXIT_CODES_HELP)
def drain(
    node: Annotated[str, Argument(metavar="NODE", help="Name of the node.")],
    undo: Annotated[bool, Option("--undo", help="Let the node have cells again.")] = False,
    no_wait: NoWaitOption = False,
    timeout: TimeoutOption = 0.0,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Give all cells of a node to others, one after the other, and wait until it has none. Needs a key with admin for
    all topics.

    The node takes no cell until --undo, also after a restart, and goes on to answer requests for the cells of others. A
    node that is only stopped (SIGTERM) gives its cells away by itself. Exit status 3 if it has cells when the time is
    over. With --json: the orders in force, {"plan", "cells": [{"cell", "node"}], "drained"}.
    """
    with broker(reach, as_json) as client:
        if undo:
            _finish(client.run(cluster_calls.fill(node)), f"{node} may have cells again.", as_json=as_json)
            return
        plan = client.run(cluster_calls.drain(node))
        if no_wait:
            _finish(plan, f"{node} was ordered to give its cells away.", as_json=as_json)
            return
        _wait(client, lambda found: _cells_at(found, node), timeout, as_json=as_json)
        _finish(plan, f"{node} has no cells, and takes none until --undo.", as_json=as_json)


@cluster.add("finalize", EXIT_CODES_HELP)
def finalize(as_json: JsonOption = False, reach: Reach = ANY) -> None:
    """Let a cluster use the newest format in its bucket, after an upgrade of all nodes. Needs a key with admin for all
    topics.

    Refused while a node does not read that format. Until then, nodes may go back to the release before; afterwards they
    may not. Nothing happens if the cluster has the format. With --json: {"format", "revision"}.
    """
    with broker(reach, as_json) as client:
        done = client.run(cluster_calls.finalize())
        emit(msgspec.json.encode(done)) if as_json else say(f"The cluster has format {done.format}.")


def _is_elsewhere(found: Cluster, cell: int, node: str) -> bool:
    return all(each.node != node for each in found.cells if each.cell == cell)


def _cells_at(found: Cluster, node: str) -> list[int]:
    return [each.cell for each in found.cells if each.node in (node, None)]


def _finish(plan: Plan, sentence: str, *, as_json: bool) -> None:
    emit(msgspec.json.encode(plan)) if as_json else say(sentence)


def _wait(client: Client, left: Callable[[Cluster], list[int]], timeout: float, *, as_json: bool) -> None:
    """Wait until no cell is left, and say of each where it is now."""
    began = changed = time.monotonic()
    owners: dict[int, str | None] = {}
    before: list[int] = []
    while True:
        try:
            found = client.cluster()
        except (ConnectionFailed, NotReady):
            todo = before  # perhaps the node that answers is stopped
        else:
            todo = left(found)
            for cell in found.cells:
                if cell.cell in before and cell.cell not in todo:
                    changed = time.monotonic()
                    from_node = owners.get(cell.cell) or "no node"
                    note(f"cell {cell.cell}: {printable(from_node)} -> {printable(cell.node or '-')}")
                if cell.node is not None:
                    owners[cell.cell] = cell.node
        if not todo:
            return
        at, before = time.monotonic(), todo
        cells = ", ".join(map(str, todo))
        if timeout and at - began >= timeout:
            message = f"Not done after {timeout:g} s: cell {cells}. The order stays; `topics cluster status` shows it."
            fail(message, ExitCode.UNREACHABLE, as_json=as_json)
        if at - changed >= _SLOW_S:
            changed = at
            note(f"Still waiting for cell {cells}, after {at - began:.0f} s.")
        time.sleep(_LOOK_EVERY_S)


def _given(found: Cluster) -> dict[str, Any]:
    """The answer without fields that are not there."""
    given = msgspec.to_builtins(found)
    for name in ("cells", "nodes"):
        given[name] = [{field: value for field, value in each.items() if value is not None} for each in given[name]]
    return {name: value for name, value in given.items() if value not in (None, []) or name in ("cells", "gateways")}
