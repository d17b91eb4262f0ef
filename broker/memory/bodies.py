"""The memory of one request's body: it grows as the body arrives, and is refused if there is no room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.memory.memory import SMALL

if TYPE_CHECKING:
    from broker.memory.budget import Hold
    from broker.memory.memory import Memory


#: A body waits for room to grow only while at most this much of it has arrived and few others wait. So the waiting
#: bodies hold a small part of the budget, and the bodies that they wait for can end.
WAITS_BYTES: Final = 512 * 1024
MAX_WAITING_TO_GROW: Final = 64


class BodyRoom:
    """The memory of one request's body. A small body is not counted."""

    __slots__ = ("_hold", "_memory", "_owner")

    def __init__(self, memory: Memory, owner: object) -> None:
        self._memory = memory
        self._owner = owner
        self._hold: Hold | None = None

    async def grow(self, size: int) -> bool:
        """Count `size` bytes that have arrived. If there is no room, a body with few bytes waits for some.

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
        """Hold room for a decompressed body of at most `most` bytes; waits for a while. Raises Overloaded."""
        return await self._memory.body(self._owner, most) if most > SMALL else None

    def unpacked(self, hold: Hold | None, size: int | None) -> None:
        """Count the decompressed body instead of the compressed one. `size` None: it was not decompressed."""
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
