"""`topics get`: prints one record."""

from __future__ import annotations

from typing import Annotated

from topics_client.commands.connection import JsonOption, PartitionOption, TopicArgument, broker
from topics_client.commands.declaring import Argument
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.records import RecordPrinter


def get(
    topic: TopicArgument,
    seq: Annotated[int, Argument(metavar="SEQ", min=1, help="Which record.")],
    partition: PartitionOption = None,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Print one record.

    With --json: in the format of `topics read`. If the record does not exist, the error says why: future, expired,
    evicted, lost or deleted.
    """
    with broker(reach, as_json) as client:
        RecordPrinter(as_json=as_json).write(client.get_record(topic, seq, partition=partition))
