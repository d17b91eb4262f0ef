"""Spark's own connectors of Delta and Iceberg read the tables that exports make: every record once, in each version."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.export.exporter import Limits
from pipeline.export.maintenance import compact
from pipeline.export.part_settings import TABLES, PartSettings
from tests.pipeline.exports import Exports, command
from tests.support.small_segments import SmallSegments
from tests.support.table_connectors import Counts, count

pytestmark = pytest.mark.soak
TOPIC = "read"


@pytest.mark.parametrize("kind", TABLES)
def test_every_version_has_the_records_that_versions_names(tmp_path: Path, java_home: str, kind: str) -> None:
    out = str(tmp_path / "out")
    Path(out).mkdir()
    with SmallSegments(tmp_path / "broker") as broker, Exports(broker.url, out) as exports:
        parts = PartSettings(kind=kind, tagged=True)
        broker.append(TOPIC, 60)
        for _ in range(3):
            exports.export(TOPIC, parts=parts, limits=Limits(max_records=20))
        assert compact(exports.store, TOPIC, version="test").rows == 60
        broker.append(TOPIC, 10, first=60)
        exports.export(TOPIC, parts=parts, headers=True)  # adds a column
        shown = command("versions", "--to", out, "--topics", TOPIC)
    first, *_ = lines = shown.splitlines()
    path = first.removeprefix(f"{TOPIC}: ")
    records = 0
    wanted: dict[str, Counts] = {}
    for line in lines[2:]:
        version, _day, _time, *what = line.split()
        if what[0] == "append":
            first_seq, last_seq = map(int, what[-1].split("-"))
            assert (int(what[1]), first_seq) == (last_seq - records, records + 1), shown
            records = last_seq
        wanted[version] = {0: (records, records, 1, records)} if records else {}
    found = count(kind, path, java_home, [*wanted, None])
    assert dict(zip(wanted, found, strict=False)) == wanted, shown
    assert found[-1] == {0: (70, 70, 1, 70)}
    assert records == 70, shown
