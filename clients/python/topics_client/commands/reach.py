"""Which broker a command uses: its options, the variables, a context, or the default, in this order."""

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
    """Names of contexts that begin with this text; none if the file cannot be read."""
    try:
        return [CompletionItem(name) for name in sorted(contexts.load().contexts) if name.startswith(incomplete)]
    except contexts.ContextError:
        return []


@dataclass(frozen=True)
class Reach:
    """The options with which every command finds its broker. None: not given."""

    url: Annotated[
        str | None,
        Option(
            "--url",
            metavar="URL",
            help="Address of the broker. Else TOPICS_URL, else the context.",
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
    cert: Annotated[
        Path | None,
        Option(
            "--cert",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Show this certificate, PEM, to a server that asks who the client is (mutual TLS). Default: that of "
            "the context.",
            panel="Broker",
            show_default=False,
        ),
    ] = None
    key: Annotated[
        Path | None,
        Option(
            "--key",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="The key of --cert, PEM, without a password. Default: it is in the file of --cert.",
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


#: Whether no option was given.
ANY = Reach()


class Found(NamedTuple):
    """A broker's address, its key, the authorities for its certificate, and the client's own certificate with its
    key."""

    url: str
    token: str | None
    ca_file: Path | None
    cert: Path | None
    key: Path | None


def resolve(options: Reach, environ: Mapping[str, str] = os.environ) -> Found:
    """The broker that the options, the variables and the contexts name. Raises contexts.ContextError.

    Keys and certificates of a context are only sent to the address of that context: with another address they are
    ignored.
    """
    if options.key and not options.cert:
        raise contexts.ContextError("--key is the key of --cert: give that too.")
    if options.url and options.context:
        raise contexts.ContextError("--url and --context both name a broker: give one of them.")
    url = options.url or (None if options.context else environ.get("TOPICS_URL"))
    token = options.token or environ.get("TOPICS_TOKEN") or None
    if url:
        return Found(url, token, options.ca_file, options.cert, options.key)
    name = options.context or environ.get("TOPICS_CONTEXT")
    context = contexts.named(name) if name else contexts.in_use()
    if context is None:
        return Found(DEFAULT_URL, token, options.ca_file, options.cert, options.key)
    if options.context and not options.token and context.key_file:
        # The key of the variable belongs to another broker.
        token = None
    # A certificate and its key belong together.
    cert, key = (options.cert, options.key) if options.cert else (_path(context.cert), _path(context.key))
    ca_file = options.ca_file or _path(context.ca_file)
    return Found(context.url, token or contexts.key_of(context), ca_file, cert, key)


def _path(file: str | None) -> Path | None:
    return Path(file) if file else None
