"""What the commands share towards people and pipes: exit codes, colours, errors, output that is safe to print."""

from __future__ import annotations

import enum
import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import NoReturn

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from topics_client.errors import ApiError, ConnectionFailed, InvalidRequest, NotReady, TopicsError
from topics_client.retry import Pause

#: Wide enough for any table: what is piped on is never folded at the width of a terminal that is not there.
_PIPE_COLUMNS = 4096
#: No more than one note about waiting in this time.
_NOTE_EVERY_S = 5.0


class ExitCode(enum.IntEnum):
    """What the program's exit status means; --help lists them."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    INTERRUPTED = 130
    BROKEN_PIPE = 141


EXIT_CODES_HELP = (
    "Exit status: 0 done · 1 the broker refused · 2 the command line or the input is wrong · "
    "3 the broker cannot be reached or is not ready · 130 interrupted · 141 the reader of the output went away."
)


class _Console(Console):
    """Rich's console, without its own idea of how a program ends when the reader of its output goes away."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def out() -> Console:
    """The console for results. Made anew each time: what stdout is may have changed."""
    piped = not sys.stdout.isatty()
    return _Console(file=sys.stdout, width=_PIPE_COLUMNS if piped else None, highlight=False, soft_wrap=piped)


def err() -> Console:
    """The console for everything that is not a result."""
    return _Console(file=sys.stderr, highlight=False, soft_wrap=True)


def colours() -> bool:
    """Whether results are coloured: only on a terminal, and not when NO_COLOR is set."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def say(text: str, style: str | None = None) -> None:
    """One line of result for people."""
    out().print(printable(text), style=style, markup=False)


def note(text: str) -> None:
    """One line on stderr that is no result."""
    err().print(printable(text), style="dim", markup=False)


def emit(line: bytes) -> None:
    """One line of machine-readable output, byte for byte."""
    sys.stdout.buffer.write(line + b"\n")


def grid(*headings: str) -> Table:
    """An empty table without lines; headings that begin with '>' are of columns of numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        numeric = heading.startswith(">")
        table.add_column(heading.removeprefix(">"), justify="right" if numeric else "left", no_wrap=True)
    return table


def show(table: Table) -> None:
    """A table, without the spaces that fill up its last column."""
    console = out()
    with console.capture() as captured:
        console.print(table)
    sys.stdout.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))


def printable(text: str) -> str:
    """The text with everything escaped that could steer a terminal: names and tags come from strangers."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def moment(ts_ms: int) -> str:
    """A time as people and sort(1) read it, UTC."""
    try:
        when = datetime.fromtimestamp(ts_ms / 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return f"{ts_ms} ms"
    return when.strftime("%Y-%m-%d %H:%M:%S.") + f"{ts_ms % 1000:03d}Z"


def amount(count: int, noun: str) -> str:
    """`1 record`, `2,000 records`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size(count: int) -> str:
    """Bytes in the unit that leaves few digits."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.95 or unit == "TB":
            return f"{value:.1f} {unit}"
    raise AssertionError("unreachable: the last unit always fits")


def exit_code(error: TopicsError) -> ExitCode:
    """The exit status an error ends the program with."""
    if isinstance(error, InvalidRequest) and error.status is None:
        # Refused before anything was sent: a bad name, a bad URL.
        return ExitCode.USAGE
    return ExitCode.UNREACHABLE if isinstance(error, ConnectionFailed | NotReady) else ExitCode.REFUSED


def complain(message: str, *, as_json: bool = False, code: str = "client", error: TopicsError | None = None) -> None:
    """An error, on stderr: a sentence or two for people, or the API's error object for machines."""
    if not as_json:
        err().print(f"[bold red]Error:[/] {_escape(printable(message))}")
        return
    body: dict[str, object] = {"code": code, "message": message}
    if isinstance(error, ApiError):
        body = {"code": error.code, "message": message, "detail": error.detail}
    elif isinstance(error, ConnectionFailed):
        body["code"] = "unreachable"
    sys.stderr.write(msgspec.json.encode({"error": body}).decode() + "\n")


def fail(message: str, status: ExitCode, *, as_json: bool = False, error: TopicsError | None = None) -> NoReturn:
    """Complains, then ends the program with that status."""
    complain(message, as_json=as_json, error=error)
    raise typer.Exit(status)


@contextmanager
def plain_endings(as_json: bool) -> Generator[None]:
    """Turns every way in which a command can end early into a message and an exit status."""
    try:
        yield
        sys.stdout.flush()
    except TopicsError as error:
        # What was printed before the error belongs in front of it.
        sys.stdout.flush()
        fail(str(error), exit_code(error), as_json=as_json, error=error)
    except KeyboardInterrupt:
        note("Interrupted.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        # Whoever read our output (head, less) has seen enough. The interpreter's last flush must not fail over it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(ExitCode.BROKEN_PIPE) from None


class WaitNotes:
    """Says on stderr that and why the program waits, without repeating itself all the time."""

    def __init__(self) -> None:
        self._quiet_until_s = 0.0

    def __call__(self, pause: Pause) -> None:
        now_s = time.monotonic()
        if now_s < self._quiet_until_s:
            return
        self._quiet_until_s = now_s + _NOTE_EVERY_S
        note(f"{pause.error.message} Trying again ...")


def _escape(text: str) -> str:
    """Text in which rich sees no markup."""
    return text.replace("[", r"\[")
