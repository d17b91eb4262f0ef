"""The permissions that operations need. An operation of the HTTP API has its rule in its declaration
(`broker.api.operation`); the rules of WebSocket commands are here. There is no default: an operation without a rule
cannot be served.

Source: docs/reference/api.md#keys.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.auth.scopes import NOTHING, READ, WRITE, Scopes


class Rule(NamedTuple):
    """The permission that an operation needs.

    `probe`: no key, unless TOPICS_PROBE_AUTH is set. `token`: ?token= may contain the key. `settles`: never refused
    because of too many requests in flight, since it completes jobs. `basic`: the key may be a Basic password.
    `everybody`: no key in any case, for files that are the same in every installation.
    """

    scopes: Scopes
    probe: bool = False
    token: bool = False
    settles: bool = False
    basic: bool = False
    everybody: bool = False


PROBE: Final = Rule(READ, probe=True)
EVERYBODY: Final = Rule(NOTHING, everybody=True)

#: WebSocket commands. A publish with a config also needs admin.
COMMANDS: Final[dict[str, Scopes]] = {
    "subscribe": READ,
    "unsubscribe": READ,
    "publish": WRITE,
    "ping": NOTHING,
}
