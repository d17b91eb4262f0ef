"""The guard of hot paths: every path of it runs, and what has become dearer is told."""

from __future__ import annotations

import msgspec
import pytest

from loadtest import guard, guard_work


@pytest.mark.parametrize("name", guard_work.PATHS)
async def test_a_path_can_be_run(name: str) -> None:
    await guard_work.run(name, 2)


def test_every_path_has_a_figure_to_be_held_to() -> None:
    known = msgspec.json.decode(guard.FILE.read_bytes(), type=guard.Known)
    assert known.multiples.keys() == guard_work.PATHS.keys()
    assert known.multiples["floor"] == 1


def test_a_dearer_path_is_told_and_a_cheaper_one_is_not() -> None:
    known = guard.Known(python="", floor_instructions=100, multiples={"floor": 1.0, "a": 2.0, "b": 3.0})
    found = {"floor": 200.0, "a": 439.0, "b": 300.0}  # another interpreter, for which all costs twice as much
    shown, holds = guard.lines(found, known)
    assert holds
    assert not [line for line in shown if "TOO DEAR" in line]
    shown, holds = guard.lines({**found, "a": 441.0}, known)
    assert not holds
    assert [line.split()[0] for line in shown if "TOO DEAR" in line] == ["a"]


def test_a_path_that_is_new_is_shown_alone() -> None:
    shown, holds = guard.lines({"floor": 1.0, "new": 5.0}, None)
    assert holds
    assert "x 5.00" in shown[1]
