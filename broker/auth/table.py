"""The scopes of every operation: one table for all routes and commands (source: api.md §9).

An operation that is not in it cannot be served: the application refuses to start with such a route, and no such
command is carried out.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from broker.auth.scopes import ADMIN, DELETE, NOTHING, READ, READ_WRITE, WRITE, Scopes


class Rule(NamedTuple):
    """What a caller needs for an operation.

    `probe`: no key, unless TOPICS_PROBE_AUTH. `token`: the key may be in ?token=. `settles`: never refused for too
    many requests in progress, because it ends them. `basic`: the key may be the password of Basic.
    """

    scopes: Scopes
    probe: bool = False
    token: bool = False
    settles: bool = False
    basic: bool = False


_T: Final = "/v0/topics/{}"
_R: Final = "/v0/routers/{}"
_C: Final = f"{_T}/consumers/{{}}"

_KT: Final = "/topics/{}"
_KP: Final = f"{_KT}/partitions/{{}}"
_KI: Final = "/consumers/{}/instances/{}"

_V3: Final = "/v3/clusters/{}"
_V3T: Final = f"{_V3}/topics/{{}}"
_V3G: Final = f"{_V3}/consumer-groups/{{}}"

_ADMINS: Final = Rule(ADMIN, basic=True)
_READS: Final = Rule(READ, basic=True)
_WRITES: Final = Rule(WRITE, basic=True)
_PROBE: Final = Rule(READ, probe=True)
_SETTLE: Final = Rule(WRITE, settles=True)

#: By method and template; parameters without their names.
_RULES: Final[dict[tuple[str, str], Rule]] = {
    ("PUT", _T): Rule(ADMIN),
    ("PATCH", _T): Rule(ADMIN),
    ("GET", _T): Rule(READ),
    ("GET", "/v0/topics"): Rule(READ),
    ("DELETE", _T): Rule(DELETE),
    ("POST", _T): Rule(WRITE),
    ("POST", f"{_T}/diff"): Rule(READ),
    ("GET", f"{_T}/records"): Rule(READ),
    ("GET", f"{_T}/records/{{}}"): Rule(READ),
    ("POST", f"{_T}/delete"): Rule(DELETE),
    ("POST", f"{_T}/claim"): Rule(READ_WRITE),
    ("POST", f"{_T}/ack"): _SETTLE,
    ("POST", f"{_T}/nack"): _SETTLE,
    ("POST", f"{_T}/extend"): _SETTLE,
    ("GET", f"{_T}/work"): Rule(READ_WRITE, token=True),
    ("GET", f"{_T}/leases"): Rule(READ),
    ("POST", f"{_T}/purge"): Rule(DELETE),
    ("POST", f"{_T}/redrive"): Rule(ADMIN),
    ("POST", f"{_T}/pause"): Rule(ADMIN),
    ("POST", f"{_T}/resume"): Rule(ADMIN),
    ("GET", f"{_T}/segments"): Rule(READ),
    ("GET", f"{_T}/segments/{{}}/data"): Rule(READ),
    ("GET", f"{_T}/segments/{{}}/idx"): Rule(READ),
    ("GET", f"{_T}/consumers"): Rule(READ),
    ("GET", _C): Rule(READ),
    ("PUT", _C): Rule(READ_WRITE),
    ("PATCH", _C): Rule(READ_WRITE),
    ("DELETE", _C): Rule(READ_WRITE),
    ("POST", f"{_C}/read"): Rule(READ_WRITE),
    ("POST", f"{_C}/commit"): Rule(READ_WRITE),
    ("POST", f"{_C}/seek"): Rule(READ_WRITE),
    ("PUT", _R): Rule(ADMIN),
    ("PATCH", _R): Rule(ADMIN),
    ("GET", _R): Rule(READ),
    ("GET", "/v0/routers"): Rule(READ),
    ("DELETE", _R): Rule(DELETE),
    ("POST", "/v0/watch"): Rule(READ),
    ("GET", "/v0/watch/{}"): Rule(READ, token=True),
    # Each command has its own scopes.
    ("GET", "/v0/ws"): Rule(NOTHING),
    ("GET", "/v0/metrics"): Rule(READ),
    ("POST", "/v0/admin/backup"): Rule(ADMIN),
    ("GET", "/v0/admin/backup"): Rule(ADMIN),
    ("GET", "/v0/health"): _PROBE,
    ("GET", "/healthz"): _PROBE,
    ("GET", "/v0/ready"): _PROBE,
    ("GET", "/readyz"): _PROBE,
    ("GET", "/"): _PROBE,
    ("GET", "/docs"): _PROBE,
    ("GET", "/docs/{}"): _PROBE,
    ("GET", "/openapi.json"): _PROBE,
    # The REST Proxy, below whatever prefix it has.
    ("GET", "/topics"): _READS,
    ("GET", _KT): _READS,
    ("POST", _KT): _WRITES,
    ("GET", f"{_KT}/partitions"): _READS,
    ("GET", _KP): _READS,
    ("POST", _KP): _WRITES,
    ("GET", f"{_KP}/offsets"): _READS,
    ("GET", f"{_KP}/records"): _READS,
    ("GET", "/brokers"): _READS,
    # An instance that commits by itself needs write, too.
    ("POST", "/consumers/{}"): _READS,
    ("DELETE", _KI): _READS,
    ("POST", f"{_KI}/subscription"): _READS,
    ("GET", f"{_KI}/subscription"): _READS,
    ("DELETE", f"{_KI}/subscription"): _READS,
    ("POST", f"{_KI}/assignments"): _READS,
    ("GET", f"{_KI}/assignments"): _READS,
    ("GET", f"{_KI}/records"): _READS,
    ("POST", f"{_KI}/offsets"): Rule(READ_WRITE, basic=True),
    ("GET", f"{_KI}/offsets"): _READS,
    ("POST", f"{_KI}/positions"): _READS,
    ("POST", f"{_KI}/positions/beginning"): _READS,
    ("POST", f"{_KI}/positions/end"): _READS,
    ("GET", "/v3/clusters"): _READS,
    ("GET", _V3): _READS,
    ("GET", f"{_V3}/brokers"): _READS,
    ("GET", f"{_V3}/brokers/{{}}"): _READS,
    ("GET", f"{_V3}/brokers/-/configs"): _READS,
    ("GET", f"{_V3}/brokers/{{}}/configs"): _READS,
    ("GET", f"{_V3}/brokers/{{}}/configs/{{}}"): _READS,
    ("GET", f"{_V3}/brokers/{{}}/partition-replicas"): _READS,
    ("GET", f"{_V3}/broker-configs"): _READS,
    ("GET", f"{_V3}/topics"): _READS,
    ("GET", f"{_V3}/topics/-/partitions/-/reassignment"): _READS,
    ("POST", f"{_V3}/topics"): _ADMINS,
    ("GET", _V3T): _READS,
    ("PATCH", _V3T): _ADMINS,
    ("DELETE", _V3T): Rule(DELETE, basic=True),
    ("GET", f"{_V3T}/partitions"): _READS,
    ("GET", f"{_V3T}/partitions/{{}}"): _READS,
    ("GET", f"{_V3T}/partitions/-/reassignment"): _READS,
    ("GET", f"{_V3T}/partitions/{{}}/offset"): _READS,
    ("GET", f"{_V3T}/partitions/{{}}/replicas"): _READS,
    ("GET", f"{_V3T}/partitions/{{}}/replicas/{{}}"): _READS,
    ("GET", f"{_V3T}/configs"): _READS,
    ("POST", f"{_V3T}/configs:alter"): _ADMINS,
    ("GET", f"{_V3T}/configs/{{}}"): _READS,
    ("PUT", f"{_V3T}/configs/{{}}"): _ADMINS,
    ("DELETE", f"{_V3T}/configs/{{}}"): _ADMINS,
    ("POST", f"{_V3T}/records"): _WRITES,
    ("POST", f"{_V3T}/records:batch"): _WRITES,
    ("GET", f"{_V3}/consumer-groups"): _READS,
    ("GET", _V3G): _READS,
    ("GET", f"{_V3G}/consumers"): _READS,
    ("GET", f"{_V3G}/consumers/{{}}"): _READS,
    ("GET", f"{_V3G}/consumers/{{}}/assignments"): _READS,
    ("GET", f"{_V3G}/consumers/{{}}/assignments/{{}}/partitions/{{}}"): _READS,
    ("GET", f"{_V3G}/lags"): _READS,
    ("GET", f"{_V3G}/lags/{{}}/partitions/{{}}"): _READS,
    ("GET", f"{_V3G}/lag-summary"): _READS,
}

#: The scopes of WebSocket commands. A publish with an inline config needs admin, too.
COMMANDS: Final[dict[str, Scopes]] = {
    "subscribe": READ,
    "unsubscribe": READ,
    "publish": WRITE,
    "ping": NOTHING,
}

#: Templates whose first parameter is the name of a topic or router.
_NAMED: Final = ("/v0/topics/{", "/v0/routers/{")
_PARAMETER = re.compile(r"\{[^}]*\}")


class Unruled(Exception):
    """A route without a rule."""


def rule_of(method: str, template: str) -> Rule:
    """The rule of a route. Raises Unruled."""
    found = _RULES.get((method, _PARAMETER.sub("{}", template)))
    if found is not None:
        return found
    raise Unruled(f"{method} {template}")


def is_named(template: str) -> bool:
    """Whether the first parameter of a path is the name of a topic or router."""
    return template.startswith(_NAMED)
