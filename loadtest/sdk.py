"""Measures the cost of the Python SDK: jobs a second of `Worker`, compared with claims and acks of 100 by hand.

    python -m loadtest.sdk                          64 at a time, 20,000 jobs, 5 rounds
    python -m loadtest.sdk --concurrency 8 --jobs 50000 --rounds 9

A queue is filled, then worked off in three ways: by `Client.claim(max=100)` and `Client.ack` in a loop; by a Worker
whose handler is a coroutine function that does nothing; and by one whose handler is a plain function that does nothing.
Every round runs all of them, in a different order each round; the results are the ratios within a round. A job counts
when the broker has accepted its ack; starting and stopping the worker is left out. Processor time per job is the
client's.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import msgspec

from loadtest.compare import Ratio, lines, ratio_of
from loadtest.own_broker import OwnBroker
from topics_client import Client, Worker

_QUEUE = "jobs"
_FILL_BATCH = 1000
_BATCH = 100
BY_HAND, COROUTINES, THREADS = "claim and ack by hand", "Worker, coroutines", "Worker, threads"


class WorkerResult(msgspec.Struct, kw_only=True):
    """Jobs a second and µs of processor time per job by variant, one list per round; `ratios` to those by hand."""

    concurrency: int
    jobs: int
    jobs_per_s: dict[str, list[float]]
    us_per_job: dict[str, list[float]]
    ratios: dict[str, list[Ratio]]


def fill(client: Client, jobs: int) -> None:
    client.delete_topic(_QUEUE)
    client.put_topic(_QUEUE, type="queue", durability="disk")
    for first in range(0, jobs, _FILL_BATCH):
        client.append(_QUEUE, [{"n": number} for number in range(first, min(first + _FILL_BATCH, jobs))])


def by_hand(client: Client, jobs: int, concurrency: int) -> float:
    """Seconds."""
    begin = time.perf_counter()
    done = 0
    while done < jobs:
        claimed = client.claim(_QUEUE, "by-hand", max=_BATCH).jobs
        done += client.ack(_QUEUE, "by-hand", claimed).count
    return time.perf_counter() - begin


def by_coroutines(client: Client, jobs: int, concurrency: int) -> float:
    async def nothing(data: dict[str, int]) -> None:
        pass

    return _worked_off(client, jobs, concurrency, nothing)


def by_threads(client: Client, jobs: int, concurrency: int) -> float:
    def nothing(data: dict[str, int]) -> None:
        pass

    return _worked_off(client, jobs, concurrency, nothing)


def _worked_off(client: Client, jobs: int, concurrency: int, handler: Callable[..., object]) -> float:
    worker = Worker(client)
    worker.queue(_QUEUE, concurrency=concurrency)(handler)
    [lane] = worker.lanes
    begin = time.perf_counter()
    with worker:
        while lane.figures()[0]["done"] < jobs:
            time.sleep(0.002)
        took_s = time.perf_counter() - begin
    if lane.figures()[0]["lost"]:
        raise SystemExit(f"{lane.figures()[0]['lost']} leases were lost: this is no measurement")
    return took_s


VARIANTS: dict[str, Callable[[Client, int, int], float]] = {
    BY_HAND: by_hand,
    COROUTINES: by_coroutines,
    THREADS: by_threads,
}


def measure(client: Client, jobs: int, concurrency: int, rounds: int) -> WorkerResult:
    """All variants in all rounds."""
    rates: dict[str, list[float]] = {name: [] for name in VARIANTS}
    costs: dict[str, list[float]] = {name: [] for name in VARIANTS}
    names = list(VARIANTS)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            fill(client, jobs)
            used_s = time.process_time()
            rates[name].append(jobs / VARIANTS[name](client, jobs, concurrency))
            costs[name].append((time.process_time() - used_s) / jobs * 1e6)
    ratios = {
        name: [
            ratio_of(metric, list(zip(found[BY_HAND], found[name], strict=True)))
            for metric, found in (("jobs/s", rates), ("cpu µs/job", costs))
        ]
        for name in (COROUTINES, THREADS)
    }
    return WorkerResult(concurrency=concurrency, jobs=jobs, jobs_per_s=rates, us_per_job=costs, ratios=ratios)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.sdk", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print everything that was seen as JSON")
    options = parser.parse_args()
    broker = OwnBroker()
    try:
        broker.start()
        with Client(f"http://{broker.host}:{broker.port}") as client:
            seen = measure(client, options.jobs, options.concurrency, options.rounds)
    finally:
        broker.close()
    if options.json:
        sys.stdout.write(msgspec.json.encode(seen).decode() + "\n")
        return
    for name, ratios in seen.ratios.items():
        print("\n".join(lines(name, ratios)))


if __name__ == "__main__":
    main()
