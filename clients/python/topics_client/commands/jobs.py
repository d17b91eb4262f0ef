"""The common part of the queue commands: options, how jobs are named on a command line, and how they are printed."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Sequence
from typing import Annotated

import click

from topics_client.commands.completion import topic_names
from topics_client.commands.declaring import Argument, Option
from topics_client.commands.terminal import colours, emit, moment, printable
from topics_client.queue_calls import MAX_SEQS
from topics_client.values import Job, one_line

_DIM, _CYAN, _RESET = "\x1b[2m", "\x1b[36m", "\x1b[0m"
_NAMED = re.compile(r"(\d{1,20})(?::(lease_[0-9a-f]{16}))?")

QueueArgument = Annotated[str, Argument(metavar="QUEUE", help="Name of the queue.", complete=topic_names)]
NodeOption = Annotated[
    str,
    Option(
        "--node",
        "-N",
        envvar="TOPICS_NODE",
        metavar="NAME",
        default_factory=lambda: platform.node() or "topics",
        help="Name of this worker, which holds the leases.",
        show_default="the name of this machine",
    ),
]
JobsArgument = Annotated[
    list[str],
    Argument(
        metavar="JOB",
        help="SEQ, or SEQ:LEASE_ID as `topics claim` shows them: then only while that very lease lasts.",
    ),
]
LeaseOption = Annotated[
    int | None,
    Option("--lease-ms", min=1, metavar="MS", help="How long a lease lasts. Default: the queue's setting."),
]
MaxOption = Annotated[int, Option("--max", "-n", min=1, max=1000, help="At most this many jobs.")]


def named_jobs(texts: Sequence[str]) -> list[Job | int]:
    """The named jobs. Raises click.BadParameter for text that names none."""
    if len(texts) > MAX_SEQS:
        raise click.BadParameter(f"At most {MAX_SEQS} jobs at a time.", param_hint="JOB")
    return [_named(text) for text in texts]


def _named(text: str) -> Job | int:
    found = _NAMED.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} names no job; it is SEQ or SEQ:LEASE_ID.", param_hint="JOB")
    seq, lease_id = int(found[1]), found[2]
    return Job(seq=seq, ts=0, lease_id=lease_id, deadline=0, deliveries=0) if lease_id else seq


class JobPrinter:
    """Prints one job a line; as JSON, like the broker writes it."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._colours = colours()

    def write(self, job: Job) -> None:
        """Print one job. It is written when this returns."""
        if self._as_json:
            emit(job.to_json())
            sys.stdout.buffer.flush()
        else:
            sys.stdout.write(self._line(job) + "\n")
            sys.stdout.flush()

    def _line(self, job: Job) -> str:
        labels = "".join(
            f"  {sign}{printable(text)}" for sign, text in (("#", job.tag), ("@", job.node)) if text is not None
        )
        again = f"  delivery {job.deliveries}" if job.deliveries > 1 else ""
        where = f"{job.seq}:{job.lease_id}  until {moment(job.deadline)}{again}"
        data = printable(one_line(job.data_raw).decode("utf-8", "replace"))
        return self._paint(where, _DIM) + self._paint(labels, _CYAN) + f"  {data}"

    def _paint(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_RESET}" if self._colours and text else text
