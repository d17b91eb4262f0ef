"""A hundred threads, a thousand topics, and one engine whose caller has no event loop."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from storage import BlockingEngine
from storage.errors import InvalidRequest, ShuttingDown, TopicNotFound, Unavailable


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Run `work` in this many threads at the same time. Raises what one of them raises."""
    gate = threading.Barrier(count)

    def run(number: int) -> None:
        gate.wait()
        work(number)

    with ThreadPoolExecutor(count) as pool:
        for _ in pool.map(run, range(count)):
            pass


def test_100_threads_on_1000_topics(data_dir: Path, soak_mode: bool) -> None:
    threads, topics, turns = 100, 1000, 10 if soak_mode else 1
    with BlockingEngine.open(data_dir) as engine:

        def write(thread: int) -> None:
            for turn in range(turns):
                for step in range(topics // 50):
                    topic = (thread * 7 + step * 50 + turn) % topics
                    done = engine.append_batch(f"t{topic}", [[thread, turn, step, part] for part in range(3)])
                    assert done.count == 3

        in_threads(threads, write)
        counted: Counter[tuple[int, int, int]] = Counter()

        def read(thread: int) -> None:
            for topic in range(thread, topics, threads // 2):  # two threads a topic: one consumer
                try:
                    while len(batch := engine.read_batch(f"t{topic}", "c", max_records=7)):
                        counted.update((record.value[0], record.value[1], record.value[2]) for record in batch)
                except TopicNotFound:
                    pass

        in_threads(threads, lambda thread: read(thread % (threads // 2)))
        # Every entry once, whichever thread read it.
        assert len(counted) == threads * turns * (topics // 50)
        assert set(counted.values()) == {3}


def test_every_thread_gets_the_errors_of_its_calls(data_dir: Path) -> None:
    with BlockingEngine.open(data_dir) as engine:

        def work(thread: int) -> None:
            with pytest.raises(TopicNotFound) as missing:
                engine.read_next(f"none-{thread}", "c")
            assert missing.value.detail["topic"] == f"none-{thread}"
            with pytest.raises(InvalidRequest):
                engine.append("not a name", thread)

        in_threads(20, work)


def test_waiting_threads_get_an_error_when_the_engine_closes(data_dir: Path) -> None:
    engine = BlockingEngine.open(data_dir)
    engine.append("t", 1)
    waiting = threading.Semaphore(0)

    def wait(thread: int) -> None:
        engine.read_next("t", f"c{thread % 3}")
        waiting.release()
        with pytest.raises(ShuttingDown):
            engine.read_next("t", f"c{thread % 3}", wait_ms=60_000)

    with ThreadPoolExecutor(12) as pool:
        futures = [pool.submit(wait, thread) for thread in range(10)]
        for _ in futures:
            waiting.acquire()
        closers = [pool.submit(engine.close) for _ in range(2)]
        for each in [*futures, *closers]:
            each.result()
    with pytest.raises(ShuttingDown):
        engine.append("t", 2)


def test_calls_that_race_with_close_return(data_dir: Path) -> None:
    for turn in range(10):
        engine = BlockingEngine.open(data_dir / str(turn))
        begun = threading.Barrier(9)

        def call(engine: BlockingEngine = engine, begun: threading.Barrier = begun) -> None:
            begun.wait()
            while True:
                try:
                    engine.topics()
                except Unavailable:
                    return

        with ThreadPoolExecutor(8) as pool:
            calls = [pool.submit(call) for _ in range(8)]
            begun.wait()
            engine.close()
            for each in calls:
                each.result(timeout=60)
