"""What a caller may do, for those parts that live longer than a request. This version has no keys: all may do all.

The one place that keys have to come to: a session belongs to the key that made it (`owner`), and each command on a
WebSocket needs its scope for every topic that it names (`require`). Source: api.md §9.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

READ: Final = "read"
WRITE: Final = "write"
ADMIN: Final = "admin"


class Access:
    """Of one caller. `owner` tells callers apart; None: there is one only."""

    owner: str | None = None

    def require(self, scope: str, topics: Iterable[str]) -> None:
        """Raises what refuses the caller; without keys nobody is refused."""


EVERYTHING: Final = Access()
