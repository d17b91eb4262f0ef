"""The measurement of the producer, in a short run: both sides store every record, and the ratio is that of this run."""

from __future__ import annotations

from pathlib import Path

import msgspec

from loadtest import producer


def test_both_variants_are_measured_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "results" / "p.json"
    options = ["--records", "2000", "--batch", "100", "--rounds", "2", "--dir", str(tmp_path), "--json", str(path)]
    assert producer.main(options) == 0
    found = msgspec.convert(msgspec.json.decode(path.read_bytes())["results"], producer.Found)
    assert [each.side for each in found.legs] == ["producer", "by hand", "by hand", "producer"]
    assert found.ratio.lowest <= found.ratio.ratio <= found.ratio.highest
    assert found.ratio.lowest > 0
