"""`topics watch`: prints records of topics as they are committed."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Annotated

import msgspec

from topics_client.commands.connection import JsonOption, PartitionOption, RetryForOption, broker
from topics_client.commands.declaring import Argument, Option
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.records import RecordPrinter
from topics_client.commands.terminal import emit, note, printable
from topics_client.values import Watched
from topics_client.watching import WatchOptions


def watch(
    topics: Annotated[list[str], Argument(metavar="TOPIC", help="The topics to watch.")],
    from_seq: Annotated[
        int | None,
        Option(
            "--from-seq",
            min=0,
            help="Start after this seq of each topic. Default: new records only.",
            show_default=False,
        ),
    ] = None,
    partition: PartitionOption = None,
    node: Annotated[str | None, Option("--node", help="Leave out records that this node wrote.")] = None,
    strong: Annotated[bool, Option("--strong", help="Only records that no crash can lose.")] = False,
    skip_corrupt: Annotated[
        bool, Option("--skip-corrupt", help="Leave damaged records out instead of stopping at them.")
    ] = False,
    limit: Annotated[int, Option("--limit", "-n", min=0, help="Stop after this many records. 0 = never.")] = 0,
    retry_for_s: RetryForOption = 60.0,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Print the records of several topics as they are committed, until Ctrl-C.

    A restart of the broker is bridged without losing or repeating anything. With --json: one line for each record,
    {"topic": ..., "record": {...}}. Gaps and deleted topics are lines with "tombstone" or "deleted". A topic that
    cannot be read is a line with "error".
    """
    printer = RecordPrinter(as_json=False, flush=True)
    printed = 0
    with broker(reach, as_json, retry_for_s=retry_for_s) as client:
        starts = dict.fromkeys(topics, from_seq)
        options: WatchOptions = {
            "node": node,
            "consistency": "strong" if strong else "eventual",
            "skip_corrupt": skip_corrupt,
            "partition": partition,
        }
        with closing(client.watch(starts, **options)) as events:
            for event in events:
                if limit:
                    event = msgspec.structs.replace(event, records=event.records[: limit - printed])
                for line in _lines(event) if as_json else ():
                    emit(line)
                if not as_json:
                    _show(printer, event, several=len(topics) > 1)
                sys.stdout.flush()
                if event.corrupt_seqs:
                    note(f"{printable(event.topic)}: left out as damaged: {', '.join(map(str, event.corrupt_seqs))}.")
                printed += len(event.records)
                if limit and printed >= limit:
                    return


def _lines(event: Watched) -> list[bytes]:
    topic = msgspec.json.encode(event.topic)
    lines = [b'{"topic":%b,"record":%b}' % (topic, record.to_json()) for record in event.records]
    if event.tombstone is not None:
        lines.append(b'{"topic":%b,"tombstone":%b}' % (topic, msgspec.json.encode(event.tombstone)))
    if event.kind == "topic-deleted":
        lines.append(b'{"topic":%b,"deleted":true}' % topic)
    if event.error is not None:
        lines.append(b'{"topic":%b,"error":%b}' % (topic, msgspec.json.encode(str(event.error))))
    return lines


def _show(printer: RecordPrinter, event: Watched, *, several: bool) -> None:
    found = [*event.records] if event.tombstone is None else [event.tombstone]
    for item in found:
        if several:
            sys.stdout.write(f"{printable(event.topic)}  ")
        printer.write(item)
    if event.kind == "topic-deleted":
        note(f"The topic {printable(event.topic)} was deleted.")
    if event.error is not None:
        note(f"{printable(event.topic)}: {printable(str(event.error))}")
