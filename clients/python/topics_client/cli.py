"""The `topics` program: commands, --version, and what its exit status means."""

from __future__ import annotations

import io
import sys
from importlib import import_module

import click

from topics_client import __version__
from topics_client.commands.declaring import Group, command
from topics_client.commands.terminal import EXIT_CODES_HELP, ExitCode

_QUEUES, _BACKUPS = "Queues", "Backups"
#: In the order of the help text: a command's name, its module in `commands`, its function (or its group) there, and its
#: panel. Only the module of the command that is called is loaded, and all of them for the help text.
_COMMANDS: dict[str, tuple[str, str, str | None]] = {
    "serve": ("serve", "serve", None),
    "status": ("status", "status", None),
    "cluster": ("cluster", "cluster", None),
    "list": ("listing", "list_topics", None),
    "put": ("put", "put", None),
    "append": ("append", "append", None),
    "read": ("read", "read", None),
    "get": ("get", "get", None),
    "tail": ("tail", "tail", None),
    "watch": ("watch", "watch", None),
    "state": ("state", "state", None),
    "delete": ("delete", "delete", None),
    "records": ("deleting", "records", None),
    "work": ("work", "work", _QUEUES),
    "claim": ("claim", "claim", _QUEUES),
    "ack": ("settle", "ack", _QUEUES),
    "nack": ("settle", "nack", _QUEUES),
    "extend": ("settle", "extend", _QUEUES),
    "leases": ("queues", "leases", _QUEUES),
    "pause": ("queues", "pause", _QUEUES),
    "resume": ("queues", "resume", _QUEUES),
    "purge": ("queues", "purge", _QUEUES),
    "redrive": ("queues", "redrive", _QUEUES),
    "backup": ("backup", "backup", _BACKUPS),
    "restore": ("backup", "restore", _BACKUPS),
    "consumers": ("consumers", "consumers", None),
    "routers": ("routers", "routers", None),
    "schema": ("schema", "schema", None),
    "bench": ("bench", "bench", None),
    "context": ("context", "context", None),
    "completion": ("completion", "completion", None),
}
_HELP = """Work with the topics of a broker: durable, ordered logs of JSON records, and queues of jobs.

To try it, with `topics serve` running in another terminal:

\b
  topics append greetings -d '{"hello": "world"}'
  topics read greetings
  topics put mails --type queue
  topics append mails -d '{"to": "x"}'
  topics work mails --exec 'cat'

The options of a command: `topics COMMAND --help`"""


class _Topics(Group):
    """The commands of _COMMANDS, each loaded when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the help text."""
        return [*_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; None if there is none."""
        if cmd_name not in _COMMANDS:
            return None
        if cmd_name not in self.commands:
            self.add_command(_loaded(cmd_name))
        return self.commands[cmd_name]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does. Says which command was probably meant: click looks only at those that are loaded."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], _COMMANDS, 1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean '{near[0]}'?", ctx) from None

    def panel_of(self, name: str) -> str:
        """The heading that a command is below."""
        return _COMMANDS[name][2] or super().panel_of(name)


def _loaded(name: str) -> click.Command:
    module, attribute, _ = _COMMANDS[name]
    found = getattr(import_module(f"topics_client.commands.{module}"), attribute)
    return found if isinstance(found, click.Command) else command(name, found, EXIT_CODES_HELP)


def _version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"topics {__version__}")
        ctx.exit()


app = _Topics("topics", _HELP, EXIT_CODES_HELP)
app.params.append(
    click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_version,
        help="Show the version and exit.",
    )
)


def main() -> None:
    """Runs the program; ends the process with one of the exit statuses of the help text."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character shows its number, and no traceback.
            stream.reconfigure(errors="backslashreplace")
    try:
        status = app.main(prog_name="topics", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except click.Abort:
        # Ctrl-C outside of a command's work: at a question, or while it loads.
        status = ExitCode.INTERRUPTED
    sys.exit(status if isinstance(status, int) else 0)
