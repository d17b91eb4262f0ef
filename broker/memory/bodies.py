"""The memory of one request's body: it grows as the body arrives, and is refused if there is no room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.memory.memory import SMALL

if TYPE_CHECKING:
    from broker.memory.budget import Hold
    from broker.memory.memory import Memory


#: A body may wait for room to grow while at most this much of it has arrived, and few others wait: together these hold
#: a small part of the budget for bodies, and the other bodies end meanwhile.
WAITS_BYTES: Final = 512 * 1024
MAX_WAITING_TO_GROW: Final = 64


class BodyRoom:
    """The memory of one request's body; a small body is not counted."""

    __slots__ = ("_hold", "_memory", "_owner")

    def __init__(self, memory: Memory, owner: object) -> None:
        self._memory = memory
        self._owner = owner
        self._hold: Hold | None = None

    async def grow(self, size: int) -> bool:
        """Count `size` bytes that have arrived. If bodies hold all they may, a body with few bytes waits in line.

        Returns whether it waited. Raises Overloaded: the body is not read further.
        """
        if size <= SMALL:
            return False
        bodies, held = self._memory.bodies, 0 if self._hold is None else self._hold.size
        waited = None
        if not bodies.has_room(self._owner, size - held):
            if held > WAITS_BYTES or bodies.waiting >= MAX_WAITING_TO_GROW:
                raise self._memory.refusal(bodies, self._owner, size - held)
            waited = await self._memory.body(self._owner, size - held)
        if self._hold is None:
            self._hold = waited or bodies.hold(self._owner, size)
            return waited is not None
        self._hold.resize(size)
        if waited is not None:
            waited.release()
        return waited is not None

    async def unpack(self, most: int) -> Hold | None:
        """Hold room for the decompressed body, of at most this size; waits for a while. Raises Overloaded."""
        return await self._memory.body(self._owner, most) if most > SMALL else None

    def unpacked(self, hold: Hold | None, size: int | None) -> None:
        """The body now has this size, and its compressed form is gone. `size` None: it was not decompressed."""
        if size is None:
            if hold is not None:
                hold.release()
            return
        self.release()
        if hold is not None:
            hold.resize(size)
            self._hold = hold

    def release(self) -> None:
        """Release the memory: the body is no longer needed."""
        if self._hold is not None:
            self._hold.release()
            self._hold = None
