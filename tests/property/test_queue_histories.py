"""Every operation of a queue, at once and in any order, cancelled at any turn of the loop, and with crashes.

The checker of the kill tests accepts the history as one of a lease queue. Here time only moves when a test moves it, so
the history is checked to the millisecond.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from storage import Durability, Engine, ReadQuery, TopicConfig
from storage.errors import LeaseLost, StorageError, TopicNotFound
from storage.queues.lease_queue import ClaimedJob
from tests.support.queue_check import check
from tests.support.queue_history import (
    Act,
    Claim,
    Clock,
    Dead,
    History,
    Lease,
    Observation,
    Operation,
    Pause,
    Produce,
    Purge,
    Redrive,
    Rules,
    Settle,
    Stream,
)
from tests.unit.storage.machine import Machine, record
from tests.unit.storage.queues.jobs import config, turns

STEPS = 90
LEASE_MS = 200
#: Added between two events at one time of the engine. All of these together are less than SLACK_MS, and time moves on
#: by more.
_MOMENT_MS = 0.001
SLACK_MS = 0.5


class _Time(Clock):
    """The engine's time, and a little more each time, so that no two events coincide."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._last = (0, 0)

    def __call__(self) -> float:
        now, (before, asked) = self._machine.clock.wall_ms(), self._last
        self._last = (now, asked + 1 if now == before else 0)
        return now + min(self._last[1] * _MOMENT_MS, SLACK_MS)


