"""Compares a reopened engine with what was promised about jobs before the crash.

What is checked:

    a job         appended and answered: there, byte for byte, in its queue or, once, in the dead letter topic
    an ack        answered: the job is gone for good; not answered: gone or there
    a reject      answered: the job is in the dead letter topic, or on its way there, and never given to anybody again
    a lease       durable: holder, deadline and deliveries as before, the token counts;
                  else: all void, deliveries 0, every job claimable at once or at its deliver_at
    all           nothing twice, nothing refused; what is not settled can be claimed sooner or later (`drain`)

As with records, a power cut may take what was answered in class disk and not hardened since.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

from storage import Engine, StoredRecord
from storage.state.queues.values import JobState, JobView
from tests.support.crash_check import End, Ending
from tests.support.crash_ledger import Outcome
from tests.support.crash_view import TopicView, view
from tests.support.job_ledger import JobLedger, Lease, Queue, Sent, parts_of

TURNS = 30


@dataclass(frozen=True, slots=True)
class Found:
    """Where a job is."""

    topic: str
    record: StoredRecord
    view: JobView | None


def _is_dead(found: Found) -> bool:
    """Whether it is on its way to the dead letter topic."""
    return found.view is not None and found.view.state is JobState.DEAD


def listing(engine: Engine, name: str) -> dict[int, JobView]:
    """All jobs of a queue by seq."""
    shown: dict[int, JobView] = {}
    while page := engine.queues.leases(name, after=max(shown, default=0), limit=7):
        shown |= {each.seq: each for each in page}
    return shown


async def check(engine: Engine, ledger: JobLedger, ending: Ending) -> list[str]:
    """What is wrong; empty if all promises were kept. Operations that the crash left open are closed by what was found.

    Leases that have expired meanwhile end first: durable leases write that before it is visible.
    """
    for _ in range(TURNS):
        await asyncio.sleep(0)
    topics = await view(engine)
    return _Comparison(engine, ledger, ending, topics).run()


class _Comparison:
    def __init__(self, engine: Engine, ledger: JobLedger, ending: Ending, topics: dict[str, TopicView]) -> None:
        self.engine = engine
        self.ledger = ledger
        self.ending = ending
        self.topics = topics
        self.problems = [problem for each in topics.values() for problem in each.problems]
        self.shown: dict[str, dict[int, JobView]] = {}
        self.found: dict[bytes, list[Found]] = {}

    def run(self) -> list[str]:
        self._topics()
        for name, topic in self.topics.items():
            for record in topic.records:
                where = Found(name, record, self.shown.get(name, {}).get(record.seq))
                self.found.setdefault(parts_of(record.body)[0], []).append(where)
        sent = {job.data for job in self.ledger.jobs}
        self.problems += [f"{data!r} was never sent" for data in self.found if data not in sent]
        for job in self.ledger.jobs:
            self._job(job, self.found.get(job.data, []))
        self._batches()
        for queue in self.ledger.queues.values():
            if queue.name in self.shown:
                self._leases(queue)
        self._remember()
        return self.problems

    def _topics(self) -> None:
        for name, queue in self.ledger.queues.items():
            if name not in self.topics:
                if queue.made is Outcome.DONE:
                    self.problems.append(f"{name} is gone, and nobody has deleted it")
            elif not queue.holds_dead:
                self.shown[name] = listing(self.engine, name)
                self._figures(queue)
        for name in self.topics.keys() - self.ledger.queues.keys():
            self.problems.append(f"{name} is there, and nobody has made it (any more)")

    def _figures(self, queue: Queue) -> None:
        figures = self.engine.queues.figures(queue.name)
        counted = dict.fromkeys(JobState, 0)
        for each in self.shown[queue.name].values():
            counted[each.state] += 1
        said = (figures.ready, figures.in_flight, figures.delayed, figures.dead_pending)
        if said != tuple(counted.values()):
            self.problems.append(f"{queue.name} says {figures}, and lists {counted}")
        if figures.paused not in queue.paused:
            self.problems.append(f"{queue.name} paused: {figures.paused}, was {queue.paused}")

    # -- jobs --------------------------------------------------------------------------------------------------------

    def _keeps(self, safe: bool) -> bool:
        """Whether what was answered must still be as it was."""
        return safe or self.ending.end is End.KILL

    def _job(self, job: Sent, there: list[Found]) -> None:
        for each in there:
            self._same(job, each)
        if there and job.appended is Outcome.REFUSED:
            self.problems.append(f"{job.data!r} was refused, and is there")
        if job.rejected is Outcome.DONE and any(not _is_dead(each) for each in there if each.topic == job.queue):
            self.problems.append(f"job {job.seq} of {job.queue} was rejected, and is a job again: {there}")
        if there and Outcome.DONE in (job.acked, job.purged) and self._keeps(job.end_safe):
            self.problems.append(f"job {job.seq} of {job.queue} was acked or purged for good, and is there again")
        if len(there) > 1 and not self._is_moving(there):
            self.problems.append(f"job {job.seq} is there {len(there)} times: {there}")
        if not there and not job.perhaps_gone and not self._may_be_lost(job):
            self.problems.append(f"job {job.seq} of {job.queue} is lost")

    def _is_moving(self, there: list[Found]) -> bool:
        """Copied already, but not yet deleted at its source."""
        dead = [each for each in there if self.ledger.queues[each.topic].holds_dead]
        waiting = [each for each in there if _is_dead(each)]
        return len(there) == 2 and len(dead) == 1 and (len(waiting) == 1 or self.ledger.redriven)

    def _may_be_lost(self, job: Sent) -> bool:
        topic = self.topics.get(job.queue)
        tombstone = topic.tombstone_over(job.seq) if topic else None
        if tombstone is None:
            return False
        queue = self.ledger.queues[job.queue]
        if tombstone.reason in ("cap", "ttl", "mixed"):
            return queue.bounded
        return tombstone.reason == "crash" and not self._keeps(job.append_safe)

    def _same(self, job: Sent, found: Found) -> None:
        record, sent = found.record, job.record
        stored = (record.tag.decode() or None, record.node.decode() or None)
        if stored != (sent.tag, sent.node):
            self.problems.append(f"job {job.seq} has tag and node {stored}")
        meta = parts_of(record.body)[1]
        if self.ledger.queues[found.topic].holds_dead:
            self._dead_meta(job, json.loads(meta or b"{}"))
            return
        if parts_of(record.body) != (sent.data, sent.meta):
            self.problems.append(f"job {job.seq} is {record.body!r}, sent was {sent.body!r}")
        if job.appended is Outcome.DONE and record.seq != job.seq and not self.ledger.redriven:
            self.problems.append(f"job {job.seq} is there as {record.seq}")

    def _dead_meta(self, job: Sent, meta: dict[str, object]) -> None:
        added = {name: meta.pop(name) for name in list(meta) if name.startswith("$dead_letter_")}
        wanted = None if job.record.meta is None else json.loads(job.record.meta)
        first = meta.get("$meta") if "$meta" in meta else meta or None
        if first != wanted:
            self.problems.append(f"job {job.seq} has meta {meta} as a dead letter, sent was {wanted}")
        if added.get("$dead_letter_from") != job.queue or not all(isinstance(each, str) for each in added.values()):
            self.problems.append(f"job {job.seq} says of its death {added}")
        if added.get("$dead_letter_src_seq") != str(job.seq) and job.seq and not self.ledger.redriven:
            self.problems.append(f"dead letter of {job.seq} says {added}")

    def _batches(self) -> None:
        """What was written together exists together."""
        for number in {job.batch for job in self.ledger.jobs if job.appended is Outcome.OPEN}:
            jobs = [job for job in self.ledger.jobs if job.batch == number]
            there = [job for job in jobs if job.data in self.found]
            if there and len(there) < len(jobs) and not self.ledger.queues[jobs[0].queue].bounded:
                self.problems.append(f"batch {number} is there in part: {len(there)} of {len(jobs)}")

    # -- leases ------------------------------------------------------------------------------------------------------

    def _leases(self, queue: Queue) -> None:
        jobs = [(job, each) for job in self.ledger.of(queue.name) for each in self._in_queue(job)]
        lasted = queue.config.leases_durable or (
            self.ledger.perhaps_clean and any(each.deliveries or each.state is JobState.LEASED for _, each in jobs)
        )
        for job, each in jobs:
            problem = self._as_before(job, each) if lasted else self._void(job, each)
            if problem:
                self.problems.append(f"job {job.seq} of {queue.name} {problem}: {each}, was {job}")
        known = {each.seq for _, each in jobs}
        for seq, each in self.shown[queue.name].items():
            if seq not in known and not (each.state is JobState.LEASED and lasted):
                self.problems.append(f"{queue.name} lists {each}, and there is no such job")

    def _in_queue(self, job: Sent) -> list[JobView]:
        there = [each for each in self.found.get(job.data, []) if each.topic == job.queue]
        for each in there:
            if each.view is None:
                self.problems.append(f"job {each.record.seq} of {job.queue} is a record, and in no state")
        return [each.view for each in there if each.view is not None]

    def _as_before(self, job: Sent, each: JobView) -> str:
        if job.unsure or not self._keeps(job.lease_safe) or job.appended is not Outcome.DONE:
            return ""
        if each.deliveries != job.deliveries:
            return "has other deliveries"
        now_ms = self.engine.now_ms()
        if job.lease is not None and job.lease.deadline >= now_ms:
            held = (JobState.LEASED, job.lease.node, job.lease.deadline)
            return "" if (each.state, each.node, each.deadline) == held else "lost its lease"
        if each.state is JobState.LEASED:
            return "is leased to somebody"
        first, last = job.ready_between
        if each.state is JobState.DELAYED and job.lease is None:
            return "" if each.ready_at is not None and first <= each.ready_at <= last else "is delayed"
        return "is not delayed any more" if job.lease is None and first > now_ms else ""

    def _void(self, job: Sent, each: JobView) -> str:
        if each.state is JobState.DEAD:
            return ""
        if each.state is JobState.LEASED or each.deliveries:
            return "is not as if it had never been leased"
        if each.state is JobState.DELAYED:
            unknown = job.appended is not Outcome.DONE
            return "" if each.ready_at == job.deliver_at or unknown else "is delayed"
        return "comes too early" if job.deliver_at > self.engine.now_ms() else ""

    # -- afterwards --------------------------------------------------------------------------------------------------

    def _remember(self) -> None:
        """Recovery has made durable what it found."""
        lasted = False
        for job in self.ledger.jobs:
            there = self.found.get(job.data, [])
            own = next((each for each in there if each.topic == job.queue), None)
            if not there:
                job.purged = Outcome.DONE if not job.gone else job.purged
                job.acked = None if job.acked is Outcome.OPEN else job.acked
            else:
                job.appended = Outcome.DONE
                job.acked = job.purged = None
                if job.rejected is Outcome.OPEN:
                    job.rejected = Outcome.DONE if own is None or _is_dead(own) else None
            if own is None:
                job.lease = None
            else:
                job.seq = own.record.seq
                if own.view is not None:
                    lasted |= bool(own.view.deliveries)
                    self._adopt(job, own.view)
            job.append_safe = job.end_safe = job.lease_safe = True
        self.ledger.perhaps_clean &= lasted
        for queue in self.ledger.queues.values():
            if queue.name in self.topics:
                queue.configs = [(self.topics[queue.name].state.config, Outcome.DONE)]
            if queue.name in self.shown:
                queue.paused = {self.engine.queues.figures(queue.name).paused}

    def _adopt(self, job: Sent, each: JobView) -> None:
        token = job.lease.token if job.lease is not None and job.lease.deadline == each.deadline else 0
        leased = each.state is JobState.LEASED
        job.lease = Lease(each.node or "", 0 if job.unsure else token, each.deadline or 0) if leased else None
        job.deliveries, job.unsure = each.deliveries, False
        job.ready_between = (each.ready_at or 0, each.ready_at or 0)
