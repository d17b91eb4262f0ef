"""The comparison with other systems in a short run: with the server without a broker, which is always there, and with
NATS, or a stand-in where there is none.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest

from loadtest import own_nats, own_redis, report, versus
from loadtest.generator import Task
from loadtest.measure import generate, seen_in
from loadtest.scenario import Scenario

ROOT = Path(__file__).resolve().parents[2]


def test_a_pair_is_measured_and_stored(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("results")
    monkeypatch.setattr(report.keep, "__defaults__", (folder,))
    options = ["--pairs", "disk-1000", "--rounds", "2", "--seconds", "0.5", "--dir", str(folder), "--save", "v"]
    assert versus.main(options) == 0
    shown = capsys.readouterr().out
    assert "disk-1000      x 0." in shown
    assert "written and durable" in shown
    kept = msgspec.json.decode((folder / "v.json").read_bytes())
    (outcome,) = kept["results"]
    assert [side["side"] for side in outcome["sides"]] == ["broker", "floor"] * 2
    assert all(side["records_per_s"] > 0 for side in outcome["sides"])
    assert 0 < outcome["ratio"]["lowest"] <= outcome["ratio"]["ratio"] <= outcome["ratio"]["highest"]


def test_pairs_with_an_absent_server_are_skipped_with_a_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_nats, "is_there", lambda: False)
    monkeypatch.setattr(own_redis, "is_there", lambda: False)
    assert versus.main(["--pairs", "fsync-1-nats", "fsync-100", "disk-100-nats"]) == 0
    out, err = capsys.readouterr()
    assert " x " not in out
    assert err.splitlines() == [
        "There is no redis-server here: its pairs are left out.",
        "There is no nats-server of 2.10 or newer here: its pairs are left out.",
    ]


@pytest.mark.parametrize(("said", "is_there"), [("2.9.10", False), ("2.10.0", True), ("3.0.0", True), ("", False)])
def test_nats_is_used_only_from_the_version_that_syncs_each_message(
    said: str, is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if said:
        program = tmp_path / "nats-server"
        program.write_text(f"#!/bin/sh\necho nats-server: v{said}\n")
        program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin" if said else str(tmp_path))
    assert own_nats.is_there() == is_there


def stood_in_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the stand-in is the nats-server that is found."""
    folder.mkdir()
    program = folder / "nats-server"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m tests.support.stand_in_nats "$@"\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize("sync", ["always", "default"])
@pytest.mark.parametrize("stands_in", [True, *([False] if own_nats.is_there() else [])])
def test_a_nats_server_holds_the_acknowledged_messages(
    stands_in: bool, sync: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stands_in:
        stood_in_for(tmp_path / "bin", monkeypatch)
    assert own_nats.is_there()
    (tmp_path / "data").mkdir()
    server = own_nats.OwnNats(parent=str(tmp_path / "data"), sync=sync)
    try:
        server.start()
        server.make_anew(["load-0"])
        load = Scenario(kind="nats", connections=3, batch=10, seconds=0.5, warmup_s=0.1)
        with generate(Task(scenario=load, host=server.host, port=server.port)) as generator:
            seen = seen_in(generator.stdout.readlines()[-1] if generator.stdout else b"")
        assert seen.failed == {}
        assert 0 < seen.requests * load.batch <= server.count("load-0")
        server.make_anew(["load-0"])
        assert server.count("load-0") == 0
    finally:
        server.close()
    assert not any((tmp_path / "data").iterdir())


def test_a_pair_with_nats_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stood_in_for(tmp_path / "bin", monkeypatch)
    options = ["--pairs", "disk-100-nats", "--rounds", "1", "--seconds", "0.5", "--dir", str(tmp_path)]
    assert versus.main(options) == 0
    shown = capsys.readouterr().out
    assert "disk-100-nats  nats-default" in shown
    assert "disk-100-nats  x " in shown
