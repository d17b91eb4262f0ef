"""Measures workers of other job systems beside this project's: the same job, one worker process each, in one run.

    python -m loadtest.job_systems                             10,000 jobs, 3 rounds
    python -m loadtest.job_systems --python other/bin/python   the others are installed there

A queue is filled with jobs that do nothing, then a worker process works it off. The figures are jobs a second and
processor time per job of that process, from its first job to its last. The others (`pip install celery packaging
dramatiq arq rq 'redis>=6.1'`) use a Redis that syncs once a second, this project a queue of class disk; both keep their
jobs over a `kill -9`. Each system acknowledges a job after its handler, if it can. Systems that are not installed are
left out.

Differences: a topics worker takes a lease for each job, renews it, and acknowledges in batches. Celery and Dramatiq run
8 threads, arq 64 coroutines, RQ one job after the other in one process, without its fork per job.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Final

from loadtest.own_broker import OwnBroker
from loadtest.own_redis import OwnRedis, is_there

_COUNT: Final = r'''
import os, sys, time
N, DONE, BEGAN = int(os.environ["JOBS"]), 0, None

def ran():
    """Called by each job. Behind the last, the figures are told and the process ends."""
    global DONE, BEGAN
    if BEGAN is None:
        BEGAN = time.perf_counter(), time.process_time()
    DONE += 1
    if DONE == N:
        took, used = time.perf_counter() - BEGAN[0], time.process_time() - BEGAN[1]
        os.write(1, f"\nFIGURES {N / took} {used / N * 1e6}\n".encode())
        os._exit(0)
'''
_CELERY: Final = """
from celery import Celery
app = Celery("program", broker=os.environ["URL"])
app.conf.update(task_ignore_result=True, task_acks_late=True, worker_prefetch_multiplier=16,
                broker_connection_retry_on_startup=True)

@app.task(name="nothing")
def nothing(n):
    ran()

def fill():
    with app.producer_pool.acquire(block=True) as producer:
        for n in range(N):
            nothing.apply_async((n,), producer=producer)

def work():
    app.worker_main(["worker", "-P", "threads", "-c", "8", "-l", "ERROR", "--without-gossip", "--without-mingle"])
"""
_DRAMATIQ: Final = """
import dramatiq
from dramatiq.brokers.redis import RedisBroker
broker = RedisBroker(url=os.environ["URL"])
dramatiq.set_broker(broker)

@dramatiq.actor
def nothing(n):
    ran()

def fill():
    for n in range(N):
        nothing.send(n)

def work():
    dramatiq.Worker(broker, worker_threads=8).start()
    time.sleep(600)
"""
_ARQ: Final = """
import asyncio
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker
settings = RedisSettings.from_dsn(os.environ["URL"])

async def nothing(ctx, n):
    ran()

def fill():
    async def send():
        pool = await create_pool(settings)
        for n in range(N):
            await pool.enqueue_job("nothing", n)
    asyncio.run(send())

def work():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    Worker([nothing], redis_settings=settings, max_jobs=64, keep_result=0, poll_delay=0.01, queue_read_limit=256,
           handle_signals=False).run()
"""
_RQ: Final = """
import redis, rq
connection = redis.Redis.from_url(os.environ["URL"])

def nothing(n):
    ran()

def fill():
    queue = rq.Queue(connection=connection)
    for first in range(0, N, 500):
        jobs = [rq.Queue.prepare_data("program.nothing", (n,), result_ttl=0) for n in range(first, first + 500)]
        queue.enqueue_many(jobs)

def work():
    import logging
    logging.disable(logging.WARNING)
    rq.SimpleWorker([rq.Queue(connection=connection)], connection=connection).work(burst=True)
"""
_TOPICS: Final = """
import asyncio, logging
from topics_client import Client, Worker
client = Client(os.environ["URL"])

def fill():
    client.delete_topic("jobs")
    client.put_topic("jobs", type="queue", durability="disk")
    for first in range(0, N, 1000):
        client.append("jobs", list(range(first, first + 1000)))

async def coroutine(n: int):
    ran()

def function(n: int):
    ran()

def work():
    worker = Worker(client)
    threads = os.environ["KIND"] == "threads"
    worker.queue("jobs", concurrency=8 if threads else 64)(function if threads else coroutine)
    worker.run()
"""
#: By name: the program, the module that it needs, and whether it is ours.
SYSTEMS: Final[dict[str, tuple[str, str, bool]]] = {
    "topics, 64 coroutines": (_TOPICS, "topics_client", True),
    "topics, 8 threads": (_TOPICS, "topics_client", True),
    "Celery": (_CELERY, "celery", False),
    "Dramatiq": (_DRAMATIQ, "dramatiq", False),
    "arq": (_ARQ, "arq", False),
    "RQ": (_RQ, "rq", False),
}


def run(name: str, python: str, url: str, jobs: int) -> tuple[float, float]:
    """Jobs a second, and µs of processor time a job."""
    program, _, ours = SYSTEMS[name]
    kept = {**os.environ, "URL": url, "JOBS": str(jobs), "KIND": "threads" if "threads" in name else "coroutines"}
    with tempfile.TemporaryDirectory(prefix="topics-jobs-") as folder:
        Path(folder, "program.py").write_text(_COUNT + program)
        for step in ("fill", "work"):
            command = [sys.executable if ours else python, "-c", f"import program; program.{step}()"]
            paths = [folder, *([p for p in sys.path if p] if ours else [])]
            done = subprocess.run(
                command,
                cwd=folder,
                env={**kept, "PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=600,
            )
        told = [line.split() for line in done.stdout.splitlines() if line.startswith("FIGURES")]
        if not told:
            raise SystemExit(f"{name} told no figures:\n{done.stdout}{done.stderr}")
        return float(told[0][1]), float(told[0][2])


def installed(python: str, module: str) -> bool:
    """Whether this interpreter has the module."""
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.job_systems", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=10_000, help="a multiple of 1000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the others")
    options = parser.parse_args()
    names = [
        name
        for name, (_, module, ours) in SYSTEMS.items()
        if ours or (is_there() and installed(options.python, module))
    ]
    for name in SYSTEMS.keys() - set(names):
        print(f"{name}: left out, it or redis-server is not installed", file=sys.stderr)
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for number in range(options.rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            server = OwnBroker() if SYSTEMS[name][2] else OwnRedis(sync="everysec")
            try:
                server.start()
                scheme = "http" if SYSTEMS[name][2] else "redis"
                url = f"{scheme}://{server.host}:{server.port}"
                seen[name].append(run(name, options.python, url, options.jobs))
            finally:
                server.close()
            print(f"round {number + 1}: {name} {seen[name][-1][0]:,.0f} jobs/s", file=sys.stderr)
    print(f"{'':24}{'jobs/s':>10}  {'(range)':18}{'cpu µs/job':>12}")
    for name, figures in seen.items():
        rates = sorted(rate for rate, _ in figures)
        used = median(us for _, us in figures)
        spread = f"({rates[0]:,.0f} to {rates[-1]:,.0f})"
        print(f"{name:24}{median(rates):>10,.0f}  {spread:18}{used:>12,.0f}")


if __name__ == "__main__":
    main()
