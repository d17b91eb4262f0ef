"""The consumer against a real broker: it continues after the reader or the broker was killed, and reports losses."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from itertools import islice, pairwise
from pathlib import Path

import pytest

from tests.client.real_broker import PATIENCE_S, RealBroker
from topics_client import AsyncClient, AsyncConsumer, Client, Consumer, Record, Tombstone, TopicNotFound
from topics_client.iteration import CommitMode

ROOT = Path(__file__).parents[2]
#: Handles a record by printing it. It may be killed between two records.
READER = """
import sys
from topics_client import Client, Consumer
url, mode = sys.argv[1:]
with Client(url) as client, Consumer(client, "t", "c", commit=mode, limit=7) as consumer:
    for record in consumer:
        print(record.data, flush=True)
        if mode == "manual":
            consumer.commit()
"""


@pytest.fixture
def own(tmp_path: Path) -> Generator[RealBroker]:
    broker = RealBroker(tmp_path)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def data_of(consumer: Consumer, count: int) -> list[object]:
    return [item.data for item in islice(consumer, count) if isinstance(item, Record)]


def test_a_missing_consumer_is_created_and_the_next_reader_continues(client: Client) -> None:
    client.append("t", [1, 2, 3, 4, 5])
    with Consumer(client, "t", "c", commit="record") as consumer:
        assert data_of(consumer, 3) == [1, 2, 3]
        consumer.commit()
    with Consumer(client, "t", "c") as consumer:
        assert data_of(consumer, 2) == [4, 5]
        assert consumer.committed == {0: 3}
    with Consumer(client, "t", "head", start="head") as consumer:
        client.append("t", [6])
        assert data_of(consumer, 1) == [6]
    assert client.consumers.get("t", "c").cursor_seq == 4


def test_new_records_are_yielded_as_they_are_appended(client: Client) -> None:
    client.put_topic("t")
    with Consumer(client, "t", "c") as consumer:
        timer = threading.Timer(0.2, lambda: client.append("t", ["late"]))
        timer.start()
        assert data_of(consumer, 1) == ["late"]
        timer.join()


def test_reading_an_absent_topic_raises_topic_not_found(client: Client) -> None:
    with pytest.raises(TopicNotFound):
        next(Consumer(client, "nowhere", "c"))


@pytest.mark.parametrize("mode", ["record", "batch", "manual"])
def test_a_killed_reader_skips_no_record(broker: RealBroker, client: Client, mode: CommitMode) -> None:
    client.append("t", [*range(60)])
    printed: list[int] = []
    for until in (17, 35, 59):
        process = subprocess.Popen(
            [sys.executable, "-c", READER, broker.url, mode], stdout=subprocess.PIPE, cwd=ROOT, env=os.environ
        )
        with process:
            assert process.stdout is not None
            late = threading.Timer(PATIENCE_S, process.kill)
            late.start()
            # Killed after a record was printed and before anything else.
            while not printed or printed[-1] < until:
                printed.append(int(process.stdout.readline()))
            process.send_signal(signal.SIGKILL)
            printed += [int(line) for line in process.stdout]
            late.cancel()
    # In order, with steps back only to records that were not committed.
    assert sorted(set(printed)) == [*range(60)]
    back = 7 if mode == "batch" else 1
    for before, after in pairwise(printed):
        assert after <= before + 1
        assert before - after < back


def test_a_consumer_continues_after_a_kill_of_the_broker(own: RealBroker) -> None:
    with Client(own.url) as client:
        client.put_topic("t", durability="fsync")
        client.append("t", [*range(10)])
        with Consumer(client, "t", "c", commit="record", limit=3) as consumer:
            assert data_of(consumer, 4) == [0, 1, 2, 3]
            own.kill()
            own.start()
            client.append("t", [10])
            assert data_of(consumer, 7) == [4, 5, 6, 7, 8, 9, 10]
            consumer.commit()
            own.kill()
            own.start()
        assert client.consumers.get("t", "c").cursor_seq == 11


def test_evicted_records_yield_a_tombstone_and_deleted_records_do_not(client: Client) -> None:
    client.put_topic("t", cap_records=3)
    client.append("t", [1, 2, 3])
    with Consumer(client, "t", "c", commit="manual", limit=2) as consumer:
        assert data_of(consumer, 1) == [1]
        for number in range(4, 9):
            client.append("t", [number])
        assert data_of(consumer, 1) == [2]  # it was read together with the first one
        gap = next(consumer)
        assert isinstance(gap, Tombstone)
        assert (gap.gap_from, gap.gap_to, gap.reason) == (3, 5, "cap")
        consumer.commit(gap)
        assert client.consumers.get("t", "c").cursor_seq == 5
        assert data_of(consumer, 2) == [6, 7]
        consumer.commit()
        client.append("t", [9, 10])
        client.delete_records("t", before_seq=10)
        assert data_of(consumer, 1) == [10]


def test_a_recreated_topic_yields_a_tombstone_and_is_read_from_its_start(client: Client) -> None:
    client.append("t", [1, 2])
    with Consumer(client, "t", "c") as consumer:
        assert data_of(consumer, 2) == [1, 2]
        client.delete_topic("t")
        client.append("t", ["new 1", "new 2", "new 3"])
        gap = next(consumer)
        assert isinstance(gap, Tombstone)
        assert gap.reason == "recreated"
        assert data_of(consumer, 3) == ["new 1", "new 2", "new 3"]
        consumer.commit()
    assert client.consumers.get("t", "c").cursor_seq == 3


def test_a_consumer_reads_one_partition(client: Client) -> None:
    client.put_topic("t", partitions=2)
    for number in range(4):
        client.append("t", [number], partition=1)
    client.append("t", ["elsewhere"], partition=0)
    with Consumer(client, "t", "c", partition=1) as consumer:
        assert data_of(consumer, 4) == [0, 1, 2, 3]
        consumer.commit()
    assert client.consumers.get("t", "c", partition=1).cursor_seq == 4


def test_the_asyncio_consumer_reads_and_commits_the_same(broker: RealBroker, client: Client) -> None:
    client.append("t", [1, 2, 3, 4])

    async def read(count: int) -> list[object]:
        found: list[object] = []
        async with AsyncClient(broker.url) as client, AsyncConsumer(client, "t", "c", commit="record") as consumer:
            async for item in consumer:
                assert isinstance(item, Record)
                found.append(item.data)
                if len(found) == count:
                    await consumer.commit()
                    assert consumer.committed == {0: item.seq}
                    break
        return found

    assert asyncio.run(read(3)) == [1, 2, 3]
    assert asyncio.run(read(1)) == [4]


def test_a_commit_for_a_deleted_topic_does_not_move_the_cursor_of_its_successor(client: Client) -> None:
    client.append("t", [1, 2, 3])
    with Consumer(client, "t", "c", commit="manual") as consumer:
        assert data_of(consumer, 3) == [1, 2, 3]
        client.delete_topic("t")
        client.append("t", ["new 1", "new 2", "new 3", "new 4"])
        client.consumers.put("t", "c", start="earliest")
        consumer.commit()
        assert client.consumers.get("t", "c").cursor_seq == 0
        gap = next(consumer)
        assert isinstance(gap, Tombstone)
        assert gap.reason == "recreated"
        assert data_of(consumer, 2) == ["new 1", "new 2"]
        consumer.commit()
        assert client.consumers.get("t", "c").cursor_seq == 2
