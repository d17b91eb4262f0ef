"""A worker in a separate process, for tests that kill or stop it.

    python -m tests.client.worker_program URL QUEUE FILE LEASE CONCURRENCY SECONDS [async]

Appends a line to FILE when a handler begins (`+ SEQ DELIVERIES`), when it ends (`- SEQ`), and when it learns that its
lease is lost (`! SEQ`). Each handler takes SECONDS. SIGTERM ends the worker.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from topics_client import Client, Job, JobContext, Worker

url, queue, path, lease, concurrency, seconds, *kind = sys.argv[1:]
file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(text: str) -> None:
    os.write(file, f"{text}\n".encode())


with Client(url) as client:
    worker = Worker(client, grace="5s")
    register = worker.queue(queue, lease=lease, concurrency=int(concurrency))

    async def by_asyncio(job: Job, context: JobContext) -> None:
        note(f"+ {job.seq} {context.deliveries}")
        try:
            await asyncio.sleep(float(seconds))
        except asyncio.CancelledError:
            note(f"! {job.seq}")
            raise
        note(f"- {job.seq}")

    def by_threads(job: Job, context: JobContext) -> None:
        note(f"+ {job.seq} {context.deliveries}")
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end:
            time.sleep(min(0.02, float(seconds)))
            if context.lost:
                note(f"! {job.seq}")
                return
        note(f"- {job.seq}")

    register(by_asyncio if kind else by_threads)
    worker.run()
