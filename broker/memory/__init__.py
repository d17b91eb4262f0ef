"""The limits on memory for answers and request bodies: one for all of them, and one for each connection.

budget       the bytes held, by owner, and the waiters for room; pure
memory       the two budgets of a broker, waiting with a deadline, connections that do not read, logging
bodies       the memory of one request body
malloc_trim  returns freed memory to the system
"""

from typing import TYPE_CHECKING

from broker.memory.bodies import BodyRoom
from broker.memory.memory import MIN_READ_BYTES, PATIENCE_S, PIECE, SMALL, STRIDE, Memory, Overloaded

if TYPE_CHECKING:
    from broker.memory.budget import Hold

__all__ = [
    "MIN_READ_BYTES",
    "PATIENCE_S",
    "PIECE",
    "SMALL",
    "STRIDE",
    "BodyRoom",
    "Hold",
    "Memory",
    "Overloaded",
]
