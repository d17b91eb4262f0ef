"""`topics read`: prints the records of a topic."""

from __future__ import annotations

from typing import Annotated

from topics_client.blocking import Client
from topics_client.calls import ReadOptions
from topics_client.commands.connection import JsonOption, PartitionOption, TopicArgument, broker
from topics_client.commands.declaring import Option
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.records import RecordPrinter, tag_predicate
from topics_client.commands.terminal import note

TagOption = Annotated[
    str | None, Option("--tag", help="Only records with this tag; a * at the end matches any ending.")
]

#: The most that one call can return.
_PAGE_RECORDS = 1000
_PAGE_BYTES = 8 << 20


def read(
    topic: TopicArgument,
    from_seq: Annotated[int, Option("--from-seq", min=0, help="Start after this seq.")] = 0,
    limit: Annotated[int, Option("--limit", "-n", min=0, help="Stop after this many records. 0 = all.")] = 0,
    tag: TagOption = None,
    from_ts: Annotated[
        int | None, Option("--from-ts", min=0, metavar="MS", help="Begin at this time, ms since 1970.")
    ] = None,
    skip_corrupt: Annotated[
        bool, Option("--skip-corrupt", help="Leave damaged records out instead of stopping at them.")
    ] = False,
    partition: PartitionOption = None,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Print the records that a topic holds, oldest first, and end.

    With --json: one object a line, {"$seq", "$ts", "$node"?, "$tag"?, "data", "meta"?}, with data and meta byte for
    byte as they were written. Where records are missing, there is a line {"tombstone": {...}}.
    """
    options: ReadOptions = {"include_tags": True, "max_batch_bytes": _PAGE_BYTES, "skip_corrupt": skip_corrupt}
    options |= {"tag": tag_predicate(tag), "from_ts": from_ts, "partition": partition}
    with broker(reach, as_json) as client:
        _print(client, topic, from_seq, limit, options, RecordPrinter(as_json=as_json))


def _print(client: Client, topic: str, from_seq: int, limit: int, options: ReadOptions, printer: RecordPrinter) -> None:
    left = limit or None
    until_seq: int | None = None
    while True:
        options["limit"] = _PAGE_RECORDS if left is None else min(left, _PAGE_RECORDS)
        diff = client.read(topic, from_seq, **options)
        if diff.tombstone is not None:
            printer.write(diff.tombstone)
        for record in diff.records:
            printer.write(record)
        if diff.corrupt_seqs:
            note(f"Left out as damaged: seqs {', '.join(map(str, diff.corrupt_seqs))}.")
        from_seq = diff.next_from_seq
        # The records at the start: with a busy topic this would never end otherwise.
        until_seq = diff.head_seq if until_seq is None else until_seq
        if left is not None:
            left -= len(diff.records)
        if left == 0 or diff.caught_up or from_seq >= until_seq:
            return
