"""The interface of a cold store, its errors, and the form of its keys.

A store holds objects: bytes under a key, put as a whole and changed only by another put. Keys are relative, such as
`<cluster id>/topics/<16 hex>/seg-<first seq>.data`: parts of letters, digits and `._-` joined by `/`.

Calls block, some for minutes. They come from a pool of their own, never from the event loop, and from several threads
at once. Of two simultaneous puts of one key, either object is there as a whole. An invalid key is a ValueError.

ColdError
  ColdMissing        there is no such object; nothing else is wrong
  ColdUnavailable    anything else: retry later; a put or delete may or may not have happened

Their text never contains what the store was opened with or has answered: that may be a credential.

Source: docs/reference/format.md#cold-tier.
"""

from __future__ import annotations

import re
from typing import Protocol

from storage.errors import StorageError
from storage.platform import Readable

MAX_KEY_CHARS = 512
#: The directory store gives unfinished puts this ending, so no object may have it.
TMP_SUFFIX = ".tmp"

_KEY = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*")


class ColdError(StorageError):
    """The cold store cannot do this."""


class ColdMissing(ColdError):
    """The cold store answered that it has no such object."""

    def __init__(self, key: str) -> None:
        super().__init__(f"The cold store has no object {key}.", key=key)
        self.key = key


class ColdUnavailable(ColdError):
    """The cold store failed, refused or did not answer in time."""

    outcome = "unknown"

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"The cold store cannot be used for {key or 'its top'}: {reason}.", key=key, reason=reason)
        self.key = key
        self.reason = reason


class ColdStore(Protocol):
    """Objects by key. Every call but `describe` raises ColdUnavailable."""

    def put(self, key: str, path: str) -> None:
        """Copy a local file, whole. The file must not change meanwhile.

        Durable on return. Until then, and after any failure or crash, readers find what was there before (an object or
        none) or the complete new object.
        """
        ...

    def put_from(self, key: str, source: Readable) -> None:
        """Like `put`, from an open source, which the caller closes."""
        ...

    def put_bytes(self, key: str, data: bytes) -> None:
        """Like `put`, from memory."""
        ...

    def get(self, key: str) -> bytes:
        """The whole object. Raises ColdMissing."""
        ...

    def get_range(self, key: str, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; shorter only where the object ends. Raises ColdMissing.

        `size` 0 gives b"" without a request, also for a missing object.
        """
        ...

    def size(self, key: str) -> int:
        """Bytes of the object. Raises ColdMissing."""
        ...

    def delete(self, key: str) -> None:
        """Remove the object; a missing one is fine. Durable on return."""
        ...

    def list(self, prefix: str) -> list[str]:
        """Keys of all objects below the folder `prefix` ("" = all), sorted."""
        ...

    def describe(self) -> str:
        """Where this store is, for people. Contains no credential."""
        ...


def check_key(key: str) -> str:
    """The key itself. Raises ValueError when it is invalid."""
    if len(key) > MAX_KEY_CHARS or not _KEY.fullmatch(key) or key.endswith(TMP_SUFFIX):
        raise ValueError(f"{key[:MAX_KEY_CHARS]!r} is not a key of the cold store")
    if not {".", ".."}.isdisjoint(key.split("/")):
        raise ValueError(f"{key!r} is not a key of the cold store: it has a part . or ..")
    return key


def check_prefix(prefix: str) -> str:
    """The prefix itself: "" or a folder's key, without a / at its end. Raises ValueError otherwise."""
    return prefix and check_key(prefix)


def check_range(offset: int, size: int) -> None:
    """Raises ValueError for an impossible range."""
    if offset < 0 or size < 0:
        raise ValueError(f"a range of {size} bytes at {offset} cannot be")


def is_key(text: str) -> bool:
    """Whether a file of this name is an object, and not an unfinished put or a foreign file."""
    try:
        check_key(text)
    except ValueError:
        return False
    return True
