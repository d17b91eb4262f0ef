"""A mixed load on a set of cells whose processes are killed at random, and a ledger of everything that was answered.

    python -m loadtest.killed_cells                               4 cells, 2 gateways, 60 kills
    python -m loadtest.killed_cells --cells 3 --kills 200 --keep killed-cells

Producers append with and without idempotency keys. Consumers read and commit. Workers claim, ack, extend and
give back jobs under durable leases, or leave them; jobs that are given back too often go to a dead letter topic in
another cell. Routers copy between cells. Cells and gateways get SIGKILL. Then everything is read to its end, and
`loadtest.mixed_ledger` judges. The exit status is 1 if it finds anything.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from loadtest import killed_actors
from loadtest.killed_actors import Actor, Calls, Consumer, Producer, Service, Worker, put
from loadtest.mixed_ledger import Topic, Verdict, judge
from loadtest.own_broker import BrokerFailed, OwnBroker, add_set
from loadtest.report import keep
from storage import home_cell

#: Of a set of cells, and of one gateway or cell that starts again on a busy machine.
_CALM_WITHIN_S: Final = 300.0
_LOOK_AGAIN_S: Final = 0.02
_QUEUE: Final = {"type": "queue", "leases_durable": True, "max_deliveries": 3, "lease_ms": 2000}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has shown."""

    verdict: Verdict
    cells: int
    kills: int
    killed_cells: int
    #: How many requests had no answer, or one that says that nothing was done.
    cut: int
    seconds: float
    #: What the set refuses so far, with the reason.
    left_out: list[str]

    def told(self) -> str:
        v = self.verdict
        lines = [
            f"Ledger: lost {v.lost}, doubled {v.doubled}, disordered {v.disordered}, double leases {v.double_leases} of"
            f" {v.acknowledged} acknowledged, {v.delivered} delivered, {v.leases} leases, {v.jobs_done} jobs done,"
            f" {v.dead} dead, {v.copied} copied.",
            f"{self.kills} kills, {self.killed_cells} of them of {self.cells} cells, in {self.seconds:.0f} s;"
            f" {self.cut} requests were cut off or refused meanwhile.",
            *(f"Left out: {each}" for each in self.left_out),
            *v.problems,
        ]
        return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    own = OwnBroker(
        parent=options.dir,
        settings={
            "CELLS": str(options.cells),
            "GATEWAYS": str(options.gateways),
            "WAL_FILE_BYTES": str(1 << 20),
            "WAL_RESERVE_BYTES": str(1 << 16),
            "SNAPSHOT_INTERVAL_MS": "2000",
            **dict(options.set),
        },
    )
    try:
        own.start()
        outcome = Run(own, options).run()
    except BrokerFailed as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        own.close()
    print(outcome.told())
    if options.keep:
        keep(options.keep, f"python -m loadtest.killed_cells {shlex.join(arguments or sys.argv[1:])}", outcome)
    return int(not outcome.verdict.holds)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m loadtest.killed_cells",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add("--cells", type=int, default=4)
    add("--gateways", type=int, default=2)
    add("--kills", type=int, default=60)
    add("--each", type=int, default=1, help="topics, queues and routers of each kind for each cell")
    add("--between", type=int, default=60, help="how many more answers there are before the next kill")
    add("--seed", type=int, default=random.randrange(1 << 30))
    add("--keep", default="", metavar="NAME", help="write the figures to this file among the results")
    add("--dir", default="", help="where the data directory is made (default: the temporary directory)")
    add_set(made)
    return made


