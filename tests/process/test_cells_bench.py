"""The measurement of cells, in a short run."""

from __future__ import annotations

from pathlib import Path

import msgspec

from loadtest import cells


def test_the_ways_to_a_cell_are_measured_in_one_run(tmp_path: Path) -> None:
    path = tmp_path / "results" / "c.json"
    options = ["--only", "append-100", "--seconds", "0.5", "--rounds", "2", "--json", str(path)]
    options += ["--set", f"WAL_FILE_BYTES={4 << 20}"]  # small files take less time to make
    assert cells.main(options) == 0
    found = msgspec.convert(msgspec.json.decode(path.read_bytes())["results"], dict[str, cells.Found])
    assert found["append-100"].cells.gateway_s > 0
    wide = found["append-100"].wide
    assert wide is not None
    assert wide.rate > 0
    assert all(way.work.lowest > 0 for way in found["append-100"].ways)
    for way in found["append-100"].ways:
        assert 0 < way.ratio.lowest <= way.ratio.ratio <= way.ratio.highest
