"""`topics delete`: deletes a topic with everything in it."""

from __future__ import annotations

import sys
from typing import Annotated

import click
import msgspec
from click.exceptions import Exit

from topics_client import calls
from topics_client.blocking import Client
from topics_client.commands.connection import JsonOption, TopicArgument, broker
from topics_client.commands.declaring import Option
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.terminal import ExitCode, amount, emit, fail, note, printable, say, size
from topics_client.errors import TopicNotFound
from topics_client.values import TopicDeleted


def delete(
    topic: TopicArgument,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask. Required where there is no terminal.")] = False,
    if_empty: Annotated[bool, Option("--if-empty", help="Refuse if it still holds records.")] = False,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Delete a topic with all its records, cursors and routers, permanently.

    A topic that does not exist is no error: the exit status is 0 either way.
    """
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        fail(
            "There is no terminal: give --yes to delete without a question.",
            ExitCode.USAGE,
            as_json=as_json,
        )
    with broker(reach, as_json) as client:
        if not yes and not _confirmed(client, topic):
            note("Nothing was deleted.")
            raise Exit(ExitCode.REFUSED)
        answer = client.run(calls.verbatim(calls.delete_topic(topic, if_empty=if_empty)))
        if as_json:
            emit(answer)
            return
        result = msgspec.json.decode(answer, type=TopicDeleted)
        if not result.deleted:
            say(f"There is no topic named {topic}; nothing was deleted.")
            return
        routers = f", and the routers {', '.join(result.routers_removed)}" if result.routers_removed else ""
        say(f"Deleted {topic}{routers}.")


def _confirmed(client: Client, topic: str) -> bool:
    try:
        state = client.state(topic, touch=False)
    except TopicNotFound:
        return True
    holds = f"{amount(state.count, 'record')}, {size(state.bytes)}" if state.count else "empty"
    # On stderr, so that the question is visible when stdout is redirected.
    return click.confirm(f"Delete {printable(topic)} ({holds}) permanently?", err=True)
