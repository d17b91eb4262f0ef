"""What the cold tier asks of a store, its errors, and which keys there are.

A store keeps objects: bytes under a key, put whole, never changed but by another put. Keys are relative, as
`<cluster id>/topics/<16 hex>/seg-<first seq>.data`: parts of letters, digits and `._-` joined by `/`.

Calls block, some for minutes: they are made from a pool of their own, never from the event loop's thread, and from
several threads at once. Two puts of one key at once leave either object whole. A key that is none is ValueError.

ColdError
  ColdMissing        there is no such object; nothing else is wrong
  ColdUnavailable    anything else: retrying later is sensible; a put or delete may or may not have happened

Their text never holds what the store was opened with or has answered, for that may be a credential.

Source: docs/reference/format.md#cold-tier.
"""

from __future__ import annotations

import re
from typing import Protocol

from storage.errors import StorageError
from storage.platform.filesystem import Readable

MAX_KEY_CHARS = 512
#: Files of this ending are unfinished puts of the store that is a directory: no object may look like one.
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

        On return the object survives anything. Until then, and after any failure or crash, readers find what was
        there before (an object or none), or the new object whole.
        """
        ...

    def put_from(self, key: str, source: Readable) -> None:
        """As `put`, of what is read. The caller closes the source."""
        ...

    def put_bytes(self, key: str, data: bytes) -> None:
        """As `put`, from memory."""
        ...

    def get(self, key: str) -> bytes:
        """The object, whole. Raises ColdMissing."""
        ...

    def get_range(self, key: str, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; shorter only where the object ends. Raises ColdMissing.

        `size` 0 gives b"" without asking, also for an object that is not there.
        """
        ...

    def size(self, key: str) -> int:
        """Bytes of the object. Raises ColdMissing."""
        ...

    def delete(self, key: str) -> None:
        """Remove the object; one that is not there is fine. On return it stays away whatever happens."""
        ...

    def list(self, prefix: str) -> list[str]:
        """Keys of all objects below the folder `prefix` ("" = all there are), sorted; [] when there is none."""
        ...

    def describe(self) -> str:
        """Where this store is, for people. Holds no credential."""
        ...


def check_key(key: str) -> str:
    """The key itself. Raises ValueError when it is none."""
    if len(key) > MAX_KEY_CHARS or not _KEY.fullmatch(key) or key.endswith(TMP_SUFFIX):
        raise ValueError(f"{key[:MAX_KEY_CHARS]!r} is not a key of the cold store")
    if not {".", ".."}.isdisjoint(key.split("/")):
        raise ValueError(f"{key!r} is not a key of the cold store: it has a part . or ..")
    return key


def check_prefix(prefix: str) -> str:
    """The prefix itself: "" or a folder's key, without a / at its end. Raises ValueError when it is neither."""
    return prefix and check_key(prefix)


def check_range(offset: int, size: int) -> None:
    """Raises ValueError for what no range can be."""
    if offset < 0 or size < 0:
        raise ValueError(f"a range of {size} bytes at {offset} cannot be")


def is_key(text: str) -> bool:
    """Whether what was found under this name is an object of ours: no unfinished put, nothing somebody else left."""
    try:
        check_key(text)
    except ValueError:
        return False
    return True
