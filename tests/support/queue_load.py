"""Producers and workers that keep a queue busy while its broker dies and returns. Some do their work, some are late,
and some vanish with jobs in hand or during a call.

Their requests and answers go into the queue's history. When their connection ends they wait until the broker serves
again. Then they try what they had in hand: old tokens, and lost claims with their keys.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from tests.support.kill_connection import Connection, Cut
from tests.support.queue_calls import QueueCalls
from tests.support.queue_history import Act, Claim, History, Lease, Observation, Operation, Produce, Rules, Settle
from tests.support.queue_operator import Operator
from tests.support.queue_pushed import PushedWorker
from tests.support.queue_pushes import Pushes

LEASES_MS = (200, 500, 2000)
MOST_AT_ONCE = 20
#: Of a nack. None: the queue decides. The longest are longer than a broker needs to return.
_DELAYS_MS = (0, 0, None, 20, None, 150, 150, 300, 4000)
#: Of new jobs.
_DUE_AFTER_MS = (0,) * 16 + (100, 400, 4000)
#: One worker in this many sends no tokens. It must never lose a claim, so it waits for every answer.
_PLAIN_EVERY = 5
#: One worker in this many gets its jobs pushed.
_PUSHED_EVERY = 4
_LOOK_AGAIN_S = 0.02
#: About as long as moving a dead job takes.
_MOVE_S = 0.01

#: Jobs that nobody can do. They are given back again and again.
_BAD = "bad-"
_BAD_EVERY = 40

Connect = Callable[[int], Connection]
Push = Callable[[int], Pushes]


class Service:
    """Where the broker is, if it is running. `calm`: there are no more faults, and only the rest has to be done."""

    def __init__(self, connect: Connect = Connection, push: Push = Pushes) -> None:
        self._connect = connect
        self._push = push
        self.port = 0
        self._up = asyncio.Event()
        self.calm = False
        self.over = False
        #: Called once: at the very moment of the next answer to an ack, when its promise is most at risk; or soon after
        #: a nack that kills a job, on its way to the dead letter topic; or when an operator's call is answered; or in
        #: the middle of a redrive.
        self.strike: tuple[Act | type[Operation], Callable[[], None]] | None = None

    def connect(self) -> Connection:
        return self._connect(self.port)

    def pushes(self) -> Pushes:
        return self._push(self.port)

    async def serving(self) -> None:
        await self._up.wait()

    def up(self) -> None:
        """The broker is at `port`, and everybody may connect now."""
        self._up.set()

    def strike_at(self, moment: Act | type[Operation]) -> None:
        if self.strike is not None and self.strike[0] is moment:
            (_, strike), self.strike = self.strike, None
            strike()

    def down(self) -> None:
        self._up.clear()


class QueueLoad:
    """The load of one queue: `jobs` in all. `counts`: how often each thing happened. `target`: the dead letter topic,
    if it is to exist before the queue. Otherwise the first dead job creates it."""

    def __init__(
        self,
        topic: str,
        config: dict[str, Any],
        service: Service,
        dice: Random,
        *,
        workers: int,
        jobs: int,
        target: dict[str, Any] | None = None,
    ) -> None:
        rules = Rules(**{name: config[name] for name in Rules.__struct_fields__ if name in config})
        self.calls = QueueCalls(topic, History(rules))
        self.config = {"type": "queue", **config}
        if rules.max_deliveries:
            self.config["dead_letter"] = self.calls.dead_topic
        self.service = service
        self.dice = dice
        self.workers = workers
        self.jobs = jobs
        self.target = target
        self.produced = 0
        self.acked = 0
        self.purged = 0
        self.counts: Counter[str] = Counter()
        self._operator = Operator(self)

    @staticmethod
    def is_bad(lease: Lease) -> bool:
        """A job that nobody can do."""
        return _BAD in lease.name

    async def create(self) -> None:
        async with self.service.connect() as connection:
            if self.target is not None:
                status, answer = await connection.call("PUT", f"/v0/topics/{self.calls.dead_topic}", self.target)
                assert status == 201, answer
            status, answer = await connection.call("PUT", f"/v0/topics/{self.calls.topic}", self.config)
            assert status == 201, answer

    async def run(self) -> None:
        """Run until all jobs are made and the service has ended."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._produce())
            tasks.create_task(self._operator.run())
            for number in range(self.workers):
                if number % _PUSHED_EVERY == 1:
                    tasks.create_task(PushedWorker(self, number).run())
                    continue
                worker = Worker(self, number, plain=number % _PLAIN_EVERY == 0)
                tasks.create_task(worker.run())

    async def _produce(self) -> None:
        """Make some jobs at a time, not much faster than they are done, and under new names after each loss. There may
        be more jobs to make until the faults are over."""
        names = (f"{self.calls.topic}-{_temper(number)}{number}" for number in itertools.count(1))
        ahead = 40 * self.workers
        while self.produced < self.jobs or not self.service.calm:
            if self.produced >= self.jobs:
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            await self.service.serving()
            try:
                async with self.service.connect() as connection:
                    while self.produced < self.jobs:
                        while self.calls.ready > ahead:
                            await asyncio.sleep(_LOOK_AGAIN_S)
                        count = min(self.dice.choice((1, 2, 5, 20, 50)), self.jobs - self.produced)
                        delay_ms = self.dice.choice(_DUE_AFTER_MS)
                        produce = Produce(node="p", names=tuple(itertools.islice(names, count)), delay_ms=delay_ms)
                        await self.calls.produce(connection, produce)
                        self.produced += count
            except Cut:
                await asyncio.sleep(_LOOK_AGAIN_S)

    async def look(self, *, final: bool = False) -> Observation:
        async with self.service.connect() as connection:
            return await self.calls.look(connection, final=final)

    async def figures(self) -> dict[str, Any]:
        """The queue's, by its state."""
        async with self.service.connect() as connection:
            status, answer = await connection.call("GET", f"/v0/topics/{self.calls.topic}")
            assert status == 200, answer
            return answer["queue"]

    async def drained(self) -> dict[str, Any]:
        """Wait until nothing is left to do according to the queue's figures. Returns them."""
        await self._operator.done.wait()
        while True:
            figures = await self.figures()
            left = sum(figures[name] for name in ("ready", "in_flight", "delayed", "dead_pending"))
            if not left and self.produced >= self.jobs:
                return figures
            await asyncio.sleep(_LOOK_AGAIN_S)


