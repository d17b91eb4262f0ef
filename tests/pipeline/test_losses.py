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
from topics_client import Client


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
