"""Readers without manifests find every record once: at rest, and after any kill and the next run."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pipeline.export.exporter import Limits
from pipeline.export.maintenance import collect, compact
from pipeline.export.verification import Verification
from tests.pipeline.exports import Exports, command, ended_pid
from tests.pipeline.test_export_killed import Killed, KillingStore
from tests.support.small_segments import SmallSegments

#: The most changes that a run of these tests makes, and a few more, which are never reached.
KILLS = range(1, 22)


def pairs(count: int) -> list[tuple[int, int]]:
    return [(0, seq) for seq in range(1, count + 1)]


def in_pieces(exports: Exports, topic: str, pieces: int, size: int) -> None:
    for _ in range(pieces):
        exports.export(topic, limits=Limits(max_records=size))


def test_every_record_once_for_globs_and_datasets(broker: SmallSegments, exports: Exports) -> None:
    broker.append("plain", 60)
    in_pieces(exports, "plain", 6, 10)
    for _ in range(2):
        assert exports.seen("plain") == pairs(60)
        folder = exports.path("plain")
        assert sorted(ds.dataset(folder, partitioning="hive").to_table(["seq"])["seq"].to_pylist()) == [*range(1, 61)]
        # A glob over the whole folder finds no other files.
        root = Path(exports.job.to)
        assert sorted(root.glob("**/*.parquet")) == sorted(folder.glob("**/*.parquet"))
        assert not any(path.is_file() for path in root.glob("_topics/plain/_staged/**/*"))
        compact(exports.store, "plain", version="test")
    assert len(list(folder.glob("**/*.parquet"))) == 1


@pytest.mark.parametrize("after", [False, True])
def test_an_export_killed_at_any_change(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    topic, count, kills = f"killed-{after}", 700, 0
    broker.append(topic, count)
    broker.await_sealed(topic, 501)
    for at in KILLS:
        store = KillingStore(exports.store, at, after)
        monkeypatch.setattr("pipeline.export.task.open_store", lambda _to, store=store: store)
        try:
            exports.exporter(store=store, pid=ended_pid()).export(topic)
        except (Killed, RuntimeError):
            kills += 1
        monkeypatch.undo()
        seen = exports.seen(topic)
        assert len(seen) == len(set(seen)), f"twice, after {at}"
        assert set(seen) <= {(row["partition"], row["seq"]) for row in exports.rows(topic)}, "what counts for nothing"
        exports.export(topic)
        assert exports.seen(topic) == pairs(count)
        assert Verification(exports.store, topic).run(None).problems == []
        broker.append(topic, 10, first=count)
        count += 10
        if not store.dead:
            break
    assert kills >= 5


@pytest.mark.parametrize("after", [False, True])
def test_a_compaction_killed_at_any_change(broker: SmallSegments, exports: Exports, after: bool) -> None:
    topic, count, kills = f"compacted-{after}", 0, 0
    for at in KILLS:
        for _ in range(3):
            broker.append(topic, 10, first=count)
            count += 10
            exports.export(topic)
        store = KillingStore(exports.store, at, after)
        try:
            compact(store, topic, version="test")  # pyright: ignore[reportArgumentType]
        except Killed:
            kills += 1
        seen = exports.seen(topic)
        assert len(seen) == len(set(seen)), f"twice, after {at}"
        if at % 2:
            compact(exports.store, topic, version="test")
        else:
            exports.export(topic)
        assert exports.seen(topic) == pairs(count)
        assert Verification(exports.store, topic).run(exports.origin).problems == []
        if not store.dead:
            break
    assert kills >= 6


def test_valid_hidden_files_are_found_by_readers_of_manifests(broker: SmallSegments, exports: Exports) -> None:
    broker.append("between", 20)
    store = KillingStore(exports.store, 2, after=True)  # the plan, the manifest
    with pytest.raises(Killed):
        exports.exporter(store=store, pid=ended_pid()).export("between")  # pyright: ignore[reportArgumentType]
    assert exports.chain("between").numbers() == [1]
    assert exports.seen("between") == []
    assert exports.seqs("between") == [*range(1, 21)]
    assert Verification(exports.store, "between").run(exports.origin).problems == []
    assert collect(exports.store, "between", 4e9) == [], "it counts, and is old"
    [file] = command("files", "--to", exports.job.to, "--topics", "between").split()
    assert file.endswith(".parquet")
    assert pq.ParquetFile(file).metadata.num_rows == 20
    assert exports.seen("between") == pairs(20)


def test_a_reader_sees_no_record_twice_during_compactions(broker: SmallSegments, exports: Exports) -> None:
    count = 0
    ended = threading.Event()
    twice: list[tuple[int, int]] = []
    looks = 0

    def look() -> None:
        nonlocal looks
        while not ended.is_set():
            try:
                seen = exports.seen("watched")
            except FileNotFoundError:
                continue  # a listed file was replaced meanwhile: list again
            looks += 1
            twice.extend(each for each in set(seen) if seen.count(each) > 1)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for _ in range(8):
            for _ in range(3):
                broker.append("watched", 5, first=count)
                count += 5
                exports.export("watched")
            compact(exports.store, "watched", version="test")
    finally:
        ended.set()
        reader.join()
    assert twice == []
    assert looks
    assert exports.seen("watched") == pairs(count)


def test_verification_reports_visible_files_that_are_not_valid(broker: SmallSegments, exports: Exports) -> None:
    broker.append("strays", 5)
    exports.export("strays")
    [entry] = exports.chain("strays").files()
    stray = exports.path(entry.file[:-16] + "00000000.parquet")
    stray.write_bytes(b"")  # as a killed run of an older program has left it
    [problem] = Verification(exports.store, "strays").run(exports.origin).problems
    assert "1 file is not valid" in problem


def test_late_run_does_not_restore_replaced_files(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run writes its manifest and stops. Others make its files visible and replace them. Then it continues."""
    from pipeline.export import publication

    show = publication._show  # pyright: ignore[reportPrivateUsage]

    def late(*arguments: Any) -> None:
        monkeypatch.undo()
        broker.append("late", 10, first=10)
        exports.export("late")
        compact(exports.store, "late", version="test")
        show(*arguments)

    broker.append("late", 10)
    monkeypatch.setattr(publication, "_show", late)
    exports.export("late")
    assert exports.seen("late") == pairs(20)
    assert len(exports.parts("late")) == 1


def test_a_bucket_shows_every_record_once(broker: SmallSegments, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def listed() -> list[int]:
        found: list[int] = []
        for key in exports.parts("in%3Abucket"):
            with exports.store.local(key) as path:
                found += pq.ParquetFile(path).read(["seq"])["seq"].to_pylist()
        return sorted(found)

    broker.append("in:bucket", 30)
    with Exports(broker.url, bucket) as exports:
        in_pieces(exports, "in:bucket", 3, 10)
        for at in (*range(1, 8), 99):
            store = KillingStore(exports.store, at, after=bool(at % 2))
            try:
                compact(store, "in:bucket", version="test")  # pyright: ignore[reportArgumentType]
            except Killed:
                assert len(listed()) == len(set(listed()))
            exports.export("in:bucket")
            assert listed() == exports.seqs("in:bucket") == [*range(1, 31)]
        assert len(exports.parts("in%3Abucket")) == 1
