"""`topics work`: does jobs as they arrive."""

from __future__ import annotations

import os
import random
import subprocess
from contextlib import closing
from typing import Annotated

from topics_client.blocking import Client
from topics_client.commands.connection import JsonOption, RetryForOption, broker
from topics_client.commands.declaring import Option
from topics_client.commands.jobs import JobPrinter, LeaseOption, NodeOption, QueueArgument
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.terminal import ExitCode, fail, note
from topics_client.errors import LeaseLost
from topics_client.values import Job, one_line


def work(
    queue: QueueArgument,
    node: NodeOption,
    command: Annotated[
        str | None,
        Option(
            "--exec", "-x", metavar="COMMAND", help="Run this for each job, in a shell: its data on stdin, as a line."
        ),
    ] = None,
    ack: Annotated[bool, Option("--ack", help="Only print each job, and acknowledge it once it is printed.")] = False,
    limit: Annotated[int, Option("--limit", "-n", min=0, help="Stop after this many jobs. 0 = never.")] = 0,
    lease_ms: LeaseOption = None,
    retry_for_s: RetryForOption = 60.0,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Claim the jobs of a queue one by one and process them, until Ctrl-C.

    With --exec: exit status 0 of the command means that the job is done; any other gives it back, after the
    backoff of the queue or, if it has none, a second, doubled with each delivery. The command finds
    TOPICS_JOB_SEQ, TOPICS_JOB_TAG and TOPICS_JOB_DELIVERIES in its environment. The lease is renewed while it runs.
    When this program ends, unfinished jobs go back at once. A restart of the broker is bridged.
    """
    if (command is None) is not ack:
        message = "Choose what to do with the jobs: --exec COMMAND runs a command for each, --ack only prints them."
        fail(message, ExitCode.USAGE, as_json=as_json)
    with broker(reach, as_json, retry_for_s=retry_for_s) as client:
        printer = JobPrinter(as_json=as_json)
        with closing(client.work(queue, node, lease_ms=lease_ms)) as jobs:
            for count, job in enumerate(jobs, 1):
                if command is None:
                    printer.write(job)
                    done = True
                else:
                    done = _run(job, command)
                _settle(client, queue, node, job, done)
                if count == limit:
                    return


def _run(job: Job, command: str) -> bool:
    """Returns whether the command has done the job. The lease is renewed meanwhile."""
    known = {
        "TOPICS_JOB_SEQ": str(job.seq),
        "TOPICS_JOB_TAG": job.tag or "",
        "TOPICS_JOB_DELIVERIES": str(job.deliveries),
    }
    with subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, env=os.environ | known) as process:
        try:
            process.communicate(one_line(job.data_raw) + b"\n")
        except BaseException:
            process.terminate()  # another worker gets the job
            raise
    if process.returncode:
        note(f"Job {job.seq} failed (exit status {process.returncode}).")
    return process.returncode == 0


def _settle(client: Client, queue: str, node: str, job: Job, done: bool) -> None:
    try:
        if done:
            client.ack(queue, node, [job])
        else:
            delay_ms = _delay_ms(client, queue, job)
            client.nack(queue, node, [job], delay_ms=delay_ms, reason="the command failed")
    except LeaseLost:
        note(f"Job {job.seq} was no longer leased to {node} when it was done; it is delivered again.")


def _delay_ms(client: Client, queue: str, job: Job) -> int | None:
    """How long a job that failed waits, as with a `Worker`. None: its queue has a backoff."""
    if client.state(queue, touch=False).config.get("retry_backoff_ms"):
        return None
    # Loads the worker, which most jobs do without.
    from topics_client.workers.backoff import Backoff

    return Backoff().delay_ms(job.deliveries, random.random())
