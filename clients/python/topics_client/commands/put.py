"""`topics put`: creates a topic, or changes its settings."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import click
import msgspec

from topics_client import calls
from topics_client.blocking import Client
from topics_client.commands.connection import JsonOption, TopicArgument, broker
from topics_client.commands.declaring import Option
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.terminal import emit, say
from topics_client.errors import TopicNotFound
from topics_client.values import TopicPut


class TopicType(str, enum.Enum):
    """The kinds of topic."""

    LOG = "log"
    QUEUE = "queue"


class Durability(str, enum.Enum):
    """What an acknowledged record has survived: nothing, a crash of the process, or a power loss."""

    EPHEMERAL = "ephemeral"
    MEMORY = "memory"
    DISK = "disk"
    FSYNC = "fsync"


class Discard(str, enum.Enum):
    """What a topic at its cap does with a new record: drop the oldest, or refuse it."""

    OLD = "old"
    REJECT = "reject"


def put(
    topic: TopicArgument,
    durability: Annotated[
        Durability | None,
        Option("--durability", help="fsync survives a power loss, disk a crash of the broker. Default: disk."),
    ] = None,
    type_: Annotated[TopicType | None, Option("--type", help="Fixed once made. Default: log.")] = None,
    ttl_ms: Annotated[
        int | None, Option("--ttl-ms", min=0, help="Records older than this are deleted. 0 = never.")
    ] = None,
    cap_records: Annotated[
        int | None, Option("--cap-records", min=0, help="The most records of the topic. 0 = no limit.")
    ] = None,
    cap_bytes: Annotated[
        int | None, Option("--cap-bytes", min=0, help="The most bytes of its records. 0 = no limit.")
    ] = None,
    discard: Annotated[
        Discard | None,
        Option("--discard", help="What to do at a limit: drop the oldest records, or refuse new ones. Default: old."),
    ] = None,
    idempotency_window_ms: Annotated[
        int | None,
        Option("--idempotency-window-ms", min=0, help="How long idempotency keys count. Default: 120000."),
    ] = None,
    others: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="Any other setting of the API, such as lease_ms=5000."),
    ] = None,
    replace: Annotated[
        bool, Option("--replace", help="Reset all other settings to their defaults, durability too.")
    ] = False,
    keep: Annotated[bool, Option("--keep", hidden=True, help="Like without this option.")] = False,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Create a topic, or change the given settings of an existing one; its other settings stay.

    --replace resets all other settings to their defaults, which may weaken durability and delete records.
    """
    if keep and replace:
        raise click.BadParameter("--keep and --replace exclude each other.", param_hint="--keep")
    given: dict[str, Any] = {
        "type": type_,
        "durability": durability,
        "ttl_ms": ttl_ms,
        "cap_records": cap_records,
        "cap_bytes": cap_bytes,
        "discard": discard,
        "idempotency_window_ms": idempotency_window_ms,
    }
    settings = {name: value for name, value in given.items() if value is not None}
    settings |= dict(_setting(text) for text in others or [])
    with broker(reach, as_json) as client:
        answer = client.run(calls.verbatim(calls.put_topic(topic, settings))) if replace else None
        answer = answer or _changed(client, topic, settings)
        if as_json:
            emit(answer)
            return
        result = msgspec.json.decode(answer, type=TopicPut)
        verb = "Created" if result.created else "Updated"
        say(f"{verb} {result.topic} ({result.config.get('type')}, durability {result.config.get('durability')}).")


def _setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE, where VALUE is JSON, or else a string."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE.", param_hint="--set")
    try:
        return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return name, value


def _changed(client: Client, topic: str, settings: dict[str, Any]) -> bytes:
    """The answer to changing the topic, or to creating it if it does not exist."""
    try:
        return client.run(calls.verbatim(calls.change_topic(topic, settings)))
    except TopicNotFound:
        return client.run(calls.verbatim(calls.put_topic(topic, settings)))
