"""What an export says when records of a topic are gone before they were exported, or cannot be exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import NotDurable, Recreated, TopicGone
from pipeline.export.exporter import Limits
from pipeline.export.part_settings import FORMATS, PartSettings
from tests.pipeline.exports import Exports, command
from tests.support.small_segments import SmallSegments
from topics_client import Client, NewRecord


@pytest.mark.parametrize("kind", FORMATS)
def test_a_deleted_topic_is_a_loss_that_is_told_once(
    broker: SmallSegments, exports: Exports, tmp_path: Path, kind: str
) -> None:
    """Eight of its twelve records were known, but not exported."""
    topic = f"gone.{kind}"
    broker.append(topic, 12)
    exports.export(topic, parts=PartSettings(kind=kind), limits=Limits(max_records=4))
    broker.client.delete_topic(topic)
    where = ("--url", broker.url, "--to", exports.job.to, "--topics", f"gone.{kind[:-1]}?", "--engine", "arrow")
    said = command("export", *where, status=1)
    assert "was deleted at the broker. It is exported up to 4 seqs; 8 records are known that were not exported" in said
    said = command("export", *where, "--allow-data-loss")
    assert "Warning:" in said
    assert "the topic was deleted; it was read up to seq 4. 8 records are known that were not read." in said
    [gap] = exports.chain(topic).load(2).gaps
    assert (gap.first, gap.reason, gap.missed_estimate) == (5, "deleted", 8)
    assert "deleted" not in command("export", *where)
    assert "does not exist" in command("export", *where, "--topics", topic, status=1)
    # A new topic of that name is exported from its first record on.
    broker.append(topic, 3)
    assert exports.export(topic, parts=PartSettings(kind=kind)).records == 3
    assert exports.chain(topic).counts()[1] == 7


def test_a_deleted_topic_may_have_lost_records_that_nobody_knows_of(broker: SmallSegments, exports: Exports) -> None:
    broker.append("fleeting", 3)
    exports.export("fleeting")
    broker.client.delete_topic("fleeting")
    with pytest.raises(TopicGone, match="is exported up to 3 seqs; 0 records are known that were not exported, and"):
        exports.export("fleeting")


def test_an_ephemeral_topic_is_refused_or_told(broker: SmallSegments, exports: Exports) -> None:
    broker.client.put_topic("volatile", durability="ephemeral")
    broker.client.append("volatile", [{"n": n} for n in range(5)])
    with pytest.raises(NotDurable, match="volatile: the topic is ephemeral, and 5 of its records are only in memory"):
        exports.export("volatile")
    outcome = exports.export("volatile", fail_on_loss=False)
    assert outcome.records == 0
    assert ["5 of its records are only in memory" in each for each in outcome.warnings] == [True]
    where = ("--url", broker.url, "--to", exports.job.to, "--engine", "arrow", "--allow-data-loss")
    assert "Warning: volatile: the topic is ephemeral" in command("export", *where, "--topics", "volatile")


def fill(broker: SmallSegments, key: str, count: int) -> None:
    with Client(broker.url, token=key) as client:
        client.put_topic("t", durability="fsync")
        client.append("t", [{"n": n} for n in range(count)])


def test_a_broker_that_was_installed_again(tmp_path: Path) -> None:
    """It has other keys, another cluster id, and a topic of the same name."""
    to = str(tmp_path / "out")
    job: dict[str, Any] = {"parts": PartSettings(kind="delta")}
    with SmallSegments(tmp_path / "old", api_keys="old-key") as old:
        fill(old, "old-key", 10)
        with Exports(old.url, to, token="old-key") as exports:
            exports.export("t", limits=Limits(max_records=6), **job)
    with SmallSegments(tmp_path / "new", api_keys="new-key") as new:
        fill(new, "new-key", 3)
        with Exports(new.url, to, token="new-key") as exports:
            with pytest.raises(Recreated, match=r"another cluster id: .* read up to seq 6. 4 records are known"):
                exports.export("t", **job)
            outcome = exports.export("t", fail_on_loss=False, **job)
            assert (outcome.records, [gap.reason for gap in outcome.gaps]) == (3, ["reinstalled"])
            assert exports.chain("t").counts()[1] == 9
        refused = command(
            "export", "--url", new.url, "--token", "old-key", "--to", to, "--topics", "t", "--engine", "arrow", status=1
        )
        assert "Check the URL, the token and its scopes" in refused
        assert "old-key" not in refused


OLD = [b'"old-%d"' % n for n in range(10)]
CUT = [b'"cut-%d"' % n for n in range(10)]
NEW = [b'"new-%d"' % n for n in range(20)]
SLOWLY = {"checkpoint_records": 10_000_000, "checkpoint_interval_ms": 3_600_000}


def damage(data_dir: Path, what: bytes) -> None:
    """Overwrite these bytes in the log."""
    files = [file for file in (data_dir / "wal").rglob("*") if file.is_file() and what in file.read_bytes()]
    assert len(files) == 1
    files[0].write_bytes(files[0].read_bytes().replace(what, b"\xff" * len(what)))


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize(
    ("exported", "gap"),
    [
        pytest.param(5, (11, 20, 10), id="less than recovery kept"),
        pytest.param(15, (16, 20, 5), id="more than recovery kept"),
        pytest.param(20, (21, 21, 0), id="everything"),
    ],
)
def test_records_that_are_appended_after_recovery_has_cut_off_the_end_of_a_log_are_exported(
    tmp_path: Path, exported: int, gap: tuple[int, int, int], stopped: bool
) -> None:
    """Salvage keeps 10 of 20 records. Producers then append more than were lost."""
    to = str(tmp_path / "out")
    with SmallSegments(tmp_path / "broker", **SLOWLY) as broker, Exports(broker.url, to) as exports:
        broker.client.put_topic("t", durability="fsync")
        for batch in (OLD, CUT):
            broker.client.append("t", [NewRecord(data=each) for each in batch])
        broker.client.put_topic("other", durability="fsync")
        for _ in range(4):  # salvage cuts within a file of the log that is not the last one
            broker.client.append("other", [NewRecord(data=b'"' + b"x" * 500_000 + b'"')])
        exports.export("t", limits=Limits(max_records=exported))
        broker.kill()
        damage(broker.data_dir, CUT[0])
        broker.start_again(recovery="salvage", **SLOWLY)
        assert broker.client.state("t", touch=False).head_seq == 10
        broker.client.append("t", [NewRecord(data=each) for each in NEW])
        where = ("--topics", "t", "--to", to, "--engine", "arrow")
        if stopped:
            broker.kill()
            where += ("--path", str(broker.data_dir))
        else:
            where += ("--url", broker.url)
        refused = command("export", *where, status=1)
        assert f"recovery has cut off the end of its log. Records from seq {gap[0]} on that were not read" in refused
        assert "Continue with the records that were appended since: --allow-data-loss" in refused
        lag = 10 - min(exported, 10) + len(NEW)
        assert command("status", *where[:4], *where[-2:]).splitlines()[-1].split()[:2] == ["t", str(lag)]
        assert command("status", *where[:4], *where[-2:]).rstrip().endswith(" renewed")
        command("export", *where, "--allow-data-loss")
        rows = [(row["seq"], row["value"]) for row in exports.rows("t")]
        before = list(enumerate([*OLD, *CUT], 1))[: max(exported, 10)]
        assert sorted(rows) == sorted(before + list(enumerate(NEW, 11)))
        newest = exports.chain("t").newest()
        assert newest is not None
        assert [(each.first, each.last, each.missed_estimate, each.reason) for each in newest.gaps] == [
            (*gap, "renewed")
        ]
        assert " 0 problems; " in command("verify", *where[:4], *where[-2:])
        command("export", *where)
        assert exports.chain("t").numbers() == [1, 2]
