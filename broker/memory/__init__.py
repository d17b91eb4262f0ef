"""What answers and request bodies may hold in memory: one bound for all of them, and one for each connection.

budget     how much is held, and by whom; who waits for room; pure
memory     the two budgets of a broker, waiting with a deadline, connections that take nothing, what is logged
giving     freed memory goes back to the system
"""

from typing import TYPE_CHECKING

from broker.memory.bodies import BodyRoom
from broker.memory.giving import bound_heaps
from broker.memory.memory import LOOK_BYTES, PATIENCE_S, PIECE, SMALL, STRIDE, Memory
from broker.memory.refusal import Overloaded

if TYPE_CHECKING:
    from broker.memory.budget import Hold

__all__ = [
    "LOOK_BYTES",
    "PATIENCE_S",
    "PIECE",
    "SMALL",
    "STRIDE",
    "BodyRoom",
    "Hold",
    "Memory",
    "Overloaded",
    "bound_heaps",
]
