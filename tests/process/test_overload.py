"""Twice the broker's capacity: it refuses some requests, loses nothing, keeps its memory bounded, and recovers soon."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from loadtest.overload import Overload, lines, run

#: What may be kept of writes: the log's queue, the newest records, keys, connections. The rest is the interpreter.
MAX_GROWTH_MIB = 600
SHORT = Overload(seconds=4, capacity_s=1, connections=512, give_up_s=0.5)
SOAK = Overload(seconds=120)


@pytest.mark.timeout(900)
def test_the_broker_survives_twice_its_capacity(tmp_path: Path, soak_mode: bool) -> None:
    wanted = SOAK if soak_mode else SHORT
    found = run(wanted, parent=str(tmp_path))
    print(*lines(wanted, found), sep="\n")
    assert found.failed == {}
    assert found.verdict.problems == []
    assert found.verdict.acknowledged >= 100
    assert found.normal_after_s is not None
    assert found.resident_mib["peak"] - found.resident_mib["before"] < MAX_GROWTH_MIB


def test_writes_beyond_the_queue_are_refused_and_no_acked_write_is_lost(tmp_path: Path) -> None:
    """With a log that accepts very little at a time: other writes are refused with 429 or 503, and no other error
    occurs.
    """
    wanted = replace(SHORT, factor=10)  # the second in which the capacity was measured may have been a slow one
    found = run(wanted, settings={"WAL_QUEUE_FRAMES": "20", "WAL_ENQUEUE_TIMEOUT_MS": "50"}, parent=str(tmp_path))
    print(*lines(wanted, found), sep="\n")
    assert set(found.failed) <= {503}
    assert found.refused + found.failed.get(503, 0) > 0
    assert found.verdict.problems == []
    assert found.normal_after_s is not None
