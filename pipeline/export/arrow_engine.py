"""Runs the tasks of an export in this process, only with pyarrow, so that small exports need no JVM."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pipeline.export.task import Done, Job, Progress, export_split
from pipeline.splits import Split


class ArrowEngine:
    """Runs splits on several threads: while one waits for the broker or compresses, another decodes."""

    def __init__(self, threads: int = 2) -> None:
        self._threads = threads

    def run(self, splits: list[Split], job: Job, progress: Callable[[Progress], None]) -> list[Done]:
        """See `Engine`."""
        steps: queue.SimpleQueue[Progress | None] = queue.SimpleQueue()
        stopped = threading.Event()

        def one(split: Split) -> Done:
            def step(done: Progress) -> None:
                if stopped.is_set():
                    raise RuntimeError("another split has failed")
                steps.put(done)

            return export_split(split, job, step)

        with ThreadPoolExecutor(self._threads) as pool:
            futures = [pool.submit(one, split) for split in splits]
            for future in futures:
                future.add_done_callback(lambda _: steps.put(None))
            for _ in range(len(futures)):
                while (step := steps.get()) is not None:
                    progress(step)
                if failed := next((each for each in futures if each.done() and each.exception()), None):
                    stopped.set()
                    for each in futures:
                        each.cancel()
                    raise failed.exception() or RuntimeError("a split has failed")
            return [future.result() for future in futures]
