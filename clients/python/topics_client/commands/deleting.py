"""`topics records delete`: deletes records of a topic that stays."""

from __future__ import annotations

import sys
from typing import Annotated

import click
import msgspec
from click.exceptions import Exit

from topics_client import calls
from topics_client.commands.connection import JsonOption, PartitionOption, TopicArgument, broker
from topics_client.commands.declaring import Group, Option
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.records import tag_predicate
from topics_client.commands.terminal import EXIT_CODES_HELP, ExitCode, amount, emit, fail, note, printable, say
from topics_client.values import RecordsDeleted

records = Group("records", "Delete records of a topic that stays.", EXIT_CODES_HELP)


@records.add("delete", EXIT_CODES_HELP)
def delete(
    topic: TopicArgument,
    before_seq: Annotated[
        int | None, Option("--before-seq", min=1, metavar="SEQ", help="Those below this seq.", show_default=False)
    ] = None,
    tag: Annotated[str | None, Option("--tag", help="Those with this tag; a * at the end matches any ending.")] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask. Required where there is no terminal.")] = False,
    partition: PartitionOption = None,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Delete records permanently: those below a seq, those with a tag, or with both options those that match both.

    Records that are appended later stay. `topics delete` deletes a topic with all its records.
    """
    if before_seq is None and not tag:
        fail("Say which records: give --before-seq, --tag, or both.", ExitCode.USAGE, as_json=as_json)
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        fail(
            "There is no terminal: give --yes to delete without a question.",
            ExitCode.USAGE,
            as_json=as_json,
        )
    with broker(reach, as_json) as client:
        if not yes:
            state = client.state(topic, touch=False, complete=False).of(partition)
            which = " and ".join(
                each
                for each in (before_seq and f"below seq {before_seq}", tag and f"with the tag {printable(tag)}")
                if each
            )
            held = f"{printable(topic)} (seqs {state.earliest_seq} to {state.head_seq})"
            # On stderr, so that the question is visible when stdout is redirected.
            if not click.confirm(f"Delete the records of {held} {which} permanently?", err=True):
                note("Nothing was deleted.")
                raise Exit(ExitCode.REFUSED)
        call = calls.delete_records(topic, before_seq=before_seq, match=tag_predicate(tag), partition=partition)
        answer = client.run(calls.verbatim(call))
        if as_json:
            emit(answer)
            return
        done = msgspec.json.decode(answer, type=RecordsDeleted)
        say(f"Deleted {amount(done.deleted, 'record')} of {topic}; {amount(done.count, 'record')} left.")
