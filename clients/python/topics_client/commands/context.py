"""`topics context add`, `use`, `list` and `delete`: names for brokers."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec

from topics_client import address
from topics_client.commands import contexts
from topics_client.commands.connection import JsonOption
from topics_client.commands.contexts import Context, ContextError
from topics_client.commands.declaring import Argument, Group, Option
from topics_client.commands.reach import context_names
from topics_client.commands.terminal import (
    EXIT_CODES_HELP,
    ExitCode,
    Grid,
    emit,
    fail,
    note,
    plain_endings,
    printable,
    say,
    show,
)
from topics_client.identity import identity

context = Group("context", "Give brokers names, for --context NAME and TOPICS_CONTEXT.", EXIT_CODES_HELP)

NameArgument = Annotated[str, Argument(metavar="NAME", help="Name of the context.", complete=context_names)]
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


@context.add("add", EXIT_CODES_HELP)
def add(
    name: NameArgument,
    url: Annotated[str, Option("--url", metavar="URL", help="Where the broker is.")],
    key_file: Annotated[
        Path | None,
        Option(
            "--key-file",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="File with the key and nothing else. Its path is stored, the key is not.",
            show_default=False,
        ),
    ] = None,
    ca_file: Annotated[
        Path | None,
        Option(
            "--cacert",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Trust the authorities in this PEM file, and no others.",
            show_default=False,
        ),
    ] = None,
    cert: Annotated[
        Path | None,
        Option(
            "--cert",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Show this certificate, PEM, to a server that asks who the client is (mutual TLS).",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        Path | None,
        Option(
            "--key",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="The key of --cert, PEM, without a password. Default: it is in the file of --cert.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add a context, or replace the context with this name. Does not contact the broker."""
    with _endings(as_json):
        if not _NAME.fullmatch(name):
            raise ContextError(f"{name!r} cannot be a context's name: 1 to 64 letters, digits, and . _ - (not first).")
        base = address.base_url(url)
        identity(base, cert, key)
        added = Context(base, _absolute(key_file), _absolute(ca_file), _absolute(cert), _absolute(key))
        contexts.key_of(added)
        stored = contexts.load()
        replaced = name in stored.contexts
        stored.contexts[name] = added
        contexts.save(stored)
        if as_json:
            emit(_line(name, added, stored.current))
            return
        say(f"{'Replaced' if replaced else 'Added'} the context {name}: {added.url}.")
        if stored.current != name:
            note(f"`topics context use {name}` makes it that of every command.")


@context.add("use", EXIT_CODES_HELP)
def use(
    name: Annotated[str, Argument(metavar="NAME", help="Name of the context.", complete=context_names)] = "",
    none: Annotated[bool, Option("--none", help="Use no context.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Choose the context of all commands that name no other broker."""
    with _endings(as_json):
        if bool(name) is none:
            raise ContextError("Give the name of a context, or --none.")
        if name:
            contexts.named(name)
        stored = contexts.load()
        stored.current = name or None
        contexts.save(stored)
        if as_json:
            emit(msgspec.json.encode({"current": stored.current}))
        else:
            say(f"Commands use {stored.contexts[name].url} now." if name else "Commands use no context now.")


@context.add("list", EXIT_CODES_HELP)
def list_contexts(as_json: JsonOption = False) -> None:
    """List contexts, sorted by name.

    With --json: one object a line, {"context", "url", "key_file"?, "ca_file"?, "cert"?, "key"?, "current"}.
    """
    with _endings(as_json):
        stored = contexts.load()
        table = Grid("CONTEXT", "URL", "KEY FILE", "CACERT", "CERT", "IN USE")
        for name, each in sorted(stored.contexts.items()):
            if as_json:
                emit(_line(name, each, stored.current))
            files = [file or "-" for file in (each.key_file, each.ca_file, each.cert)]
            cells = (name, each.url, *files, "yes" if name == stored.current else "")
            table.add_row(*map(printable, cells))
        if not len(table):
            note("There are no contexts yet.")
        elif not as_json:
            show(table)


@context.add("delete", EXIT_CODES_HELP)
def delete(name: NameArgument, as_json: JsonOption = False) -> None:
    """Delete a context; the files that it names stay. A context that does not exist is no error."""
    with _endings(as_json):
        stored = contexts.load()
        deleted = stored.contexts.pop(name, None) is not None
        if stored.current == name:
            stored.current = None
        if deleted:
            contexts.save(stored)
        if as_json:
            emit(msgspec.json.encode({"context": name, "deleted": deleted}))
        else:
            say(f"Deleted the context {name}." if deleted else f"There is no context {name}; nothing was deleted.")


@contextmanager
def _endings(as_json: bool) -> Generator[None]:
    with plain_endings(as_json):
        try:
            yield
        except ContextError as error:
            fail(str(error), ExitCode.USAGE, as_json=as_json)


def _absolute(file: Path | None) -> str | None:
    return None if file is None else str(file.absolute())


def _line(name: str, each: Context, current: str | None) -> bytes:
    return msgspec.json.encode({"context": name, **msgspec.to_builtins(each), "current": name == current})
