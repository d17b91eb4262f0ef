"""`topics consumers list`, `put`, `get`, `delete`, `commit` and `seek`: readers whose position the broker stores."""

from __future__ import annotations

import enum
from typing import Annotated, Literal

import click
import msgspec

from topics_client import calls, consumer_calls
from topics_client.commands.connection import JsonOption, PartitionOption, TopicArgument, broker
from topics_client.commands.consuming import read
from topics_client.commands.declaring import Argument, Group, Option
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.terminal import EXIT_CODES_HELP, Grid, emit, note, printable, say, show
from topics_client.consumer_values import ConsumerChanges, ConsumerDeleted, ConsumerOptions, ConsumerPut, ConsumerState
from topics_client.errors import ConsumerNotFound

consumers = Group("consumers", "Read from where the last read ended: the broker stores the position.", EXIT_CODES_HELP)

ConsumerArgument = Annotated[str, Argument(metavar="CONSUMER", help="Name of the consumer.")]
_EDGES = ("earliest", "head")


class Consistency(str, enum.Enum):
    """What a crash of the broker may do to the position."""

    AT_LEAST_ONCE = "at_least_once"
    STRICTLY_AT_ONCE = "strictly_at_once"


@consumers.add("list", EXIT_CODES_HELP)
def list_consumers(
    topic: TopicArgument,
    prefix: Annotated[str, Argument(help="Only consumers whose names begin with this.")] = "",
    partition: PartitionOption = None,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """List the consumers of a topic, sorted by name.

    With --json: one object a line, as `topics consumers get` has it.
    """
    with broker(reach, as_json) as client:
        found = client.consumers.list(topic, prefix, partition=partition)
        if as_json:
            for consumer in found:
                emit(msgspec.json.encode(consumer))
            return
        table = Grid("CONSUMER", ">CURSOR", ">DURABLE", ">UNREAD", ">LAG", "CONSISTENCY")
        for consumer in found:
            table.add_row(
                printable(consumer.consumer),
                str(consumer.cursor_seq),
                str(consumer.durable_seq),
                f"{consumer.unread:,}",
                f"{consumer.lag:,}",
                printable(consumer.consistency),
            )
        if len(table):
            show(table)
        else:
            note("There are no such consumers." if prefix else f"{topic} has no consumers yet.")


@consumers.add("put", EXIT_CODES_HELP)
def put(
    topic: TopicArgument,
    consumer: ConsumerArgument,
    start: Annotated[
        str, Option("--from", metavar="WHERE", help="Where a new one begins: earliest, head, or a seq to start after.")
    ] = "earliest",
    consistency: Annotated[
        Consistency | None,
        Option(
            "--consistency",
            help="Whether records may come again after a crash of the broker: some, or none.",
            show_default="at_least_once",
        ),
    ] = None,
    persist_every: Annotated[
        int | None,
        Option(
            "--persist-every",
            min=1,
            metavar="RECORDS",
            help="At most this many come again after a crash.",
            show_default="1000",
        ),
    ] = None,
    replace: Annotated[
        bool, Option("--replace", help="Reset all other settings to their defaults, consistency too.")
    ] = False,
    partition: PartitionOption = None,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Create a consumer, or change the given settings of one. Its other settings and its position stay."""
    changes: ConsumerChanges = {"partition": partition}
    if consistency is not None:
        changes["consistency"] = consistency.value
    if persist_every is not None:
        changes["persist_every"] = persist_every
    options: ConsumerOptions = {"start": _where(start, "--from"), **changes}
    with broker(reach, as_json) as client:
        made = consumer_calls.put(topic, consumer, options)
        try:
            change = made if replace else consumer_calls.change(topic, consumer, changes)
            answer = client.run(calls.verbatim(change))
        except ConsumerNotFound:
            answer = client.run(calls.verbatim(made))
        if as_json:
            emit(answer)
            return
        done = msgspec.json.decode(answer, type=ConsumerPut)
        say(f"{'Made' if done.created else 'Changed'} {done.consumer} of {done.topic}, {_position(done)}.")


@consumers.add("get", EXIT_CODES_HELP)
def get(
    topic: TopicArgument,
    consumer: ConsumerArgument,
    partition: PartitionOption = None,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Show a consumer and its position."""
    with broker(reach, as_json) as client:
        answer = client.run(calls.verbatim(consumer_calls.get(topic, consumer, partition)))
        if as_json:
            emit(answer)
            return
        found = msgspec.json.decode(answer, type=ConsumerState)
        table = Grid("", "")
        for name, value in (
            ("consumer", found.consumer),
            ("topic", found.topic),
            ("cursor_seq", str(found.cursor_seq)),
            ("durable_seq", str(found.durable_seq)),
            ("unread", f"{found.unread:,}"),
            ("lag", f"{found.lag:,}"),
            ("consistency", found.consistency),
            ("persist_every", f"{found.persist_every:,}"),
        ):
            table.add_row(name, printable(value))
        show(table)


@consumers.add("delete", EXIT_CODES_HELP)
def delete(
    topic: TopicArgument,
    consumer: ConsumerArgument,
    partition: PartitionOption = None,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Delete a consumer; its topic stays. A consumer that does not exist is no error."""
    with broker(reach, as_json) as client:
        answer = client.run(calls.verbatim(consumer_calls.delete(topic, consumer, partition)))
        if as_json:
            emit(answer)
            return
        deleted = msgspec.json.decode(answer, type=ConsumerDeleted).deleted
        say(
            f"Deleted {consumer} of {topic}."
            if deleted
            else f"{topic} has no consumer named {consumer}; nothing was deleted."
        )


@consumers.add("commit", EXIT_CODES_HELP)
def commit(
    topic: TopicArgument,
    consumer: ConsumerArgument,
    seq: Annotated[int, Argument(metavar="SEQ", min=0, help="The last seq that is done.")],
    partition: PartitionOption = None,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Set the position to SEQ: everything up to SEQ is done, and reads continue after it."""
    with broker(reach, as_json) as client:
        _moved(client.run(calls.verbatim(consumer_calls.commit(topic, consumer, seq, partition))), as_json)


@consumers.add("seek", EXIT_CODES_HELP)
def seek(
    topic: TopicArgument,
    consumer: ConsumerArgument,
    where: Annotated[
        str | None,
        Argument(metavar="WHERE", help="earliest, head, or a seq to continue after."),
    ] = None,
    ts: Annotated[
        int | None,
        Option("--ts", min=0, metavar="MS", help="Instead: with the first record of this time, ms since 1970."),
    ] = None,
    partition: PartitionOption = None,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Move the position of a consumer, forward or back."""
    if (where is None) == (ts is None):
        raise click.BadParameter("Give either WHERE or --ts.", param_hint="WHERE")
    position = None if where is None else _where(where, "WHERE")
    call = consumer_calls.seek(
        topic,
        consumer,
        seq=position if isinstance(position, int) else None,
        ts=ts,
        to=None if isinstance(position, int) else position,
        partition=partition,
    )
    with broker(reach, as_json) as client:
        _moved(client.run(calls.verbatim(call)), as_json)


consumers.add("read", EXIT_CODES_HELP)(read)


def _moved(answer: bytes, as_json: bool) -> None:
    if as_json:
        emit(answer)
        return
    found = msgspec.json.decode(answer, type=ConsumerState)
    say(f"{found.consumer} of {found.topic} is {_position(found)}.")


def _position(consumer: ConsumerState) -> str:
    return f"after seq {consumer.cursor_seq}, with {consumer.unread:,} unread"


def _where(text: str, name: str) -> Literal["earliest", "head"] | int:
    if text == "earliest":
        return "earliest"
    if text == "head":
        return "head"
    if text.isascii() and text.isdigit() and len(text) <= 20:
        return int(text)
    raise click.BadParameter(f"{text!r} is neither a seq nor one of {', '.join(_EDGES)}.", param_hint=name)
