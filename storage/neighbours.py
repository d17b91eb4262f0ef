"""The other cells of a set, as an engine that is one of them sees them.

An engine of a set is given one `Neighbours`. It calls methods of other engines by it, and carries out what they call
(`Engine.methods_for_neighbours`). Arguments and results are what MessagePack can hold. A call may fail without it being
known whether it was carried out, and may then still arrive: each method says why that does no harm.

Source: docs/cells.md#routers-and-dead-letters-between-cells.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from storage.errors import Unavailable

#: Carries out a method that another cell calls.
Method = Callable[[Any], Awaitable[Any]]
#: How long a call may take that writes or reads records.
CALL_S: Final = 30.0


class Neighbours(Protocol):
    """The set that an engine belongs to. Belongs to the engine's event loop."""

    @property
    def me(self) -> int:
        """The number of this cell."""
        ...

    @property
    def owner(self) -> Callable[[str], int]:
        """Tells the cell that has the topic of a name, or would have it, as far as this cell knows."""
        ...

    async def call(self, cell: int, method: str, argument: Any, *, timeout_s: float = CALL_S) -> Any:
        """The result of a method of another cell.

        Raises StorageError: what that cell answered, or Unavailable when it cannot be reached.
        """
        ...


class OvertakenCall(Unavailable):
    """The call arrived when its caller no longer waited for it, and was not carried out."""


class Era:
    """A number that calls of this process carry, so that those that were given up are not carried out later.

    It rises when a call ends without an answer, and over restarts. A cell that has seen a call of an era carries out
    none of an earlier one that arrives later, as it may be one that was given up.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """`now_ns`: a clock that rises as long as the machine runs, for all processes on it."""
        self._now_ns = now_ns
        self.now = now_ns()

    def end(self) -> None:
        """A call was given up: it must not be carried out any more."""
        self.now = max(self.now + 1, self._now_ns())


class Eras:
    """The eras of other cells that this process has seen. It has received no calls of those before it started."""

    def __init__(self) -> None:
        self._eras: dict[int, int] = {}

    def enter(self, cell: int, era: int) -> None:
        """A call of that cell arrived, or an answer. Raises OvertakenCall for one of an earlier era."""
        if era < self._eras.get(cell, 0):
            raise OvertakenCall()
        self._eras[cell] = era
