"""The measurement of many filtered routers from one source counts its copies correctly."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from loadtest import fanout
from tests.unit.storage.machine import Machine

ROOT = Path(__file__).parents[2]


def test_all_three_phases_are_measured(tmp_path: Path) -> None:
    size = ("--routers", "3", "--writers", "2", "--batch", "10", "--seconds", "0.1", "--rounds", "1", "--meta")
    command = [sys.executable, "-m", "loadtest.fanout", *size, "--json", "--dir", str(tmp_path)]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (made.returncode, made.stderr) == (0, "")
    [seen] = msgspec.json.decode(made.stdout, type=list[fanout.Round])
    assert min(seen.written_per_s, seen.forwarded_per_s, seen.together_per_s) > 0
    assert not [*tmp_path.iterdir()], "what was written is gone"


async def test_a_destination_with_missing_records_gives_no_figure() -> None:
    options = argparse.Namespace(routers=2, meta=False, record_bytes=60, batch=4, writers=1, durability="disk")
    async with Machine() as machine:
        load = fanout.FanOut(await machine.start(), "s", options)
        await load.begin()
        await load.make_routers()
        load.written = 8
        with pytest.raises(SystemExit, match="s-0 has 0 records, not 4"):
            load.check()
