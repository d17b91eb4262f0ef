"""Scopes and prefixes: what a key may do, and with which names. Pure.

Source: docs/reference/api.md#keys.
"""

from __future__ import annotations

import enum
import re
from typing import Final, TypeAlias


class Scope(enum.StrEnum):
    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    ADMIN = "admin"


#: The scopes that an operation needs. A key must have all of them.
Scopes: TypeAlias = frozenset[Scope]

READ: Final[Scopes] = frozenset({Scope.READ})
WRITE: Final[Scopes] = frozenset({Scope.WRITE})
READ_WRITE: Final[Scopes] = READ | WRITE
DELETE: Final[Scopes] = frozenset({Scope.DELETE})
ADMIN: Final[Scopes] = frozenset({Scope.ADMIN})
WRITE_ADMIN: Final[Scopes] = WRITE | ADMIN
NOTHING: Final[Scopes] = frozenset()
EVERYTHING: Final[Scopes] = frozenset(Scope)

_WORDS: Final = {
    "read": READ, "write": WRITE, "delete": DELETE, "admin": ADMIN,
    "r": READ, "w": WRITE, "d": DELETE, "a": ADMIN, "rw": READ_WRITE,
}  # fmt: skip
#: A valid beginning of a topic or router name.
_PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:>-]{0,254}")


class Grant:
    """The permissions of a key. `prefixes`: () = any name."""

    __slots__ = ("prefixes", "scopes")

    def __init__(self, scopes: Scopes = EVERYTHING, prefixes: tuple[str, ...] = ()) -> None:
        self.scopes = scopes
        self.prefixes = prefixes

    def allows(self, scopes: Scopes, name: str | None = None) -> bool:
        """Whether it has all of these scopes, and covers the name if one is given."""
        return scopes <= self.scopes and (name is None or self.covers(name))

    def covers(self, name: str) -> bool:
        """Whether the prefixes cover a topic or router."""
        return not self.prefixes or name.startswith(self.prefixes)

    def missing(self, scopes: Scopes) -> list[str]:
        """The scopes that are missing."""
        return sorted(scopes - self.scopes)


def parse_scopes(text: str) -> Scopes:
    """Parse `read+write`, `rw`, …; empty = all. The ValueError does not contain the text, which may be a key."""
    if not text:
        return EVERYTHING
    found = NOTHING
    for word in text.split("+"):
        if word not in _WORDS:
            raise ValueError("its scopes must be read, write, delete, admin (or r, w, d, a, rw), joined by +")
        found |= _WORDS[word]
    return found


def parse_prefixes(text: str) -> tuple[str, ...]:
    """Parse `orders|audit.`; empty = any. Prefixes within others are dropped. Raises ValueError like `parse_scopes`."""
    if not text:
        return ()
    given = text.split("|")
    if not all(_PREFIX.fullmatch(each) for each in given):
        raise ValueError("its prefixes must be beginnings of names, joined by |")
    return disjoint(given)


def disjoint(prefixes: list[str]) -> tuple[str, ...]:
    """Prefixes for the same names, none within another, sorted. So in byte order, the names of each are adjacent."""
    found: list[str] = []
    for each in sorted(set(prefixes)):
        if not (found and each.startswith(found[-1])):
            found.append(each)
    return tuple(found)


def narrowed(prefixes: tuple[str, ...], prefix: str) -> tuple[str, ...]:
    """The intersection of `prefixes` (() = any) with `prefix`; () = none."""
    if not prefixes:
        return (prefix,)
    return disjoint([max(each, prefix, key=len) for each in prefixes if _overlap(each, prefix)])


def _overlap(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
