"""Dates and hours of the folders are in UTC, whatever the machine's zone is, and change at midnight."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.export.manifest import Chain
from pipeline.export.parts import by_folder
from pipeline.export.store import open_store
from tests.pipeline.exports import command
from tests.support.dated import write_dated


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


MIDNIGHT = ms("2024-02-29T00:00")


@pytest.fixture(params=["America/St_Johns", "Pacific/Kiritimati"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set another zone for this process: half an hour off, or a day ahead."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def folders(stamps: list[int], hourly: bool) -> list[tuple[str, int]]:
    micros = pa.array(np.array(stamps, np.int64) * 1000).cast(pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays([micros], ["timestamp"])
    return [(folder, len(piece)) for folder, piece in by_folder(batch, hourly)]


@pytest.mark.usefixtures("zone")
def test_last_millisecond_of_a_day_belongs_to_that_day() -> None:
    stamps = [MIDNIGHT - 3_600_000, MIDNIGHT - 1, MIDNIGHT, MIDNIGHT, MIDNIGHT + 86_400_000 - 1, MIDNIGHT + 86_400_000]
    assert folders(stamps, hourly=False) == [("date=2024-02-28", 2), ("date=2024-02-29", 3), ("date=2024-03-01", 1)]
    assert folders(stamps, hourly=True) == [
        ("date=2024-02-28/hour=23", 2),
        ("date=2024-02-29/hour=00", 2),
        ("date=2024-02-29/hour=23", 1),
        ("date=2024-03-01/hour=00", 1),
    ]


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("hourly", [False, True])
def test_an_export_over_midnight(tmp_path: Path, hourly: bool) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    before, behind = MIDNIGHT - 1_800_000, MIDNIGHT + 5_400_000
    write_dated(data, "t", [(before, [b"1", b"2"]), (MIDNIGHT, [b"3"]), (behind, [b"4", b"5"])])
    by = "date,hour" if hourly else "date"
    command(
        *("export", "--path", str(data), "--topics", "t", "--to", str(out), "--engine", "arrow", "--partition-by", by),
        *("--format", "parquet"),
    )
    rows = {
        "/".join(entry.file.split("/")[1:-1]): pq.ParquetFile(out / entry.file).read(["seq"]).to_pydict()["seq"]
        for entry in Chain(open_store(str(out)), "t").files()
    }
    hours = ("/hour=23", "/hour=00", "/hour=01")
    assert rows == (
        {f"date=2024-02-28{hours[0]}": [1, 2], f"date=2024-02-29{hours[1]}": [3], f"date=2024-02-29{hours[2]}": [4, 5]}
        if hourly
        else {"date=2024-02-28": [1, 2], "date=2024-02-29": [3, 4, 5]}
    )


@pytest.mark.usefixtures("zone")
def test_since_is_in_utc(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    write_dated(data, "t", [(MIDNIGHT - 60_000, [b"1"]), (MIDNIGHT, [b"2"]), (MIDNIGHT + 60_000, [b"3"])])
    where = ("--path", str(data), "--topics", "t", "--to", str(out), "--engine", "arrow", "--format", "parquet")
    command("export", *where, "--since", "2024-02-29T00:00")
    [entry] = Chain(open_store(str(out)), "t").files()
    assert (entry.min_seq, entry.max_seq, entry.rows) == (2, 3, 2)
