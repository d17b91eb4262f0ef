"""`topics tail`: prints the last records of a topic, and each new one as it arrives."""

from __future__ import annotations

from typing import Annotated

from topics_client.calls import ReadOptions
from topics_client.commands.connection import JsonOption, PartitionOption, RetryForOption, TopicArgument, broker
from topics_client.commands.declaring import Option
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.read import TagOption
from topics_client.commands.records import RecordPrinter, tag_predicate


def tail(
    topic: TopicArgument,
    last: Annotated[int, Option("--last", "-n", min=0, help="Start this many seqs before the end.")] = 10,
    from_seq: Annotated[
        int | None,
        Option("--from-seq", min=0, help="Start after this seq instead; 0 = at the beginning.", show_default=False),
    ] = None,
    tag: TagOption = None,
    partition: PartitionOption = None,
    retry_for_s: RetryForOption = 60.0,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Print the last records of a topic, then follow it until Ctrl-C.

    A restart of the broker is bridged without losing the position. With --json: lines in the format of `topics read
    --json`, including {"tombstone": {...}}.
    """
    printer = RecordPrinter(as_json=as_json, flush=True)
    with broker(reach, as_json, retry_for_s=retry_for_s) as client:
        state = client.state(topic, touch=False, complete=False).of(partition)
        begin = max(0, state.head_seq - last) if from_seq is None else from_seq
        if from_seq is None and begin < state.earliest_seq - 1:
            # A reader who asks for the last ten does not want to hear of earlier losses.
            begin = state.earliest_seq - 1
        options: ReadOptions = {"tag": tag_predicate(tag), "epoch": state.epoch, "partition": partition}
        for item in client.tail(topic, begin, **options):
            printer.write(item)
