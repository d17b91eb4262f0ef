"""The workloads of the queue crash sweep: short, one topic each, the same in every run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from storage import Discard, Durability, Options, TopicConfig, TopicType
from tests.crash.workloads import SMALL, TINY
from tests.support.job_run import JobWorkload
from tests.support.job_session import JobSession

WORKLOADS: dict[str, JobWorkload] = {}

VOID = TopicConfig(type=TopicType.QUEUE, durability=Durability.FSYNC)
LASTING = msgspec.structs.replace(VOID, leases_durable=True)
SEGMENTS = msgspec.structs.replace(SMALL, segment_max_events=4, checkpoint_records=1)
SHARDED = msgspec.structs.replace(SEGMENTS, wal_shards=2)
TINY_SEGMENTS = msgspec.structs.replace(TINY, segment_max_events=5, checkpoint_records=1)

Body = Callable[[JobSession], Awaitable[None]]
BodyOfQueue = Callable[[JobSession, TopicConfig], Awaitable[None]]


def workload(options: Options = SMALL) -> Callable[[BodyOfQueue], BodyOfQueue]:
    """Register a function under its own name, once with durable leases and once with others."""

    def enter(body: BodyOfQueue) -> BodyOfQueue:
        for kind, config in (("void", VOID), ("lasting", LASTING)):

            async def run(s: JobSession, config: TopicConfig = config) -> None:
                await body(s, config)

            name = f"{body.__name__}_{kind}"
            WORKLOADS[name] = JobWorkload(name, run, options)
        return body

    return enter


def with_(config: TopicConfig, **changes: object) -> TopicConfig:
    return msgspec.structs.replace(config, **changes)


@workload()
async def claimed_and_acked(s: JobSession, config: TopicConfig) -> None:
    await s.put("q", config)
    await s.append("q", 4)
    first = await s.claim("q", "a", 2)
    second = await s.claim("q", "b", 2, key="k")
    await s.ack("q", first)
    await s.ack("q", second[:1])
    await s.append("q", 2, meta=True)
    await s.claim("q", "a", 1)


@workload()
async def given_back_and_extended(s: JobSession, config: TopicConfig) -> None:
    await s.put("q", config)
    await s.append("q", 5)
    jobs = await s.claim("q", "a", 4)
    await s.nack("q", jobs[:1], delay_ms=0)
    await s.nack("q", jobs[1:2], delay_ms=5000)
    await s.extend("q", jobs[2:], 90_000)
    again = await s.claim("q", "b", 2)
    await s.nack("q", again[:1], reason="broken")
    await s.ack("q", [*again[1:], *jobs[3:]])


@workload()
async def leases_run_out(s: JobSession, config: TopicConfig) -> None:
    await s.put("q", with_(config, lease_ms=1000, retry_backoff_ms=400))
    await s.append("q", 3)
    await s.claim("q", "a", 2)
    await s.pass_time(1100)
    await s.claim("q", "b", 1)
    await s.pass_time(600)
    jobs = await s.claim("q", "b", 3)
    await s.ack("q", jobs[:1])
    await s.pass_time(2000)
    await s.ack("q", await s.claim("q", "a", 2))


@workload()
async def at_once(s: JobSession, config: TopicConfig) -> None:
    await s.put("q", config)
    await s.put("p", with_(config, durability=Durability.DISK))
    await s.together(s.append("q", 4), s.append("p", 3))
    q, p = await s.claim("q", "a", 3), await s.claim("p", "a", 2)
    await s.together(s.ack("q", q[:1]), s.nack("q", q[1:2]), s.extend("q", q[2:], 50_000), s.ack("p", p[:1]))
    await s.together(s.append("q", 2), s.ack("q", q[2:]), s.claim("p", "b", 2), s.claim("q", "c", 2))


@workload()
async def disk_class(s: JobSession, config: TopicConfig) -> None:
    await s.put("q", with_(config, durability=Durability.DISK))
    await s.append("q", 4)
    await s.pass_time(200)
    jobs = await s.claim("q", "a", 3)
    await s.ack("q", jobs[:1])
    await s.pass_time(200)
    await s.nack("q", jobs[1:2], delay_ms=0)
    await s.append("q", 2)
    await s.ack("q", jobs[2:])


@workload()
async def delayed_jobs(s: JobSession, config: TopicConfig) -> None:
    await s.put("q", config)
    await s.append("q", 2, delay_ms=3000)
    await s.append("q", 1)
    await s.snapshot()
    await s.append("q", 2, delay_ms=60_000, meta=True)
    await s.claim("q", "a", 3)
    await s.pass_time(3000)
    jobs = await s.claim("q", "a", 3)
    await s.ack("q", jobs[:1])


@workload(SEGMENTS)
async def snapshots_and_segments_between(s: JobSession, config: TopicConfig) -> None:
    await s.put("q", config)
    await s.append("q", 5)
    jobs = await s.claim("q", "a", 4)
    await s.mark_flushed()
    await s.ack("q", jobs[:2])
    await s.snapshot()
    await s.nack("q", jobs[2:3], delay_ms=9000)
    await s.append("q", 4, delay_ms=500)
    await s.mark_flushed()
    await s.snapshot()
    await s.extend("q", jobs[3:], 60_000)
    more = await s.claim("q", "b", 2)
    await s.together(s.ack("q", more), s.mark_flushed(), s.snapshot())
    await s.mark_flushed()


@workload(TINY_SEGMENTS)
async def trimmed_behind_leases(s: JobSession, config: TopicConfig) -> None:
    await s.put("q", with_(config, lease_ms=600_000))
    await s.append("q", 3, size=300)
    held = await s.claim("q", "a", 2)
    for number in range(4):
        await s.append("q", 2, size=400)
        await s.ack("q", await s.claim("q", f"n{number}", 2))
        await s.mark_flushed()
        await s.snapshot()
    await s.ack("q", held[:1])


@workload(SHARDED)
async def dead_letters(s: JobSession, config: TopicConfig) -> None:
    for name in "qp":
        await s.put(name, with_(config, max_deliveries=2, dead_letter=f"{name}-dead"))
        await s.append(name, 3, meta=True)
    for name in "qpq":
        jobs = await s.claim(name, "a", 2)
        await s.nack(name, jobs, delay_ms=0, reason="no good")
        await s.settle()
    await s.snapshot()
    await s.mark_flushed()
    await s.nack("p", await s.claim("p", "b", 3), delay_ms=0)
    await s.settle()
    await s.ack("q", await s.claim("q", "b", 1))


@workload(msgspec.structs.replace(SHARDED, wal_shards=3))
async def dead_letters_of_all_classes(s: JobSession, config: TopicConfig) -> None:
    """Into existing topics of another class than the queue."""
    for name, own, other in (("q", Durability.FSYNC, Durability.DISK), ("p", Durability.DISK, Durability.FSYNC)):
        await s.put_dead(f"{name}-dead", TopicConfig(durability=other))
        await s.put(name, with_(config, durability=own, max_deliveries=1, dead_letter=f"{name}-dead", lease_ms=500))
        await s.append(name, 2)
        await s.pass_time(200)
    await s.nack("q", await s.claim("q", "a", 1))
    await s.claim("p", "a", 2)
    await s.pass_time(700)
    await s.claim("q", "a", 1)
    await s.pass_time(700)


@workload(SHARDED)
async def rejected(s: JobSession, config: TopicConfig) -> None:
    for name in "qp":
        await s.put(name, with_(config, max_deliveries=5, dead_letter=f"{name}-dead"))
        await s.append(name, 5, meta=True)
    q, p = await s.claim("q", "a", 4), await s.claim("p", "a", 3, lease_ms=1000)
    await s.reject("q", q[:1], reason="no good")
    await s.reject("p", p[:1], strict=True)
    await s.settle()
    await s.together(
        s.reject("q", q[1:2], strict=True), s.ack("q", q[2:3]), s.reject("p", p[1:2]), s.claim("q", "b", 1)
    )
    await s.snapshot()
    await s.mark_flushed()
    late = await s.claim("p", "a", 2, lease_ms=90_000)
    await s.pass_time(1100)
    await s.reject("p", [*p[2:], *late[:1]], strict=True)
    await s.reject("p", [*p[2:], *late[:1]], reason="no good either")
    await s.together(s.nack("q", q[3:], delay_ms=0), s.reject("p", late[1:]))
    await s.settle()


@workload(msgspec.structs.replace(SHARDED, wal_shards=3))
async def rejected_into_other_classes(s: JobSession, config: TopicConfig) -> None:
    for name, own, other in (("q", Durability.FSYNC, Durability.DISK), ("p", Durability.DISK, Durability.FSYNC)):
        await s.put_dead(f"{name}-dead", TopicConfig(durability=other))
        await s.put(name, with_(config, durability=own, dead_letter=f"{name}-dead"))
        await s.append(name, 3)
    q, p = await s.claim("q", "a", 2), await s.claim("p", "a", 2)
    await s.together(s.reject("q", q[:1]), s.reject("p", p, strict=True))
    await s.pass_time(200)
    await s.reject("q", q[1:], strict=True)
    await s.reject("p", await s.claim("p", "b", 1))


@workload(SHARDED)
async def rejected_and_refused(s: JobSession, config: TopicConfig) -> None:
    """The dead letter topic is full: refused jobs wait until it has room."""
    full = TopicConfig(durability=Durability.FSYNC, cap_records=1, discard=Discard.REJECT)
    await s.put_dead("q-dead", full)
    await s.put("q", with_(config, max_deliveries=1, dead_letter="q-dead"))
    await s.append("q", 4, meta=True)
    jobs = await s.claim("q", "a", 3)
    await s.reject("q", jobs[:2], reason="no good")
    await s.settle()
    await s.together(s.nack("q", jobs[2:]), s.snapshot())
    await s.mark_flushed()
    await s.pass_time(700)
    await s.reject("q", await s.claim("q", "b", 1))
    # As many as there are jobs: if it was created without a cap, this cap removes none of them.
    await s.put_dead("q-dead", with_(full, cap_records=4))
    await s.pass_time(5000)


@workload()
async def rejected_without_dead_letters(s: JobSession, config: TopicConfig) -> None:
    await s.put("q", config)
    await s.put("p", with_(config, durability=Durability.DISK))
    await s.append("q", 4)
    await s.append("p", 3)
    q, p = await s.claim("q", "a", 3), await s.claim("p", "a", 2)
    await s.reject("q", q[:1], strict=True)
    await s.together(s.reject("q", q[1:2]), s.ack("q", q[2:]), s.reject("p", p[:1]))
    await s.snapshot()
    await s.reject("p", p[1:], strict=True)
    await s.claim("q", "b", 1)


@workload(SHARDED)
async def redriven(s: JobSession, config: TopicConfig) -> None:
    await s.put("q", with_(config, max_deliveries=1, dead_letter="dead"))
    await s.append("q", 3, meta=True)
    await s.nack("q", await s.claim("q", "a", 3))
    await s.settle()
    await s.redrive("q", 2)
    await s.snapshot()
    await s.redrive("q", 5)


@workload()
async def paused_and_resumed(s: JobSession, config: TopicConfig) -> None:
    await s.put("q", config)
    await s.append("q", 3)
    jobs = await s.claim("q", "a", 2)
    await s.pause("q")
    await s.ack("q", jobs[:1])
    await s.snapshot()
    await s.claim("q", "a", 1)
    await s.pause("q", False)
    await s.nack("q", jobs[1:], delay_ms=0)
    await s.pause("q")


@workload()
async def purged(s: JobSession, config: TopicConfig) -> None:
    await s.put("q", config)
    await s.append("q", 4)
    await s.append("q", 2, delay_ms=4000)
    jobs = await s.claim("q", "a", 2)
    await s.purge("q")
    await s.append("q", 2)
    await s.ack("q", jobs[:1])


@workload(SEGMENTS)
async def caps_take_jobs(s: JobSession, config: TopicConfig) -> None:
    await s.put("q", with_(config, cap_records=4, ttl_ms=20_000))
    await s.append("q", 4)
    jobs = await s.claim("q", "a", 2)
    await s.append("q", 1)
    await s.mark_flushed()
    await s.append("q", 2)
    await s.ack("q", jobs)
    await s.snapshot()
    await s.pass_time(20_100)
    await s.append("q", 3)


@workload()
async def clean_stops(s: JobSession, config: TopicConfig) -> None:
    await s.put("q", with_(config, lease_ms=300_000))
    await s.append("q", 4)
    jobs = await s.claim("q", "a", 3)
    await s.nack("q", jobs[2:], delay_ms=50_000)
    await s.close()
    await s.start()
    await s.nack("q", jobs[:1], delay_ms=0)
    again = await s.claim("q", "b", 1)
    await s.ack("q", jobs[1:2])
    await s.close()
    await s.start()
    await s.ack("q", again)


@workload()
async def claims_alone_after_a_clean_stop(s: JobSession, config: TopicConfig) -> None:
    """Without durable leases the log has no frame of these claims."""
    await s.put("q", with_(config, lease_ms=300_000))
    await s.append("q", 3)
    await s.claim("q", "a", 1)
    await s.close()
    await s.start()
    jobs = await s.claim("q", "b", 1)
    await s.nack("q", jobs, delay_ms=0)
    await s.claim("q", "a", 1)
    await s.snapshot()


@workload(SHARDED)
async def queues_come_and_go(s: JobSession, config: TopicConfig) -> None:
    await s.put("q", config)
    await s.append("q", 3)
    await s.claim("q", "a", 2)
    await s.drop("q")
    await s.put("p", config)
    await s.append("p", 3)
    await s.claim("p", "a", 2)
    await s.snapshot()
    await s.drop("p")


@workload(TINY)
async def acks_on_a_full_disk(s: JobSession, config: TopicConfig) -> None:
    await s.put("q", config)
    await s.append("q", 4, size=200)
    jobs = await s.claim("q", "a", 3)
    s.disk.capacity_bytes = s.disk.used_bytes + 300
    for _ in range(3):
        await s.append("q", 2, size=400)
    await s.ack("q", jobs[:1])
    await s.nack("q", jobs[1:2], delay_ms=100)
    await s.extend("q", jobs[2:], 200_000)
    s.disk.capacity_bytes = None
    await s.pass_time(700)
    await s.append("q", 1)
    await s.claim("q", "b", 2)
