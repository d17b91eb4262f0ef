"""`topics completion`: the script by which a shell completes commands, options and names of topics."""

from __future__ import annotations

import enum
from contextlib import suppress
from typing import Annotated

import click
from click.shell_completion import CompletionItem, get_completion_class

from topics_client import address, calls
from topics_client.commands.contexts import ContextError
from topics_client.commands.declaring import Argument
from topics_client.commands.reach import Reach, resolve
from topics_client.errors import TopicsError
from topics_client.light_pool import LightPool
from topics_client.one_connection import usable

#: A shell must not hang while it waits for names.
_PATIENCE_S = 1.0
_MOST_NAMES = 200


class Shell(str, enum.Enum):
    """The shells that click can complete for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print the script that makes a shell complete commands, options and names of topics.

    For bash: `eval "$(topics completion bash)"` in ~/.bashrc. For zsh the same in ~/.zshrc. For fish:
    `topics completion fish | source` in its config.fish.
    """
    kind = get_completion_class(shell.value)
    assert kind is not None, shell
    click.echo(kind(click.get_current_context().find_root().command, {}, "topics", "_TOPICS_COMPLETE").source())


def topic_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of topics that begin with this text, from the broker that the command would use; none if it does not
    answer."""
    given = {each: ctx.params.get(each) for each in ("url", "token", "context")}
    with suppress(TopicsError, ContextError):
        found = resolve(Reach(**given))
        base = address.base_url(found.url)
        if usable(base):
            from topics_client.blocking import Client
            from topics_client.retry import RetryPolicy

            sender = LightPool(base, found.token, _PATIENCE_S)
            with Client(base, retry=RetryPolicy(total_s=0), sender=sender) as client:
                page = client.run(calls.topics_page(incomplete, _MOST_NAMES, None))
            return [CompletionItem(each.topic) for each in page.topics]
    return []
