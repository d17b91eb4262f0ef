"""Queues against a plain dict of jobs: claims and their results, in any order with everything else.

Delays, backoff, dead letters, caps, ttl, pauses, copies into tiny segments, snapshots, and all kinds of restarts.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from storage import Discard, Durability, NewRecord, TopicConfig, TopicType
from storage.errors import LeaseLost, StorageError
from storage.state.queues.values import JobState, JobView
from tests.conftest import is_soak
from tests.property.queue_bench import DEAD, EXPIRY_TURNS, QUEUE, QueueBench
from tests.property.queue_model import ClaimedJob, Job
from tests.property.test_engine_model import DISK_SYNC_MS, SMALL
from tests.support.sim_disk import Loss
from tests.unit.storage.machine import options, outcome, raw, record

NODES = st.sampled_from(["n1", "n1", "n2"])
METAS = st.sampled_from([None, None, {"k": 1}, [1, 2], "m"])
DELAYS = st.sampled_from([None, None, None, ("delay_ms", 0), ("delay_ms", 300), ("at", 900), ("at", -50)])
JOBS = st.lists(
    st.tuples(st.integers(0, 2000), st.sampled_from([None, "a"]), st.sampled_from([None, "w"]), METAS, DELAYS),
    min_size=1,
    max_size=5,
)
#: Indexes of leases so far, latest first, including stale ones.
PICKS = st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)
#: Most operations happen at once, some when a lease, a delay or a record has just expired.
UNSEEN = st.sampled_from([0, 0, 0, 0, 100, 101, 300, 901])
STRICT = st.sampled_from([False, False, True])
CHANGES: dict[str, Any] = {
    "lease_ms": st.sampled_from([100, 400, 5000]),
    "max_deliveries": st.sampled_from([0, 0, 1, 2, 3]),
    "dead_letter": st.sampled_from([None, DEAD, DEAD]),
    "retry_backoff_ms": st.sampled_from([0, 0, 100]),
    "retry_backoff_max_ms": st.sampled_from([150, 3_600_000]),
    "cap_records": st.sampled_from([0, 0, 0, 0, 7]),
    "cap_bytes": st.sampled_from([0, 0, 0, 0, 60]),
    "ttl_ms": st.sampled_from([0, 0, 0, 0, 900]),
    "discard": st.sampled_from([Discard.OLD, Discard.OLD, Discard.REJECT]),
}
CONFIGS = st.fixed_dictionaries(CHANGES)


class QueueMachine(QueueBench):
    """The class and the durability of leases stay the same for the life of a queue. Other tests change them."""

    @initialize(
        events=st.integers(4, 8),
        shards=st.integers(1, 2),
        durability=st.sampled_from([Durability.FSYNC, Durability.FSYNC, Durability.DISK]),
        leases_durable=st.booleans(),
        changes=CONFIGS,
    )
    def begin(
        self, events: int, shards: int, durability: Durability, leases_durable: bool, changes: dict[str, Any]
    ) -> None:
        self.options = options(**SMALL, segment_max_events=events, wal_shards=shards)
        config = TopicConfig(type=TopicType.QUEUE, durability=durability, leases_durable=leases_durable, **changes)
        self.make(config)

    # -- jobs come ---------------------------------------------------------------------------------------------------

    @rule(batch=JOBS)
    def append(self, batch: list[tuple[int, str | None, str | None, Any, tuple[str, int] | None]]) -> None:
        records: list[NewRecord] = []
        jobs: list[Job] = []
        for data, tag, node, meta, delay in batch:
            kind, ms = delay or ("", 0)
            when = {"delay_ms": ms} if kind == "delay_ms" else {"deliver_at": self.now + ms} if kind else {}
            records.append(record(data, meta=meta, tag=tag, node=node, **when))
            size = len(raw(data)) + (0 if meta is None else len(raw(meta)))
            at = self.now + ms if delay else 0
            jobs.append(Job(self.queue.head + 1 + len(jobs), self.now, data, size, meta, tag, node, at))
        written = self.run(outcome(self.engine.append(QUEUE, records)))
        code = self.refusal(jobs)
        if code:
            assert isinstance(written, StorageError)
            assert written.code == code
            return
        assert (written.first_seq, written.count) == (jobs[0].seq, len(jobs))
        self.queue.append(jobs, self.now)

    def refusal(self, jobs: list[Job]) -> str:
        config, live = self.queue.config, self.queue.live
        sizes = [job.size for job in jobs]
        reject = config.discard is Discard.REJECT
        if config.cap_bytes and (sum(sizes) if reject else max(sizes)) > config.cap_bytes:
            return "record_too_large"
        if reject and config.cap_records and len(live) + len(jobs) > config.cap_records:
            return "topic_full"
        if reject and config.cap_bytes and self.queue.bytes + sum(sizes) > config.cap_bytes:
            return "topic_full"
        return ""

    # -- leases ------------------------------------------------------------------------------------------------------

    @rule(
        node=NODES,
        most=st.integers(0, 4),
        lease_ms=st.sampled_from([None, None, 0, 150, 3000]),
        key=st.sampled_from([None, None, None, "k1", "k2"]),
        after_ms=UNSEEN,
    )
    def claim(self, node: str, most: int, lease_ms: int | None, key: str | None, after_ms: int) -> None:
        self.pass_unseen(after_ms)
        given = self.queue.claim(node, max(1, most), lease_ms, key, self.now)
        claimed = self.run(self.engine.queues.claim(QUEUE, node, max=most, lease_ms=lease_ms, attempt_key=key))
        if given and not self.queue.repeated(node, key or "") and any(job.either for job in self.queue.jobs.values()):
            seqs = [each.record.seq for each in claimed.jobs]
            given = self.queue.takes(seqs, max(1, most), given[0].deadline, self.now)
        found = [ClaimedJob(each.record.seq, each.deadline, each.deliveries) for each in claimed.jobs]
        assert found == given, (found, given)
        tokens = [each.lease_id for each in claimed.jobs]
        self.queue.grant(node, given, tokens, key)
        for each in claimed.jobs:
            job = self.queue.jobs[each.record.seq]
            assert (each.record.ts, msgspec.json.decode(each.record.body)["data"]) == (job.ts, job.data)
            self.handed.insert(0, (job.seq, job.token, node))
        assert claimed.ready == self.queue.figures(self.now)["ready"]
        if most == 4 and key is None:
            self.call(claimed.undo)
            self.queue.undo([each.seq for each in given], self.now)

    @rule(
        picks=PICKS,
        with_tokens=st.booleans(),
        as_other=st.sampled_from([False] * 5 + [True]),
        strict=STRICT,
        after_ms=UNSEEN,
    )
    def ack(self, picks: list[int], with_tokens: bool, as_other: bool, strict: bool, after_ms: int) -> None:
        self.pass_unseen(after_ms)
        node, seqs, tokens = self.picked(picks, with_tokens, as_other)
        if not seqs:
            return
        held = self.held(node, seqs, tokens)
        done = self.run(outcome(self.engine.queues.ack(QUEUE, node, seqs, lease_ids=tokens, strict=strict)))
        if self.went_through(done, held, seqs, strict):
            self.queue.ack(held)
            self.agree_on_rest(done, after_ms)

    @rule(
        picks=PICKS,
        with_tokens=st.booleans(),
        as_other=st.sampled_from([False] * 5 + [True]),
        strict=STRICT,
        delay_ms=st.sampled_from([None, None, 0, 250]),
        penalty=st.sampled_from([True, True, False]),
        reason=st.sampled_from([None, "broken"]),
        after_ms=UNSEEN,
    )
    def nack(
        self,
        picks: list[int],
        with_tokens: bool,
        as_other: bool,
        strict: bool,
        delay_ms: int | None,
        penalty: bool,
        reason: str | None,
        after_ms: int,
    ) -> None:
        self.pass_unseen(after_ms)
        node, seqs, tokens = self.picked(picks, with_tokens, as_other)
        if not seqs:
            return
        held = self.held(node, seqs, tokens)
        done = self.run(
            outcome(
                self.engine.queues.nack(
                    QUEUE,
                    node,
                    seqs,
                    lease_ids=tokens,
                    strict=strict,
                    delay_ms=delay_ms,
                    penalty=penalty,
                    reason=reason,
                )
            )
        )
        if self.went_through(done, held, seqs, strict):
            self.queue.nack(held, self.now, delay_ms=delay_ms, penalty=penalty, reason=reason)

    @rule(
        picks=PICKS,
        with_tokens=st.booleans(),
        strict=STRICT,
        lease_ms=st.sampled_from([0, 100, 700, 9000]),
        after_ms=UNSEEN,
    )
    def extend(self, picks: list[int], with_tokens: bool, strict: bool, lease_ms: int, after_ms: int) -> None:
        self.pass_unseen(after_ms)
        node, seqs, tokens = self.picked(picks, with_tokens, False)
        if not seqs:
            return
        held = self.held(node, seqs, tokens)
        done = self.run(
            outcome(self.engine.queues.extend(QUEUE, node, seqs, lease_ms, lease_ids=tokens, strict=strict))
        )
        if self.went_through(done, held, seqs, strict):
            assert done.deadlines == self.queue.extend(held, lease_ms, self.now)
            self.agree_on_rest(done, after_ms)

    def picked(self, picks: list[int], with_tokens: bool, as_other: bool) -> tuple[str, list[int], list[int] | None]:
        """(node, seqs, tokens) of some leases so far, with the node that had the first of them."""
        leases = [self.handed[pick] for pick in picks if pick < len(self.handed)]
        seqs = list(dict.fromkeys(seq for seq, _, _ in leases))
        if not seqs:
            return "", [], None
        tokens = [next(token for seq, token, _ in leases if seq == each) for each in seqs]
        return "n3" if as_other else leases[0][2], seqs, tokens if with_tokens else None

    def held(self, node: str, seqs: list[int], tokens: list[int] | None) -> list[int]:
        return self.queue.held(node, seqs, tokens, self.now)

    def went_through(self, done: Any, held: list[int], seqs: list[int], strict: bool) -> bool:
        stale = [seq for seq in seqs if seq not in held]
        if strict and stale:
            assert isinstance(done, LeaseLost)
            assert done.detail["seqs"] == stale
            return False
        assert (done.done, done.skipped) == (held, stale)
        return True

    def agree_on_rest(self, done: Any, after_ms: int) -> None:
        if after_ms or self.queue.config.ttl_ms:
            return  # what time has done to other jobs is seen when somebody looks
        figures = self.queue.figures(self.now)
        assert (done.ready, done.in_flight) == (figures["ready"], figures["in_flight"])

    # -- what is done to the queue -----------------------------------------------------------------------------------

    @rule(paused=st.booleans())
    def pause_or_resume(self, paused: bool) -> None:
        queues = self.engine.queues
        assert self.run(queues.pause(QUEUE) if paused else queues.resume(QUEUE)) is paused
        self.queue.paused = paused

    @rule(states=st.sets(st.sampled_from([JobState.READY, JobState.DELAYED]), min_size=1), sure=st.integers(0, 3))
    def purge(self, states: set[JobState], sure: int) -> None:
        if sure:
            return  # most of the time
        assert self.run(self.engine.queues.purge(QUEUE, tuple(states))) == self.queue.purge(states, self.now)

    @rule(ahead=st.integers(-1, 3))
    def delete_oldest(self, ahead: int) -> None:
        live = self.queue.live
        if not live:
            return
        seq = live[min(len(live) - 1, max(0, ahead))].seq
        done = self.run(self.engine.delete_records(QUEUE, before_seq=seq))
        assert done.deleted == self.queue.delete_below(seq, self.now)

    @rule(changes=CONFIGS)
    def configure(self, changes: dict[str, Any]) -> None:
        config = msgspec.structs.replace(self.queue.config, **changes)
        self.run(self.engine.put_topic(QUEUE, config))
        self.queue.set_config(config.clamped(), self.now)

    @rule(most=st.integers(1, 3))
    def redrive(self, most: int) -> None:
        if self.queue.config.dead_letter is None or self.queue.config.cap_records or self.queue.config.cap_bytes:
            return  # the effect of a full queue on them is tested elsewhere
        back, left = self.queue.moved[:most], self.queue.moved[most:]
        if not any(state.topic == DEAD for state in self.engine.topics()):
            return
        dry = self.run(self.engine.queues.redrive(QUEUE, max=most, dry_run=True))
        assert (dry.moved, dry.remaining) == (len(back), len(left))
        done = self.run(self.engine.queues.redrive(QUEUE, max=most))
        self.go_on()
        assert (done.moved, done.remaining) == (len(back), len(left))
        self.queue.moved = left
        jobs = [
            Job(self.queue.head + 1 + n, self.now, job.data, size_of(job.data, job.meta), job.meta, job.tag, job.node)
            for n, job in enumerate(back)
        ]
        self.queue.append(jobs, self.now)

    # -- time, and what goes on beside -------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 40, 100, 101, 260, 1000, 6000]))
    def time_passes(self, ms: int) -> None:
        self.run(self.clock.advance(ms))

    @rule(late=st.sampled_from([0, 1]), deadlines=st.booleans())
    def time_comes(self, late: int, deadlines: bool) -> None:
        """To the moment when a lease or a delay ends, or one ms after it."""
        jobs = self.queue.jobs.values()
        times = [job.deadline if deadlines else job.ready_at for job in jobs]
        coming = [time for time in times if time >= self.now]
        if coming:
            self.run(self.clock.advance(min(coming) - self.now + late))

    @rule(what=st.sampled_from(["absorb", "absorb", "upkeep", "snapshot", "expiry"]))
    def keep_up(self, what: str) -> None:
        self.run(self.work(what))

    # -- restarts ----------------------------------------------------------------------------------------------------

    @rule(how=st.none() | st.just("kill") | st.sampled_from(list(Loss)), seed=st.integers(0, 5))
    def restart(self, how: Any, seed: int) -> None:
        """By a clean stop, by killing the process, or by cutting the power when everything is hardened."""
        if isinstance(how, Loss) and self.queue.config.durability is Durability.DISK:
            # Until nothing changes any more: what ends during the wait has to be on the disk as well.
            before: list[JobView] | None = None
            while (views := self.listed()) != before:
                before = views
                self.run(self.clock.advance(3 * DISK_SYNC_MS))
                self.compare()
        if how is None:
            self.run(self.engine.close())
        else:
            self.disk = self.disk.process_kill() if how == "kill" else self.disk.power_cut(how, seed)
        self.end_process()
        self.start()
        self.queue.restart(self.now, clean=how is None)
        if isinstance(how, Loss):  # seqs that might have been used are not used again
            assert self.engine.state(QUEUE).head_seq >= self.queue.head
            self.queue.head = self.engine.state(QUEUE).head_seq

    # -- comparing ---------------------------------------------------------------------------------------------------

    def pass_unseen(self, ms: int) -> None:
        """Time jumps, and the engine has to notice the consequences when it is asked for something."""
        self.clock.tick(ms)
        self.queue.settle(self.now)
        if self.queue.config.leases_durable:
            self.go_on(EXPIRY_TURNS)  # an expiry counts once it is written, so an earlier claim has to wait for it
        if any(job.ready_between for job in self.queue.jobs.values()):
            self.compare()  # its answer depends on chance

    @invariant()
    def all_of_it_is_as_it_should_be(self) -> None:
        self.compare()
        assert not any(self.engine.supervisor.failures.values())
        assert self.engine.failed_shards == []


def size_of(data: Any, meta: Any) -> int:
    return len(raw(data)) + (0 if meta is None else len(raw(meta)))


TestQueueModel = QueueMachine.TestCase
TestQueueModel.settings = settings(max_examples=2000 if is_soak(os.environ) else 100, stateful_step_count=40)
