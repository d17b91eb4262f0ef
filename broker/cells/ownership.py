"""What a process needs of the owner of a cell in a bucket. `storage.cells.owner.CellOwner` implements it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from storage import Engine, Family


class Owner(Protocol):
    """Owns a cell, and runs its engine."""

    @property
    def engine(self) -> Engine: ...

    @property
    def generation(self) -> int:
        """Of its last seal."""
        ...

    @property
    def state(self) -> str:
        """What it does: waiting, taking, recovering, owner and others."""
        ...

    def families(self) -> Iterator[Family]:
        """The metrics of the cell, without those of its engine."""
        ...

    def may_answer(self) -> bool:
        """Whether an answer that was computed may be sent."""
        ...

    async def start(self) -> bool:
        """Become the owner, and start the engine."""
        ...

    async def give(self, successor: str, drain: Callable[[], Awaitable[None]]) -> None:
        """Give the cell to the process of that nonce. Behind `drain`, nothing is answered any more."""
        ...

    async def close(self) -> None:
        """Stop the engine cleanly, and give the cell away."""
        ...
