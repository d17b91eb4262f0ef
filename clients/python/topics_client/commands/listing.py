"""`topics list`: which topics there are."""

from __future__ import annotations

from typing import Annotated

import msgspec

from topics_client.commands.connection import JsonOption, broker
from topics_client.commands.declaring import Argument
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.terminal import Grid, emit, note, printable, show, size


def list_topics(
    prefix: Annotated[str, Argument(help="Only topics whose names begin with this.")] = "",
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """List topics, sorted by name.

    With --json: one object a line, with topic, type, head_seq, earliest_seq, count, bytes, durable.
    """
    with broker(reach, as_json) as client:
        topics = client.list_topics(prefix)
        if as_json:
            for topic in topics:
                emit(msgspec.json.encode(topic))
            return
        table = Grid("TOPIC", "TYPE", ">RECORDS", ">BYTES", ">EARLIEST", ">HEAD", "DURABLE")
        for topic in topics:
            table.add_row(
                printable(topic.topic),
                topic.type,
                f"{topic.count:,}",
                size(topic.bytes),
                str(topic.earliest_seq),
                str(topic.head_seq),
                "yes" if topic.durable else "no",
            )
        if len(table):
            show(table)
        else:
            note(f"No topic begins with {prefix!r}." if prefix else "There are no topics yet.")
