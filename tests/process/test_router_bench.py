"""The measurement of a router, in a short run: it counts the copies, and gives no figure if one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from loadtest import report, router
from loadtest.own_broker import BrokerFailed, OwnBroker, ask


def test_copies_are_counted_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "results"
    monkeypatch.setattr(report.keep, "__defaults__", (folder,))
    options = ["--connections", "2", "--batch", "10", "--rate", "50", "--seconds", "0.5", "--warmup", "0.1"]
    assert router.main([*options, "--dir", str(tmp_path), "--save", "r"]) == 0
    assert "lag " in capsys.readouterr().out
    (found,) = msgspec.json.decode((folder / "r.json").read_bytes())["results"]
    outcome = msgspec.convert(found, router.Outcome)
    assert outcome.records > 0
    assert outcome.readable_per_s > 0
    assert outcome.appended_per_s > 0


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OwnBroker]:
    """Three records in a topic, and the first of them in the topic for copies."""
    broker = OwnBroker(parent=str(tmp_path))
    try:
        broker.start()
        append(broker, "source", 1, 2, 3)
        append(broker, "load-copies", 1)
        yield broker
    finally:
        broker.close()


def append(broker: OwnBroker, topic: str, *data: int) -> None:
    body = msgspec.json.encode({"records": [{"data": each} for each in data]})
    assert ask(broker.host, broker.port, "POST", f"/v0/topics/{topic}", body)[0] < 300


def test_missing_wrong_or_duplicate_copies_give_no_figure(own: OwnBroker) -> None:
    with pytest.raises(BrokerFailed, match="copies"):
        router.verify(own, "source")
    append(own, "load-copies", 2)
    append(own, "load-copies", 4)
    with pytest.raises(BrokerFailed, match="copies"):
        router.verify(own, "source")
    append(own, "source", 4)
    append(own, "load-copies", 4)
    router.verify(own, "source")
    append(own, "load-copies", 4)
    with pytest.raises(BrokerFailed, match="copies"):
        router.verify(own, "source")
