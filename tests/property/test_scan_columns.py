"""Units that went from one process to another are the units that were sent."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from storage.log.encode import EncodedUnit
from storage.log.reader import FrameStream
from storage.log.scan_columns import UnitColumns, pack, unpack
from storage.log.units import ScannedUnit, UnitScan
from tests.property.test_log_bytes import comparable, file_of, writes
from tests.property.test_log_runs import followed_writes


def units_of(data: bytes, group_from: int) -> list[ScannedUnit]:
    return list(UnitScan(FrameStream(file_of(data)), 1, group_from).units())


@given(st.lists(writes(), min_size=1, max_size=8) | followed_writes(), st.sampled_from([0, 500, 1 << 40]))
def test_packed_units_come_back_as_they_were(written: list[EncodedUnit], group_from: int) -> None:
    units = units_of(b"".join(each.payload for each in written), group_from)
    found = list(unpack(pickle.loads(pickle.dumps(pack(units)))))
    assert [each._replace(unit=None) for each in found] == [each._replace(unit=None) for each in units]  # type: ignore[arg-type]
    assert [comparable(each.unit) for each in found] == [comparable(each.unit) for each in units]
    assert [type(step) for each in found for step in each.unit.steps] == [
        type(step) for each in units for step in each.unit.steps
    ]


@given(followed_writes())
def test_most_units_are_rows(written: list[EncodedUnit]) -> None:
    units = units_of(b"".join(each.payload for each in written), 1 << 40)
    packed = pack(units)
    apart = [each for each in packed if not isinstance(each, UnitColumns)]
    rows = sum(len(each.offsets) for each in packed if isinstance(each, UnitColumns))
    assert rows + len(apart) == len(units)
    for each in apart:
        steps = each.unit.steps
        run = getattr(steps[0], "run", None)
        assert len(steps) != 1 or run is None or run.tagged or run.delayed, "a row was left out"
