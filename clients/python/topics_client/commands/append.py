"""`topics append`: appends JSON lines to a topic."""

from __future__ import annotations

import io
import os
import stat
import sys
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import click
import msgspec
from click.exceptions import Exit

from topics_client.commands.connection import JsonOption, PartitionOption, RetryForOption, TopicArgument, broker
from topics_client.commands.declaring import Argument, Option
from topics_client.commands.lines import BadLine, Batch, batches, read_lines
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.terminal import ExitCode, amount, emit, fail, note, plain_endings, printable, say
from topics_client.commands.upload import Account, Upload
from topics_client.values import one_line

if TYPE_CHECKING:
    from rich.progress import Progress

#: A program that writes a line now and then wants it stored now, not when a batch is full.
_LINGER_S = 0.2
_MAX_KEY_PREFIX_BYTES = 230


def append(
    topic: TopicArgument,
    file: Annotated[
        Path | None,
        Argument(metavar="FILE", help="JSON lines; stdin if left out or -."),
    ] = None,
    data: Annotated[
        list[str] | None, Option("--data", "-d", metavar="JSON", help="A record; may be given several times.")
    ] = None,
    batch: Annotated[int, Option("--batch", min=1, max=10_000, help="Records a request.")] = 1000,
    key_prefix: Annotated[
        str | None,
        Option(
            "--key-prefix",
            metavar="TEXT",
            help="Makes it safe to run the same input again: records that are stored already are skipped within the "
            "topic's idempotency_window_ms (2 minutes unless set).",
        ),
    ] = None,
    tag: Annotated[str | None, Option("--tag", help="Tag of every record.")] = None,
    node: Annotated[str | None, Option("--node", help="Node the records come from.")] = None,
    partition: PartitionOption = None,
    retry_for_s: RetryForOption = 60.0,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Append records in order, one JSON value a line. Creates the topic if it does not exist.

    Stops at the first line that is not JSON and names it; whole batches before it are stored. Broken connections and a
    busy or restarting broker are bridged, without storing anything twice.
    """
    if data and file is not None:
        raise click.BadParameter("Give records by --data or by a file, not both.", param_hint="--data")
    if key_prefix is not None and len(key_prefix.encode()) > _MAX_KEY_PREFIX_BYTES:
        raise click.BadParameter(f"At most {_MAX_KEY_PREFIX_BYTES} bytes.", param_hint="--key-prefix")
    account = Account()
    try:
        with _opened(file, data) as source, broker(reach, as_json, retry_for_s=retry_for_s) as client:
            lines = read_lines(source, linger_s=None if key_prefix else _LINGER_S)
            upload = Upload(
                client=client,
                topic=topic,
                account=account,
                key_prefix=key_prefix,
                tag=tag,
                node=node,
                partition=partition,
            )
            _run(upload, batches(lines, batch), _size(source), as_json)
            account.complete = True
    except Exit:
        if not as_json:
            _say_how_far(account, resumable=key_prefix is not None)
        raise
    finally:
        with plain_endings(as_json):
            _say_done(topic, account, as_json)


@contextmanager
def _opened(file: Path | None, data: list[str] | None) -> Generator[BinaryIO]:
    """The input: the --data options, a file, or stdin."""
    if data:
        # One value a line, even if the shell gave one over several lines. A line break within a string is not JSON.
        yield io.BytesIO(b"".join(one_line(os.fsencode(value)) + b"\n" for value in data))
    elif file is None or str(file) == "-":
        if sys.stdin.isatty():
            note("Reading JSON lines from the terminal. Ctrl-D ends the input.")
        yield sys.stdin.buffer
    else:
        try:
            opened = file.open("rb")
        except OSError as error:
            raise click.BadParameter(f"{file} cannot be read: {error.strerror}.", param_hint="FILE") from error
        with opened:
            yield opened


def _size(source: BinaryIO) -> int | None:
    """The size of the input in bytes, if it can be known."""
    try:
        status = os.fstat(source.fileno())
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _run(upload: Upload, source: Iterable[Batch], total_bytes: int | None, as_json: bool) -> None:
    """Upload, with a progress bar if somebody watches and does not type the input."""
    try:
        typing = sys.stdin.isatty() and total_bytes is None
        if as_json or typing or not sys.stderr.isatty():
            upload.run(source, lambda batch: None)
            return
        with _progress() as progress:
            task = progress.add_task(f"Appending to {printable(upload.topic)}", total=total_bytes, records="")
            began_s = time.monotonic()

            def advance(batch: Batch) -> None:
                rate = upload.account.records / max(time.monotonic() - began_s, 1e-9)
                text = f"{amount(upload.account.records, 'record')}, {rate:,.0f}/s"
                progress.update(task, advance=batch.input_bytes, records=text)

            upload.run(source, advance)
    except BadLine as error:
        fail(str(error), ExitCode.USAGE, as_json=as_json)


def _progress() -> Progress:
    # Loaded only where progress is shown: it takes as long as everything else that a command loads.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[records]}", markup=False),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(file=sys.stderr, highlight=False, soft_wrap=True), transient=True)


def _summary(topic: str, account: Account) -> dict[str, Any]:
    return {
        "topic": topic,
        "complete": account.complete,
        "records": account.records,
        "repeated": account.repeated,
        "batches": account.batches,
        "first_seq": account.first_seq,
        "last_seq": account.last_seq,
        "last_line": account.last_line,
    }


def _say_done(topic: str, account: Account, as_json: bool) -> None:
    if as_json:
        # Also after an early end, for the stored part.
        if account.complete or account.records:
            emit(msgspec.json.encode(_summary(topic, account)))
        return
    if not account.complete:
        return
    if not account.records:
        note("Nothing was appended: the input has no records.")
        return
    contiguous = account.last_seq - account.first_seq + 1 == account.records
    seqs = f"seqs {account.first_seq} to {account.last_seq}" if account.records > 1 else f"seq {account.first_seq}"
    where = seqs if contiguous else f"{seqs}, others' records in between"
    say(f"Appended {amount(account.records, 'record')} to {topic} ({where}).")
    if account.repeated:
        say(f"Of these, {account.repeated:,} had been stored by an earlier run, and were not stored again.")


def _say_how_far(account: Account, *, resumable: bool) -> None:
    """After an early end: print what is stored, what is not, and how to continue."""
    parts: list[str] = []
    if account.records:
        parts.append(f"Stored: {amount(account.records, 'record')}, up to line {account.last_line}.")
    if account.pending is not None:
        first, last = account.pending.numbers[0], account.pending.numbers[-1]
        parts.append(f"Unknown: whether lines {first} to {last} were stored.")
    if parts and resumable:
        parts.append(
            "Run the same command again to continue; nothing is stored twice within the topic's idempotency_window_ms."
        )
    elif account.pending is not None:
        parts.append("With --key-prefix, running the same input again would be safe.")
    elif parts:
        parts.append(f"To continue, give the input from line {account.last_line + 1} on.")
    if parts:
        note(" ".join(parts))
