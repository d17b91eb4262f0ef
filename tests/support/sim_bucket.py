"""Processes that share a bucket, in simulated time: requests are late, lost, carried out late or twice.

    world = World(Random(7))
    process = Process(world, "a")
    process.spawn(some_steps, then=print)
    world.run(60)

A step of a process is an event. Between two of them anything may happen: the process may be stopped for good or for a
while, or the store may be out of its reach. What it has sent is still carried out. The seed of a run repeats it.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Generator
from random import Random
from typing import Any

from storage.bucket.requests import Create, Delete, Get, GetMany, Names, Put, Request, SomeNames, Unanswered, Wait

#: The sender gives up a request without an answer after this many seconds.
TIMEOUT_S = 2.0
#: A request that was given up may be carried out this much later.
LATE_S = 20.0


class World:
    """The time, the store, and the next events."""

    def __init__(self, rng: Random, *, faults: float = 0.05) -> None:
        """`faults`: the share of requests without a good answer."""
        self.rng = rng
        self.faults = faults
        self.time = 0.0
        self.objects: dict[str, bytes] = {}
        #: When each object was created.
        self.created: dict[str, float] = {}
        self.requests = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, time: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(time, self.time), next(self._order), event))

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        self.at(self.time + seconds, event)

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.time, _, event = heapq.heappop(self._events)
            event()
        self.time = until

    def carry_out(self, request: Request) -> Any:
        objects = self.objects
        match request:
            case Create(key, data):
                if key in objects:
                    return False
                objects[key] = data
                self.created[key] = self.time
                return True
            case Put(key, data):
                objects[key] = data
            case Delete(several):
                for key in several:
                    objects.pop(key, None)
            case Get(key):
                return objects.get(key)
            case Names(prefix):
                return self._listed(prefix)
            case SomeNames(prefix, wanted, most):
                return [key for key in self._listed(prefix) if wanted(key)][:most]
            case _:
                raise AssertionError(request)
        return None

    def _listed(self, prefix: str) -> list[str]:
        """A listing may be late, partial and unsorted."""
        found = [key for key in self.objects if key.startswith(prefix)]
        return self.rng.sample(found, self.rng.randint(0, len(found)))


class Process:
    """One process on one machine."""

    def __init__(self, world: World, node: str) -> None:
        rng = world.rng
        self.world = world
        self.node = node
        self.nonce = rng.randbytes(16).hex()
        self._ahead = rng.uniform(-1e6, 1e6)
        self._pace = rng.uniform(0.98, 1.02)
        self._running = True
        self._asleep_until = 0.0
        self._cut_off_until = 0.0

    def now(self) -> float:
        """Its monotonic clock."""
        return self._ahead + self.world.time * self._pace

    @property
    def running(self) -> bool:
        return self._running

    def stop(self) -> None:
        """kill -9."""
        self._running = False

    def sleep(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after this time."""
        self._asleep_until = max(self._asleep_until, self.world.time + seconds)

    def cut_off(self, seconds: float) -> None:
        """The store is out of reach for this long."""
        self._cut_off_until = max(self._cut_off_until, self.world.time + seconds)

    def spawn(
        self,
        steps: Generator[Request, Any, Any],
        then: Callable[[Any], None] = lambda _: None,
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        """Run these steps beside the others. An error that `failed` does not get ends the run."""
        self._event(lambda: self._advance(steps, lambda: next(steps), then, failed))

    def _event(self, event: Callable[[], None]) -> None:
        """Now, or when the process wakes."""

        def run() -> None:
            if not self._running:
                return
            if self.world.time < self._asleep_until:
                self.world.at(self._asleep_until, run)
            else:
                event()

        self.world.after(0.0, run)

    def _advance(
        self,
        steps: Generator[Request, Any, Any],
        move: Callable[[], Request],
        then: Callable[[Any], None],
        failed: Callable[[Exception], None] | None,
    ) -> None:
        try:
            request = move()
        except StopIteration as end:
            then(end.value)
            return
        except Exception as error:
            if failed is None:
                raise
            failed(error)
            return

        def answer(value: Any) -> None:
            if isinstance(value, Unanswered):
                self._event(lambda: self._advance(steps, lambda: steps.throw(value), then, failed))
            else:
                self._event(lambda: self._advance(steps, lambda: steps.send(value), then, failed))

        if isinstance(request, Wait):
            self.world.after(request.seconds / self._pace, lambda: self._event(lambda: answer_now(request)))
        else:
            self._send(request, answer)

        def answer_now(_: Wait) -> None:
            self._advance(steps, lambda: steps.send(self.now()), then, failed)

    def _send(self, request: Request, answer: Callable[[Any], None]) -> None:
        world, rng = self.world, self.world.rng
        world.requests += 1
        if isinstance(request, GetMany):
            self._send_many(request, answer)
            return
        there, back = self._delay(), self._delay()
        if world.time < self._cut_off_until or rng.random() < world.faults / 4:
            world.after(TIMEOUT_S, lambda: answer(Unanswered()))
            return
        if rng.random() < world.faults:
            # Carried out, before or after the sender has given up.
            moment = rng.choice([there, rng.uniform(0, TIMEOUT_S), rng.uniform(TIMEOUT_S, LATE_S)])
            world.after(moment, lambda: world.carry_out(request))
            world.after(TIMEOUT_S, lambda: answer(Unanswered()))
            return

        def arrive() -> None:
            value = world.carry_out(request)
            world.after(back, lambda: answer(value))

        world.after(there, arrive)
        if isinstance(request, Create | Delete) and rng.random() < world.faults:
            world.after(there + rng.uniform(0, LATE_S), lambda: world.carry_out(request))

    def _send_many(self, request: GetMany, answer: Callable[[Any], None]) -> None:
        found: dict[int, bytes | Unanswered | None] = {}

        def came(index: int, value: Any) -> None:
            found[index] = value
            if len(found) == len(request.keys):
                answer([found[each] for each in range(len(request.keys))])

        for index, key in enumerate(request.keys):
            self._send(Get(key), lambda value, index=index: came(index, value))

    def _delay(self) -> float:
        rng = self.world.rng
        return rng.choice([0.005, 0.02, rng.uniform(0, 0.05), rng.uniform(0, 1.0)])
