"""Which broker a command speaks to: its options, the variables, a context, or the default, in this order."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import click
from click.shell_completion import CompletionItem

from topics_client.commands import contexts
from topics_client.commands.declaring import Option

DEFAULT_URL = "http://127.0.0.1:4000"


def context_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of contexts that begin so; none if their file cannot be read."""
    try:
        return [CompletionItem(name) for name in sorted(contexts.load().contexts) if name.startswith(incomplete)]
    except contexts.ContextError:
        return []


@dataclass(frozen=True)
class Reach:
    """The options by which every command finds its broker. None: not given."""

    url: Annotated[
        str | None,
        Option(
            "--url",
            metavar="URL",
            help="Where the broker is. Else TOPICS_URL, else the context.",
            panel="Broker",
            show_default=DEFAULT_URL,
        ),
    ] = None
    token: Annotated[
        str | None,
        Option(
            "--token",
            metavar="KEY",
            help="Key, if the broker needs one. Else TOPICS_TOKEN, which is safer: other users can see command lines. "
            "Else the key file of the context.",
            panel="Broker",
            show_default=False,
        ),
    ] = None
    ca_file: Annotated[
        Path | None,
        Option(
            "--cacert",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Trust the authorities in this PEM file, and no others. Default: that of the context, SSL_CERT_FILE, "
            "else the usual ones.",
            panel="Broker",
            show_default=False,
        ),
    ] = None
    context: Annotated[
        str | None,
        Option(
            "--context",
            metavar="NAME",
            help="The broker of this context (topics context). Else TOPICS_CONTEXT, else the one in use.",
            panel="Broker",
            show_default=False,
            complete=context_names,
        ),
    ] = None


#: No option was given.
ANY = Reach()


class Found(NamedTuple):
    """A broker's address, the key for it, and whom its certificate must be from."""

    url: str
    token: str | None
    ca_file: Path | None


def resolve(options: Reach, environ: Mapping[str, str] = os.environ) -> Found:
    """The broker that the options, the variables and the contexts name. Raises contexts.ContextError.

    A context's key goes only to the address of that context: an address from elsewhere leaves the context aside.
    """
    if options.url and options.context:
        raise contexts.ContextError("--url and --context both name a broker: give one of them.")
    url = options.url or (None if options.context else environ.get("TOPICS_URL"))
    token = options.token or environ.get("TOPICS_TOKEN") or None
    if url:
        return Found(url, token, options.ca_file)
    name = options.context or environ.get("TOPICS_CONTEXT")
    context = contexts.named(name) if name else contexts.in_use()
    if context is None:
        return Found(DEFAULT_URL, token, options.ca_file)
    if options.context and not options.token and context.key_file:
        # The variable's key is that of another broker.
        token = None
    ca_file = options.ca_file or (Path(context.ca_file) if context.ca_file else None)
    return Found(context.url, token or contexts.key_of(context), ca_file)
