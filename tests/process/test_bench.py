"""The table of measurements, for a moment each: what is asked for is what is measured, and where it says."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from loadtest import bench, places
from loadtest.measure import Measured

SHORT = ["--seconds", "0.4", "--warmup", "0.1", "--connections", "4", "--json"]


def measured(capsys: pytest.CaptureFixture[str], *options: str) -> list[Measured]:
    assert bench.main([*options, *SHORT]) == 0
    return msgspec.json.decode(capsys.readouterr().out, type=list[Measured])


@pytest.mark.parametrize("place", places.PLACES)
def test_records_are_read_from_where_it_says(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--read", "--batch", "256", "--from", place, "--preload", "20000", "--dir", str(tmp_path))
    (found,) = measured(capsys, *options)
    assert found.scenario.name == f"diff-256-{place}"
    assert found.requests_per_s > 0
    assert found.failed == {}
    assert found.proof


def test_records_that_are_elsewhere_are_no_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tail cache that does not hold them all."""
    options = ["--read", "--batch", "256", "--from", "tail", "--preload", "20000", "--dir", str(tmp_path)]
    monkeypatch.setattr(places, "_THERE_WITHIN_S", 0.0)
    assert bench.main([*options, "--set", "TAIL_CACHE_BYTES=100000", *SHORT]) == 1
    assert "diff-256-tail: the tail cache holds" in capsys.readouterr().err


def test_all_is_what_it_says() -> None:
    names = [each.name for each in bench.scenarios(bench.parser().parse_args(["--all"]))]
    appends = {
        f"append-{kind}-{batch}-{n}c" for kind in ("disk", "fsync") for batch in (1, 100, 1000) for n in (16, 64)
    }
    reads = {f"diff-{limit}-{place}" for limit in (1, 256, 1000) for place in ("tail", "sealed", "cold")}
    assert len(names) == len(set(names))
    assert set(names) == appends | reads


def test_the_place_is_not_asked_of_a_broker_that_runs_already() -> None:
    with pytest.raises(SystemExit):
        bench.main(["--url", "http://127.0.0.1:1", "--read", "--from", "cold"])