class World:
    """One queue, and everybody who uses it."""

    def __init__(self, machine: Machine, engine: Engine, rules: Rules, settings: TopicConfig, dice: Random) -> None:
        self.machine = machine
        self.engine = engine
        self.settings = settings
        self.dice = dice
        self.history = History(rules, _Time(machine))
        #: Calls in progress, in the order in which they began.
        self.calls: dict[asyncio.Task[None], None] = {}
        self.leases: list[tuple[str, Lease]] = []
        self.names = 0
        self.nodes = 0
        self.killed = False

    # -- what is asked -----------------------------------------------------------------------------------------------

    async def produce(self) -> None:
        count = self.dice.choice((1, 2, 5))
        names = tuple(f"j{self.names + number}" for number in range(1, count + 1))
        self.names += count
        produce = Produce(node="p", names=names, delay_ms=self.dice.choice((0, 0, 0, 30, 300)))
        records = [record({"job": name}, delay_ms=produce.delay_ms or None) for name in names]
        done = await self.ask(produce, self.engine.append("q", records))
        produce.first_seq = done.first_seq
        self.history.ok(produce)

    async def claim(self) -> None:
        claim = Claim(node=self.dice.choice("abc"), max=self.dice.choice((1, 2, 10)), lease_ms=LEASE_MS)
        claim.key = self.dice.choice((None, None, "k1", "k2"))
        if claim.key is not None:
            claim.max = 3  # a repeat makes the same request
        asked = self.engine.queues.claim("q", claim.node, max=claim.max, lease_ms=claim.lease_ms, attempt_key=claim.key)
        done = await self.ask(claim, asked)
        claim.leases = tuple(map(_lease, done.jobs))
        self.history.ok(claim)
        self.leases += [(claim.node, lease) for lease in claim.leases]

    async def work(self) -> None:
        self.nodes += 1
        stream = Stream(node=f"s{self.nodes}", max=self.dice.choice((1, 2)), lease_ms=LEASE_MS)
        self.history.begin(stream)
        held: dict[str, Lease] = {}
        try:
            async with self.engine.queues.work("q", stream.node, max=stream.max, lease_ms=LEASE_MS) as worker:
                async for job in worker:
                    lease = _lease(job)
                    held[lease.token] = lease
                    self.history.pushed(stream, lease)
                    self.leases.append((stream.node, lease))
        finally:
            self.history.left(stream, held.values(), grace_ms=0, cut=self.killed)

    async def settle(self) -> None:
        if not self.leases:
            return
        dice = self.dice
        node, first = dice.choice(self.leases[-12:])
        some = [lease for each, lease in self.leases[-12:] if each == node and dice.random() < 0.5]
        leases = list({lease.seq: lease for lease in (first, *some)}.values())
        settle = Settle(
            node=node,
            act=dice.choice((Act.ACK, Act.ACK, Act.NACK, Act.EXTEND)),
            seqs=tuple(lease.seq for lease in leases),
            tokens=tuple(lease.token for lease in leases),
            strict=dice.random() < 0.3,
        )
        tokens = [int(token) for token in settle.tokens if token]
        queues = self.engine.queues
        if settle.act is Act.ACK:
            asked = queues.ack("q", node, settle.seqs, lease_ids=tokens, strict=settle.strict)
        elif settle.act is Act.NACK:
            settle.delay_ms, settle.penalty = dice.choice((None, 0, 50)), dice.random() < 0.7
            asked = queues.nack(
                "q",
                node,
                settle.seqs,
                delay_ms=settle.delay_ms,
                penalty=settle.penalty,
                lease_ids=tokens,
                strict=settle.strict,
            )
        else:
            settle.lease_ms = dice.choice((100, 400))
            asked = queues.extend("q", node, settle.seqs, settle.lease_ms, lease_ids=tokens, strict=settle.strict)
        try:
            done = await self.ask(settle, asked)
        except LeaseLost as lost:
            settle.refused = frozenset(lost.detail["seqs"])
            raise
        settle.skipped, settle.deadlines = frozenset(done.skipped), done.deadlines
        self.history.ok(settle)

    async def pause(self) -> None:
        pause = Pause(node="o", paused=self.dice.random() < 0.4)
        await self.ask(pause, self.engine.queues.pause("q") if pause.paused else self.engine.queues.resume("q"))
        self.history.ok(pause)

    async def purge(self) -> None:
        purge = Purge(node="o", states=self.dice.choice((("ready",), ("delayed",), ("ready", "delayed"))))
        purge.purged = await self.ask(purge, self.engine.queues.purge("q", purge.states))
        self.history.ok(purge)

    async def redrive(self) -> None:
        redrive = Redrive(node="o", max=self.dice.choice((1, 3, 100)))
        done = await self.ask(redrive, self.engine.queues.redrive("q", max=redrive.max))
        redrive.moved = done.moved
        self.history.ok(redrive)

    async def set_again(self) -> None:
        """The same settings: all other calls wait for a moment."""
        await self.engine.put_topic("q", self.settings)

    async def ask(self, operation: Operation, asked: Coroutine[Any, Any, Any]) -> Any:
        self.history.begin(operation)
        try:
            return await asked
        except StorageError:
            self.history.failed(operation)
            raise

    # -- how it goes on ----------------------------------------------------------------------------------------------

    def begin(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def carried_out() -> None:
            with suppress(LeaseLost, TopicNotFound):
                await call()

        task = asyncio.create_task(carried_out())
        self.calls[task] = None
        task.add_done_callback(self.calls.pop)

    async def step(self) -> None:
        dice = self.dice
        what = dice.choice(
            [self.produce] * 3
            + [self.claim] * 4
            + [self.settle] * 6
            + [self.work, self.pause, self.pause, self.purge, self.redrive, self.redrive, self.set_again]
        )
        self.begin(what)
        await turns(dice.choice((0, 0, 1, 2, 5, 30)))
        if self.calls and dice.random() < 0.15:
            dice.choice(list(self.calls)).cancel()
        if dice.random() < 0.3:
            await self.machine.clock.advance(dice.choice((1, 20, 60, 250)))
        if dice.random() < 0.03:
            await self.die(clean=dice.random() < 0.3)

    async def die(self, *, clean: bool) -> None:
        if clean:
            await self.end_calls()
            self.history.ended(clean=True)
            self.engine = await self.machine.restart()
        else:
            self.killed = True
            self.history.ended(clean=False)
            for task in self.calls:
                task.cancel()
            self.engine = await self.machine.kill()
            await self.end_calls()
            self.killed = False
        self.history.started()
        await self.look()

    async def end_calls(self) -> None:
        while self.calls:
            for task in self.calls:
                task.cancel()
            await asyncio.wait(set(self.calls))
        await turns()

    async def look(self, *, final: bool = False) -> None:
        look = self.history.begin(Observation(node="l", final=final))
        look.present = {each.seq: _body(each.body)["data"]["job"] for each in await self.records("q")}
        with suppress(TopicNotFound):
            look.dead = tuple(_dead(each.body) for each in await self.records("dead"))
        look.present |= {each.seq: _body(each.body)["data"]["job"] for each in await self.records("q")}
        look.paused = self.engine.queues.figures("q").paused
        self.history.ok(look)

    async def records(self, name: str) -> list[Any]:
        result = await self.engine.read(name, ReadQuery(limit=1000))
        assert result.tombstone is None
        return [*result.records]

    async def drain(self) -> None:
        """Only the work that is left continues."""
        for _ in range(3):  # a call that ended may have begun another
            await self.end_calls()
        pause = Pause(node="o", paused=False)
        await self.ask(pause, self.engine.queues.resume("q"))
        self.history.ok(pause)
        for _ in range(40):
            await self.machine.clock.advance(250)
            await turns(300)
            claim = Claim(node="last", max=100, lease_ms=LEASE_MS)
            claiming = asyncio.ensure_future(
                self.ask(claim, self.engine.queues.claim("q", "last", max=100, lease_ms=LEASE_MS))
            )
            await self.machine.clock.advance(10)  # a claim window closes
            claim.leases = tuple(map(_lease, (await claiming).jobs))
            self.history.ok(claim)
            if claim.leases:
                self.leases = [("last", lease) for lease in claim.leases]
                seqs, tokens = [lease.seq for lease in claim.leases], [lease.token for lease in claim.leases]
                settle = Settle(node="last", act=Act.ACK, seqs=tuple(seqs), tokens=tuple(tokens))
                done = await self.ask(settle, self.engine.queues.ack("q", "last", seqs))
                settle.skipped = frozenset(done.skipped)
                self.history.ok(settle)
            figures = self.engine.queues.figures("q")
            if not (figures.ready or figures.in_flight or figures.delayed or figures.dead_pending):
                return
        raise AssertionError(f"it is never drained: {self.engine.queues.figures('q')}")


def _lease(job: ClaimedJob) -> Lease:
    name = _body(job.record.body)["data"]["job"]
    return Lease(job.record.seq, str(job.lease_id), job.deadline, job.deliveries, name)


def _dead(body: bytes) -> Dead:
    decoded = _body(body)
    meta = decoded["meta"]
    return Dead(int(meta["$dead_letter_src_seq"]), int(meta["$dead_letter_deliveries"]), decoded["data"]["job"])


def _body(body: bytes) -> dict[str, Any]:
    return json.loads(bytes(body))


@given(
    seed=st.integers(0, 1 << 32),
    leases_durable=st.booleans(),
    durability=st.sampled_from([Durability.DISK, Durability.FSYNC]),
    claim_jitter_ms=st.sampled_from([0, 0, 7]),
    retry_backoff_ms=st.sampled_from([0, 60]),
    max_deliveries=st.sampled_from([0, 1, 2]),
)
@example(  # jobs that were redriven, and then went to lost claims only
    seed=2492,
    leases_durable=True,
    durability=Durability.DISK,
    claim_jitter_ms=0,
    retry_backoff_ms=0,
    max_deliveries=1,
)
def test_concurrent_queue_calls_give_a_valid_history(seed: int, **settings: Any) -> None:
    async def run() -> None:
        async with Machine() as machine:
            engine = await machine.start()
            most = settings["max_deliveries"]
            chosen = config(**settings, lease_ms=LEASE_MS, dead_letter="dead" if most else None)
            await engine.put_topic("q", chosen)
            await engine.put_topic("dead", config())
            rules = Rules(
                leases_durable=settings["leases_durable"],
                max_deliveries=most,
                retry_backoff_ms=settings["retry_backoff_ms"],
                slack_ms=SLACK_MS,
            )
            world = World(machine, engine, rules, chosen, Random(seed))
            for _ in range(STEPS):
                await world.step()
            await world.drain()
            await world.look(final=True)
            check(world.history)

    asyncio.run(run())
