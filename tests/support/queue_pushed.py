"""A worker that gets its jobs pushed. It acks and nacks over a connection of its own, and leaves with some jobs in
hand."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from tests.support.kill_connection import Connection, Cut
from tests.support.queue_history import Act, Lease, Settle, Stream
from tests.support.queue_pushes import Pushes

if TYPE_CHECKING:
    from tests.support.queue_load import QueueLoad

LEASES_MS = (500, 2000)
#: For leases that end with the process: longer than anybody waits for the queue to be drained, so that leaving must end
#: them.
LASTING_MS = 600_000
_AGAIN_S = 0.02
#: When it holds as many as it may, it waits for no more.
_NOTHING_S = 0.2
#: By then the broker knows that a client has gone.
_GRACE_MS = 2000.0


class PushedWorker:
    """One stream after the other, each with a name of its own."""

    def __init__(self, load: QueueLoad, number: int) -> None:
        self._load = load
        self._calls = load.calls
        self._dice = load.dice
        self._names = (f"s{number}.{count}" for count in itertools.count(1))
        #: The jobs of its last stream that were in hand when it ended, and the name of that stream.
        self._old: list[Lease] = []
        self._old_node = ""

    async def run(self) -> None:
        service = self._load.service
        while not service.over:
            await service.serving()
            try:
                async with service.connect() as connection:
                    await self._try_again(connection)
                    while not service.over:
                        await self._stream(connection)
            except Cut:
                await asyncio.sleep(_AGAIN_S)

    async def _try_again(self, connection: Connection) -> None:
        old, self._old = self._old, []
        for lease in old:
            if self._dice.random() < 0.4:
                await self._settle(connection, Act.ACK, lease, self._old_node)
                self._load.counts["tried the token of a stream that had ended"] += 1

    async def _stream(self, connection: Connection) -> None:
        dice, history = self._dice, self._calls.history
        lease_ms = dice.choice(LEASES_MS if history.rules.leases_durable else (*LEASES_MS, LASTING_MS))
        stream = Stream(node=next(self._names), max=dice.choice((1, 2, 5)), lease_ms=lease_ms)
        brought: list[Lease] = []
        held: dict[str, Lease] = {}
        cut = True
        try:
            async with self._load.service.pushes() as pushes:
                await self._calls.work(pushes, stream)
                self._load.counts["opened a stream"] += 1
                await self._work(connection, pushes, stream, brought, held)
                cut = False
        finally:
            history.left(stream, brought, grace_ms=_GRACE_MS, cut=cut)
            self._old, self._old_node = list(held.values()), stream.node
        self._load.counts["left a stream with jobs in hand"] += len(held)
        await self._try_again(connection)

    async def _work(
        self, connection: Connection, pushes: Pushes, stream: Stream, brought: list[Lease], held: dict[str, Lease]
    ) -> None:
        """Read until it has enough. Every job is entered in `brought`, and in `held` while it is in hand."""
        service = self._load.service
        while not service.over:
            lease = await self._calls.pushed(pushes, stream, _NOTHING_S)
            if lease is None:
                if held:
                    return
                continue
            self._load.counts["was pushed a job"] += 1
            brought.append(lease)
            held[lease.token] = lease
            if await self._decide(connection, lease, stream.node):
                del held[lease.token]
            if not service.calm and self._dice.random() < 0.04:
                return

    async def _decide(self, connection: Connection, lease: Lease, node: str) -> bool:
        """Whether it is no longer in hand."""
        if self._load.is_bad(lease):
            await self._settle(connection, Act.NACK, lease, node)
            return True
        fate = 0.0 if self._load.service.calm else self._dice.random()
        if fate < 0.72:
            await self._settle(connection, Act.ACK, lease, node)
        elif fate < 0.86:
            await self._settle(connection, Act.NACK, lease, node)
        elif fate < 0.92:
            await self._settle(connection, Act.EXTEND, lease, node)
            return False
        else:
            return False
        return True

    async def _settle(self, connection: Connection, act: Act, lease: Lease, node: str) -> None:
        settle = Settle(node=node, act=act, seqs=(lease.seq,), tokens=(lease.token,))
        settle.strict = self._dice.random() < 0.2
        if act is Act.NACK:
            settle.delay_ms = 0 if self._load.service.calm else self._dice.choice((None, 0, 150))
        elif act is Act.EXTEND:
            settle.lease_ms = self._dice.choice((100, 1000))
        if await self._calls.settle(connection, settle) and act is Act.ACK and not settle.skipped:
            self._load.acked += 1
            self._load.service.strike_at(Act.ACK)