def _temper(number: int) -> str:
    return "" if number % _BAD_EVERY else _BAD


class Worker:
    """Claims jobs, and treats each at random. Its name changes with the process that it is connected to."""

    def __init__(self, load: QueueLoad, number: int, *, plain: bool) -> None:
        self._load = load
        self._calls = load.calls
        self._dice = load.dice
        self._number = number
        self._plain = plain
        self._node = ""
        self._keys = itertools.count(1)
        #: In hand when the connection ended: leases with their node, and the claim without an answer.
        self._held: dict[str, tuple[str, Lease]] = {}
        self._unanswered: Claim | None = None
        #: Former leases by seq. The worker may get the job again, and mistake one lease for the other.
        self._stale: dict[int, Lease] = {}

    async def run(self) -> None:
        service = self._load.service
        while not service.over:
            await service.serving()
            self._node = f"w{self._number}.{len(self._calls.history.eras)}"
            self._stale.clear()
            try:
                async with service.connect() as connection:
                    await self._try_again(connection)
                    while not service.over:
                        await self._turn(connection)
            except Cut:
                await asyncio.sleep(_LOOK_AGAIN_S)

    async def _try_again(self, connection: Connection) -> None:
        """Finish what the last connection left open."""
        held, self._held = self._held, {}
        for node, lease in held.values():
            if self._dice.random() < 0.7:
                await self._settle(connection, Act.ACK, [lease], node=node)
                self._load.counts["tried an old token"] += 1
        claim, self._unanswered = self._unanswered, None
        if claim is not None and claim.key is not None:
            again = Claim(node=claim.node, max=claim.max, lease_ms=claim.lease_ms, key=claim.key)
            leases = await self._calls.claim(connection, again)
            self._load.counts["asked again under its key"] += 1
            await self._finish(connection, list(leases), claim.node)

    async def _turn(self, connection: Connection) -> None:
        dice, calm = self._dice, self._load.service.calm
        claim = Claim(node=self._node, max=dice.randint(1, MOST_AT_ONCE), lease_ms=dice.choice(LEASES_MS))
        if not self._plain and dice.random() < 0.3:
            claim.key = f"{self._node}-{next(self._keys)}"
        wait_ms = dice.choice((0, 50, 200))
        if not calm and not self._plain and dice.random() < 0.04:
            await self._calls.claim_and_go(connection, claim, wait_ms)
            self._load.counts["left before its claim's answer"] += 1
            await self._go(claim)
        self._unanswered = claim
        leases = list(await self._calls.claim(connection, claim, wait_ms))
        self._unanswered = None
        if claim.key is not None and dice.random() < 0.5:
            again = Claim(node=claim.node, max=claim.max, lease_ms=claim.lease_ms, key=claim.key)
            repeated = await self._calls.claim(connection, again)
            self._load.counts["repeated a claim"] += 1
            # Leases of the first answer may have expired since, and the same job may have returned under another one.
            leases = list({lease.seq: lease for lease in (*leases, *repeated)}.values())
        if leases:
            await self._finish(connection, leases, claim.node)
        elif not wait_ms:
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _go(self, claim: Claim | None = None) -> None:
        """Leave the connection as it is, at once or a moment later."""
        if self._dice.random() < 0.5:
            await asyncio.sleep(self._dice.uniform(0, 0.01))
        self._unanswered = claim if self._dice.random() < 0.7 else None
        raise Cut(sent=True)

    async def _finish(self, connection: Connection, leases: list[Lease], node: str) -> None:
        """Do something with every job of an answer."""
        bad = [lease for lease in leases if self._load.is_bad(lease)]
        leases = [lease for lease in leases if not self._load.is_bad(lease)]
        if bad:
            await self._settle(connection, Act.NACK, bad, node=node)
            if any(lease.deliveries >= self._calls.history.rules.max_deliveries for lease in bad):
                await asyncio.sleep(self._dice.uniform(0, _MOVE_S))
                self._load.service.strike_at(Act.NACK)
        if self._load.service.calm:
            if leases:
                await self._settle(connection, Act.ACK, leases, node=node)
            return
        stale = [self._stale.pop(lease.seq) for lease in leases if lease.seq in self._stale]
        if stale and node == self._node and not self._plain:
            await self._settle(connection, self._dice.choice((Act.ACK, Act.NACK)), stale, node=node)
            self._load.counts["tried a stale token"] += len(stale)
        self._held |= {lease.token: (node, lease) for lease in leases}
        self._dice.shuffle(leases)
        while leases:
            count = self._dice.randint(1, 10)
            some, leases = leases[:count], leases[count:]
            await self._decide(connection, some, node)

    async def _decide(self, connection: Connection, some: list[Lease], node: str) -> None:
        dice = self._dice
        fate = dice.random()
        if fate < 0.68:
            await self._settle(connection, Act.ACK, some, node=node)
            if dice.random() < 0.1:
                await self._settle(connection, Act.ACK, some, node=node)
        elif fate < 0.82:
            await self._settle(connection, Act.NACK, some, node=node)
        elif fate < 0.90:
            await self._settle(connection, Act.EXTEND, some, node=node)
            await self._settle(connection, dice.choice((Act.ACK, Act.NACK)), some, node=node)
        elif fate < 0.93:
            await asyncio.sleep(dice.choice((0.15, 0.25)))
            await self._settle(connection, Act.ACK, some, node=node)
            self._load.counts["was late"] += 1
        elif fate < 0.96 and not self._plain:
            settle = self._settle_of(dice.choice((Act.ACK, Act.ACK, Act.NACK)), some, node)
            await self._calls.settle_and_go(connection, settle)
            self._load.counts["left before a settle's answer"] += 1
            await self._go()
        else:
            self._load.counts["let a lease run out"] += len(some)
            self._stale |= {lease.seq: lease for lease in some}
            for lease in some[:: dice.choice((1, 2))]:
                del self._held[lease.token]

    def _settle_of(self, act: Act, leases: list[Lease], node: str) -> Settle:
        dice = self._dice
        plain = self._plain and node == self._node and dice.random() < 0.5
        settle = Settle(
            node=node,
            act=act,
            seqs=tuple(lease.seq for lease in leases),
            tokens=tuple(None if plain else lease.token for lease in leases),
        )
        settle.strict = dice.random() < 0.15
        if act is Act.NACK:
            settle.delay_ms = 0 if self._load.service.calm else dice.choice(_DELAYS_MS)
            settle.penalty = dice.random() < 0.5 or self._load.service.calm
        elif act is Act.EXTEND:
            settle.lease_ms = dice.choice((100, 1000))
        return settle

    async def _settle(self, connection: Connection, act: Act, leases: list[Lease], *, node: str) -> None:
        settle = self._settle_of(act, leases, node)
        if not await self._calls.settle(connection, settle):
            # Nothing was done. Jobs that are not lost are handled one by one, or their leases expire.
            self._load.counts["was refused to settle some, strictly"] += 1
            for lease in leases:
                if len(leases) > 1 and lease.seq not in settle.refused:
                    await self._settle(connection, act, [lease], node=node)
            return
        done = len(leases) - len(settle.skipped)
        self._load.counts[f"{act.value} counted"] += done
        self._load.counts[f"{act.value} passed over"] += len(settle.skipped)
        if act is Act.NACK:
            self._stale |= {lease.seq: lease for lease in leases}
        if act is not Act.EXTEND:
            for lease in leases:
                self._held.pop(lease.token, None)
        if act is Act.ACK and done:
            self._load.acked += done
            self._load.service.strike_at(Act.ACK)
