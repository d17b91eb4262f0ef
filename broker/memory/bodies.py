"""The memory that the body of one request holds: it grows as the body comes, and is refused where there is no room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.memory.memory import SMALL

if TYPE_CHECKING:
    from broker.memory.budget import Hold
    from broker.memory.memory import Memory


class BodyRoom:
    """Of one request; nothing is counted of a small body."""

    __slots__ = ("_hold", "_memory", "_owner")

    def __init__(self, memory: Memory, owner: object) -> None:
        self._memory = memory
        self._owner = owner
        self._hold: Hold | None = None

    def grow(self, size: int) -> None:
        """So much of it is there. Raises Overloaded: bodies hold all they may, and this one is not read on."""
        if size <= SMALL:
            return
        bodies, hold = self._memory.bodies, self._hold
        more = size - (0 if hold is None else hold.size)
        if not bodies.has_room(self._owner, more):
            raise self._memory.refusal(bodies, self._owner, more)
        if hold is None:
            self._hold = bodies.hold(self._owner, size)
        else:
            hold.resize(size)

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
