"""Scopes and prefixes: what a key may do, and to which names. Pure.

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


#: The scopes that an operation needs: all of them.
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
#: What a name of a topic or router may begin with.
_PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:>-]{0,254}")


class Grant:
    """What one key may do. `prefixes` () = any name."""

    __slots__ = ("prefixes", "scopes")

    def __init__(self, scopes: Scopes = EVERYTHING, prefixes: tuple[str, ...] = ()) -> None:
        self.scopes = scopes
        self.prefixes = prefixes

    def allows(self, scopes: Scopes, name: str | None = None) -> bool:
        """Whether it has all of the scopes, for this name if one is given."""
        return scopes <= self.scopes and (name is None or self.reaches(name))

    def reaches(self, name: str) -> bool:
        """Whether it covers a topic or router of that name."""
        return not self.prefixes or name.startswith(self.prefixes)

    def missing(self, scopes: Scopes) -> list[str]:
        """The scopes that it lacks."""
        return sorted(scopes - self.scopes)


def parse_scopes(text: str) -> Scopes:
    """`read+write`, `rw`, … ; empty = all. Raises ValueError, which does not quote the text: it may be a key."""
    if not text:
        return EVERYTHING
    found = NOTHING
    for word in text.split("+"):
        if word not in _WORDS:
            raise ValueError("its scopes are not read, write, delete, admin (r w d a rw) joined by +")
        found |= _WORDS[word]
    return found


def parse_prefixes(text: str) -> tuple[str, ...]:
    """`orders|audit.`; empty = any. Prefixes within others are dropped. Raises ValueError like `parse_scopes`."""
    if not text:
        return ()
    given = text.split("|")
    if not all(_PREFIX.fullmatch(each) for each in given):
        raise ValueError("its prefixes are not beginnings of names joined by |")
    return disjoint(given)


def disjoint(prefixes: list[str]) -> tuple[str, ...]:
    """The same names with no prefix inside another, sorted: their names are adjacent in byte order."""
    found: list[str] = []
    for each in sorted(set(prefixes)):
        if not (found and each.startswith(found[-1])):
            found.append(each)
    return tuple(found)


def narrowed(prefixes: tuple[str, ...], prefix: str) -> tuple[str, ...]:
    """The parts of `prefixes` (() = any) that begin with `prefix`; () = none."""
    if not prefixes:
        return (prefix,)
    return disjoint([max(each, prefix, key=len) for each in prefixes if _overlap(each, prefix)])


def _overlap(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
