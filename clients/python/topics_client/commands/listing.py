"""`topics list`: lists topics."""

from __future__ import annotations

from typing import Annotated

import msgspec

from topics_client.commands.connection import JsonOption, broker
from topics_client.commands.declaring import Argument
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.terminal import Grid, duration, emit, note, printable, show, size
from topics_client.values import QueueSummary

_HEADINGS = ("TOPIC", "TYPE", ">PARTS", ">RECORDS", ">BYTES", ">EARLIEST", ">HEAD", "DURABLE", ">DEPTH", ">OLDEST JOB")


def list_topics(
    prefix: Annotated[str, Argument(help="Only topics whose names begin with this.")] = "",
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """List topics, sorted by name. DEPTH: jobs that can be claimed; OLDEST JOB: how long the first of them waits.

    With --json: one object a line, with topic, type, head_seq, earliest_seq, count, bytes, durable,
    partitions, and for queues queue, with ready, in_flight, delayed, paused, oldest_ready_age_ms.
    """
    with broker(reach, as_json) as client:
        topics = client.list_topics(prefix)
        if as_json:
            for topic in topics:
                emit(msgspec.json.encode(topic))
            return
        table = Grid(
            "TOPIC", "TYPE", ">PARTS", ">RECORDS", ">BYTES", ">EARLIEST", ">HEAD", "DURABLE", ">DEPTH", ">OLDEST JOB"
        )
        for topic in topics:
            table.add_row(
                printable(topic.topic),
                topic.type,
                str(topic.partitions),
                f"{topic.count:,}",
                size(topic.bytes),
                str(topic.earliest_seq),
                str(topic.head_seq),
                "yes" if topic.durable else "no",
                *_jobs(topic.queue),
            )
        if len(table):
            show(table)
        else:
            note(f"No topic begins with {prefix!r}." if prefix else "There are no topics yet.")


def _jobs(queue: QueueSummary | None) -> tuple[str, str]:
    """Depth of a queue, and age of its oldest job."""
    if queue is None:
        return "-", "-"
    depth = f"{queue.ready:,}" + (" paused" if queue.paused else "")
    return depth, "-" if queue.oldest_ready_age_ms is None else duration(queue.oldest_ready_age_ms)
