"""`topics consumers read`: prints the next records of a consumer."""

from __future__ import annotations

from typing import Annotated

import click

from topics_client.blocking import Client
from topics_client.commands.connection import JsonOption, PartitionOption, RetryForOption, TopicArgument, broker
from topics_client.commands.declaring import Argument, Option
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.records import RecordPrinter
from topics_client.commands.terminal import note
from topics_client.consumer_values import ConsumerReadOptions

#: The most that one call can return.
_PAGE_RECORDS = 1000


def read(
    topic: TopicArgument,
    consumer: Annotated[str, Argument(metavar="CONSUMER", help="Name of the consumer.")],
    limit: Annotated[
        int, Option("--limit", "-n", min=0, help="Stop after this many records. 0 = all there are now.")
    ] = 0,
    wait_ms: Annotated[
        int, Option("--wait-ms", min=0, max=30_000, metavar="MS", help="How long to wait for the first record.")
    ] = 0,
    peek: Annotated[bool, Option("--peek", help="Leave the position where it is; at most 1000 records.")] = False,
    follow: Annotated[
        bool, Option("--follow", "-f", help="Continue until Ctrl-C; printed records are committed.")
    ] = False,
    partition: PartitionOption = None,
    retry_for_s: RetryForOption = 60.0,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Print the next records, and move the position after them.

    Several of these commands share the records. With --json: the lines of `topics read --json`, including
    {"tombstone": {...}}.
    """
    if follow and (peek or limit or wait_ms):
        raise click.BadParameter("Cannot be used with --limit, --wait-ms or --peek.", param_hint="--follow")
    printer = RecordPrinter(as_json=as_json, flush=follow)
    with broker(reach, as_json, retry_for_s=retry_for_s if follow else None) as client:
        if follow:
            for item in client.consumers.follow(topic, consumer, partition=partition):
                printer.write(item)
        options: ConsumerReadOptions = {
            "include_tags": True,
            "wait_ms": wait_ms,
            "checkpoint": not peek,
            "partition": partition,
        }
        if not _print(client, topic, consumer, limit, options, printer):
            note("There is nothing new.")


def _print(
    client: Client, topic: str, consumer: str, limit: int, options: ConsumerReadOptions, printer: RecordPrinter
) -> int:
    """Returns how many lines were printed. A peek is one answer, because the next one would be the same."""
    printed = 0
    left = limit or None
    until_seq: int | None = None
    while True:
        options["limit"] = _PAGE_RECORDS if left is None else min(left, _PAGE_RECORDS)
        answer = client.consumers.read(topic, consumer, **options)
        if answer.tombstone is not None:
            printer.write(answer.tombstone)
            printed += 1
        for record in answer.records:
            printer.write(record)
        printed += len(answer.records)
        # The records at the start: with a busy topic this would never end otherwise.
        until_seq = answer.head_seq if until_seq is None else until_seq
        if left is not None:
            left -= len(answer.records)
        done = left == 0 or answer.caught_up or answer.next_from_seq >= until_seq
        if done or not options.get("checkpoint", True):
            return printed
        options["wait_ms"] = 0
