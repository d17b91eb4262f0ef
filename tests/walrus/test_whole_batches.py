"""A reader sees each batch completely or not at all while batches are appended."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from storage import BlockingEngine, Durability, TopicConfig

SIZE = 37


@pytest.mark.parametrize("durability", [Durability.MEMORY, Durability.DISK, Durability.FSYNC])
def test_readers_see_whole_batches_or_no_record(data_dir: Path, durability: Durability, soak_mode: bool) -> None:
    batches = 400 if soak_mode else 60
    problems: list[str] = []
    with BlockingEngine.open(data_dir) as engine:
        engine.put_topic("t", TopicConfig(durability=durability))
        ended = threading.Event()

        def watch(number: int) -> None:
            last = 0
            while last != batches * SIZE:
                state = engine.state("t")
                if state.head_seq % SIZE or state.count % SIZE or state.head_seq < last:
                    problems.append(f"head {state.head_seq}, count {state.count} behind {last}")
                    return
                last = state.head_seq
                seen = engine.read_batch("t", f"peek-{number}", max_records=1000, checkpoint=False)
                if seen.head_seq % SIZE:
                    problems.append(f"head {seen.head_seq} in a read")
                    return
                if ended.is_set():
                    return

        def consume(number: int) -> None:
            got: list[list[int]] = []
            while len(got) < batches * SIZE and not (ended.is_set() and not engine.unread("t", f"c{number}")):
                batch = engine.read_batch("t", f"c{number}", max_records=SIZE * 3, wait_ms=10)
                if len(batch) % SIZE:
                    problems.append(f"{len(batch)} records in a read")
                got += [record.value for record in batch]
            if got != [[each, part] for each in range(batches) for part in range(SIZE)]:
                problems.append("not the records that were written")

        threads = [threading.Thread(target=watch, args=(number,)) for number in range(3)]
        threads += [threading.Thread(target=consume, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        try:
            for each in range(batches):
                engine.append_batch("t", [[each, part] for part in range(SIZE)])
        finally:
            ended.set()
            for thread in threads:
                thread.join()
    assert problems == []
