"""Parses configured API keys, and finds the key of a request. Pure.

    key[:scopes[:prefixes]]     separated by commas; in a file also by lines, and lines may be blank

Only the SHA-256 of a key is kept. Errors contain the number of an entry, never its text.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from broker.auth.scopes import Grant, parse_prefixes, parse_scopes

MAX_KEY_BYTES: Final = 512
#: Characters allowed in a header, except those that separate keys.
_KEY = re.compile(rf"[!-+\--9;-~]{{1,{MAX_KEY_BYTES}}}")


class Key:
    """One key. `number`: its position among all keys, from 1, which names it in logs and metrics."""

    __slots__ = ("digest", "grant", "number")

    def __init__(self, digest: bytes, number: int, grant: Grant) -> None:
        self.digest = digest
        self.number = number
        self.grant = grant


Keys: TypeAlias = tuple[Key, ...]


def parse(text: str) -> Keys:
    """Parse an environment variable. Raises ValueError with the entry's number."""
    return _parsed(text.split(","))


def parse_file(text: str) -> Keys:
    """Parse a file, with a list on each line. Raises ValueError with the entry's number."""
    return _parsed([entry for line in text.splitlines() if line.strip() for entry in line.split(",")])


def merged(*several: Keys) -> Keys:
    """All keys, numbered again. Raises ValueError if a key occurs twice: its permissions would be ambiguous."""
    keys = tuple(
        Key(key.digest, number, key.grant) for number, key in enumerate((key for keys in several for key in keys), 1)
    )
    first: dict[bytes, int] = {}
    for key in keys:
        before = first.setdefault(key.digest, key.number)
        if before != key.number:
            raise ValueError(f"entries {before} and {key.number} are the same key")
    return keys


def digest_of(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class Keyring:
    """Finds keys by their text."""

    __slots__ = ("_keys", "_known")

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = tuple(keys)
        #: Keys that were found before, by digest. The time of the lookup depends on the digest, which reveals nothing.
        self._known: dict[bytes, Key] = {}

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def find(self, presented: bytes) -> Key | None:
        """The key with this text; None: unknown. A wrong key always takes the same time, because all are compared."""
        digest = digest_of(presented)
        known = self._known.get(digest)
        if known is not None:
            return known
        found: Key | None = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        if found is not None:
            self._known[digest] = found
        return found


def _parsed(entries: list[str]) -> Keys:
    if not entries:
        raise ValueError("it contains no key")
    return merged(tuple(_entry(text.strip(), number) for number, text in enumerate(entries, 1)))


def _entry(text: str, number: int) -> Key:
    key, _, rest = text.partition(":")
    scopes, _, prefixes = rest.partition(":")
    if not _KEY.fullmatch(key):
        raise ValueError(
            f"entry {number} does not begin with a key: 1 to {MAX_KEY_BYTES} printable ASCII characters "
            "without space, comma and colon"
        )
    try:
        return Key(digest_of(key.encode()), number, Grant(parse_scopes(scopes), parse_prefixes(prefixes)))
    except ValueError as error:
        raise ValueError(f"entry {number} is invalid: {error}") from None
