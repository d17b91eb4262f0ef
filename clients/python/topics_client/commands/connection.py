"""The options by which every command finds its broker, and the client they make."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from topics_client import address, calls
from topics_client.blocking import TIMEOUT_S, Client
from topics_client.commands.completion import topic_names
from topics_client.commands.declaring import Argument, Option
from topics_client.commands.terminal import WaitNotes, plain_endings
from topics_client.one_connection import OneConnection, usable
from topics_client.retry import RetryPolicy

DEFAULT_URL = "http://127.0.0.1:4000"

TopicArgument = Annotated[str, Argument(metavar="TOPIC", help="Name of the topic.", complete=topic_names)]
UrlOption = Annotated[
    str,
    Option("--url", envvar="TOPICS_URL", metavar="URL", help="Where the broker is.", panel="Broker"),
]
TokenOption = Annotated[
    str | None,
    Option(
        "--token",
        envvar="TOPICS_TOKEN",
        metavar="KEY",
        help="Key, if the broker needs one. The variable is safer: other users can see command lines.",
        panel="Broker",
        show_default=False,
    ),
]
CaFileOption = Annotated[
    Path | None,
    Option(
        "--cacert",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Trust the authorities in this PEM file, and no others. Default: SSL_CERT_FILE, else the usual ones.",
        panel="Broker",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, Option("--json", help="Output for programs, errors included (those go to stderr).")]
PartitionOption = Annotated[
    int | None,
    Option("--partition", min=0, help="Which partition of a topic with several, counted from 0.", show_default=False),
]
RetryForOption = Annotated[
    float,
    Option(
        "--retry-for",
        min=0,
        max=3600,
        metavar="SECONDS",
        help="How long to keep trying when the broker goes away after the start, or asks to wait.",
        panel="Broker",
    ),
]

#: Commands that make a call or two: a broker that is not there is said at once, one that is busy gets a few seconds.
BRIEFLY = RetryPolicy(total_s=10.0, cap_s=1.0, reconnect=False)


@contextmanager
def broker(
    url: str,
    token: str | None,
    as_json: bool,
    ca_file: Path | None = None,
    *,
    retry_for_s: float | None = None,
    threads: bool = False,
) -> Generator[Client]:
    """A client for one command; whatever ends the command early becomes a message and an exit status.

    With `retry_for_s` the broker must be there at the start, and may then go away for that long. `threads`: the command
    makes calls from several.
    """
    patient = RetryPolicy(total_s=retry_for_s) if retry_for_s is not None else BRIEFLY
    with (
        plain_endings(as_json),
        Client(
            url,
            token=token,
            retry=patient,
            on_retry=WaitNotes(),
            ca_file=ca_file,
            sender=None if threads else _light_sender(url, token),
        ) as client,
    ):
        if retry_for_s is not None:
            client.run(calls.health(), retry=BRIEFLY)
        yield client


def _light_sender(url: str, token: str | None) -> OneConnection | None:
    base = address.base_url(url)
    return OneConnection(base, token, TIMEOUT_S) if usable(base) else None