class Load:
    """The clients of a run, and what they have noted."""

    def __init__(
        self,
        service: Service,
        options: argparse.Namespace,
        dice: random.Random,
        check: Callable[[str], BrokerFailed | None],
        durabilities: Sequence[str] = ("fsync", "disk"),
    ) -> None:
        """`check`: what is wrong with the service. With an argument: the load waits for that in vain. `durabilities`:
        the classes that lose nothing here; queues have the last one."""
        self._durabilities = durabilities
        self._service = service
        self._options = options
        self._dice = dice
        self._check = check
        self._actors: list[Actor] = []
        self._topics: dict[str, Topic] = {}
        self._queues: list[str] = []
        self._dead: dict[str, str] = {}
        self._routed: dict[str, str] = {}
        #: What the service refuses, with the reason.
        self.left_out: list[str] = []

    def begin(self) -> None:
        """Make the topics, and start the clients."""
        self._prepare()
        for actor in self._actors:
            actor.start()

    def go_on(self, answers: int) -> None:
        """Until there are so many more answers."""
        wanted = self._service.answers + answers
        self.until(lambda: self._service.answers >= wanted, "the load does not go on")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Raises BrokerFailed."""
        deadline = time.monotonic() + _CALM_WITHIN_S
        while not condition():
            late = time.monotonic() > deadline
            error = self._check(f"is not as it should be after {_CALM_WITHIN_S:.0f} s: {what}" if late else "")
            if error is not None:
                raise error
            time.sleep(_LOOK_AGAIN_S)

    def end(self) -> Verdict:
        """No more faults: producers end, then whoever reads what they wrote. Then everything is read."""
        for kind in (Producer, Worker, Consumer):
            if kind is Worker:
                self._service.written.set()
            for actor in self._actors:
                if isinstance(actor, kind):
                    actor.thread.join(_CALM_WITHIN_S)
                    if actor.error is not None or actor.thread.is_alive():
                        error = self._check(f"left {actor.name} with {actor.error or 'work to do'!r}")
                        assert error is not None
                        raise error from actor.error
        calls = Calls(self._service)
        for dest in self._routed:
            self.until(lambda dest=dest: killed_actors.lag(calls, f"to-{dest}") == 0, f"to-{dest} lags behind")
        names = (*self._topics, *self._dead.values(), *self._routed)
        held = {name: killed_actors.contents(calls, name) for name in names}
        return judge(self._topics, held, queues=self._queues, dead=self._dead, routed=self._routed)

    def _prepare(self) -> None:
        calls, cells = Calls(self._service), self._options.cells
        actors = self._actors
        for number in range(cells * self._options.each):
            here, there = number % cells, (number + 1) % cells
            log = _name("log", here, cells, number)
            put(calls, f"/v0/topics/{log}", {"durability": self._dice.choice(self._durabilities)})
            self._topics[log] = Topic()
            actors += [
                Producer(self._service, self._topics[log], log, f"keyed-{number}", self._dice.random(), keyed=True),
                Producer(self._service, self._topics[log], log, f"plain-{number}", self._dice.random(), keyed=False),
                Consumer(self._service, self._topics[log], log, f"reader-{number}", self._dice.random()),
            ]
            queue, dead = _name("jobs", here, cells, number), _name("dead", there, cells, number)
            put(calls, f"/v0/topics/{dead}", {"durability": self._durabilities[-1]})
            put(calls, f"/v0/topics/{queue}", {**_QUEUE, "durability": self._durabilities[-1], "dead_letter": dead})
            self._topics[queue] = Topic()
            self._queues.append(queue)
            self._dead[queue] = dead
            producer = Producer(
                self._service, self._topics[queue], queue, f"boss-{number}", self._dice.random(), keyed=True, queue=True
            )
            workers = [
                Worker(self._service, self._topics[queue], queue, f"w-{number}-{each}", self._dice.random())
                for each in range(2)
            ]
            actors += [producer, *workers]
            self._route(calls, log, _name("copy", there, cells, number))

    def _route(self, calls: Calls, source: str, dest: str) -> None:
        status, answer = calls.ask("PUT", f"/v0/routers/to-{dest}", {"source": source, "dest": dest})
        if status in (200, 201):
            self._routed[dest] = source
        else:
            self.left_out.append(f"router from {source} to {dest}: {answer['error']['code']}")


class Run:
    """One run, from an empty set to the verdict."""

    def __init__(self, own: OwnBroker, options: argparse.Namespace) -> None:
        self._own = own
        self._options = options
        self._dice = random.Random(options.seed)
        self._service = Service((own.host, own.port))
        self._load = Load(self._service, options, self._dice, self._check)
        self._killed: list[str] = []

    def run(self) -> Outcome:
        print(f"seed {self._options.seed}", flush=True)
        begin = time.monotonic()
        self._load.begin()
        try:
            for _ in range(self._options.kills):
                self._kill()
        finally:
            self._service.over.set()
        self._load.until(self._own.is_ready, "it is not ready")
        return Outcome(
            verdict=self._load.end(),
            cells=self._options.cells,
            kills=len(self._killed),
            killed_cells=sum("cell" in each for each in self._killed),
            cut=self._service.cut,
            seconds=time.monotonic() - begin,
            left_out=self._load.left_out,
        )

    def _check(self, what: str) -> BrokerFailed | None:
        if what or self._own.ended():
            return self._own.failed(what or "ended")
        return None

    def _kill(self) -> None:
        """SIGKILL for a cell or a gateway, once the load has gone on for a while since the last one."""
        self._load.go_on(self._options.between)
        found = _processes(self._own.pid)
        if found:
            pid = self._dice.choice([*found])
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self._killed.append(found[pid])


def _name(kind: str, cell: int, cells: int, number: int) -> str:
    """The name of a topic of that cell."""
    return next(
        f"{kind}-{number}-{each}" for each in range(10_000) if home_cell(f"{kind}-{number}-{each}", cells) == cell
    )


def _processes(supervisor: int) -> dict[int, str]:
    """The processes of the cells and gateways: pid → the end of their command."""
    found: dict[int, str] = {}
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children")
    for pid in children.read_text().split():
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            found[int(pid)] = "gateway" if "broker.gateway" in command else "cell"
    return found


if __name__ == "__main__":
    sys.exit(main())
