"""`topics claim`: leases jobs of a queue."""

from __future__ import annotations

from typing import Annotated

from topics_client.commands.connection import JsonOption, broker
from topics_client.commands.declaring import Option
from topics_client.commands.jobs import JobPrinter, LeaseOption, MaxOption, NodeOption, QueueArgument
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.terminal import note


def claim(
    queue: QueueArgument,
    node: NodeOption,
    max_: MaxOption = 1,
    lease_ms: LeaseOption = None,
    wait_ms: Annotated[
        int, Option("--wait-ms", min=0, max=30_000, metavar="MS", help="How long to wait for a job if there is none.")
    ] = 0,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Claim jobs and print them. No other node gets them until their leases end.

    End each with `topics ack` or `topics nack`; otherwise it is delivered again when its lease ends. With --json: one
    object a line, {"$seq", "lease_id", "deadline", "$ts", "$node"?, "$tag"?, "deliveries", "data", "meta"?}.
    """
    with broker(reach, as_json) as client:
        claimed = client.claim(queue, node, max=max_, lease_ms=lease_ms, wait_ms=wait_ms)
        printer = JobPrinter(as_json=as_json)
        for job in claimed.jobs:
            printer.write(job)
        if not claimed.jobs:
            note("There is no job to claim.")
