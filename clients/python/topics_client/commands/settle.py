"""`topics ack`, `topics nack` and `topics extend`: end or extend the leases of claimed jobs."""

from __future__ import annotations

from typing import Annotated

from click.exceptions import Exit

from topics_client import calls, queue_calls
from topics_client.commands.connection import JsonOption, broker
from topics_client.commands.declaring import Option
from topics_client.commands.jobs import JobsArgument, NodeOption, QueueArgument, named_jobs
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.terminal import ExitCode, amount, emit, note, say
from topics_client.values import Settled
from topics_client.wire import Call, Reply

StrictOption = Annotated[bool, Option("--strict", help="Do nothing if one of them is no longer leased to the node.")]


def ack(
    queue: QueueArgument,
    jobs: JobsArgument,
    node: NodeOption,
    strict: StrictOption = False,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Ack jobs that are done: they are deleted permanently.

    Jobs that are not leased to the node are skipped; then the exit status is 1.
    """
    call = queue_calls.ack(queue, node, named_jobs(jobs), strict=strict)
    _settle(call, "Acked", node, as_json, reach)


def nack(
    queue: QueueArgument,
    jobs: JobsArgument,
    node: NodeOption,
    delay_ms: Annotated[
        int | None,
        Option("--delay-ms", min=0, metavar="MS", help="Deliver them after this time. Default: the queue's backoff."),
    ] = None,
    forgive: Annotated[
        bool, Option("--forgive", help="This delivery counts neither for backoff nor for dead letter.")
    ] = False,
    reason: Annotated[
        str | None, Option("--reason", metavar="TEXT", help="Reason, stored with the job in the dead letter topic.")
    ] = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Return jobs to the queue: they are delivered again.

    Jobs that are not leased to the node are skipped; then the exit status is 1.
    """
    options: queue_calls.NackOptions = {"delay_ms": delay_ms, "penalty": not forgive, "reason": reason}
    call = queue_calls.nack(queue, node, named_jobs(jobs), options, strict=strict)
    _settle(call, "Gave back", node, as_json, reach)


def extend(
    queue: QueueArgument,
    jobs: JobsArgument,
    node: NodeOption,
    lease_ms: Annotated[int, Option("--lease-ms", min=1, metavar="MS", help="How long the leases last from now.")],
    strict: StrictOption = False,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Extend the leases of jobs.

    Jobs that are not leased to the node are skipped; then the exit status is 1.
    """
    call = queue_calls.extend(queue, node, named_jobs(jobs), lease_ms, strict=strict)
    _settle(call, "Extended the leases of", node, as_json, reach)


def _settle(call: Call[Settled], done: str, node: str, as_json: bool, reach: Reach) -> None:
    with broker(reach, as_json) as client:
        answer = client.run(calls.verbatim(call))
        settled = call.parse(Reply(status=200, headers={}, body=answer))
        if as_json:
            emit(answer)
        elif settled.count:
            say(f"{done} {amount(settled.count, 'job')} ({settled.ready:,} ready, {settled.in_flight:,} in flight).")
        if settled.skipped:
            if not as_json:
                seqs = ", ".join(map(str, settled.skipped))
                note(f"Skipped, as not leased to {node} (by that lease): {seqs}.")
            raise Exit(ExitCode.REFUSED)
