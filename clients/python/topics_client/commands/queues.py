"""`topics leases`, `pause`, `resume`, `purge` and `redrive`: administration of queues."""

from __future__ import annotations

import enum
import sys
from typing import Annotated

import click
import msgspec
from click.exceptions import Exit

from topics_client import calls, queue_calls
from topics_client.commands.connection import JsonOption, broker
from topics_client.commands.declaring import Option
from topics_client.commands.jobs import QueueArgument
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.terminal import ExitCode, Grid, amount, emit, fail, moment, note, printable, say, show
from topics_client.values import Purged, Redriven


class State(str, enum.Enum):
    """The states of a job that is not done."""

    READY = "ready"
    LEASED = "leased"
    DELAYED = "delayed"
    DEAD = "dead"


class Idle(str, enum.Enum):
    """The states of a job that nobody holds."""

    READY = "ready"
    DELAYED = "delayed"


def leases(
    queue: QueueArgument,
    state: Annotated[State | None, Option("--state", help="Only jobs in this state.")] = None,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """List the jobs of a queue, and who holds them until when.

    With --json: one object a line, {"$seq", "state", "deliveries", "node"?, "deadline"?, "ready_at"?}.
    """
    with broker(reach, as_json) as client:
        jobs = client.leases(queue, None if state is None else state.value)
        if as_json:
            for job in jobs:
                emit(msgspec.json.encode({k: v for k, v in msgspec.to_builtins(job).items() if v is not None}))
            return
        table = Grid(">SEQ", "STATE", ">DELIVERIES", "NODE", "UNTIL")
        for job in jobs:
            until = job.deadline or job.ready_at
            table.add_row(
                str(job.seq),
                printable(job.state),
                str(job.deliveries),
                printable(job.node or "-"),
                moment(until) if until else "-",
            )
        if len(table):
            show(table)
        else:
            note("There are no such jobs." if state else "There are no jobs.")


def pause(
    queue: QueueArgument,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Deliver no more jobs until `topics resume`. Leased jobs can still be acked."""
    _pausing(queue, True, as_json, reach)


def resume(
    queue: QueueArgument,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Resume a queue: its jobs are delivered again."""
    _pausing(queue, False, as_json, reach)


def _pausing(queue: str, wanted: bool, as_json: bool, reach: Reach) -> None:
    with broker(reach, as_json) as client:
        call = queue_calls.pause(queue) if wanted else queue_calls.resume(queue)
        answer = client.run(calls.verbatim(call))
        if as_json:
            emit(answer)
        else:
            say(f"Paused {queue}: no jobs are delivered." if wanted else f"Resumed {queue}.")


def purge(
    queue: QueueArgument,
    states: Annotated[
        list[Idle] | None, Option("--state", help="Only jobs in this state. Default: ready and delayed ones.")
    ] = None,
    max_: Annotated[
        int | None, Option("--max", "-n", min=1, max=10_000, help="At most this many jobs.", show_default="all")
    ] = None,
    through_seq: Annotated[
        int | None, Option("--through-seq", min=0, metavar="SEQ", help="Only jobs up to this seq.", show_default="all")
    ] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask. Required where there is no terminal.")] = False,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Delete all jobs without a lease, permanently.

    To delete in several calls, repeat the same --max and --through-seq until fewer than --max are deleted: jobs that
    are appended meanwhile stay. Jobs that are appended after the question stay in any case.
    """
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        fail(
            "There is no terminal: give --yes to delete without a question.",
            ExitCode.USAGE,
            as_json=as_json,
        )
    wanted = [state.value for state in states or list(Idle)]
    with broker(reach, as_json) as client:
        if not yes:
            found = client.state(queue, touch=False)
            counted = " and ".join(f"{(found.queue or {}).get(state, 0):,} {state}" for state in wanted)
            most = "jobs" if max_ is None else f"at most {amount(max_, 'job')}"
            limit = "" if through_seq is None else f", only up to seq {through_seq}"
            if not click.confirm(f"Delete {most} of {printable(queue)} ({counted}{limit}) permanently?", err=True):
                note("Nothing was deleted.")
                raise Exit(ExitCode.REFUSED)
            through_seq = found.head_seq if through_seq is None else through_seq
        options: queue_calls.PurgeOptions = {"max": max_, "through_seq": through_seq}
        answer = client.run(calls.verbatim(queue_calls.purge(queue, wanted, options)))
        if as_json:
            emit(answer)
        else:
            say(f"Deleted {amount(msgspec.json.decode(answer, type=Purged).purged, 'job')} of {queue}.")


def redrive(
    queue: QueueArgument,
    source: Annotated[
        str | None,
        Option("--from", metavar="TOPIC", help="Where they are now. Default: the queue's dead letter topic."),
    ] = None,
    max_: Annotated[int, Option("--max", "-n", min=1, max=10_000, help="At most this many jobs.")] = 1000,
    rate_per_s: Annotated[
        float | None, Option("--rate", min=0.001, metavar="JOBS", help="Jobs a second. Default: no limit.")
    ] = None,
    seqs: Annotated[
        list[int] | None,
        Option("--seq", min=1, metavar="SEQ", help="Only this record of the source topic. May be given several times."),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only count.")] = False,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Move the jobs of this queue back from the dead letter topic, with their deliveries at 0.

    Each is moved exactly once. After an interruption, the jobs that were moved until then stay moved.
    """
    options: queue_calls.RedriveOptions = {
        "source": source,
        "max": max_,
        "rate_per_s": rate_per_s,
        "dry_run": dry_run,
        "seqs": seqs,
    }
    if seqs is not None and len(seqs) > queue_calls.MAX_SEQS:
        fail(f"--seq: at most {queue_calls.MAX_SEQS:,} in a call.", ExitCode.USAGE, as_json=as_json)
    with broker(reach, as_json) as client:
        answer = client.run(calls.verbatim(queue_calls.redrive(queue, options)))
        done = msgspec.json.decode(answer, type=Redriven)
        if as_json:
            emit(answer)
        else:
            verb = "Would move" if dry_run else "Moved"
            say(f"{verb} {amount(done.moved, 'job')} back to {queue}; {done.remaining:,} left.")
        others = 0 if seqs is None else len({*seqs}) - done.moved - done.remaining
        if others > 0:
            note(f"{amount(others, 'seq')} named no job of {queue} that can be moved.")
            raise Exit(ExitCode.REFUSED)
