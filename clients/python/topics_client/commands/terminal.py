"""The output of commands to people and pipes: exit codes, colours, errors, and text that is safe to print."""

from __future__ import annotations

import enum
import os
import sys
import time
import unicodedata
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import NoReturn, TextIO

import msgspec
from click.exceptions import Exit

from topics_client.errors import ApiError, ConnectionFailed, InvalidRequest, NotReady, TopicsError
from topics_client.retry import Pause

#: At most one note about waiting in this time.
_NOTE_EVERY_S = 5.0


class ExitCode(enum.IntEnum):
    """The meanings of the exit status. --help lists them."""

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


def colours(stream: TextIO | None = None) -> bool:
    """Whether text is styled on that stream (default: stdout): only on a terminal, and not if NO_COLOR is set."""
    there = stream or sys.stdout
    return there.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


#: SGR parameters of ECMA-48.
BOLD, DIM, BOLD_RED = "1", "2", "1;31"


def styled(text: str, style: str, stream: TextIO | None = None) -> str:
    """The text, in that style if the stream shows styles."""
    return f"\x1b[{style}m{text}\x1b[0m" if colours(stream) else text


def say(text: str, style: str | None = None) -> None:
    """Print one line of result for people."""
    line = printable(text)
    sys.stdout.write((styled(line, style) if style else line) + "\n")


def note(text: str) -> None:
    """Print one line on stderr that is not a result."""
    sys.stderr.write(styled(printable(text), DIM, sys.stderr) + "\n")
    sys.stderr.flush()


def emit(line: bytes) -> None:
    """Print one line of machine-readable output, byte for byte."""
    sys.stdout.buffer.write(line + b"\n")


class Grid:
    """A table without lines. Headings that begin with '>' are for columns of numbers. Without headings, none are
    shown."""

    def __init__(self, *headings: str) -> None:
        self._numeric = [heading.startswith(">") for heading in headings]
        self._headings = [heading.removeprefix(">") for heading in headings]
        self._records: list[tuple[str, ...]] = []

    def add_row(self, *cells: str) -> None:
        """Add a row of printable text, with a cell for each heading."""
        self._records.append(cells)

    def __len__(self) -> int:
        return len(self._records)

    def lines(self) -> list[str]:
        """The headings if there are any, then the rows. Columns are two spaces apart and as wide as necessary."""
        shown = [tuple(self._headings), *self._records] if any(self._headings) else self._records
        widths = [max(map(_width, column)) for column in zip(*shown, strict=True)]
        return ["  ".join(map(_padded, cells, widths, self._numeric)).rstrip() for cells in shown]


def show(table: Grid) -> None:
    """Print a table, with its headings in bold."""
    lines = table.lines()
    if lines and len(lines) > len(table):
        lines[0] = styled(lines[0], BOLD)
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _padded(text: str, width: int, numeric: bool) -> str:
    fill = " " * (width - _width(text))
    return fill + text if numeric else text + fill


def _width(text: str) -> int:
    """How many columns the text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def printable(text: str) -> str:
    """The text with everything escaped that could control a terminal, because names and tags may come from
    strangers."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def moment(ts_ms: int) -> str:
    """A time in UTC that people can read and sort(1) can sort."""
    try:
        when = datetime.fromtimestamp(ts_ms / 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return f"{ts_ms} ms"
    return when.strftime("%Y-%m-%d %H:%M:%S.") + f"{ts_ms % 1000:03d}Z"


def duration(length_ms: int) -> str:
    """A duration, in the unit that leaves few digits."""
    seconds = max(0, length_ms) // 1000
    for unit, length_s in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length_s:
            return f"{seconds // length_s} {unit}"
    return f"{seconds} s"


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
    """The exit status for an error."""
    if isinstance(error, InvalidRequest) and error.status is None:
        # Refused before anything was sent: an invalid name or URL.
        return ExitCode.USAGE
    return ExitCode.UNREACHABLE if isinstance(error, ConnectionFailed | NotReady) else ExitCode.REFUSED


def complain(message: str, *, as_json: bool = False, code: str = "client", error: TopicsError | None = None) -> None:
    """Print an error on stderr: a sentence or two for people, or the API's error object for programs."""
    if not as_json:
        sys.stderr.write(f"{styled('Error:', BOLD_RED, sys.stderr)} {printable(message)}\n")
        return
    body: dict[str, object] = {"code": code, "message": message}
    if isinstance(error, ApiError):
        body = {"code": error.code, "message": message, "detail": error.detail}
    elif isinstance(error, ConnectionFailed):
        body["code"] = "unreachable"
    sys.stderr.write(msgspec.json.encode({"error": body}).decode() + "\n")


def fail(message: str, status: ExitCode, *, as_json: bool = False, error: TopicsError | None = None) -> NoReturn:
    """Print an error, then end the program with that status."""
    complain(message, as_json=as_json, error=error)
    raise Exit(status)


@contextmanager
def plain_endings(as_json: bool) -> Generator[None]:
    """Turns every early end of a command into a message and an exit status."""
    try:
        yield
        sys.stdout.flush()
    except TopicsError as error:
        # Output that was printed before the error comes before it.
        sys.stdout.flush()
        fail(str(error), exit_code(error), as_json=as_json, error=error)
    except KeyboardInterrupt:
        note("Interrupted.")
        raise Exit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        # The reader of our output (head, less) has seen enough. The interpreter's last flush must not fail because of
        # that.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Exit(ExitCode.BROKEN_PIPE) from None


class WaitNotes:
    """Says on stderr that the program waits and why, without repeating itself all the time."""

    def __init__(self) -> None:
        self._quiet_until_s = 0.0

    def __call__(self, pause: Pause) -> None:
        now_s = time.monotonic()
        if now_s < self._quiet_until_s:
            return
        self._quiet_until_s = now_s + _NOTE_EVERY_S
        note(f"{pause.error.message} Trying again ...")
