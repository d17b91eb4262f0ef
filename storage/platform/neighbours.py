"""The other cells of a set, as the engine of one cell sees them.

An engine that is part of a set gets one `Neighbours`. The engine calls methods of other engines with it, and
carries out their calls (`Engine.methods_for_neighbours`). Arguments and results are values that MessagePack can hold. A
call that failed may have been carried out, and may even arrive later: each method says why that does no harm.

Source: docs/cells.md#routers-and-dead-letters-between-cells.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from storage.errors import Unavailable

#: Carries out a method that another cell calls.
Method = Callable[[Any], Awaitable[Any]]
#: How long a call that reads or writes records may take.
CALL_S: Final = 30.0


class Neighbours(Protocol):
    """The set that an engine belongs to. Used only on the engine's event loop."""

    @property
    def me(self) -> int:
        """The number of this cell."""
        ...

    @property
    def count(self) -> int:
        """How many cells the set has."""
        ...

    @property
    def owner(self) -> Callable[[str], int]:
        """Returns the cell that has the topic of that name, or would have it, as far as this cell knows."""
        ...

    @property
    def home(self) -> Callable[[str], int]:
        """Returns the cell that decides about a name."""
        ...

    async def call(self, cell: int, method: str, argument: Any, *, timeout_s: float = CALL_S) -> Any:
        """Call a method of another cell and return its result.

        Raises StorageError: the error that the cell answered, or Unavailable if it cannot be reached.
        """
        ...


class OvertakenCall(Unavailable):
    """The call arrived after its caller had stopped waiting for it, and was not carried out."""

    code = "not_ready"


class Era:
    """A number that calls of this process carry, so that a call that was given up is not carried out later.

    It rises when a call ends without an answer, and at each start. A cell that has seen a call of one era refuses calls
    of earlier eras that arrive later: their callers may have given them up.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """`now_ns`: a clock that rises as long as the machine runs, the same for all processes on it."""
        self._now_ns = now_ns
        self.now = now_ns()

    def end(self) -> None:
        """A call was given up: from now on it must not be carried out."""
        self.now = max(self.now + 1, self._now_ns())


class Eras:
    """The eras of other cells that this process has seen. It received no calls of eras before it started."""

    def __init__(self) -> None:
        self._eras: dict[int, int] = {}

    def enter(self, cell: int, era: int) -> None:
        """Note the era of a call or an answer of that cell. Raises OvertakenCall if it is an earlier era."""
        if era < self._eras.get(cell, 0):
            raise OvertakenCall()
        self._eras[cell] = era
