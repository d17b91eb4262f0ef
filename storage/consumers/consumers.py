"""Consumers of an engine: every operation, and the life of what persists their cursors. Source: api.md §7.

All methods belong to the loop that started the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from storage.consumers.values import ConsumerConfig, ConsumerRead, ConsumerState, Start
from storage.records import ReadQuery

if TYPE_CHECKING:
    from storage.core import EngineCore


class Consumers:
    """See the module.

    Every method raises TopicNotFound, and InvalidRequest for a name that breaks its pattern; those that need a
    consumer raise ConsumerNotFound. A topic in memory only has none: InvalidRequest(field="topic"); a queue:
    TopicIncompatible.
    """

    def __init__(self, engine: EngineCore) -> None:
        self._engine = engine

    async def put(
        self, topic: str, consumer: str, config: ConsumerConfig | None = None, start: Start = "earliest"
    ) -> tuple[ConsumerState, bool]:
        """Make the consumer, or replace its config; True when made. Durable on return. A cancelled call goes on.

        `start` counts only for a new one; a seq beyond the head is an InvalidRequest(field="start"). Raises
        InvalidRequest(field="persist_every"), LimitReached, Unavailable.
        """
        raise NotImplementedError

    def state(self, topic: str, consumer: str) -> ConsumerState:
        """A consumer's figures now. Raises ConsumerNotFound."""
        raise NotImplementedError

    def list(self, topic: str, prefix: str = "", after: str = "", limit: int = 100) -> list[ConsumerState]:
        """Consumers of a topic by name, bytewise; names behind `after`."""
        raise NotImplementedError

    async def delete(self, topic: str, consumer: str) -> bool:
        """Delete the consumer; False when there is none. Durable on return. A cancelled call goes on."""
        raise NotImplementedError

    async def read(
        self,
        topic: str,
        consumer: str,
        query: ReadQuery | None = None,
        *,
        checkpoint: bool = True,
        wait_ms: float = 0,
        attempt_key: str | None = None,
    ) -> ConsumerRead:
        """Records behind the cursor, and what was lost before them; the cursor passes what is handed out.

        Of `query` count limit, max_bytes, exclude_nodes, tag and skip_corrupt. `checkpoint` False: a peek, nothing
        moves and nobody is waited for. `wait_ms`: wait so long when there is nothing to give. `attempt_key`: within
        60 s a repeat with the same key gets the same answer again, should it have been lost.

        Raises ConsumerNotFound, RecordCorrupt (the cursor stays in front of it), Unavailable where the cursor could
        not be made as durable as it has to be: nothing was handed out then, and the cursor is where it was.
        """
        raise NotImplementedError

    async def commit(self, topic: str, consumer: str, seq: int) -> ConsumerState:
        """Everything up to `seq`, inclusive, is done with. Durable on return. Never takes a cursor back.

        Raises InvalidRequest(field="seq") for one that is negative or beyond the head; ConsumerNotFound, Unavailable.
        """
        raise NotImplementedError

    async def seek(
        self,
        topic: str,
        consumer: str,
        *,
        seq: int | None = None,
        ts: int | None = None,
        to: Literal["earliest", "head"] | None = None,
    ) -> ConsumerState:
        """Put the cursor elsewhere, forward or back; exactly one of the three is given. Durable on return.

        `seq` counts as done (0: begin at the first). `ts`: in front of the first record appended at that ms or later.
        Raises InvalidRequest(field="seq"), ConsumerNotFound, Unavailable.
        """
        raise NotImplementedError
