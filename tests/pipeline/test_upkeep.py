"""Compaction, collection, verification and status of exports."""

from __future__ import annotations

import os
import time

import pytest

from pipeline.errors import AnotherExporter
from pipeline.export.exporter import Limits
from pipeline.export.maintenance import DAY_S, collect, compact, status
from pipeline.export.verification import Verification
from tests.pipeline.exports import Exports
from tests.support.small_segments import SmallSegments


def in_pieces(exports: Exports, topic: str, records: int, piece: int) -> None:
    for _ in range(records // piece):
        exports.export(topic, limits=Limits(max_records=piece))


def test_compaction_keeps_every_record_and_the_bookmark(broker: SmallSegments, exports: Exports) -> None:
    broker.append("small", 60)
    in_pieces(exports, "small", 60, 10)
    before = exports.rows("small")
    bookmark = exports.chain("small").load(6).end
    found = compact(exports.store, "small", version="test")
    assert (found.before, found.after, found.rows, found.manifest) == (6, 1, 60, 7)
    assert exports.rows("small") == before
    assert exports.chain("small").load(7).end == bookmark
    assert compact(exports.store, "small", version="test").manifest is None
    broker.append("small", 5, first=60)
    exports.export("small")
    assert exports.seqs("small") == list(range(1, 66))


def test_compaction_of_files_with_and_without_an_added_column(broker: SmallSegments, exports: Exports) -> None:
    for first, headers in ((0, False), (4, True), (8, False)):
        broker.append("small-wider", 4, first=first)
        exports.export("small-wider", headers=headers)
    before = [row | {"headers": row.get("headers")} for row in exports.rows("small-wider")]
    assert [row["headers"] is None for row in before] == [True] * 4 + [False] * 4 + [True] * 4
    assert compact(exports.store, "small-wider", version="test")[:3] == (3, 1, 12)
    assert exports.rows("small-wider") == before
    assert Verification(exports.store, "small-wider").run(exports.origin).problems == []


def test_compaction_that_loses_the_race_is_discarded(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.append("raced", 30)
    in_pieces(exports, "raced", 20, 10)
    from pipeline.export import maintenance

    rewrite = maintenance._rewrite  # pyright: ignore[reportPrivateUsage]

    def rewrite_late(*arguments: object) -> object:
        exports.export("raced")
        return rewrite(*arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(maintenance, "_rewrite", rewrite_late)
    with pytest.raises(AnotherExporter, match="Run compact again"):
        compact(exports.store, "raced", version="test")
    assert exports.seqs("raced") == list(range(1, 31))
    assert len(exports.parts("raced")) == 3


def test_collection_removes_unnamed_files_after_a_day(broker: SmallSegments, exports: Exports) -> None:
    broker.append("collected", 20)
    in_pieces(exports, "collected", 20, 10)
    [one, two] = [exports.path(entry.file) for entry in exports.chain("collected").files()]
    stray = one.with_name(one.name.replace("-", "-9", 1).replace(one.name[-16:-8], "00000000"))
    stray.write_bytes(b"of a run that was killed")
    now = time.time()
    assert collect(exports.store, "collected", now) == []
    assert collect(exports.store, "collected", now + DAY_S + 60) == [stray.relative_to(exports.job.to).as_posix()]
    assert not stray.exists()
    compact(exports.store, "collected", version="test")
    assert not one.exists(), "a plain reader would read it twice"
    assert not two.exists()
    one.write_bytes(b"as a compaction of an older program has left it")
    assert collect(exports.store, "collected", now + 60) == [one.relative_to(exports.job.to).as_posix()]
    assert exports.seqs("collected") == list(range(1, 21))


def test_live_plan_stops_the_collection(broker: SmallSegments, exports: Exports) -> None:
    broker.append("planned", 5)
    exports.export("planned")
    stray = (
        exports.path(exports.chain("planned").files()[0].file).parent / f"part-0-{6:020d}-{7:020d}-1-00000000.parquet"
    )
    stray.write_bytes(b"of a run at work")
    old = time.time() - 2 * DAY_S
    os.utime(stray, (old, old))
    exporter = exports.exporter()
    broker.append("planned", 5, first=5)
    chain = exports.chain("planned")
    found = exporter._next(chain, chain.newest(), exporter._job)  # pyright: ignore[reportPrivateUsage]
    exporter._claim(chain, 2, found)  # pyright: ignore[reportPrivateUsage]
    assert collect(exports.store, "planned", time.time()) == []
    assert stray.exists()


def test_verification_reports_all_differences(broker: SmallSegments, exports: Exports) -> None:
    broker.append("verified", 1200)
    in_pieces(exports, "verified", 1200, 400)
    found = Verification(exports.store, "verified").run(exports.origin)
    assert (found.files, found.rows, found.compared, found.problems, found.notes) == (3, 1200, 1200, [], [])
    broker.client.delete_records("verified", before_seq=11)
    broker.client.delete_records("verified", match="third")
    found = Verification(exports.store, "verified").run(exports.origin)
    assert found.problems == []
    assert found.notes == ["406 exported records are no longer at the broker."]
    path = exports.path(exports.chain("verified").files()[1].file)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    [damaged, *missing] = Verification(exports.store, "verified").run(exports.origin).problems
    assert "has changed: " in damaged
    assert missing[0] == "Seq 401 is at the broker, but not in the export."
    path.unlink()
    assert "is missing" in Verification(exports.store, "verified").run(None).problems[0]


def test_status_shows_the_lag(broker: SmallSegments, exports: Exports) -> None:
    broker.append("behind", 50)
    assert status(exports.store, "behind", exports.origin).state == "never exported"
    exports.export("behind", limits=Limits(max_records=20))
    found = status(exports.store, "behind", exports.origin)
    assert (found.lag, found.files, found.rows, found.state) == (30, 1, 20, "behind")
    exports.export("behind")
    assert status(exports.store, "behind", exports.origin).state == "up to date"
