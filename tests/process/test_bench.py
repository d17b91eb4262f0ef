"""The table of measurements, with short runs: each measures the requested scenario at the requested place."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from loadtest import bench, places
from loadtest.measure import Measured

SHORT = ["--seconds", "0.4", "--warmup", "0.1", "--connections", "4", "--json"]


def measured(capsys: pytest.CaptureFixture[str], *options: str) -> list[Measured]:
    assert bench.main([*SHORT, *options]) == 0
    return msgspec.json.decode(capsys.readouterr().out, type=list[Measured])


@pytest.mark.parametrize("place", places.PLACES)
def test_a_read_measurement_reads_from_the_requested_source(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--read", "--batch", "256", "--from", place, "--preload", "20000", "--dir", str(tmp_path))
    (found,) = measured(capsys, *options)
    assert found.scenario.name == f"diff-256-{place}"
    assert found.requests_per_s > 0
    assert found.failed == {}
    assert found.proof


def test_records_read_from_another_source_give_no_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tail cache that cannot hold all of them."""
    options = ["--read", "--batch", "256", "--from", "tail", "--preload", "20000", "--dir", str(tmp_path)]
    monkeypatch.setattr(places, "_THERE_WITHIN_S", 0.0)
    assert bench.main([*options, "--set", "TAIL_CACHE_BYTES=100000", *SHORT]) == 1
    assert "diff-256-tail: the tail cache holds" in capsys.readouterr().err


def test_the_option_all_runs_every_documented_scenario() -> None:
    names = [each.name for each in bench.scenarios(bench.parser().parse_args(["--all"]))]
    appends = {
        f"append-{kind}-{batch}-{n}c" for kind in ("disk", "fsync") for batch in (1, 100, 1000) for n in (16, 64)
    }
    reads = {f"diff-{limit}-{place}" for limit in (1, 256, 1000) for place in ("tail", "sealed", "cold")}
    assert len(names) == len(set(names))
    assert set(names) == appends | reads


def test_the_source_of_reads_cannot_be_checked_for_a_running_broker() -> None:
    with pytest.raises(SystemExit):
        bench.main(["--url", "http://127.0.0.1:1", "--read", "--from", "cold"])


STEADY = ("--steady", "--batch", "100", "--set", "SNAPSHOT_INTERVAL_MS=100", "--set", "CHECKPOINT_RECORDS=1000")


def test_a_steady_load_reports_the_records_flushed_meanwhile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = (*STEADY, "--set", "CHECKPOINT_INTERVAL_MS=50", "--dir", str(tmp_path), "--warmup", "1", "--seconds", "3")
    (found,) = measured(capsys, *options)
    assert found.scenario.name == "append-fsync-100-4c-steady"
    assert "flushed" in found.proof


def test_a_steady_load_without_a_flush_gives_no_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main([*STEADY, "--set", "CHECKPOINT_INTERVAL_MS=1000000", "--dir", str(tmp_path), *SHORT]) == 1
    assert ": 0 records were flushed" in capsys.readouterr().err


def test_a_steady_load_takes_a_minute_by_default() -> None:
    for given, seconds in (["--steady"], 60.0), ([], 10.0), (["--steady", "--seconds", "3"], 3.0):
        (scenario,) = bench.scenarios(bench.parser().parse_args(given))
        assert scenario.seconds == seconds
