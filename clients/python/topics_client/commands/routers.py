"""`topics routers list`, `put`, `get` and `delete`: routers copy the records of one topic to another."""

from __future__ import annotations

import enum
from typing import Annotated

import click
import msgspec

from topics_client import calls, router_calls
from topics_client.commands.connection import JsonOption, broker
from topics_client.commands.declaring import Argument, Group, Option
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.terminal import EXIT_CODES_HELP, Grid, emit, note, printable, say, show
from topics_client.errors import RouterNotFound
from topics_client.router_values import Router, RouterDeleted, RouterOptions, RouterPut

routers = Group("routers", "Copy the records of one topic to another.", EXIT_CODES_HELP)

RouterArgument = Annotated[str, Argument(metavar="ROUTER", help="Name of the router.")]


class Start(str, enum.Enum):
    """Where a new router begins."""

    HEAD = "head"
    EARLIEST = "earliest"


@routers.add("list", EXIT_CODES_HELP)
def list_routers(
    prefix: Annotated[str, Argument(help="Only routers whose names begin with this.")] = "",
    source: Annotated[str | None, Option("--source", metavar="TOPIC", help="Only routers with this source.")] = None,
    dest: Annotated[str | None, Option("--dest", metavar="TOPIC", help="Only routers with this destination.")] = None,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """List routers, sorted by name.

    With --json: one object a line, as `topics routers get` has it.
    """
    with broker(reach, as_json) as client:
        found = client.list_routers(prefix, source=source, dest=dest)
        if as_json:
            for router in found:
                emit(msgspec.json.encode({k: v for k, v in msgspec.to_builtins(router).items() if k != "blocked" or v}))
            return
        table = Grid("ROUTER", "SOURCE", "DEST", "FILTER", ">FORWARDED", ">LAG", "BLOCKED")
        for router in found:
            table.add_row(
                printable(router.router),
                printable(router.source),
                printable(router.dest),
                printable(_filter(router.filter)),
                f"{router.forwarded_total:,}",
                f"{router.lag:,}",
                printable(router.blocked or "-"),
            )
        if len(table):
            show(table)
        else:
            note("There are no such routers." if prefix or source or dest else "There are no routers yet.")


@routers.add("put", EXIT_CODES_HELP)
def put(
    router: RouterArgument,
    source: Annotated[str, Argument(metavar="SOURCE", help="Topic to copy from.")],
    dest: Annotated[str, Argument(metavar="DEST", help="Topic to copy to.")],
    tag: Annotated[
        str | None,
        Option("--tag", "-t", metavar="TAG", help="Only records with this tag; a * at the end matches any ending."),
    ] = None,
    all_tags: Annotated[bool, Option("--all-tags", help="All records: removes an earlier --tag.")] = False,
    start: Annotated[Start | None, Option("--from", help="Where a new router begins. Default: head.")] = None,
    keep_node: Annotated[
        bool | None, Option("--node/--no-node", help="Copies keep their node.", show_default="node")
    ] = None,
    keep_tag: Annotated[
        bool | None, Option("--tags/--no-tags", help="Copies keep their tag.", show_default="tags")
    ] = None,
    create_dest: Annotated[
        bool | None, Option("--create/--no-create", help="Create DEST if it does not exist.", show_default="create")
    ] = None,
    allow_cycle: Annotated[
        bool | None,
        Option(
            "--allow-cycle/--no-cycle",
            help="Routers may run in a circle; copies stop after 7 hops.",
            show_default="no-cycle",
        ),
    ] = None,
    replace: Annotated[
        bool, Option("--replace", help="Reset all other settings to their defaults, the filter too.")
    ] = False,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Copy records appended to SOURCE to DEST, each record once, in order.

    If a router with that name exists, the given settings change and all others stay. Its source and dest cannot be
    changed.
    """
    if tag is not None and all_tags:
        raise click.BadParameter("--tag and --all-tags exclude each other.", param_hint="--tag")
    options: RouterOptions = {}
    if keep_node is not None:
        options["preserve_node"] = keep_node
    if keep_tag is not None:
        options["preserve_tag"] = keep_tag
    if create_dest is not None:
        options["create_dest"] = create_dest
    if allow_cycle is not None:
        options["allow_cycle"] = allow_cycle
    if start is not None:
        options["start"] = start.value
    if tag is not None:
        options["filter"] = ["tag", "Glob", tag] if tag.endswith("*") else ["tag", "Eq", tag]
    elif all_tags:
        options["filter"] = None
    with broker(reach, as_json) as client:
        made = router_calls.put_router(router, source, dest, options)
        try:
            change = made if replace else router_calls.change_router(router, options, source=source, dest=dest)
            answer = client.run(calls.verbatim(change))
        except RouterNotFound:
            answer = client.run(calls.verbatim(made))
        if as_json:
            emit(answer)
            return
        done = msgspec.json.decode(answer, type=RouterPut)
        say(f"{'Made' if done.created else 'Changed'} {done.router}: {done.source} → {done.dest}.")


@routers.add("get", EXIT_CODES_HELP)
def get(
    router: RouterArgument,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Show a router and its progress."""
    with broker(reach, as_json) as client:
        answer = client.run(calls.verbatim(router_calls.get_router(router)))
        if as_json:
            emit(answer)
            return
        found = msgspec.json.decode(answer, type=Router)
        table = Grid("", "")
        table.add_row("router", printable(found.router))
        table.add_row("source", printable(found.source))
        table.add_row("dest", printable(found.dest))
        table.add_row("filter", printable(_filter(found.filter)))
        table.add_row("copies keep", ", ".join(_preserved(found)) or "-")
        table.add_row("cursor_seq", str(found.cursor_seq))
        table.add_row("lag", f"{found.lag:,}")
        table.add_row("forwarded", f"{found.forwarded_total:,}")
        table.add_row("blocked", printable(found.blocked or "-"))
        show(table)


@routers.add("delete", EXIT_CODES_HELP)
def delete(
    router: RouterArgument,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Delete a router. Records that it copied stay. A router that does not exist is no error."""
    with broker(reach, as_json) as client:
        answer = client.run(calls.verbatim(router_calls.delete_router(router)))
        if as_json:
            emit(answer)
            return
        deleted = msgspec.json.decode(answer, type=RouterDeleted).deleted
        say(f"Deleted {router}." if deleted else f"There is no router named {router}; nothing was deleted.")


def _filter(predicate: list[str] | None) -> str:
    return predicate[2] if predicate is not None else "-"


def _preserved(router: Router) -> list[str]:
    return [name for name, preserved in (("node", router.preserve_node), ("tag", router.preserve_tag)) if preserved]
