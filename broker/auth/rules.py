"""What a caller needs for an operation. Each operation of the HTTP API says its own rule where it
is declared (`broker.api.operation`); the commands of a WebSocket have theirs here. There is no default: what has no
rule cannot be served.

Source: docs/reference/api.md#keys.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.auth.scopes import NOTHING, READ, WRITE, Scopes


class Rule(NamedTuple):
    """What a caller needs for an operation.

    `probe`: no key, unless TOPICS_PROBE_AUTH is set. `token`: the key may come as ?token=. `settles`: never refused for
    too many requests under way, since it ends some. `basic`: the key may be the password of Basic.
    """

    scopes: Scopes
    probe: bool = False
    token: bool = False
    settles: bool = False
    basic: bool = False


PROBE: Final = Rule(READ, probe=True)

#: The commands of a WebSocket. A publish with an inline config needs admin as well.
COMMANDS: Final[dict[str, Scopes]] = {
    "subscribe": READ,
    "unsubscribe": READ,
    "publish": WRITE,
    "ping": NOTHING,
}
