"""The memory that the body of one request holds: it grows as the body comes, and is refused where there is no room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.memory.memory import SMALL

if TYPE_CHECKING:
    from broker.memory.budget import Hold
    from broker.memory.memory import Memory


#: A body may wait for room to grow while so much of it is there, and while so few others wait: what all of these hold
#: is a small part of what bodies may hold, and the others come to their end meanwhile.
WAITS_BYTES: Final = 512 * 1024
MAX_WAITING_TO_GROW: Final = 64


class BodyRoom:
    """Of one request; nothing is counted of a small body."""

    __slots__ = ("_hold", "_memory", "_owner")

    def __init__(self, memory: Memory, owner: object) -> None:
        self._memory = memory
        self._owner = owner
        self._hold: Hold | None = None

    async def grow(self, size: int) -> bool:
        """So much of it is there. Where bodies hold all they may, one of which little is there waits in line. Whether
        it did. Raises Overloaded: it is not read on.
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
        """Room for what it may be decompressed to; waits for a while. Raises Overloaded."""
        return await self._memory.body(self._owner, most) if most > SMALL else None

    def unpacked(self, hold: Hold | None, size: int | None) -> None:
        """It is so large now; what it was before is gone. None: it was not unpacked, and is what it was."""
        if size is None:
            if hold is not None:
                hold.release()
            return
        self.release()
        if hold is not None:
            hold.resize(size)
            self._hold = hold

    def release(self) -> None:
        """It is not needed any more."""
        if self._hold is not None:
            self._hold.release()
            self._hold = None
