"""The `topics` program: commands, --version, and what its exit status means."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from topics_client import __version__
from topics_client.commands import (
    EXIT_CODES_HELP,
    ack,
    append,
    backup,
    claim,
    consumers,
    delete,
    extend,
    leases,
    list_topics,
    nack,
    pause,
    purge,
    put,
    read,
    redrive,
    restore,
    resume,
    routers,
    serve,
    state,
    tail,
    watch,
    work,
)

app = typer.Typer(
    name="topics",
    epilog=EXIT_CODES_HELP,
    no_args_is_help=True,
    # Reflows the docstrings; the default mode would keep their line breaks.
    rich_markup_mode="markdown",
    # A traceback tells a user nothing: errors are reported in sentences.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_QUEUES, _BACKUPS = "Queues", "Backups"
for name, command, panel in (
    ("serve", serve, None),
    ("list", list_topics, None),
    ("put", put, None),
    ("append", append, None),
    ("read", read, None),
    ("tail", tail, None),
    ("watch", watch, None),
    ("state", state, None),
    ("delete", delete, None),
    ("work", work, _QUEUES),
    ("claim", claim, _QUEUES),
    ("ack", ack, _QUEUES),
    ("nack", nack, _QUEUES),
    ("extend", extend, _QUEUES),
    ("leases", leases, _QUEUES),
    ("pause", pause, _QUEUES),
    ("resume", resume, _QUEUES),
    ("purge", purge, _QUEUES),
    ("redrive", redrive, _QUEUES),
    ("backup", backup, _BACKUPS),
    ("restore", restore, _BACKUPS),
):
    app.command(name, epilog=EXIT_CODES_HELP, rich_help_panel=panel)(command)
app.add_typer(consumers, name="consumers", epilog=EXIT_CODES_HELP)
app.add_typer(routers, name="routers", epilog=EXIT_CODES_HELP)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"topics {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Work with the topics of a broker: durable, ordered logs of JSON records, and queues of jobs.

    To try it, with `topics serve` running in another terminal:

    - `topics append greetings -d '{"hello": "world"}'`
    - `topics read greetings`
    - `topics put mails --type queue`, `topics append mails -d '{"to": "x"}'`, `topics work mails --exec 'cat'`

    The options of a command: `topics COMMAND --help`
    """


def main() -> None:
    """Runs the program; ends the process with one of the exit statuses of the help text."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character shows its number, and no traceback.
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="topics")
