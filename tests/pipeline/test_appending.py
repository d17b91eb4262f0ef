"""The rows of a task, appended by several attempts: each row is stored once, in whatever order they arrive."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from pyspark.sql.types import StructType

from pipeline.broker import records_after
from pipeline.errors import BadOption, OtherRows
from pipeline.source import appending
from pipeline.source.appending import Filling, TaskLog
from pipeline.source.rows import AnyRow, RawRow, Row, digest_of
from pipeline.source.writer import Target, append_all, check_tasks
from tests.support.small_segments import SmallSegments
from topics_client import Client

WINDOW = {"idempotency_window_ms": 86_400_000}


class Died(Exception):
    """The task ends here."""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appending, "CHUNK_RECORDS", 10)


def rows(count: int, *, keys: int = 0) -> list[Row]:
    """Some of them are equal, and some have everything that a row can have."""
    return [
        Row(
            b' {"n": %d}' % (n // 3 if n % 5 == 0 else n),
            tag=f"key-{n % keys}" if keys and n % 4 else None,
            node="a" if n % 7 == 0 else None,
            meta=b'{"m":  [1, "\xc3\xa9"]}' if n % 5 == 0 else None,
        )
        for n in range(count)
    ]


def mixed(count: int, *, keys: int = 0) -> list[AnyRow]:
    """Rows of both forms."""
    raw: list[AnyRow] = [
        RawRow(
            (b"\x00\xff%d" % n, None, b'{"n": %d}' % n)[n % 3],
            (None, b"", b"\xff%d" % (n % 5), b"text")[n % 4] if keys else b"\xff",
            [("h", b"\xfe%d" % n), ("h", None)] if n % 3 == 2 or n % 7 == 0 else [],
        )
        for n in range(count // 2)
    ]
    plain: list[AnyRow] = [*rows(count - len(raw), keys=keys)]
    return [row for pair in zip(raw, plain, strict=False) for row in pair] + plain[len(raw) :]


def counted(found: Iterable[AnyRow]) -> Counter[bytes]:
    return Counter(row.digest for row in found)


def stored(client: Client, topic: str) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    for partition in range(max(1, len(client.state(topic).partitions))):
        seq, last = 0, -1
        while seq > last:
            last = seq
            page, seq = client.run(records_after(topic, seq, limit=1000, partition=partition))
            found.update(map(digest_of, page))
    return found


def attempt(
    client: Client, topic: str, given: Sequence[AnyRow], *, dies_after: int | None = None, **options: Any
) -> None:
    with TaskLog(client, topic, "task", **options) as log:
        for number, row in enumerate(given):
            if number == dies_after:
                raise Died
            log.add(row)
        log.finish()


def shuffled(given: Sequence[AnyRow], seed: int) -> list[AnyRow]:
    found = list(given)
    random.Random(seed).shuffle(found)
    return found


@pytest.mark.parametrize("partitions", [1, 3])
def test_retries_with_another_row_order_store_each_row_once(broker: SmallSegments, partitions: int) -> None:
    given = rows(400, keys=9 if partitions > 1 else 0)
    for seed in range(5):
        topic = f"retried-{partitions}-{seed}"
        broker.client.put_topic(topic, partitions=partitions, **WINDOW)
        chance = random.Random(seed)
        for tries in range(chance.randrange(1, 4)):
            with pytest.raises(Died):
                attempt(
                    broker.client,
                    topic,
                    shuffled(given, 10 * seed + tries),
                    dies_after=chance.randrange(30, len(given)),
                )
        attempt(broker.client, topic, shuffled(given, 10 * seed + 7))
        assert stored(broker.client, topic) == counted(given)
        # An attempt that comes late, in an order of its own, adds nothing.
        attempt(broker.client, topic, given)
        assert stored(broker.client, topic) == counted(given)


@pytest.mark.parametrize("partitions", [1, 3])
def test_retries_store_raw_rows_once(broker: SmallSegments, partitions: int) -> None:
    given = mixed(200, keys=9)
    assert {type(row) for row in given} == {Row, RawRow}
    for seed in range(3):
        topic = f"raw-{partitions}-{seed}"
        broker.client.put_topic(topic, partitions=partitions, **WINDOW)
        with pytest.raises(Died):
            attempt(broker.client, topic, shuffled(given, seed), dies_after=120)
        attempt(broker.client, topic, shuffled(given, seed + 50))
        assert stored(broker.client, topic) == counted(given)
        attempt(broker.client, topic, given)
        assert stored(broker.client, topic) == counted(given)


def test_a_retry_finds_raw_rows_after_the_topic_has_grown(broker: SmallSegments) -> None:
    given = [RawRow(b"\xff%d" % n) for n in range(60)]
    broker.client.put_topic("grown", partitions=2, **WINDOW)
    with pytest.raises(Died):
        attempt(broker.client, "grown", given, dies_after=45)
    broker.client.put_topic("grown", partitions=5, **WINDOW)
    attempt(broker.client, "grown", given)
    assert stored(broker.client, "grown") == counted(given)


def test_different_raw_rows_are_refused(broker: SmallSegments) -> None:
    broker.client.put_topic("raw-other", **WINDOW)
    given = [RawRow(b"\xff%d" % n) for n in range(50)]
    with pytest.raises(Died):
        attempt(broker.client, "raw-other", given, dies_after=35)
    other = [RawRow(b"\xfe%d" % n) for n in range(50)]
    with pytest.raises(OtherRows, match=r"stored 30 rows that this one does not have\. Nothing was added"):
        attempt(broker.client, "raw-other", other)
    assert broker.client.state("raw-other").count == 30


def test_a_row_goes_to_its_partition(broker: SmallSegments) -> None:
    broker.client.put_topic("placed", partitions=3, **WINDOW)
    raw = [RawRow(None, b"k", partition=2)] * 5
    attempt(broker.client, "placed", [*(Row(b"1", "k", partition=n % 3) for n in range(30)), *raw])
    assert [each.count for each in broker.client.state("placed").partitions] == [10, 10, 15]
    with pytest.raises(BadOption, match="partition 3, but the topic has 3"):
        attempt(broker.client, "placed", [Row(b"1", partition=3)])


def test_retries_with_the_same_row_order_keep_the_order(broker: SmallSegments) -> None:
    given = rows(95)
    broker.client.put_topic("ordered", **WINDOW)
    with pytest.raises(Died):
        attempt(broker.client, "ordered", given, dies_after=52)
    attempt(broker.client, "ordered", given)
    page = broker.client.read("ordered", 0, limit=1000)
    assert [each.data_raw for each in page.records] == [row.data.strip() for row in given]


def test_another_chunk_size_counts_as_another_order(broker: SmallSegments, monkeypatch: pytest.MonkeyPatch) -> None:
    given = rows(200)
    broker.client.put_topic("chunks", **WINDOW)
    with pytest.raises(Died):
        attempt(broker.client, "chunks", given, dies_after=150)
    monkeypatch.setattr(appending, "CHUNK_RECORDS", 7)
    attempt(broker.client, "chunks", given)
    assert stored(broker.client, "chunks") == counted(given)


@pytest.mark.parametrize("partitions", [1, 4])
def test_concurrent_tries_store_each_row_once(broker: SmallSegments, partitions: int) -> None:
    """Speculative tasks, and tasks that Spark believes dead, all write to their end."""
    given = rows(600, keys=11 if partitions > 1 else 0)
    for seed in range(4):
        topic = f"at-once-{partitions}-{seed}"
        broker.client.put_topic(topic, partitions=partitions, **WINDOW)
        failed: list[BaseException] = []

        def run(number: int, topic: str = topic, seed: int = seed, failed: list[BaseException] = failed) -> None:
            try:
                with Client(broker.url) as client:
                    attempt(client, topic, given if number == 0 else shuffled(given, 100 * seed + number))
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failed == []
        assert stored(broker.client, topic) == counted(given)


def test_number_lost_in_a_crash_is_used_again(broker: SmallSegments) -> None:
    """The broker has lost a record in the middle of a task's rows, and kept later ones."""
    given = rows(60)
    broker.client.put_topic("hole", **WINDOW)
    for number in (0, 1, 3, 5):
        part = given[10 * number : 10 * number + 10]
        broker.client.append("hole", [row.record for row in part], idempotency_key=f"task-{number}")
    attempt(broker.client, "hole", shuffled(given, 3))
    assert stored(broker.client, "hole") == counted(given)


