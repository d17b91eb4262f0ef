"""`topics cluster status`: shows the cells of a set."""

from __future__ import annotations

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

cluster = Group("cluster", "Show a set of cells.", EXIT_CODES_HELP)


@cluster.add("status", EXIT_CODES_HELP)
def status(as_json: JsonOption = False, reach: Reach = ANY) -> None:
    """Show the cells of a set: the state of each, how often it was restarted, and its own addresses.

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
            cells = [
                {name: v for name, v in msgspec.to_builtins(cell).items() if v is not None} for cell in found.cells
            ]
            emit(msgspec.json.encode({**msgspec.to_builtins(found), "cells": cells}))
        else:
            say(f"{client.url}  set {found.set_id}", BOLD)
            table = Grid(">CELL", "STATE", ">RESTARTS", "HTTP", "KAFKA")
            for cell in found.cells:
                table.add_row(
                    str(cell.cell),
                    printable(cell.state),
                    f"{cell.restarts:,}",
                    printable(cell.http or "-"),
                    printable(cell.kafka or "-"),
                )
            show(table)
            restarts = ", ".join(f"{each.restarts:,}" for each in found.gateways)
            if found.gateways:
                say(f"{amount(len(found.gateways), 'gateway')}, restarts: {restarts}")
        if any(cell.state != "ready" for cell in found.cells):
            raise Exit(ExitCode.UNREACHABLE)
