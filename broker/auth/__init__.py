"""Authorization: API keys with scopes and prefixes. Without keys, nothing is checked.

Source: docs/reference/api.md#keys.
"""

from broker.auth import keys
from broker.auth.access import ANYBODY, UNCOUNTED, Access, Flight, Forbidden, KeyAccess, Unauthorized
from broker.auth.gate import Gate
from broker.auth.keys import Key, Keys
from broker.auth.rules import COMMANDS, EVERYBODY, PROBE, Rule
from broker.auth.scopes import (
    ADMIN,
    DELETE,
    NOTHING,
    READ,
    READ_WRITE,
    WRITE,
    WRITE_ADMIN,
    Grant,
    Scope,
    Scopes,
    narrowed,
)
from broker.auth.site_names import ANY, is_address, parse_hosts, parse_origins

__all__ = [
    "ADMIN",
    "ANY",
    "ANYBODY",
    "COMMANDS",
    "DELETE",
    "EVERYBODY",
    "NOTHING",
    "PROBE",
    "READ",
    "READ_WRITE",
    "UNCOUNTED",
    "WRITE",
    "WRITE_ADMIN",
    "Access",
    "Flight",
    "Forbidden",
    "Gate",
    "Grant",
    "Key",
    "KeyAccess",
    "Keys",
    "Rule",
    "Scope",
    "Scopes",
    "Unauthorized",
    "is_address",
    "keys",
    "narrowed",
    "parse_hosts",
    "parse_origins",
]
