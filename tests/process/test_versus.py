"""The comparison with others, run for a moment: beside the server without a broker, which is always there."""

from __future__ import annotations

import msgspec
import pytest

from loadtest import report, versus


def test_a_pair_is_measured_and_kept(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("results")
    monkeypatch.setattr(report.keep, "__defaults__", (folder,))
    options = ["--pairs", "disk-1000", "--rounds", "2", "--seconds", "0.5", "--dir", str(folder), "--save", "v"]
    assert versus.main(options) == 0
    shown = capsys.readouterr().out
    assert "disk-1000  x 0." in shown
    assert "written and durable" in shown
    kept = msgspec.json.decode((folder / "v.json").read_bytes())
    (outcome,) = kept["results"]
    assert [side["side"] for side in outcome["sides"]] == ["broker", "floor"] * 2
    assert all(side["records_per_s"] > 0 for side in outcome["sides"])
    assert 0 < outcome["ratio"]["lowest"] <= outcome["ratio"]["ratio"] <= outcome["ratio"]["highest"]