def test_different_rows_are_refused_before_any_row_is_added(broker: SmallSegments) -> None:
    given = rows(100)
    other = [Row(b'{"random":%d}' % n) for n in range(100)]
    broker.client.put_topic("random", **WINDOW)
    with pytest.raises(Died):
        attempt(broker.client, "random", given, dies_after=35)
    with pytest.raises(OtherRows, match=r"stored 30 rows that this one does not have\. Nothing was added"):
        attempt(broker.client, "random", other)
    assert broker.client.state("random").count == 30
    attempt(broker.client, "random", other, append_others=True)
    assert stored(broker.client, "random") == counted([*given[:30], *other])


def test_deleted_rows_of_an_earlier_try_are_an_error(broker: SmallSegments) -> None:
    given = rows(100)
    broker.client.put_topic("gone", **WINDOW)
    with pytest.raises(Died):
        attempt(broker.client, "gone", given, dies_after=35)
    broker.client.delete_records("gone", before_seq=6)
    with pytest.raises(OtherRows, match="from seq 1 to 10 5 are deleted or evicted"):
        attempt(broker.client, "gone", shuffled(given, 1))
    attempt(broker.client, "gone", given)  # in the same order nothing has to be read
    assert broker.client.state("gone").count == 95


def test_incomplete_chunks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appending, "FILLING_BYTES", 1000)
    filling = Filling(64)
    given = [Row(b'"' + b"x" * 48 + b'"', tag=f"key-{n}") for n in range(300)]
    chunks: list[list[AnyRow]] = []
    held = most = 0
    for row in given:
        found = [chunk for _, chunk in filling.put(row)]
        held += 1 - sum(map(len, found))
        most = max(most, held)
        chunks += found
    assert most * 50 < 1000
    chunks += [chunk for _, chunk in filling.rest()]
    assert counted(row for chunk in chunks for row in chunk) == counted(given)


# -- a stream's batch as a whole ---------------------------------------------------------------------------------------


def test_batch_with_fewer_tasks_than_before_is_an_error(broker: SmallSegments) -> None:
    import pyarrow as pa

    broker.client.put_topic("fewer", **WINDOW)
    options = {"url": broker.url, "topic": "fewer"}

    def run(tasks: int, **more: str) -> None:
        target = Target({**options, **more}, StructType().add("value", "string"))
        given = [
            pa.RecordBatch.from_pydict({"value": [f'{{"n":{n}}}' for n in range(at, 40, tasks)]}) for at in range(tasks)
        ]
        done = [append_all(target, iter([batch]), f"batch-{at}") for at, batch in enumerate(given)]
        for each in done:
            each.key = "batch"
        check_tasks(target, done)

    run(4)
    run(4)
    assert broker.client.state("fewer").count == 40
    with pytest.raises(OtherRows, match="run before with more than 2 tasks, and task 2 stored rows"):
        run(2)
    run(2, differentRows="append")
