"""The options with which every command finds its broker, and the client made from them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

from topics_client import address, calls
from topics_client.blocking import TIMEOUT_S, Client
from topics_client.commands.completion import topic_names
from topics_client.commands.contexts import ContextError
from topics_client.commands.declaring import Argument, Option
from topics_client.commands.reach import Reach, resolve
from topics_client.commands.terminal import ExitCode, WaitNotes, fail, plain_endings
from topics_client.direct_sender import DirectSender
from topics_client.light_pool import LightPool
from topics_client.one_connection import usable
from topics_client.retry import RetryPolicy

TopicArgument = Annotated[str, Argument(metavar="TOPIC", help="Name of the topic.", complete=topic_names)]
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
        help="How long to keep trying if the broker goes away after the start, or asks to wait.",
        panel="Broker",
    ),
]

#: For commands that make a call or two: a missing broker is reported at once, and a busy one gets a few seconds.
BRIEFLY = RetryPolicy(total_s=10.0, cap_s=1.0, reconnect=False)


@contextmanager
def broker(
    reach: Reach,
    as_json: bool,
    *,
    retry_for_s: float | None = None,
) -> Generator[Client]:
    """A client for one command. Every error that ends the command early becomes a message and an exit status.

    With `retry_for_s` the broker must be there at the start, and may then go away for that long.
    """
    patient = RetryPolicy(total_s=retry_for_s) if retry_for_s is not None else BRIEFLY
    with (
        plain_endings(as_json),
        connect(reach, as_json, patient) as client,
    ):
        if retry_for_s is not None:
            client.run(calls.health(), retry=BRIEFLY)
        yield client


def connect(reach: Reach, as_json: bool, retry: RetryPolicy = BRIEFLY) -> Client:
    """A client for the broker of the options, whose errors go to the caller."""
    try:
        found = resolve(reach)
    except ContextError as error:
        fail(str(error), ExitCode.USAGE, as_json=as_json)
    return Client(
        found.url,
        token=found.token,
        retry=retry,
        on_retry=WaitNotes(),
        ca_file=found.ca_file,
        cert=found.cert,
        key=found.key,
        sender=_light_sender(found.url, found.token),
    )


def _light_sender(url: str, token: str | None) -> DirectSender | None:
    base = address.base_url(url)
    return DirectSender(LightPool(base, token, TIMEOUT_S), base) if usable(base) else None
