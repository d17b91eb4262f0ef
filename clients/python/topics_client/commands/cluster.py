"""`topics cluster status`: shows the cells of a set."""

from __future__ import annotations

from typing import Any

import msgspec
from click.exceptions import Exit

from topics_client.commands.connection import JsonOption, broker
from topics_client.commands.declaring import Group
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.terminal import (
    BOLD,
    EXIT_CODES_HELP,
    ExitCode,
    Grid,
    amount,
    emit,
    fail,
    printable,
    say,
    show,
)
from topics_client.errors import NotFound
from topics_client.values import Cell, Cluster

cluster = Group("cluster", "Show a set of cells.", EXIT_CODES_HELP)


@cluster.add("status", EXIT_CODES_HELP)
def status(as_json: JsonOption = False, reach: Reach = ANY) -> None:
    """Show the cells of a set: the state of each, how often it was restarted, and its own addresses.

    Of a cluster, show also the owner of each cell with the generation, and the nodes with the age of their last sign of
    life.

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
            owned = ("NODE", ">GENERATION") if found.nodes else ()
            table = Grid(">CELL", "STATE", ">RESTARTS", *owned, "HTTP", "KAFKA")
            for cell in found.cells:
                generation = "-" if cell.generation is None else f"{cell.generation:,}"
                table.add_row(
                    str(cell.cell),
                    printable(_state(cell)),
                    f"{cell.restarts:,}",
                    *((printable(cell.node or "-"), generation) if found.nodes else ()),
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
                        printable(node.state),
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


def _given(found: Cluster) -> dict[str, Any]:
    """The answer without fields that are not there."""
    given = msgspec.to_builtins(found)
    for name in ("cells", "nodes"):
        given[name] = [{field: value for field, value in each.items() if value is not None} for each in given[name]]
    return {name: value for name, value in given.items() if name not in ("node", "nodes") or value}
