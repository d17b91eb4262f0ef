"""Keys in tests, and the scopes that every operation needs, written a second time.

Source: docs/reference/api.md#keys.
"""

from __future__ import annotations

from itertools import combinations
from typing import Final

R, W, D, A = "rwda"
SCOPES: Final = (R, W, D, A)
OPEN: Final = "open"
ALWAYS: Final = "always"

_T: Final = "/v0/topics/{}"
_C: Final = f"{_T}/consumers/{{}}"
_V3: Final = "/v3/clusters/{}"
_V3T: Final = f"{_V3}/topics/{{}}"
_V3G: Final = f"{_V3}/consumer-groups/{{}}"
_KT: Final = "/topics/{}"
_KI: Final = "/consumers/{}/instances/{}"

#: Method and path → the scopes that are all needed. OPEN: none, and no key. ALWAYS: no key even with
#: TOPICS_PROBE_AUTH.
EXPECTED: Final[dict[tuple[str, str], str]] = {
    ("GET", "/v0/topics"): R,
    ("GET", _T): R,
    ("PUT", _T): A,
    ("PATCH", _T): A,
    ("DELETE", _T): D,
    ("POST", _T): W,
    ("POST", f"{_T}/diff"): R,
    ("POST", f"{_T}/delete"): D,
    ("GET", f"{_T}/records"): R,
    ("GET", f"{_T}/records/{{}}"): R,
    ("POST", f"{_T}/claim"): R + W,
    ("POST", f"{_T}/ack"): W,
    ("POST", f"{_T}/nack"): W,
    ("POST", f"{_T}/extend"): W,
    ("GET", f"{_T}/work"): R + W,
    ("GET", f"{_T}/leases"): R,
    ("POST", f"{_T}/purge"): D,
    ("POST", f"{_T}/redrive"): A,
    ("POST", f"{_T}/pause"): A,
    ("POST", f"{_T}/resume"): A,
    ("GET", f"{_T}/segments"): R,
    ("GET", f"{_T}/segments/{{}}/data"): R,
    ("GET", f"{_T}/segments/{{}}/idx"): R,
    ("GET", f"{_T}/consumers"): R,
    ("GET", _C): R,
    ("PUT", _C): R + W,
    ("PATCH", _C): R + W,
    ("DELETE", _C): R + W,
    ("POST", f"{_C}/read"): R + W,
    ("POST", f"{_C}/commit"): R + W,
    ("POST", f"{_C}/seek"): R + W,
    ("GET", "/v0/routers"): R,
    ("PUT", "/v0/routers/{}"): A,
    ("PATCH", "/v0/routers/{}"): A,
    ("GET", "/v0/routers/{}"): R,
    ("DELETE", "/v0/routers/{}"): D,
    ("POST", "/v0/watch"): R,
    ("GET", "/v0/watch/{}"): R,
    ("GET", "/v0/ws"): "",
    ("GET", "/v0/metrics"): R,
    ("GET", "/v0/overview"): R,
    ("GET", "/v0/overview/history"): R,
    ("GET", "/v0/overview/stream"): R,
    ("GET", f"{_T}/history"): R,
    ("GET", "/v0/consumers"): R,
    ("GET", "/v0/keys"): "",
    ("POST", "/v0/admin/backup"): A,
    ("GET", "/v0/admin/backup"): A,
    ("GET", "/v0/health"): OPEN,
    ("GET", "/healthz"): OPEN,
    ("GET", "/v0/ready"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/"): OPEN,
    ("GET", "/docs"): OPEN,
    ("GET", "/docs/{}"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/console"): ALWAYS,
    ("GET", "/console/"): ALWAYS,
    ("GET", "/console/{}"): ALWAYS,
    ("GET", "/topics"): R,
    ("GET", _KT): R,
    ("POST", _KT): W,
    ("GET", f"{_KT}/partitions"): R,
    ("GET", f"{_KT}/partitions/{{}}"): R,
    ("POST", f"{_KT}/partitions/{{}}"): W,
    ("GET", f"{_KT}/partitions/{{}}/offsets"): R,
    ("GET", f"{_KT}/partitions/{{}}/records"): R,
    ("GET", "/brokers"): R,
    # For a consumer that does not commit by itself.
    ("POST", "/consumers/{}"): R,
    ("DELETE", _KI): R,
    ("POST", f"{_KI}/subscription"): R,
    ("GET", f"{_KI}/subscription"): R,
    ("DELETE", f"{_KI}/subscription"): R,
    ("POST", f"{_KI}/assignments"): R,
    ("GET", f"{_KI}/assignments"): R,
    ("GET", f"{_KI}/records"): R,
    ("POST", f"{_KI}/offsets"): R + W,
    ("GET", f"{_KI}/offsets"): R,
    ("POST", f"{_KI}/positions"): R,
    ("POST", f"{_KI}/positions/beginning"): R,
    ("POST", f"{_KI}/positions/end"): R,
    ("GET", "/v3/clusters"): R,
    ("GET", _V3): R,
    ("GET", f"{_V3}/brokers"): R,
    ("GET", f"{_V3}/brokers/{{}}"): R,
    ("GET", f"{_V3}/brokers/-/configs"): R,
    ("GET", f"{_V3}/brokers/{{}}/configs"): R,
    ("GET", f"{_V3}/brokers/{{}}/configs/{{}}"): R,
    ("GET", f"{_V3}/brokers/{{}}/partition-replicas"): R,
    ("GET", f"{_V3}/broker-configs"): R,
    ("GET", f"{_V3}/topics"): R,
    ("GET", f"{_V3}/topics/-/partitions/-/reassignment"): R,
    ("POST", f"{_V3}/topics"): A,
    ("GET", _V3T): R,
    ("PATCH", _V3T): A,
    ("DELETE", _V3T): D,
    ("GET", f"{_V3T}/partitions"): R,
    ("GET", f"{_V3T}/partitions/{{}}"): R,
    ("GET", f"{_V3T}/partitions/-/reassignment"): R,
    ("GET", f"{_V3T}/partitions/{{}}/offset"): R,
    ("GET", f"{_V3T}/partitions/{{}}/replicas"): R,
    ("GET", f"{_V3T}/partitions/{{}}/replicas/{{}}"): R,
    ("GET", f"{_V3T}/configs"): R,
    ("POST", f"{_V3T}/configs:alter"): A,
    ("GET", f"{_V3T}/configs/{{}}"): R,
    ("PUT", f"{_V3T}/configs/{{}}"): A,
    ("DELETE", f"{_V3T}/configs/{{}}"): A,
    ("POST", f"{_V3T}/records"): W,
    ("POST", f"{_V3T}/records:batch"): W,
    ("GET", f"{_V3}/consumer-groups"): R,
    ("GET", _V3G): R,
    ("GET", f"{_V3G}/consumers"): R,
    ("GET", f"{_V3G}/consumers/{{}}"): R,
    ("GET", f"{_V3G}/consumers/{{}}/assignments"): R,
    ("GET", f"{_V3G}/consumers/{{}}/assignments/{{}}/partitions/{{}}"): R,
    ("GET", f"{_V3G}/lags"): R,
    ("GET", f"{_V3G}/lags/{{}}/partitions/{{}}"): R,
    ("GET", f"{_V3G}/lag-summary"): R,
}

#: The body of a request if {} needs other scopes than the operation as such.
BODIES: Final = {("POST", "/consumers/{}"): {"auto.commit.enable": "false"}}

#: Every set of scopes, in the form of the setting.
GRANTS: Final = ["+".join(chosen) for count in range(1, len(SCOPES) + 1) for chosen in combinations(SCOPES, count)]


def key(scopes: str, prefix: str = "") -> str:
    """The key with exactly these scopes."""
    return f"key-{scopes.replace('+', '')}-{prefix or 'any'}"


def configured(*prefixes: str) -> str:
    """TOPICS_API_KEYS with a key for every set of scopes, for any name and for each prefix."""
    return ",".join(f"{key(scopes, prefix)}:{scopes}:{prefix}" for scopes in GRANTS for prefix in ("", *prefixes))


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}
