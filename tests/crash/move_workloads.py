"""The workloads of the sweep over two cells: dead letters and redrives from cell 0 to cell 1 and back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec

from storage import Discard, Durability, NewRecord, TopicConfig, TopicType
from tests.support.cell_pair import CellPair
from tests.support.crash_view import view

QUEUE = TopicConfig(type=TopicType.QUEUE, durability=Durability.FSYNC, dead_letter="dead")
LASTING = msgspec.structs.replace(QUEUE, leases_durable=True)
DEAD = TopicConfig(durability=Durability.FSYNC)
OWNERS = {"jobs": 0, "dead": 1, "other": 1, "near": 0}


@dataclass(slots=True)
class Jobs:
    """The jobs of one workload by number, and what was answered. What was not answered is in no set."""

    pair: CellPair
    sent: int = 0
    appended: set[int] = field(default_factory=set[int])
    acked: set[int] = field(default_factory=set[int])
    perhaps_acked: set[int] = field(default_factory=set[int])
    rejected: set[int] = field(default_factory=set[int])
    #: Topics whose deletion was requested. Their jobs may be gone with them.
    deleted: bool = False
    refused: int = 0

    async def put(self, cell: int, name: str, config: TopicConfig) -> None:
        while await self.pair.ask(cell, lambda engine: engine.put_topic(name, config)) is None:
            pass

    async def append(self, count: int) -> None:
        numbers = [*range(self.sent, self.sent + count)]
        self.sent += count
        records = [_record(number) for number in numbers]
        if await self.pair.ask(0, lambda engine: engine.append("jobs", records, node=f"w{numbers[0]}")) is not None:
            self.appended |= {*numbers}

    async def kill(self, most: int) -> None:
        """Claim jobs, and give them up."""
        claimed = await self.pair.ask(0, lambda engine: engine.queues.claim("jobs", "n", max=most))
        if claimed is None:
            return
        jobs = [*claimed.jobs]
        seqs = [job.record.seq for job in jobs]
        if not seqs:
            return
        done = await self.pair.ask(0, lambda engine: engine.queues.reject("jobs", "n", seqs, reason="broken"))
        if done is not None:
            self.rejected |= {number_of(job.record.body) for job in jobs if job.record.seq in done.done}

    async def ack(self, most: int) -> None:
        claimed = await self.pair.ask(0, lambda engine: engine.queues.claim("jobs", "n", max=most))
        if claimed is None or not claimed.jobs:
            return
        numbers = {number_of(job.record.body): job.record.seq for job in claimed.jobs}
        self.perhaps_acked |= numbers.keys()
        done = await self.pair.ask(0, lambda engine: engine.queues.ack("jobs", "n", [*numbers.values()]))
        if done is not None:
            self.acked |= {number for number, seq in numbers.items() if seq in done.done}

    async def redrive(self, most: int = 100) -> None:
        self.rejected.clear()  # they may be jobs again
        await self.pair.ask(0, lambda engine: engine.queues.redrive("jobs", max=most))

    async def drop(self, cell: int, name: str) -> None:
        self.deleted = True
        await self.pair.ask(cell, lambda engine: engine.delete_topic(name))

    async def snapshot(self, cell: int) -> None:
        await self.pair.ask(cell, lambda engine: engine.snapshotter.take())

    async def check(self) -> list[str]:
        """What is wrong, once all work is done."""
        found: dict[int, list[str]] = {}
        problems: list[str] = []
        for cell in range(2):
            engine = (await self.pair.up(cell)).engine
            for name, topic in (await view(engine)).items():
                problems += topic.problems
                for record in topic.records:
                    found.setdefault(number_of(record.body), []).append(name)
                log = engine.logs.topic(name).log
                if log.moves.out or log.moves.came:
                    problems.append(f"{name} remembers moves: {log.moves.out} {log.moves.came}")
        for number in range(self.sent):
            there = found.get(number, [])
            if len(there) > 1:
                problems.append(f"job {number} is doubled: {there}")
            if number in self.acked and there:
                problems.append(f"job {number} was acked, and is in {there}")
            expected = number in self.appended - self.perhaps_acked and not self.deleted
            if expected and not there:
                problems.append(f"job {number} is lost")
            if number in self.rejected and "jobs" in there and not self.deleted:
                problems.append(f"job {number} was given up, and is a job again")
        return problems


def _record(number: int) -> NewRecord:
    data, meta = msgspec.Raw(b'{"n":%d}' % number), msgspec.Raw(b'{"m":1}')
    return NewRecord(data=data, tag="t" if number % 2 else None, meta=meta if number % 3 else None)


def number_of(body: bytes) -> int:
    return int(body[len(b'{"data":{"n":') :].partition(b"}")[0])


Body = Callable[[Jobs], Awaitable[None]]
WORKLOADS: dict[str, Body] = {}


def workload(body: Body) -> Body:
    WORKLOADS[body.__name__] = body
    return body


@workload
async def dead_letters(jobs: Jobs) -> None:
    await jobs.put(0, "jobs", QUEUE)
    await jobs.append(3)
    await jobs.kill(2)
    await jobs.append(2)
    await jobs.pair.settle()
    await jobs.kill(3)
    await jobs.ack(1)


@workload
async def dead_letters_with_snapshots_between(jobs: Jobs) -> None:
    await jobs.put(0, "jobs", LASTING)
    await jobs.put(1, "dead", DEAD)
    await jobs.append(4)
    await jobs.kill(2)
    await jobs.snapshot(0)
    await jobs.kill(1)
    await jobs.snapshot(1)
    await jobs.pair.pass_time(500)
    await jobs.snapshot(1)
    await jobs.snapshot(0)
    await jobs.kill(1)


@workload
async def redriven(jobs: Jobs) -> None:
    await jobs.put(0, "jobs", QUEUE)
    await jobs.append(4)
    await jobs.kill(3)
    await jobs.pair.pass_time(300)
    await jobs.redrive(2)
    await jobs.ack(1)
    await jobs.kill(2)
    await jobs.redrive()
    await jobs.pair.pass_time(300)
    await jobs.ack(4)


@workload
async def the_dead_letter_topic_is_full(jobs: Jobs) -> None:
    await jobs.put(0, "jobs", QUEUE)
    await jobs.put(1, "dead", msgspec.structs.replace(DEAD, cap_records=2, discard=Discard.REJECT))
    await jobs.append(4)
    await jobs.kill(4)
    await jobs.pair.pass_time(1000)
    await jobs.put(1, "dead", DEAD)


@workload
async def the_dead_letter_topic_is_another_one_now(jobs: Jobs) -> None:
    await jobs.put(0, "jobs", QUEUE)
    await jobs.append(4)
    await jobs.kill(2)
    jobs.rejected.clear()  # what has not moved yet is called off, and becomes a job again
    await jobs.put(0, "jobs", msgspec.structs.replace(QUEUE, dead_letter="other"))
    await jobs.kill(1)
    jobs.rejected.clear()
    await jobs.put(0, "jobs", msgspec.structs.replace(QUEUE, dead_letter="near"))
    await jobs.kill(1)


@workload
async def the_dead_letter_topic_is_deleted(jobs: Jobs) -> None:
    await jobs.put(0, "jobs", QUEUE)
    await jobs.append(3)
    await jobs.kill(2)
    await jobs.drop(1, "dead")
    await jobs.kill(2)
    await jobs.append(2)
    await jobs.kill(1)


@workload
async def the_queue_is_deleted(jobs: Jobs) -> None:
    await jobs.put(0, "jobs", QUEUE)
    await jobs.append(3)
    await jobs.kill(2)
    await jobs.drop(0, "jobs")
    await jobs.put(0, "jobs", QUEUE)
    await jobs.append(2)
    await jobs.kill(2)
